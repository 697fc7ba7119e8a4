package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
)

// What local/cluster/hardware.py writes on each node that pretends to have GPUs.
const hardwareAnnotation = "triton-fleet.io/simulated-gpus"

// hardware is what a node pretends to have.
type hardware struct {
	Count int `json:"count"`
	// As GPU feature discovery writes it: NVML's name with hyphens for spaces.
	Product string `json:"product"`
	// Of one GPU; 0 where it is not known.
	MemoryMiB int `json:"memory_mib"`
}

// hardware asks the node for its GPUs; none if it does not pretend.
func (c *cluster) hardware(ctx context.Context) (hardware, error) {
	var node struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	var found hardware
	if err := c.call(ctx, "GET", "/api/v1/nodes/"+c.node, nil, &node); err != nil {
		return found, err
	}
	text, pretends := node.Metadata.Annotations[hardwareAnnotation]
	if !pretends {
		return found, nil
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		return hardware{}, fmt.Errorf("annotation %s=%q of node %s: %w", hardwareAnnotation, text, c.node, err)
	}
	return found, nil
}

// uuid is the same for the same GPU of the same node, whoever asks.
func uuid(node string, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", node, index))
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
