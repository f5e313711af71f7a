package publisher

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
)

// underLoad makes random calls until what returns.
func (r *running) underLoad(t *testing.T, what func()) {
	t.Helper()
	rng := random(t)
	done := make(chan struct{})
	var group sync.WaitGroup
	defer group.Wait()
	defer close(done)
	group.Go(func() {
		step := time.NewTicker(200 * time.Microsecond) // of the engine
		defer step.Stop()
		for {
			select {
			case <-done:
				return
			case <-step.C:
				r.work(rng, 5)
			}
		}
	})
	what()
}

func TestServerRestartsUnderLoad(t *testing.T) {
	dir := t.TempDir()
	h := &harness{TB: t, srv: natstest.StartIn(t, dir, -1)}
	h.connect()
	h.makeBucket(10 * time.Second)
	h.makeStream(64 << 20)
	cfg := h.config()
	cfg.FlushInterval = time.Millisecond
	p := h.start(cfg).isReady()
	port := h.srv.Addr().(*net.TCPAddr).Port
	p.underLoad(t, func() {
		for range 3 {
			before := p.flush()
			h.until("more events in the log", func() bool { return p.flush() > before+20 })
			natstest.Stop(h.srv)
			h.until("a failure", func() bool { return p.Stats().Failure != nil })
			h.srv = natstest.StartIn(t, dir, port)
			h.until("more events in the log", func() bool { return p.flush() > before })
		}
	})
	got := p.isInLog()
	if got.snapshots != 1 {
		t.Errorf("log has %d snapshots: the stream was never another one", got.snapshots)
	}
	if r := h.roster(); r.Epoch == nil || *r.Epoch != p.Epoch() {
		t.Errorf("entry = %+v, want epoch %d", r, p.Epoch())
	}
	h.check(p.stop()) // while the server is there
}

func TestConnectionBreaksUnderLoad(t *testing.T) {
	h := newLog(t)
	cfg := h.config()
	cfg.Conn = h.newConn()
	p := h.start(cfg).isReady()
	p.underLoad(t, func() {
		for range 10 {
			before := p.flush()
			h.check(cfg.Conn.ForceReconnect())
			h.until("more events in the log", func() bool { return p.flush() > before })
		}
	})
	got := p.isInLog()
	if s := p.Stats(); s.Failure != nil || s.Unsent != 0 {
		t.Errorf("stats = %+v", s)
	}
	t.Logf("%d times back, %d events repeated, %d snapshots", p.Stats().Resends, got.repeated, got.snapshots)
}

func TestFullStream(t *testing.T) {
	h := newHarness(t)
	h.makeBucket(10 * time.Second)
	h.makeStream(64 << 10)
	p := h.start(h.config()).isReady()
	all := chains(200, 32)
	for _, chain := range all {
		p.Stored(device, true, 0, chain)
	}
	h.until("the roster entry to show that events wait", func() bool { return h.roster().Unsent > 0 })
	var refused *jetstream.APIError
	if s := p.Stats(); s.Unsent == 0 || !errors.As(s.Failure, &refused) || refused.ErrorCode != 10077 {
		t.Errorf("stats = %+v, want that the stream is full", s)
	}
	for _, chain := range all[:10] {
		p.Removed(device, []protocol.SequenceHash{chain[31].Sequence})
	}
	cfg := h.streamConfig(1 << 20)
	stream, err := h.js.Stream(t.Context(), cfg.Name)
	h.check(err)
	cfg.Metadata = stream.CachedInfo().Config.Metadata
	_, err = h.js.UpdateStream(t.Context(), cfg)
	h.check(err)
	if got := p.isInLog(); got.snapshots != 1 {
		t.Errorf("log has %d snapshots, want only the first", got.snapshots)
	}
	h.until("the roster entry to show that none waits", func() bool { return h.roster().Unsent == 0 })
	if r := h.roster(); r.LastID != p.LastID() {
		t.Errorf("entry says event %d, want %d", r.LastID, p.LastID())
	}
}

