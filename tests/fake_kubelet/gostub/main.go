// A device plugin in Go on the official v1beta1 package: serves below the directory it is given,
// registers, and prints one line for everything that happens to it.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const socket = "go.sock"

type plugin struct{ health chan string }

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	fmt.Println("options")
	return &api.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	fmt.Println("watch")
	health := api.Healthy
	for {
		devices := []*api.Device{
			{ID: "go-0", Health: api.Healthy},
			{ID: "go-1", Health: health, Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 1}}}},
		}
		if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case health = <-p.health:
		case <-stream.Context().Done():
			fmt.Println("stream-ended")
			return nil
		}
	}
}

func (p *plugin) GetPreferredAllocation(_ context.Context, r *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	one := r.ContainerRequests[0]
	fmt.Println("preferred", len(one.AvailableDeviceIDs), one.AllocationSize)
	answer := &api.ContainerPreferredAllocationResponse{DeviceIDs: []string{"go-1"}}
	return &api.PreferredAllocationResponse{ContainerResponses: []*api.ContainerPreferredAllocationResponse{answer}}, nil
}

func (p *plugin) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	ids := strings.Join(r.ContainerRequests[0].DevicesIDs, ",")
	fmt.Println("allocate", ids)
	answer := &api.ContainerAllocateResponse{
		Envs:    map[string]string{"IDS": ids},
		Devices: []*api.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/go", Permissions: "rw"}},
	}
	return &api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{answer}}, nil
}

func (p *plugin) PreStartContainer(_ context.Context, r *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	fmt.Println("pre-start", strings.Join(r.DevicesIDs, ","))
	return &api.PreStartContainerResponse{}, nil
}

func main() {
	directory := os.Args[1]
	path := filepath.Join(directory, socket)
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	p := &plugin{health: make(chan string)}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }()
	limit, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	connection, err := grpc.DialContext(limit, "unix:"+filepath.Join(directory, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithBlock())
	if err == nil {
		_, err = api.NewRegistrationClient(connection).Register(limit, &api.RegisterRequest{
			Version: api.Version, Endpoint: socket, ResourceName: "example.com/go"})
	}
	fmt.Println("registered", err)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGTERM)
	for s := range signals {
		if s == syscall.SIGTERM {
			server.Stop()
			return
		}
		p.health <- api.Unhealthy
	}
}
