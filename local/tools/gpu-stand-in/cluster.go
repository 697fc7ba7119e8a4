package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Where a pod finds its identity and the API server:
// https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// cluster is the API server, as far as these programs need it.
type cluster struct {
	server string
	node   string
	client *http.Client
}

var errNotFound = errors.New("not found")

func inCluster() (*cluster, error) {
	authority, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	node := os.Getenv("NODE_NAME")
	if node == "" {
		return nil, errors.New("NODE_NAME is not set: which node is this?")
	}
	return &cluster{
		server: "https://" + net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")),
		node:   node,
		client: &http.Client{
			Timeout:   10 * time.Second,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
		},
	}, nil
}

// call sends an object, or nothing, and reads the answer into another.
func (c *cluster) call(ctx context.Context, method, path string, body, answer any) error {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, sent)
	if err != nil {
		return err
	}
	// The token is renewed under a running pod, so it is read each time.
	token, err := os.ReadFile(filepath.Join(account, "token"))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode == http.StatusNotFound {
		return errNotFound
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %.300s", method, path, response.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
