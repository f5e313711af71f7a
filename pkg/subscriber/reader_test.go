package subscriber_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/subscriber"
)

func TestEventsReachIndex(t *testing.T) {
	srv := natstest.Start(t)
	r := start(t, srv, nil)
	r.enroll(w1, 42)
	r.awaitReady()
	e := newEngine(t, natstest.Connect(t, srv), w1, 42)
	for range 50 {
		e.store(3)
	}
	seq := e.send(&protocol.EventMessage{Events: []protocol.Event{e.evicting(20), e.storing(5)}})
	r.await(seq)
	e.check(r)
	if trust := r.Trust(w1); trust != protocol.TrustExact {
		t.Errorf("trust is %s", trust)
	}
	if row := r.row(w1); row.LastID != e.id || row.StreamSeq != seq || row.Epoch != 42 || *row.Checksum != e.state().Checksum {
		t.Errorf("row %+v", row)
	}
	if r.Known() != seq || r.Applied() != seq {
		t.Errorf("applied %d, known %d, want %d", r.Applied(), r.Known(), seq)
	}
}

// A rank accepted while others are being read is read from its subject up to
// there; one that is accepted before the start is read with the rest.
func TestLateRosterEntry(t *testing.T) {
	srv := natstest.Start(t)
	r := start(t, srv, nil, w2).awaitReady()
	conn := natstest.Connect(t, srv)
	e, other := newEngine(t, conn, w1, 42), newEngine(t, conn, w2, 0)
	for range 300 {
		e.store(2)
		other.store(1)
	}
	r.await(other.seq)
	if row, ok := r.Rank(w1); ok || r.index.State(w1).Blocks != 0 {
		t.Fatalf("a rank without a roster entry is indexed: %+v", row)
	}
	if skipped := r.Stats().Skipped; skipped != 300 {
		t.Errorf("%d messages skipped, want 300", skipped)
	}

	var group sync.WaitGroup
	group.Go(func() {
		for range 300 {
			e.store(1)
		}
	})
	r.enroll(w1, 42)
	group.Wait()
	r.await(e.seq).awaitTrust(w1, protocol.TrustExact)
	e.check(r)
	other.check(r)

	r.RemoveRank(w1)
	if r.index.State(w1).Blocks != 0 || r.Trust(w1) != protocol.TrustOff {
		t.Error("a departed rank holds blocks")
	}
	e.store(1)
	r.await(e.seq)
	if r.index.State(w1).Blocks != 0 {
		t.Error("a departed rank was fed")
	}
	r.enroll(w1, 42)
	r.awaitTrust(w1, protocol.TrustExact)
	e.check(r)
}

func TestFreshReaderEqualsOldOne(t *testing.T) {
	srv := natstest.Start(t)
	old := start(t, srv, nil, w1, w2).awaitReady()
	conn := natstest.Connect(t, srv)
	a, b := newEngine(t, conn, w1, 0), newEngine(t, conn, w2, 0)
	for range 100 {
		a.send(&protocol.EventMessage{Events: []protocol.Event{a.storing(5), a.evicting(2)}})
		b.store(3)
	}
	old.await(b.seq)
	fresh := start(t, srv, nil, w1, w2).awaitReady().await(b.seq)
	old.sameAs(fresh, w1)
	old.sameAs(fresh, w2)
	a.check(fresh)

	// What both held when a sequence had been applied is asked later.
	at := b.seq
	for range 20 {
		a.store(1)
	}
	old.await(a.seq)
	fresh.await(a.seq)
	mine, theirs := old.Ranks(at), fresh.Ranks(at)
	for i := range mine {
		if mine[i].LastID != theirs[i].LastID || *mine[i].Checksum != *theirs[i].Checksum {
			t.Errorf("at %d: %+v and %+v", at, mine[i], theirs[i])
		}
	}
	if now := old.Ranks(0); *now[0].Checksum == *mine[0].Checksum || *now[1].Checksum != *mine[1].Checksum {
		t.Errorf("now %+v, then %+v", now, mine)
	}
	if ahead := old.Ranks(a.seq + 1); ahead[0].Checksum != nil {
		t.Errorf("a checksum of a sequence not applied: %+v", ahead[0])
	}
}

