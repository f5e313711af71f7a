package subscriber_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/subscriber"
)

// compacting makes a router compact a tail of so many messages at once.
func compacting(messages int) func(*subscriber.Config) {
	return func(c *subscriber.Config) {
		c.Compaction = subscriber.Compaction{Messages: messages, ChunkBytes: 16 << 10, Jitter: 20 * time.Millisecond, UsageEvery: 20 * time.Millisecond}
	}
}

// usage is how full the stream is.
func (e *engine) usage() subscriber.Usage {
	e.t.Helper()
	u, err := subscriber.StreamUsage(context.Background(), e.js, protocol.Names{}, pool)
	if err != nil {
		e.t.Fatal(err)
	}
	return u
}

// churn publishes a store and its removal: the stream grows, the state does not.
func (e *engine) churn() {
	e.t.Helper()
	e.send(&protocol.EventMessage{Events: []protocol.Event{e.storing(40), e.evicting(40)}})
}

// Publishers that know nothing of snapshots or epochs churn over a bounded set of
// blocks: the log stays bounded and a fresh reader holds exactly that set.
func TestCompactionBoundsChurn(t *testing.T) {
	srv := natstest.Start(t)
	old := start(t, srv, compacting(100), w1).awaitReady()
	other := start(t, srv, func(c *subscriber.Config) { compacting(100)(c); c.Router = "r2" }, w1).awaitReady()
	e := newEngine(t, natstest.Connect(t, srv), w1, 0)
	routerEvent := func(data string) string {
		return fmt.Sprintf(`{"worker_id":7,"event":{"event_id":%d,"data":%s}}`, e.nextID(), data)
	}
	const resident, rounds = 1000, 1500
	peak := uint64(0)
	for i := range rounds {
		var events []string
		for range 5 {
			b := e.blocks(1)[0]
			e.held = append(e.held, b)
			events = append(events, routerEvent(fmt.Sprintf(
				`{"stored":{"parent_hash":null,"blocks":[{"block_hash":%d,"tokens_hash":%d}]}}`, b.Sequence, b.Hash)))
		}
		if over := len(e.held) - resident; over > 0 {
			var hashes []string
			for _, b := range e.held[:over] {
				hashes = append(hashes, fmt.Sprint(b.Sequence))
			}
			e.held = e.held[over:]
			events = append(events, routerEvent(`{"removed":{"block_hashes":[`+strings.Join(hashes, ",")+`]}}`))
		}
		e.json("[%s]", strings.Join(events, ","))
		if i%200 == 0 {
			peak = max(peak, e.usage().Messages)
		}
	}
	old.await(e.seq)
	other.await(e.seq)
	e.check(old)
	eventually(t, "the tail is compacted", func() bool { return e.usage().Messages < 150 })
	if peak > rounds*2/3 {
		t.Errorf("the stream grew to %d messages of %d", peak, rounds)
	}
	fresh := start(t, srv, nil, w1).awaitReady().await(e.seq).awaitTrust(w1, protocol.TrustExact)
	e.check(fresh)
	fresh.sameAs(old, w1)
	fresh.sameAs(other, w1)
	for _, r := range []*router{old, other} {
		stats := r.Stats()
		if stats.SnapshotsWrong > 0 || stats.Refused[protocol.RefusedSnapshot] > 0 || stats.Repairs > 0 {
			t.Errorf("%+v", stats)
		}
	}
	if made := old.Stats().SnapshotsMade + other.Stats().SnapshotsMade; made > rounds/25 {
		t.Errorf("%d snapshots for %d messages and a limit of 100", made, rounds)
	}
}

// A snapshot of several messages, tiers, chains and a hole in a chain comes back as
// it was.
func TestCompactionOfChains(t *testing.T) {
	srv := natstest.Start(t)
	old := start(t, srv, compacting(10)).awaitReady()
	old.enroll(w1, 9)
	e := newEngine(t, natstest.Connect(t, srv), w1, 9)
	for range 12 {
		root := e.blocks(400)
		e.send(&protocol.EventMessage{Events: []protocol.Event{stored(e.nextID(), root...)}})
		branch := stored(e.nextID(), e.blocks(100)...)
		branch.Root, branch.Parent, branch.Tier = false, root[200].Sequence, protocol.TierHost
		e.send(&protocol.EventMessage{Events: []protocol.Event{branch, removed(e.nextID(), root[10].Sequence, root[399].Sequence)}})
	}
	old.await(e.seq)
	eventually(t, "it is compacted", func() bool { return old.Stats().Purges > 0 && e.usage().Messages < 24 })
	e.send(&protocol.EventMessage{Events: []protocol.Event{stored(e.nextID(), e.blocks(3)...)}})
	old.await(e.seq)
	fresh := start(t, srv, nil)
	fresh.enroll(w1, 9)
	fresh.awaitReady().await(e.seq).awaitTrust(w1, protocol.TrustExact)
	fresh.sameAs(old, w1)
	if read := fresh.Stats().SnapshotsRead; read != 1 {
		t.Errorf("%d snapshots adopted", read)
	}
}

