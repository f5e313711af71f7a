package subscriber_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/subscriber"
)

// BenchmarkPublishToApplied is what a decision waits for: from the
// acknowledgement of an event until it is applied.
func BenchmarkPublishToApplied(b *testing.B) {
	srv := natstest.Start(b)
	r := start(b, srv, nil)
	r.enroll(w1, 42)
	r.awaitReady()
	e := newEngine(b, natstest.Connect(b, srv), w1, 42)
	var waited time.Duration
	for b.Loop() {
		seq := e.send(&protocol.EventMessage{Events: []protocol.Event{e.storing(4)}})
		acked := time.Now()
		r.await(seq)
		waited += time.Since(acked)
	}
	b.ReportMetric(float64(waited.Nanoseconds())/float64(b.N), "ns/wait")
}

// noIndex takes everything and keeps nothing, so that what is measured is the way there.
type noIndex struct{ subscriber.Sink }

func (noIndex) Stored(protocol.Worker, protocol.Tier, bool, protocol.SequenceHash, []protocol.Block) error {
	return nil
}
func (noIndex) Cleared(protocol.Worker)                      {}
func (noIndex) State(protocol.Worker) (s protocol.HeldState) { return s }

// BenchmarkRead is a log of packed messages read from its start, decoded and folded,
// without an index.
func BenchmarkRead(b *testing.B) {
	srv := natstest.Start(b)
	conn := natstest.Connect(b, srv, nats.Name("publisher"))
	r := start(b, srv, nil)
	r.awaitReady()
	e := newEngine(b, conn, w1, 42)
	var bytes int64
	for range 500 {
		m := &protocol.EventMessage{Epoch: 42, Events: []protocol.Event{stored(e.nextID(), e.blocks(4096)...), {ID: e.nextID(), Kind: protocol.EventCleared}}}
		body := protocol.AppendEventMessage(nil, m, protocol.EncodingMsgpack)
		bytes += int64(len(body))
		e.raw(body)
	}
	b.SetBytes(bytes)
	for b.Loop() {
		r := start(b, srv, func(c *subscriber.Config) { c.Sink = noIndex{} })
		r.enroll(w1, 42)
		r.awaitReady().await(e.seq)
		r.stop()
	}
}

// BenchmarkCompaction is a rank of 65,536 blocks that is written as a snapshot, read
// back, found right and purged.
func BenchmarkCompaction(b *testing.B) {
	srv := natstest.Start(b)
	r := start(b, srv, func(c *subscriber.Config) {
		c.Compaction = subscriber.Compaction{Messages: 1, Bytes: 1, Jitter: 1}
	})
	r.enroll(w1, 42)
	r.awaitReady()
	e := newEngine(b, natstest.Connect(b, srv), w1, 42)
	for range 8 {
		parent := e.blocks(64)
		e.send(&protocol.EventMessage{Events: []protocol.Event{stored(e.nextID(), parent...)}})
		for range 127 {
			next := stored(e.nextID(), e.blocks(64)...)
			next.Root, next.Parent = false, parent[63].Sequence
			parent = next.Blocks
			e.send(&protocol.EventMessage{Events: []protocol.Event{next}})
		}
	}
	r.await(e.seq)
	for b.Loop() {
		made := r.Stats().Purges
		e.send(&protocol.EventMessage{Events: []protocol.Event{stored(e.nextID(), e.blocks(1)...)}})
		e.send(&protocol.EventMessage{Events: []protocol.Event{stored(e.nextID(), e.blocks(1)...)}})
		eventually(b, "it is compacted", func() bool { return r.Stats().Purges > made })
	}
}