func TestEpochChangeAndZombie(t *testing.T) {
	srv := natstest.Start(t)
	r := start(t, srv, nil)
	r.enroll(w1, 10)
	r.awaitReady()
	conn := natstest.Connect(t, srv)
	zombie := newEngine(t, conn, w1, 10)
	zombie.store(5)
	r.await(zombie.seq)

	r.enroll(w1, 20)
	if r.index.State(w1).Blocks != 0 {
		t.Error("a new registration has not emptied the rank")
	}
	e := newEngine(t, conn, w1, 20)
	for _, m := range e.snapshot("s", 1) {
		e.send(m)
	}
	e.store(3)
	zombie.store(4)
	zombie.send(&protocol.EventMessage{Events: []protocol.Event{{ID: zombie.nextID(), Kind: protocol.EventCleared}}})
	for _, m := range zombie.snapshot("z", 2) {
		zombie.send(m)
	}
	e.store(2)
	r.await(e.seq)
	e.check(r)
	if row := r.row(w1); row.Trust != protocol.TrustExact || row.Refused[protocol.RefusedOldEpoch] != 4 {
		t.Errorf("row %+v", row)
	}
}

// bucket is a roster bucket's last revision.
type bucket struct {
	mu       sync.Mutex
	revision protocol.Epoch
	asked    int
}

func (b *bucket) LastRevision(context.Context) (protocol.Epoch, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	return b.revision, nil
}

func TestEventsAheadOfRoster(t *testing.T) {
	srv := natstest.Start(t)
	b := &bucket{revision: 20}
	r := start(t, srv, func(c *subscriber.Config) { c.Epochs = b })
	r.enroll(w1, 10)
	r.awaitReady()
	conn := natstest.Connect(t, srv)

	// The bucket has reached 20, the roster's watch not yet.
	e := newEngine(t, conn, w1, 20)
	e.store(3)
	e.store(2)
	eventually(t, "the new life is taken", func() bool { return r.row(w1).Epoch == 20 && r.row(w1).LastID == 2 })
	r.awaitTrust(w1, protocol.TrustExact)
	e.check(r)

	// It has not reached 30.
	future := newEngine(t, conn, w1, 30)
	future.store(1)
	eventually(t, "the future is refused", func() bool { return r.row(w1).Refused[protocol.RefusedFutureEpoch] == 1 })
	e.store(1)
	r.await(e.seq)
	e.check(r)

	// A roster entry makes good what was refused before it.
	future.store(1)
	r.await(future.seq)
	r.enroll(w1, 30)
	eventually(t, "what was ahead is read", func() bool { return r.row(w1).LastID == 2 })
	r.awaitTrust(w1, protocol.TrustExact)
	future.check(r)
}

