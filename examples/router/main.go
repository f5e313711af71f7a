// Command router runs a router, with its log, inside a program.
package main

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cfg := server.DefaultConfig()
	cfg.Store = "/var/lib/myprogram/routerd" // one process at a time
	srv, err := server.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Run(ctx) }()
	select {
	case <-srv.Ready():
	case err := <-served:
		log.Fatal(err)
	}
	reply, err := srv.Route(ctx, "llama-3-8b", &protocol.RouteRequest{
		Prompt: protocol.Prompt{TokenIDs: []uint32{1, 2, 3}},
	})
	if err != nil {
		fmt.Println("no worker yet:", err)
	} else {
		fmt.Println(reply.Worker, reply.Endpoint)
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
}
