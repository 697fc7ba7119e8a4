// Stand-ins for NVIDIA's programs on nodes without a GPU: they speak the interfaces that the real ones speak, about
// GPUs that the node's annotation describes.
//
//	device-plugin      offers nvidia.com/gpu to the kubelet through the device plugin API
//	feature-discovery  publishes what GPU feature discovery would, as a NodeFeature object
//	exporter           replays a recorded scrape of DCGM exporter, with the pods that hold the GPUs
//
// A node without the annotation has no GPU, and then all three do nothing: a node with real GPUs is left alone.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// How often a node's annotation is read.
const lookEvery = 5 * time.Second

var commands = map[string]func(context.Context, *cluster, []string) error{
	"device-plugin":     runDevicePlugin,
	"feature-discovery": runFeatureDiscovery,
	"exporter":          runExporter,
}

func main() {
	log.SetFlags(log.Ltime)
	log.SetPrefix("stand-in: ")
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		log.Fatal("usage: gpu-stand-in device-plugin | feature-discovery | exporter")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	api, err := inCluster()
	if err == nil {
		err = commands[os.Args[1]](ctx, api, os.Args[2:])
	}
	if err != nil {
		log.Fatal(err)
	}
}

// wait returns false when the program is to end.
func wait(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}

// changes says something once, until it changes.
type changes struct{ said string }

func (c *changes) say(text string) {
	if text != c.said {
		c.said = text
		log.Print(text)
	}
}