func TestBadMessagesAreCountedAndOthersApplied(t *testing.T) {
	srv := natstest.Start(t)
	r := start(t, srv, nil)
	r.enroll(w2, 5)
	r.awaitReady()
	e := newEngine(t, natstest.Connect(t, srv), w2, 5)

	good := func() { e.store(1) }
	good()
	e.json(`{"v":1,"epoch":5,"events":[{"id"`)                   // truncated
	e.json(`{"v":2,"epoch":5,"events":[]}`)                      // version
	e.json(`{"v":1,"epoch":4,"events":[{"id":9,"cleared":{}}]}`) // old epoch
	e.json(`{"v":1,"epoch":6,"events":[{"id":9,"cleared":{}}]}`) // ahead of the roster
	e.json(`{"v":1,"epoch":5,"events":[{"id":1,"cleared":{}}]}`) // duplicate
	e.send(&protocol.EventMessage{Events: []protocol.Event{stored(99, e.blocks(8193)...)}})
	good()
	id := e.nextID()
	e.json(`{"v":1,"epoch":5,"events":[{"id":%d,"stored":{"parent":null,"blocks":[[1,1],[1,1]]}},{"stored":{}}]}`, id)
	e.json(`{"worker_id":1,"event":{"event_id":0,"data":"cleared","dp_rank":1}}`) // epoch 0: old
	good()
	r.await(e.seq)
	e.check(r)
	want := map[protocol.Refusal]uint64{
		protocol.RefusedUndecodable: 2, protocol.RefusedVersion: 1, protocol.RefusedOldEpoch: 2, protocol.RefusedDuplicate: 1,
		protocol.RefusedTooManyBlocks: 1, protocol.RefusedMalformedStore: 1,
	}
	row := r.row(w2)
	for why, n := range want {
		if row.Refused[why] != n {
			t.Errorf("%s: %d counted, want %d", why, row.Refused[why], n)
		}
	}
	eventually(t, "future epoch is counted", func() bool { return r.row(w2).Refused[protocol.RefusedFutureEpoch] == 1 })
	if row.Trust != protocol.TrustExact {
		t.Errorf("trust %s", row.Trust)
	}

	// One undecodable event with an id: the rest of its message is applied.
	bad, next := e.nextID(), e.nextID()
	fresh := e.blocks(1)[0]
	e.held = append(e.held, fresh)
	e.json(`{"v":1,"epoch":5,"events":[{"id":%d,"stored":{"blocks":"?"}},{"id":%d,"stored":{"parent":null,"blocks":[[%d,%d]]}}]}`,
		bad, next, fresh.Sequence, fresh.Hash)
	r.await(e.seq)
	e.check(r)
	if row := r.row(w2); row.Trust != protocol.TrustPartial || row.LastID != next {
		t.Errorf("row %+v", row)
	}
}

func TestRouterEventOfAnotherRank(t *testing.T) {
	srv := natstest.Start(t)
	r := start(t, srv, nil, w2).awaitReady()
	e := newEngine(t, natstest.Connect(t, srv), w2, 0)
	event := func(id int, rank uint16, hash uint64) string {
		return fmt.Sprintf(`{"worker_id":1,"event":{"event_id":%d,"dp_rank":%d,"data":{"stored":{"parent_hash":null,"blocks":[{"block_hash":%d,"tokens_hash":%d}]}}}}`,
			id, rank, hash, hash)
	}
	e.json("[%s,%s]", event(1, w2.Rank, 11), event(2, 0, 12))
	e.json("%s", event(2, w2.Rank, 13))
	r.await(e.seq)
	row := r.row(w2)
	if row.Blocks != 2 || row.LastID != 2 || row.Refused[protocol.RefusedOtherRank] != 1 || row.Trust != protocol.TrustExact {
		t.Errorf("row %+v", row)
	}
}

// slowSink holds up every store until it is let go.
type slowSink struct {
	subscriber.Sink
	gate chan struct{}
}

func (s *slowSink) Stored(w protocol.Worker, tier protocol.Tier, root bool, parent protocol.SequenceHash, blocks []protocol.Block) error {
	<-s.gate
	return s.Sink.Stored(w, tier, root, parent, blocks)
}

