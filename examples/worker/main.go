// Command worker takes part in routing as one worker whose engine is left out:
// three blocks of a prompt are stored, and the last one is dropped.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/publisher"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	conn, err := nats.Connect(nats.DefaultURL, nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	worker, err := publisher.New(publisher.Config{
		Conn: conn,
		Registration: protocol.Registration{
			Pool: "llama-3-8b", Worker: "w1", BlockSize: 16,
			Endpoint: "http://10.0.0.7:8000", TotalKVBlocks: 16384, MaxNumBatchedTokens: 8192,
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	go engine(worker)
	if err := worker.Run(ctx); err != nil { // until ctx ends or a successor registers
		log.Fatal(err)
	}
}

// engine stands for what calls back when the block cache changes.
func engine(worker *publisher.Publisher) {
	tokens := make([]uint32, 48)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	contents := protocol.BlockHashes(nil, tokens, protocol.HashOptions{BlockSize: 16})
	blocks := make([]protocol.Block, len(contents))
	for i := range blocks {
		blocks[i] = protocol.Block{Sequence: protocol.SequenceHash(i + 1), Hash: contents[i]}
	}
	worker.Stored(protocol.TierDevice, true, 0, blocks) // at the start of a prompt
	worker.Removed(protocol.TierDevice, []protocol.SequenceHash{3})
}
