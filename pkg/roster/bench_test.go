package roster

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
)

const benchWorkers = 2000

// BenchmarkStart measures how long a watcher takes to know 2,000 workers.
func BenchmarkStart(b *testing.B) {
	srv := natstest.Start(b)
	js, err := jetstream.New(natstest.Connect(b, srv))
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	if _, err := workersSpec(protocol.Names{}, time.Hour, 1).open(ctx, js); err != nil {
		b.Fatal(err)
	}
	kv, err := js.KeyValue(ctx, "kvr-workers")
	if err != nil {
		b.Fatal(err)
	}
	for i := range benchWorkers {
		worker := fmt.Sprintf("w%d", i)
		if _, err := kv.Put(ctx, key(worker), []byte(value(worker, 16, ""))); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		w, err := New(Config{JetStream: js, TTL: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		<-w.Ready()
		if n := len(w.Entries("p")); n != benchWorkers {
			b.Fatalf("%d entries, want %d", n, benchWorkers)
		}
		cancel()
		<-done
	}
}

// BenchmarkRefresh measures one refresh in a pool of 2,000 workers.
func BenchmarkRefresh(b *testing.B) {
	table, now := newTable(), time.Unix(0, 0)
	table.whole(now, born, tableTTL, nil)
	records := make([]record, benchWorkers)
	for i := range records {
		worker := fmt.Sprintf("w%d", i)
		records[i] = record{key: key(worker), value: []byte(value(worker, 16, epoch(1)))}
	}
	b.ReportAllocs()
	revision := uint64(1)
	for b.Loop() {
		revision++
		r := records[revision%benchWorkers]
		r.revision = revision
		table.record(now, r)
		table.take()
	}
}
