package publisher_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/publisher"
)

// A worker registers, says what its engine stores and drops, and leaves.
func Example() {
	conn, stopLog := startLog()
	defer stopLog()

	worker, err := publisher.New(publisher.Config{
		Conn: conn,
		Registration: protocol.Registration{
			Pool: "llama-3-8b", Worker: "w1", Model: "llama-3-8b", BlockSize: 16,
			Endpoint: "http://10.0.0.7:8000", TotalKVBlocks: 16384,
		},
		FlushInterval: 2 * time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, leave := context.WithCancel(context.Background())
	left := make(chan error)
	go func() { left <- worker.Run(ctx) }()
	<-worker.Ready()

	// The engine has computed a prompt of 48 tokens: three blocks, each with the
	// engine's hash of the prefix and the hash of its tokens.
	tokens := make([]uint32, 48)
	contents := protocol.BlockHashes(nil, tokens, protocol.HashOptions{BlockSize: 16})
	prefixes := protocol.SequenceHashes(nil, contents)
	blocks := make([]protocol.Block, len(contents))
	for i := range blocks {
		blocks[i] = protocol.Block{Sequence: prefixes[i], Hash: contents[i]}
	}
	worker.Stored(protocol.TierDevice, true, 0, blocks)
	// It needed room and moved the last block to host memory.
	worker.Stored(protocol.TierHost, false, prefixes[1], blocks[2:])
	worker.Removed(protocol.TierDevice, prefixes[2:])

	if _, err := worker.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("events:", worker.LastID(), "blocks held:", worker.State().Blocks)

	leave()
	fmt.Println("left:", <-left)
	// Output:
	// events: 3 blocks held: 3
	// left: <nil>
}

// startLog runs a NATS server in this process, with the bucket and the stream
// that a router would make.
func startLog() (conn *nats.Conn, stop func()) {
	dir, err := os.MkdirTemp("", "publisher-example")
	if err != nil {
		log.Fatal(err)
	}
	srv, err := server.NewServer(&server.Options{JetStream: true, StoreDir: dir, DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		log.Fatal(err)
	}
	srv.Start()
	if conn, err = nats.Connect("", nats.InProcessServer(srv)); err != nil {
		log.Fatal(err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		log.Fatal(err)
	}
	var names protocol.Names
	_, err = js.CreateKeyValue(context.Background(), jetstream.KeyValueConfig{
		Bucket: names.WorkersBucket(), TTL: 10 * time.Second, LimitMarkerTTL: 10 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{
		Name: names.Stream("llama-3-8b"), Subjects: []string{names.PoolEvents("llama-3-8b")},
		MaxBytes: 256 << 20, Discard: jetstream.DiscardNew, AllowDirect: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	return conn, func() {
		conn.Close()
		srv.Shutdown()
		srv.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}
}