func TestFullLaneStopsReaderAndLosesNothing(t *testing.T) {
	srv := natstest.Start(t)
	gate := make(chan struct{})
	r := start(t, srv, func(c *subscriber.Config) {
		c.Sink = &slowSink{Sink: c.Sink, gate: gate}
		c.Lanes, c.LaneMessages = 1, 4
	}, w1)
	e := newEngine(t, natstest.Connect(t, srv), w1, 0)
	r.awaitReady()
	for range 500 {
		e.store(1)
	}
	eventually(t, "the lane is full", func() bool { return r.MessagesRead() >= 6 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := r.WaitApplied(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("applied behind a closed gate: %v", err)
	}
	if n := r.MessagesRead(); n > 6 {
		t.Errorf("the reader has taken %d messages with a lane of 4", n)
	}
	close(gate)
	r.await(e.seq)
	e.check(r)
	if n := r.Stats().Reopened; n != 0 {
		t.Errorf("the log was opened again %d times", n)
	}
}

func TestConsumerDeleted(t *testing.T) {
	srv := natstest.Start(t)
	r := start(t, srv, nil, w1).awaitReady()
	conn := natstest.Connect(t, srv)
	e := newEngine(t, conn, w1, 0)
	r.await(e.store(1))
	stream, err := e.js.Stream(t.Context(), protocol.Names{}.Stream(pool))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for name := range stream.ConsumerNames(t.Context()).Name() {
			if err := stream.DeleteConsumer(t.Context(), name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				t.Fatal(err)
			}
		}
		for range 20 {
			e.store(1)
		}
		r.await(e.seq)
		e.check(r)
	}
	if r.Stats().Reopened == 0 {
		t.Error("the log was not opened again")
	}
}

func TestServerRestart(t *testing.T) {
	dir := t.TempDir()
	srv := natstest.StartIn(t, dir, -1)
	r := start(t, srv, nil, w1).awaitReady()
	conn := natstest.Connect(t, srv)
	e := newEngine(t, conn, w1, 0)
	for range 20 {
		e.store(2)
	}
	r.await(e.seq)
	port := srv.Addr().String()
	natstest.Stop(srv)
	r.awaitTrust(w1, protocol.TrustStale)
	var number int
	if _, err := fmt.Sscanf(port, "127.0.0.1:%d", &number); err != nil {
		t.Fatal(err)
	}
	srv = natstest.StartIn(t, dir, number)
	for range 20 {
		e.store(2)
	}
	r.await(e.seq).awaitTrust(w1, protocol.TrustExact)
	e.check(r)
	r.sameAs(start(t, srv, nil, w1).awaitReady().await(e.seq), w1)
	if n := r.Stats().LogsLost; n != 0 {
		t.Errorf("the log was thought lost %d times", n)
	}
}

func TestStreamDeletedAndCreatedAnew(t *testing.T) {
	srv := natstest.Start(t)
	r := start(t, srv, nil)
	reg := entry(w1)
	r.SetRank(reg, 42)
	r.awaitReady()
	e := newEngine(t, natstest.Connect(t, srv), w1, 42)
	for range 20 {
		e.store(2)
	}
	r.await(e.seq)
	reg.LastID, reg.StreamSeq = e.id, e.seq
	r.SetRank(reg, 42)
	if err := e.js.DeleteStream(t.Context(), protocol.Names{}.Stream(pool)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the loss is noticed", func() bool { return r.Stats().LogsLost == 1 })
	eventually(t, "the index is emptied", func() bool { return r.index.State(w1).Blocks == 0 })
	r.awaitTrust(w1, protocol.TrustPartial)
	for _, m := range e.snapshot("s", 2) {
		e.send(m)
	}
	e.store(1)
	r.awaitTrust(w1, protocol.TrustExact)
	r.await(e.seq)
	e.check(r)
	fresh := start(t, srv, nil)
	fresh.enroll(w1, 42)
	fresh.awaitReady().await(e.seq)
	r.sameAs(fresh, w1)
}

func TestReaderOutlivesMissingServer(t *testing.T) {
	srv := natstest.Start(t)
	conn := natstest.Connect(t, srv, nats.MaxReconnects(-1))
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Stop(srv)
	r := start(t, natstest.Start(t), func(c *subscriber.Config) { c.JetStream, c.Publish = js, js }, w1)
	eventually(t, "it tries", func() bool { return r.Stats().Reopened > 1 })
	if r.CaughtUp() || r.Trust(w1) != protocol.TrustStale {
		t.Errorf("caught up %v, trust %s", r.CaughtUp(), r.Trust(w1))
	}
}

func TestWaitAppliedEnds(t *testing.T) {
	r := start(t, natstest.Start(t), nil).awaitReady()
	ended := make(chan error, 1)
	go func() { ended <- r.WaitApplied(context.Background(), 5) }()
	r.stop()
	if err := <-ended; !errors.Is(err, subscriber.ErrStopped) {
		t.Errorf("got %v", err)
	}
	if err := r.WaitApplied(context.Background(), 5); !errors.Is(err, subscriber.ErrStopped) {
		t.Errorf("got %v", err)
	}
}
