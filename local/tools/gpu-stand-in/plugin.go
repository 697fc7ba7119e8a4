package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resourceName = "nvidia.com/gpu"
	// As the real plugin names it.
	pluginSocket  = "nvidia-gpu.sock"
	kubeletSocket = "kubelet.sock"
	// How often the sockets are looked at: a kubelet that starts removes them all, and then waits for plugins.
	watchEvery = time.Second
)

// runDevicePlugin offers the node's GPUs to its kubelet, again and again: after each start of the kubelet, and when
// the node's GPUs change.
func runDevicePlugin(ctx context.Context, c *cluster, _ []string) error {
	var saying changes
	for {
		found, err := c.hardware(ctx)
		switch {
		case err != nil:
			saying.say(err.Error())
		case found.Count == 0:
			saying.say("this node pretends to have no GPU; nothing is registered")
		default:
			saying.say(fmt.Sprintf("this node pretends to have %d x %s", found.Count, found.Product))
			if err := offer(ctx, c, found); err != nil {
				log.Printf("%v; once more", err)
			}
		}
		if !wait(ctx, watchEvery) {
			return nil
		}
	}
}

// offer serves the plugin and registers it, until the kubelet forgets it, the GPUs change or the program ends.
func offer(ctx context.Context, c *cluster, found hardware) error {
	path := filepath.Join(api.DevicePluginPath, pluginSocket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	stopped := make(chan struct{})
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, &plugin{node: c.node, count: found.Count, stopped: stopped})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	defer close(stopped)
	kubelet, err := os.Stat(filepath.Join(api.DevicePluginPath, kubeletSocket))
	if err != nil {
		return err
	}
	if err := register(ctx); err != nil {
		return err
	}
	log.Printf("%d %s registered with the kubelet", found.Count, resourceName)
	looked := time.Now()
	for wait(ctx, watchEvery) {
		now, err := os.Stat(filepath.Join(api.DevicePluginPath, kubeletSocket))
		if err != nil || !os.SameFile(kubelet, now) || !now.ModTime().Equal(kubelet.ModTime()) {
			return errors.New("the kubelet has started anew")
		}
		if _, err := os.Stat(path); err != nil {
			return errors.New("the kubelet has removed the plugin's socket")
		}
		if time.Since(looked) < lookEvery {
			continue
		}
		looked = time.Now()
		if changed, err := c.hardware(ctx); err == nil && changed != found {
			return errors.New("the node's GPUs have changed")
		}
	}
	return nil
}

func register(ctx context.Context) error {
	connection, err := grpc.NewClient("unix://"+filepath.Join(api.DevicePluginPath, kubeletSocket),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: pluginSocket, ResourceName: resourceName, Options: &api.DevicePluginOptions{},
	})
	return err
}

type plugin struct {
	api.UnimplementedDevicePluginServer
	node    string
	count   int
	stopped <-chan struct{}
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	devices := make([]*api.Device, p.count)
	for index := range devices {
		devices[index] = &api.Device{ID: uuid(p.node, index), Health: api.Healthy}
	}
	if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	select {
	case <-p.stopped:
	case <-stream.Context().Done():
	}
	return nil
}

// Allocate names the GPUs in the variable by which NVIDIA's container runtime would be told.
func (p *plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
		})
	}
	return answer, nil
}
