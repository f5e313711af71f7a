package server_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/publisher"
	"github.com/routerd/routerd/pkg/server"
)

// A program runs a router of its own, with the log inside it, and asks it
// directly. Its one worker is in the same process here; others would connect to
// ClientURL.
func Example() {
	store, err := os.MkdirTemp("", "router")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(store)
	cfg := server.DefaultConfig()
	cfg.Store, cfg.Listen, cfg.Admin = store, "127.0.0.1:0", "none"
	srv, err := server.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	ctx, shutDown := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- srv.Run(ctx) }()
	select {
	case <-srv.Ready():
	case err := <-served:
		log.Fatal(err)
	}

	leave, left := startWorker(srv)
	prompt := protocol.Prompt{TokenIDs: make([]uint32, 50)}
	reply, err := srv.Route(ctx, "llama-3-8b", &protocol.RouteRequest{Prompt: prompt})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("worker %s holds %d of %d tokens\n", reply.Worker, reply.CachedTokens, reply.ISLTokens)
	// The request goes to reply.Endpoint; once it has ended:
	err = srv.Complete("llama-3-8b", &protocol.CompleteReport{Lease: reply.Lease, RequestID: reply.RequestID, Attempt: reply.Attempt})
	if err != nil {
		log.Fatal(err)
	}

	leave()
	fmt.Println("worker left:", <-left)
	shutDown()
	fmt.Println("router ended:", <-served)
	// Output:
	// worker w1 holds 48 of 50 tokens
	// worker left: <nil>
	// router ended: <nil>
}

// startWorker registers a worker that holds three blocks of token 0, and waits
// until the router knows them.
func startWorker(srv *server.Server) (leave func(), left chan error) {
	conn, err := srv.Connect()
	if err != nil {
		log.Fatal(err)
	}
	worker, err := publisher.New(publisher.Config{
		Conn:         conn,
		Registration: protocol.Registration{Pool: "llama-3-8b", Worker: "w1", BlockSize: 16, Endpoint: "http://10.0.0.7:8000"},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, leave := context.WithCancel(context.Background())
	left = make(chan error)
	go func() {
		err := worker.Run(ctx)
		conn.Close()
		left <- err
	}()
	contents := protocol.BlockHashes(nil, make([]uint32, 48), protocol.HashOptions{BlockSize: 16})
	prefixes := protocol.SequenceHashes(nil, contents)
	blocks := make([]protocol.Block, len(contents))
	for i := range blocks {
		blocks[i] = protocol.Block{Sequence: prefixes[i], Hash: contents[i]}
	}
	worker.Stored(protocol.TierDevice, true, 0, blocks)
	<-worker.Ready()
	seq, err := worker.Flush(ctx)
	if err == nil {
		err = srv.WaitApplied(ctx, "llama-3-8b", seq)
	}
	if err != nil {
		log.Fatal(err)
	}
	return leave, left
}
