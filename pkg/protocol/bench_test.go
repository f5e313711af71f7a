package protocol

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
)

func benchTokens(n int) *RouteRequest {
	random := rand.New(rand.NewPCG(1, 2))
	q := &RouteRequest{Attempt: 1, Prompt: Prompt{TokenIDs: make([]uint32, n)}}
	for i := range q.TokenIDs {
		q.TokenIDs[i] = random.Uint32N(128_000)
	}
	return q
}

func benchHashes(n int) *RouteRequest {
	random := rand.New(rand.NewPCG(1, 2))
	q := &RouteRequest{Attempt: 1, Prompt: Prompt{ByHash: true, ISLTokens: 16 * n, BlockHashes: make([]BlockHash, n)}}
	for i := range q.BlockHashes {
		q.BlockHashes[i] = BlockHash(random.Uint64())
	}
	return q
}

func BenchmarkDecodeRoute(b *testing.B) {
	for _, enc := range []Encoding{EncodingJSON, EncodingMsgpack} {
		for _, n := range []int{512, 4096, 32768} {
			b.Run(fmt.Sprintf("tokens=%d/%v", n, enc), func(b *testing.B) { benchDecodeRoute(b, benchTokens(n), enc) })
		}
		for _, n := range []int{32, 2048} {
			b.Run(fmt.Sprintf("hashes=%d/%v", n, enc), func(b *testing.B) { benchDecodeRoute(b, benchHashes(n), enc) })
		}
	}
}

func benchDecodeRoute(b *testing.B, q *RouteRequest, enc Encoding) {
	body, err := EncodeRouteRequest(q, enc)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRouteRequest(body); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStandardJSON is what the scan of token lists is measured against.
func BenchmarkStandardJSON(b *testing.B) {
	body, err := EncodeRouteRequest(benchTokens(32768), EncodingJSON)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := json.Unmarshal(body, &RouteRequest{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeRoute(b *testing.B) {
	for _, enc := range []Encoding{EncodingJSON, EncodingMsgpack} {
		b.Run(fmt.Sprintf("tokens=32768/%v", enc), func(b *testing.B) {
			q := benchTokens(32768)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := EncodeRouteRequest(q, enc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchEvents is a message of stores of some blocks each, and as many removals.
func benchEvents(events, blocks int) *EventMessage {
	random := rand.New(rand.NewPCG(1, 2))
	m := &EventMessage{Epoch: 42}
	for i := range events / 2 {
		stored := Event{ID: EventID(2*i + 1), Kind: EventStored, Parent: SequenceHash(random.Uint64())}
		removed := Event{ID: EventID(2*i + 2), Kind: EventRemoved}
		for range blocks {
			stored.Blocks = append(stored.Blocks, Block{SequenceHash(random.Uint64()), BlockHash(random.Uint64())})
			removed.Removed = append(removed.Removed, SequenceHash(random.Uint64()))
		}
		m.Events = append(m.Events, stored, removed)
	}
	return m
}

func BenchmarkEvents(b *testing.B) {
	for _, enc := range []Encoding{EncodingJSON, EncodingMsgpack} {
		for _, shape := range []struct{ events, blocks int }{{2, 1}, {100, 8}, {2, 4096}} {
			m := benchEvents(shape.events, shape.blocks)
			name := fmt.Sprintf("events=%d/blocks=%d/%v", shape.events, shape.blocks, enc)
			body := AppendEventMessage(nil, m, enc)
			perBlock := func(b *testing.B) {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(m.BlockCount()), "ns/block")
			}
			b.Run("decode/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := DecodeEventMessage(body, 0); err != nil {
						b.Fatal(err)
					}
				}
				perBlock(b)
			})
			b.Run("encode/"+name, func(b *testing.B) {
				b.ReportAllocs()
				buf := body[:0:cap(body)]
				for b.Loop() {
					buf = AppendEventMessage(buf[:0], m, enc)
				}
				perBlock(b)
			})
		}
	}
}
