package subscriber_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/subscriber"
)

// answers is a Repairer whose answers are a function.
type answers struct {
	mu    sync.Mutex
	asked []protocol.Query
	at    int
	peak  int
	reply func(ctx context.Context, w protocol.Worker, q protocol.Query) (protocol.QueryReply, error)
}

func (a *answers) Ask(ctx context.Context, w protocol.Worker, q protocol.Query) (protocol.QueryReply, error) {
	a.mu.Lock()
	a.asked = append(a.asked, q)
	a.at++
	a.peak = max(a.peak, a.at)
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.at--
		a.mu.Unlock()
	}()
	return a.reply(ctx, w, q)
}

func (a *answers) queries() []protocol.Query {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]protocol.Query(nil), a.asked...)
}

func with(a *answers) func(*subscriber.Config) {
	return func(c *subscriber.Config) { c.Repairer = a }
}

// skip takes ids whose events never reach the log, and keeps what they would say.
func (e *engine) skip(n int) []protocol.Event {
	var events []protocol.Event
	for range n {
		events = append(events, e.storing(1))
	}
	return events
}

func TestRepairByWorkerReachesEveryReader(t *testing.T) {
	srv := natstest.Start(t)
	conn := natstest.Connect(t, srv)
	e := newEngine(t, conn, w1, 5)
	a := &answers{}
	r := start(t, srv, with(a))
	r.enroll(w1, 5)
	r.awaitReady()
	e.store(1)
	missing := e.skip(3)
	a.reply = func(_ context.Context, w protocol.Worker, q protocol.Query) (protocol.QueryReply, error) {
		seq := e.answer(&protocol.EventMessage{Events: missing})
		return protocol.QueryReply{Version: 1, Kind: protocol.QueryEvents, Through: 4, StreamSeq: seq}, nil
	}
	last := e.store(1)
	r.await(last)
	eventually(t, "the hole is filled", func() bool { return r.row(w1).LastID == e.id })
	r.awaitTrust(w1, protocol.TrustExact)
	e.check(r)
	if asked := a.queries(); len(asked) != 1 || asked[0] != (protocol.Query{Version: 1, Epoch: 5, From: 2}) {
		t.Errorf("asked %+v", asked)
	}
	if stats := r.Stats(); stats.Rereads != 1 || stats.Repairs != 1 || r.row(w1).Repairs != 1 {
		t.Errorf("%+v", stats)
	}
	other := start(t, srv, with(a))
	other.enroll(w1, 5)
	other.awaitReady().await(e.seq)
	other.sameAs(r, w1)
	if n := len(a.queries()); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestRepairWhileEventsGoOn(t *testing.T) {
	srv := natstest.Start(t)
	e := newEngine(t, natstest.Connect(t, srv), w1, 5)
	asked, publish := make(chan struct{}), make(chan struct{})
	missing := []protocol.Event{}
	a := &answers{}
	a.reply = func(ctx context.Context, _ protocol.Worker, q protocol.Query) (protocol.QueryReply, error) {
		close(asked)
		<-publish
		seq := e.answer(&protocol.EventMessage{Events: missing})
		return protocol.QueryReply{Kind: protocol.QueryEvents, StreamSeq: seq}, nil
	}
	r := start(t, srv, with(a))
	r.enroll(w1, 5)
	r.awaitReady()
	e.store(1)
	missing = e.skip(6)
	e.store(1)
	<-asked
	for range 1500 { // more than can be held
		e.store(1)
	}
	r.await(e.seq)
	close(publish)
	eventually(t, "all is applied", func() bool { return r.row(w1).LastID == e.id })
	r.awaitTrust(w1, protocol.TrustExact)
	e.check(r)
	if n := len(a.queries()); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestUndecodableIsMendedBySnapshot(t *testing.T) {
	srv := natstest.Start(t)
	e := newEngine(t, natstest.Connect(t, srv), w1, 5)
	a := &answers{}
	a.reply = func(_ context.Context, _ protocol.Worker, q protocol.Query) (protocol.QueryReply, error) {
		seq := e.answer(e.snapshot("answer", 3)...)
		return protocol.QueryReply{Kind: protocol.QuerySnapshot, StreamSeq: seq}, nil
	}
	r := start(t, srv, with(a))
	r.enroll(w1, 5)
	r.awaitReady()
	e.store(3)
	e.skip(1)
	e.json(`{"v":1,"epoch":5,"events":[{"id":2,"stored":{"blocks":[[1]]}}]}`)
	eventually(t, "it is mended", func() bool { return r.Stats().SnapshotsRead == 1 })
	r.awaitTrust(w1, protocol.TrustExact)
	e.check(r)
	if asked := a.queries(); len(asked) != 1 || asked[0].From != 0 {
		t.Errorf("asked %+v", asked)
	}
	if stats := r.Stats(); stats.Rereads != 0 {
		t.Errorf("the log was read for what it cannot hold: %+v", stats)
	}
}

func TestDivergedIndexIsMended(t *testing.T) {
	srv := natstest.Start(t)
	e := newEngine(t, natstest.Connect(t, srv), w1, 5)
	a := &answers{}
	a.reply = func(_ context.Context, _ protocol.Worker, q protocol.Query) (protocol.QueryReply, error) {
		seq := e.answer(e.snapshot("answer", 1)...)
		return protocol.QueryReply{Kind: protocol.QuerySnapshot, StreamSeq: seq}, nil
	}
	r := start(t, srv, with(a))
	r.enroll(w1, 5)
	r.awaitReady()
	r.await(e.store(3))
	r.index.Removed(w1, protocol.TierDevice, []protocol.SequenceHash{e.held[0].Sequence})
	reg, sum := entry(w1), e.state().Checksum
	reg.LastID, reg.StreamSeq, reg.Checksum = e.id, e.seq, &sum
	r.SetRank(reg, 5)
	eventually(t, "it is mended", func() bool { return r.index.State(w1) == e.state() })
	r.awaitTrust(w1, protocol.TrustExact)
}

func TestNobodyAnswers(t *testing.T) {
	srv := natstest.Start(t)
	e := newEngine(t, natstest.Connect(t, srv), w1, 5)
	a := &answers{reply: func(context.Context, protocol.Worker, protocol.Query) (protocol.QueryReply, error) {
		return protocol.QueryReply{}, nats.ErrNoResponders
	}}
	r := start(t, srv, with(a))
	r.enroll(w1, 5)
	r.awaitReady()
	e.store(1)
	e.skip(2)
	e.store(1)
	e.skip(1)
	e.store(1)
	eventually(t, "what can be applied is", func() bool { return r.row(w1).LastID == e.id })
	if row := r.row(w1); row.Trust != protocol.TrustPartial || row.Blocks != 3 {
		t.Errorf("row %+v", row)
	}
	e.store(1)
	r.await(e.seq)
	if row := r.row(w1); row.Blocks != 4 || row.Trust != protocol.TrustPartial {
		t.Errorf("the rank has stopped: %+v", row)
	}
	for _, m := range e.snapshot("heals", 1) {
		e.send(m)
	}
	r.awaitTrust(w1, protocol.TrustExact)
	e.check(r)
	if stats := r.Stats(); stats.RepairsSettled == 0 {
		t.Errorf("%+v", stats)
	}
}

func TestTooNewDoesNotLoop(t *testing.T) {
	srv := natstest.Start(t)
	e := newEngine(t, natstest.Connect(t, srv), w1, 5)
	a := &answers{reply: func(context.Context, protocol.Worker, protocol.Query) (protocol.QueryReply, error) {
		return protocol.QueryReply{Kind: protocol.QueryTooNew}, nil
	}}
	r := start(t, srv, with(a))
	reg := entry(w1)
	reg.LastID, reg.StreamSeq = 7, 1
	r.SetRank(reg, 5)
	r.awaitReady()
	began := time.Now()
	e.store(1)
	eventually(t, "it is asked", func() bool { return len(a.queries()) > 0 })
	eventually(t, "a while passes", func() bool { return time.Since(began) > 300*time.Millisecond })
	if n := len(a.queries()); n > 1 {
		t.Errorf("asked %d times in %v", n, time.Since(began))
	}
}

func TestWorkerLeavesDuringRepair(t *testing.T) {
	srv := natstest.Start(t)
	e := newEngine(t, natstest.Connect(t, srv), w1, 5)
	asked, ended := make(chan struct{}), make(chan error, 1)
	a := &answers{reply: func(ctx context.Context, _ protocol.Worker, _ protocol.Query) (protocol.QueryReply, error) {
		close(asked)
		<-ctx.Done()
		ended <- ctx.Err()
		return protocol.QueryReply{}, ctx.Err()
	}}
	r := start(t, srv, with(a))
	r.enroll(w1, 5)
	r.awaitReady()
	e.store(1)
	e.skip(1)
	e.store(1)
	<-asked
	r.RemoveRank(w1)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("repair ended with %v", err)
	}
	e.store(1)
	r.await(e.seq)
	if r.index.State(w1).Blocks != 0 {
		t.Error("blocks of a departed worker are back")
	}
}

func TestManyHolesAtOnce(t *testing.T) {
	srv := natstest.Start(t)
	conn := natstest.Connect(t, srv)
	free := make(chan struct{})
	a := &answers{reply: func(ctx context.Context, _ protocol.Worker, _ protocol.Query) (protocol.QueryReply, error) {
		<-free
		return protocol.QueryReply{}, nats.ErrNoResponders
	}}
	r := start(t, srv, with(a))
	var engines []*engine
	for i := range 50 {
		w := protocol.Worker{ID: "w", Rank: uint16(i)}
		engines = append(engines, newEngine(t, conn, w, 5))
		r.enroll(w, 5)
	}
	r.awaitReady()
	for _, e := range engines {
		e.store(1)
		e.skip(1)
		e.store(1)
	}
	eventually(t, "repairs run", func() bool { return len(a.queries()) == 16 })
	close(free)
	for _, e := range engines {
		eventually(t, "each is settled", func() bool { return r.row(e.w).LastID == 3 })
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.peak != 16 {
		t.Errorf("%d at once", a.peak)
	}
}
