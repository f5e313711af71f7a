package server_test

import (
	"fmt"
	"testing"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/server"
)

// BenchmarkRouteCall is a routing call over NATS from the same process, with the
// completion that ends its lease: one caller, and as many as there are processors.
func BenchmarkRouteCall(b *testing.B) {
	for _, workers := range []int{8, 256} {
		s := start(b, func(c *server.Config) { c.Routing.Policy = protocol.PolicyLatency })
		for i := range workers {
			s.register(pool, protocol.Worker{ID: fmt.Sprintf("w%d", i)}, `{"v":1,"pool":%q,"worker":"w%d","block_size":%d,"epoch":0,"total_kv_blocks":100000}`, pool, i, blockSize)
		}
		eventually(b, "all workers", func() bool {
			loads, err := s.client.Loads(patient(b), pool)
			return err == nil && len(loads.Workers) == workers
		})
		for _, n := range []int{512, 4096, 32768} {
			prompt := tokens(1, n)
			hashes := protocol.BlockHashes(nil, prompt, protocol.HashOptions{BlockSize: blockSize})
			for _, p := range []protocol.Prompt{{TokenIDs: prompt}, {ByHash: true, BlockHashes: hashes, ISLTokens: n}} {
				name := "tokens"
				if p.ByHash {
					name = "hashes"
				}
				call := func(b *testing.B) {
					reply, err := s.client.Route(b.Context(), pool, &protocol.RouteRequest{Prompt: p})
					if err == nil {
						err = s.client.Complete(pool, &protocol.CompleteReport{Lease: reply.Lease})
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				b.Run(fmt.Sprintf("workers=%d/%s=%d/callers=1", workers, name, n), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						call(b)
					}
				})
				b.Run(fmt.Sprintf("workers=%d/%s=%d/callers=2", workers, name, n), func(b *testing.B) {
					b.RunParallel(func(pb *testing.PB) {
						for pb.Next() {
							call(b)
						}
					})
				})
			}
		}
	}
}
