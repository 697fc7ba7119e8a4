// A module of its own: in the tools' module its dependencies would change go.sum, which every tool's key is made of,
// and so rebuild them all.
module github.com/triton-fleet/triton-fleet/local/tools/gpu-stand-in

go 1.26.6

require (
	google.golang.org/grpc v1.83.2
	k8s.io/kubelet v0.34.4
)

require (
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