// What a worker has published between the state that a snapshot is of and the
// snapshot itself stays in the log.
func TestEventsBetweenStateAndSnapshot(t *testing.T) {
	srv := natstest.Start(t)
	old := start(t, srv, compacting(20)).awaitReady()
	old.enroll(w1, 9)
	e := newEngine(t, natstest.Connect(t, srv), w1, 9)
	var group sync.WaitGroup
	group.Go(func() {
		for i := range 2000 {
			if i%2 == 0 || len(e.held) < 10 {
				e.store(2)
				continue
			}
			e.send(&protocol.EventMessage{Events: []protocol.Event{e.evicting(2)}})
		}
	})
	group.Wait()
	old.await(e.seq)
	e.check(old)
	fresh := start(t, srv, nil)
	fresh.enroll(w1, 9)
	fresh.awaitReady().await(e.seq).awaitTrust(w1, protocol.TrustExact)
	e.check(fresh)
	if stats := old.Stats(); stats.Purges == 0 || stats.SnapshotsWrong != 0 {
		t.Errorf("%+v", stats)
	}
}

// A router that slept while others compacted adopts what it finds.
func TestSlowReplica(t *testing.T) {
	srv := natstest.Start(t)
	gate := make(chan struct{})
	slow := start(t, srv, func(c *subscriber.Config) {
		c.Sink = &slowSink{Sink: c.Sink, gate: gate}
		c.LaneMessages, c.Window, c.Lanes = 1, 1, 1
	})
	slow.enroll(w1, 9)
	slow.awaitReady()
	e := newEngine(t, natstest.Connect(t, srv), w1, 9)
	quick := start(t, srv, compacting(50))
	quick.enroll(w1, 9)
	quick.awaitReady()
	for range 500 {
		e.store(1)
	}
	quick.await(e.seq)
	eventually(t, "it is compacted", func() bool { return e.usage().Messages < 100 })
	close(gate)
	// What it has not read may be purged; then it learns of it from the snapshot, which
	// lies behind the last event.
	eventually(t, "it holds the same", func() bool { return slow.index.State(w1) == quick.index.State(w1) })
	slow.await(e.seq).awaitTrust(w1, protocol.TrustExact)
	slow.sameAs(quick, w1)
}

func TestDepartedWorkerIsPurged(t *testing.T) {
	srv := natstest.Start(t)
	conn := natstest.Connect(t, srv)
	r := start(t, srv, func(c *subscriber.Config) { compacting(1 << 20)(c); c.Grace = 50 * time.Millisecond }, w1, w2).awaitReady()
	gone, back := newEngine(t, conn, w1, 0), newEngine(t, conn, w2, 0)
	for range 10 {
		gone.store(1)
		back.store(1)
	}
	r.await(back.seq)
	r.RemoveRank(w1)
	r.RemoveRank(w2)
	r.enroll(w2, 0)
	gone.store(1) // of a new life that is not in the roster yet
	eventually(t, "the subject is purged", func() bool { return r.Stats().Departures == 1 })
	if n := back.usage().Messages; n != 11 {
		t.Errorf("%d messages are left, want 10 of the worker that is back and 1 that came later", n)
	}
	r.awaitTrust(w2, protocol.TrustExact)
	back.check(r)
}

func TestFullStreamIsEnlarged(t *testing.T) {
	srv := natstest.Start(t)
	r := start(t, srv, func(c *subscriber.Config) {
		compacting(1 << 20)(c)
		c.Compaction.Bytes = 1 << 40
		c.Compaction.Full = 1
		c.Stream.Bytes, c.Stream.MaxBytes = 64<<10, 256<<10
	}, w1).awaitReady()
	e := newEngine(t, natstest.Connect(t, srv), w1, 0)
	for _, size := range []int64{64 << 10, 128 << 10} {
		for e.usage().MaxBytes == size {
			e.churn()
		}
	}
	if size := e.usage().MaxBytes; size != 256<<10 {
		t.Fatalf("enlarged to %d", size)
	}
	for e.usage().Full() < 0.91 {
		e.churn()
	}
	eventually(t, "the ceiling is reported", func() bool { return r.Stats().StreamCeiling > 0 })
	if grown := r.Stats().StreamGrown; grown != 2 {
		t.Errorf("grown %d times", grown)
	}
}

func TestHalfFullStreamIsCompacted(t *testing.T) {
	srv := natstest.Start(t)
	r := start(t, srv, func(c *subscriber.Config) {
		compacting(1 << 20)(c)
		c.Stream.Bytes = 64 << 10
	}, w1).awaitReady()
	e := newEngine(t, natstest.Connect(t, srv), w1, 0)
	for e.usage().Full() < 0.55 {
		e.churn()
	}
	eventually(t, "it is compacted", func() bool { return e.usage().Full() < 0.2 })
	r.await(e.seq)
	e.check(r)
}
