package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const podResourcesSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

// runExporter answers /metrics with a recorded scrape, once per GPU, with the labels that DCGM exporter would give it.
// The record has two GPUs: number 0 is replayed for GPUs that a pod holds, number 1 for the others.
func runExporter(ctx context.Context, c *cluster, arguments []string) error {
	flags := flag.NewFlagSet("exporter", flag.ExitOnError)
	record := flags.String("record", "", "file with the recorded scrape")
	fields := flags.String("f", "", "file of DCGM's fields that are exported, as DCGM exporter reads it")
	flags.Int("collect-interval", 30000, "DCGM exporter's time between two measurements, ms; a record has one")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	recorded, err := readRecord(*record)
	if err != nil {
		return err
	}
	if *fields != "" {
		if recorded, err = chosen(recorded, *fields); err != nil {
			return err
		}
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /health", func(writer http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(writer, "OK") })
	routes.HandleFunc("GET /metrics", func(writer http.ResponseWriter, request *http.Request) {
		text, err := scrape(request.Context(), c, recorded)
		if err != nil {
			log.Print(err)
			http.Error(writer, err.Error(), http.StatusInternalServerError)
			return
		}
		writer.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = writer.Write(text)
	})
	server := &http.Server{Addr: os.Getenv("DCGM_EXPORTER_LISTEN"), Handler: routes, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	log.Printf("replaying %d recorded metrics at %s", len(recorded), server.Addr)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// metric is one metric of the record: its comments, and what the record says of a held and of an idle GPU.
type metric struct {
	name       string
	comments   []string
	held, idle sample
}

// sample is a value with the labels that are not the GPU's and not the pod's.
type sample struct {
	labels string
	value  string
}

var line = regexp.MustCompile(`^([A-Z0-9_]+)\{gpu="([01])"(?:,([^}]*))?\} (\S+)$`)

func readRecord(path string) ([]metric, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var found []metric
	var comments []string
	for number, one := range strings.Split(string(text), "\n") {
		switch matched := line.FindStringSubmatch(one); {
		case strings.HasPrefix(one, "# HELP ") || strings.HasPrefix(one, "# TYPE "):
			comments = append(comments, one)
		case one == "" || strings.HasPrefix(one, "#"):
		case matched == nil:
			return nil, fmt.Errorf("%s, line %d: %q is no sample of GPU 0 or 1", path, number+1, one)
		default:
			if len(found) == 0 || found[len(found)-1].name != matched[1] {
				found = append(found, metric{name: matched[1], comments: comments})
				comments = nil
			}
			taken := sample{labels: matched[3], value: matched[4]}
			if matched[2] == "0" {
				found[len(found)-1].held = taken
			} else {
				found[len(found)-1].idle = taken
			}
		}
	}
	return found, nil
}

// chosen leaves the metrics that the file of fields names: `field, type, help` a line.
func chosen(recorded []metric, path string) ([]metric, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	asked := map[string]bool{}
	for _, one := range strings.Split(string(text), "\n") {
		if name, _, found := strings.Cut(one, ","); found && !strings.HasPrefix(strings.TrimSpace(one), "#") {
			asked[strings.TrimSpace(name)] = true
		}
	}
	var left []metric
	for _, one := range recorded {
		if asked[one.name] {
			left = append(left, one)
			delete(asked, one.name)
		}
	}
	for name := range asked {
		log.Printf("the record has no %s", name)
	}
	return left, nil
}

type holder struct{ namespace, pod, container string }

func scrape(ctx context.Context, c *cluster, recorded []metric) ([]byte, error) {
	found, err := c.hardware(ctx)
	if err != nil {
		return nil, err
	}
	holders, err := held(ctx)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, one := range recorded {
		for _, comment := range one.comments {
			fmt.Fprintln(&text, comment)
		}
		for index := range found.Count {
			id := uuid(c.node, index)
			taken := one.idle
			by, isHeld := holders[id]
			if isHeld {
				taken = one.held
			}
			fmt.Fprintf(&text, "%s{gpu=%q,UUID=%q,pci_bus_id=\"00000000:%02X:00.0\",device=\"nvidia%d\",modelName=%q,Hostname=%q",
				one.name, fmt.Sprint(index), id, 0x10+index, index, found.Product, c.node)
			if taken.labels != "" {
				fmt.Fprintf(&text, ",%s", taken.labels)
			}
			if isHeld {
				fmt.Fprintf(&text, ",container=%q,namespace=%q,pod=%q", by.container, by.namespace, by.pod)
			}
			fmt.Fprintf(&text, "} %s\n", taken.value)
		}
	}
	return text.Bytes(), nil
}

// held asks the kubelet which container holds which GPU:
// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/#monitoring-device-plugin-resources
func held(ctx context.Context) (map[string]holder, error) {
	connection, err := grpc.NewClient("unix://"+podResourcesSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := api.NewPodResourcesListerClient(connection).List(ctx, &api.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	found := map[string]holder{}
	for _, pod := range answer.PodResources {
		for _, container := range pod.Containers {
			for _, devices := range container.Devices {
				if devices.ResourceName != resourceName {
					continue
				}
				for _, id := range devices.DeviceIds {
					found[id] = holder{pod.Namespace, pod.Name, container.Name}
				}
			}
		}
	}
	return found, nil
}
