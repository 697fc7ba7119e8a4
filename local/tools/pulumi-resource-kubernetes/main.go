// Command pulumi-resource-kubernetes is Pulumi's Kubernetes provider. The module's own main package
// lacks a generated file, so this one serves the same provider with the module's own schema; the two
// embedded files are copied from the module beside this file when it is built.
package main

import (
	"bytes"
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
)

// version is the release whose code the pinned commit is; set by the linker.
var version = "0.0.0"

//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var terraformMapping []byte

func main() {
	versioned := bytes.Replace(schema, []byte(`"name": "kubernetes",`),
		[]byte(`"name": "kubernetes", "version": "`+version+`",`), 1)
	provider.Serve("kubernetes", version, versioned, terraformMapping)
}
