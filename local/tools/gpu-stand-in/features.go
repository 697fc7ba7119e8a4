package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
)

// runFeatureDiscovery keeps a NodeFeature object as GPU feature discovery does from version 0.19 on; node feature
// discovery makes the node's labels of it.
func runFeatureDiscovery(ctx context.Context, c *cluster, _ []string) error {
	var saying changes
	published := hardware{}
	for {
		found, err := c.hardware(ctx)
		// A node that never pretended has no object of this program's.
		if err == nil && (found.Count > 0 || published.Count > 0) {
			err = publish(ctx, c, found)
		}
		switch {
		case errors.Is(err, errNotFound):
			saying.say("the cluster knows no NodeFeature yet, or this pod is gone")
		case err != nil:
			saying.say(err.Error())
		case found != published:
			published = found
			log.Printf("published: %d x %q", found.Count, found.Product)
		}
		if !wait(ctx, lookEvery) {
			return nil
		}
	}
}

// labels are those of https://github.com/NVIDIA/k8s-device-plugin/tree/main/docs/gpu-feature-discovery that follow
// from what a node pretends; nothing is made up of driver, CUDA and architecture.
func labels(found hardware) map[string]string {
	if found.Count == 0 {
		return map[string]string{}
	}
	published := map[string]string{
		"nvidia.com/gpu.count":            strconv.Itoa(found.Count),
		"nvidia.com/gpu.machine":          "simulated",
		"nvidia.com/gpu.product":          found.Product,
		"nvidia.com/gpu.replicas":         "1",
		"nvidia.com/gpu.sharing-strategy": "none",
		"nvidia.com/mig.capable":          "false",
	}
	if found.MemoryMiB > 0 {
		published["nvidia.com/gpu.memory"] = strconv.Itoa(found.MemoryMiB)
	}
	return published
}

type object struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   metadata       `json:"metadata"`
	Spec       map[string]any `json:"spec,omitempty"`
}

type metadata struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace,omitempty"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	OwnerReferences []owner           `json:"ownerReferences,omitempty"`
}

type owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller,omitempty"`
}

// publish makes or updates the node's object. It belongs to the DaemonSet, so that it goes with the release.
func publish(ctx context.Context, c *cluster, found hardware) error {
	namespace, pod := os.Getenv("NAMESPACE"), os.Getenv("POD_NAME")
	var self object
	if err := c.call(ctx, "GET", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s", namespace, pod), nil, &self); err != nil {
		return fmt.Errorf("pod %s/%s: %w", namespace, pod, err)
	}
	all := "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/" + namespace + "/nodefeatures"
	wanted := object{
		APIVersion: "nfd.k8s-sigs.io/v1alpha1",
		Kind:       "NodeFeature",
		Metadata: metadata{
			Name:            "nvidia-features-for-" + c.node,
			Labels:          map[string]string{"nfd.node.kubernetes.io/node-name": c.node},
			OwnerReferences: self.Metadata.OwnerReferences,
		},
		Spec: map[string]any{
			"features": map[string]any{"attributes": map[string]any{}, "flags": map[string]any{}, "instances": map[string]any{}},
			"labels":   labels(found),
		},
	}
	var there object
	err := c.call(ctx, "GET", all+"/"+wanted.Metadata.Name, nil, &there)
	if errors.Is(err, errNotFound) {
		return c.call(ctx, "POST", all, wanted, nil)
	}
	if err != nil {
		return err
	}
	if same(there, wanted) {
		return nil
	}
	wanted.Metadata.ResourceVersion = there.Metadata.ResourceVersion
	return c.call(ctx, "PUT", all+"/"+wanted.Metadata.Name, wanted, nil)
}

func same(there, wanted object) bool {
	written, _ := there.Spec["labels"].(map[string]any)
	asked := wanted.Spec["labels"].(map[string]string)
	if len(written) != len(asked) || len(there.Metadata.OwnerReferences) != len(wanted.Metadata.OwnerReferences) {
		return false
	}
	for key, value := range asked {
		if written[key] != value {
			return false
		}
	}
	for index, one := range wanted.Metadata.OwnerReferences {
		if there.Metadata.OwnerReferences[index].UID != one.UID {
			return false
		}
	}
	return true
}
