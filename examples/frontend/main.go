// Command frontend routes one request, sends it nowhere, and reports its course.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/nats-io/nats.go"

	"github.com/routerd/routerd/pkg/client"
	"github.com/routerd/routerd/pkg/protocol"
)

func main() {
	conn, err := nats.Connect(nats.DefaultURL, nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	routers, err := client.New(client.Config{Conn: conn})
	if err != nil {
		log.Fatal(err)
	}
	const pool = "llama-3-8b"
	request := &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: []uint32{1, 2, 3}}}
	reply, err := routers.RouteRetry(context.Background(), pool, request, send)
	if err != nil {
		log.Fatal(err)
	}
	lease := protocol.ProgressReport{Lease: reply.Lease, RequestID: reply.RequestID, Attempt: reply.Attempt, OutputTokens: 1}
	if err := routers.Progress(pool, &lease); err != nil { // at the first token, then every few seconds
		log.Print(err)
	}
	done := protocol.CompleteReport{Lease: reply.Lease, RequestID: reply.RequestID, Attempt: reply.Attempt}
	if err := routers.Complete(pool, &done); err != nil { // however it ended
		log.Print(err)
	}
}

// send passes the request on; an error makes RouteRetry try another worker.
func send(_ context.Context, reply *protocol.RouteReply) error {
	fmt.Println("POST", reply.Endpoint)
	return nil
}