func TestMoreEventsThanAreKept(t *testing.T) {
	h := newHarness(t)
	h.makeBucket(10 * time.Second)
	h.makeStream(64 << 10)
	cfg := h.config()
	cfg.MaxBuffered = minBuffered
	p := h.start(cfg).isReady()
	all := chains(3000, 32)
	for i, chain := range all {
		p.Stored(device, true, 0, chain)
		if i >= 100 {
			old := all[i-100]
			p.Removed(device, []protocol.SequenceHash{old[31].Sequence, old[30].Sequence})
		}
	}
	h.until("a failure", func() bool { return p.Stats().Failure != nil })
	p.mu.Lock()
	if w := p.out.ring.weight; w > minBuffered {
		t.Errorf("events of weight %d are kept, at most %d are allowed", w, minBuffered)
	}
	p.mu.Unlock()
	streamConfig := h.streamConfig(64 << 20)
	stream, err := h.js.Stream(t.Context(), streamConfig.Name)
	h.check(err)
	streamConfig.Metadata = stream.CachedInfo().Config.Metadata
	_, err = h.js.UpdateStream(t.Context(), streamConfig)
	h.check(err)
	if got := p.isInLog(); got.snapshots < 2 {
		t.Errorf("log has %d snapshots, want one in place of the events that were dropped", got.snapshots)
	}
}

func TestStreamThatWasMadeAgain(t *testing.T) {
	h := newLog(t)
	p := h.start(h.config()).isReady()
	p.store(1, 2, 3)
	p.flush()
	other := testNames.Events(testPool, protocol.Worker{ID: "other"})
	for _, others := range []int{0, 100} { // in the second, sequences do not fall
		h.check(h.js.DeleteStream(t.Context(), testNames.Stream(testPool)))
		p.store(4, 5)
		h.until("a failure", func() bool { return p.Stats().Failure != nil })
		h.makeStream(1 << 20)
		for range others {
			_, err := h.js.Publish(t.Context(), other, []byte("{}"))
			h.check(err)
		}
		got := p.isInLog()
		if got.messages[0].message.Snapshot == nil {
			t.Error("the new log does not begin with a snapshot")
		}
		h.until("the roster entry to tell of the new log", func() bool {
			r := h.roster()
			return r.LastID == p.LastID() && r.StreamSeq == p.flush() && r.Unsent == 0
		})
	}
}

func TestStreamThatWasMadeAgainUnnoticed(t *testing.T) {
	h := newLog(t)
	p := h.start(h.config()).isReady()
	p.store(1)
	p.flush()
	p.store(2, 3)
	p.flush()
	h.check(h.js.DeleteStream(t.Context(), testNames.Stream(testPool)))
	h.makeStream(1 << 20)
	p.store(4, 5)
	p.flush()
	// The event's sequence tells, and then a snapshot follows. Event 3 alone is of
	// no use to a reader without a base, so it is not read here.
	h.until("a snapshot", func() bool { return p.Stats().Snapshots == 2 })
	p.flush()
	stream, err := h.js.Stream(t.Context(), testNames.Stream(testPool))
	h.check(err)
	h.check(stream.DeleteMsg(t.Context(), 1))
	p.isInLog()
}

func TestStreamThatCannotBeInspected(t *testing.T) {
	for _, tt := range []struct {
		failure error
		want    needed
	}{
		{jetstream.ErrNoStreamResponse, required}, // it may be gone
		{jetstream.ErrAsyncPublishTimeout, notNeeded},
	} {
		now := time.Now()
		p := &Publisher{out: *newOutbox(testBounds)}
		f, _ := p.out.next(now)
		p.out.acknowledged(&f.msg, 5)
		p.out.push(protocol.Event{Kind: protocol.EventLost}, now)
		f, _ = p.out.next(now)
		p.out.failed(&f.msg, tt.failure, now)
		if !p.out.suspect {
			t.Errorf("%v: the stream is not inspected", tt.failure)
		}
		s := sender{p: p}
		s.found("", context.DeadlineExceeded, newLimits(false, 0))
		if p.out.suspect || p.out.due != tt.want {
			t.Errorf("%v: suspect %v, snapshot %d, want %d", tt.failure, p.out.suspect, p.out.due, tt.want)
		}
	}
}
