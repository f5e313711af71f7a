package subscriber_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
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

// BenchmarkRead is a log of packed messages read from its start.
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
		r := start(b, srv, nil)
		r.enroll(w1, 42)
		r.awaitReady()
		r.stop()
	}
}
