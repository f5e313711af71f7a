package lease

import (
	"context"
	"strings"
	"testing"

	"github.com/routerd/routerd/pkg/protocol"
)

func TestFirstProgressEndsPrefill(t *testing.T) {
	b := newBench(t, Config{})
	l := b.admit(newLease("r", 1, "w1"))
	b.progress(l)
	b.progress(l)
	if b.prefilling(l.ID) || !b.charged(l.ID) {
		t.Error("progress did not end the prefill charge alone")
	}
	got, known := b.complete(l)
	if !known || got != l {
		t.Errorf("completed %+v, %v", got, known)
	}
	if _, known := b.complete(l); known {
		t.Error("a lease was completed twice")
	}
	b.stat("completed", b.Stats().Completed, 1)
}

// The only router is gone and comes back without a memory: each request is
// charged again at its next report, without prefill.
func TestProgressRevivesUnknownLease(t *testing.T) {
	before := newBench(t, Config{})
	l := before.admit(newLease("r", 1, "w1"))

	after := newBench(t, Config{})
	after.Progress(&protocol.ProgressReport{Lease: l.String()}) // the lease alone suffices
	after.lives(l, true)
	if after.prefilling(l.ID) {
		t.Error("a revived lease is charged with prefill")
	}
	after.progress(l)
	after.stat("revived", after.Stats().Revived, 1)
	if _, known := after.complete(l); !known {
		t.Error("the revived lease is unknown")
	}
	after.progress(l)
	after.lives(l, false)
	if got := code(t, after.Begin("r", 1)); got != protocol.CodeDuplicateRequest {
		t.Errorf("the completed attempt began: %q", got)
	}
}

func TestAdmissionAfterProgressHasNoPrefill(t *testing.T) {
	b := newBench(t, Config{})
	l := newLease("r", 1, "w1")
	b.Progress(&protocol.ProgressReport{Lease: l.String()})
	b.book.mu.Lock()
	b.prefill[l.ID] = true // the mirrored booking, as a peer announced it
	b.book.mu.Unlock()
	b.Observer().Admitted(l)
	if b.prefilling(l.ID) {
		t.Error("the mirrored booking has prefill load")
	}
	if b.Len() != 1 {
		t.Errorf("%d records", b.Len())
	}
	// The request id came with the admission.
	if got := code(t, b.Begin("r", 1)); got != protocol.CodeDuplicateRequest {
		t.Errorf("the attempt began again: %q", got)
	}
	b.Complete(&protocol.CompleteReport{RequestID: "r", Attempt: 1})
	b.lives(l, false)
}

func TestBadReportsAreCounted(t *testing.T) {
	b := newBench(t, Config{})
	b.absent[protocol.Worker{ID: "gone"}] = true
	for _, s := range []string{"", "no lease", strings.Repeat("A", 1000), new(protocol.Lease).String()} {
		b.Progress(&protocol.ProgressReport{Lease: s})
	}
	b.Complete(&protocol.CompleteReport{Lease: "no lease", RequestID: "r"})
	b.Complete(&protocol.CompleteReport{})
	b.stat("malformed", b.Stats().Malformed, 6)

	l := newLease("r", 1, "gone")
	b.progress(l)
	b.lives(l, false)
	b.stat("unknown workers", b.Stats().UnknownWorker, 1)
	if s := b.Stats(); s.Live != 0 || s.Tombstones != 0 || len(b.requests) != 0 {
		t.Errorf("bad reports left %+v, %d requests", s, len(b.requests))
	}
}

// Every completion leaves tombstones, of a known lease or not, so that neither a
// late admission nor late progress revives it.
func TestCompletionStopsLateReports(t *testing.T) {
	for name, end := range map[string]func(b *bench, l protocol.Lease){
		"by lease":            func(b *bench, l protocol.Lease) { b.Complete(&protocol.CompleteReport{Lease: l.String()}) },
		"by lease and number": func(b *bench, l protocol.Lease) { b.complete(l) },
		"by number":           func(b *bench, l protocol.Lease) { b.Complete(&protocol.CompleteReport{RequestID: "r", Attempt: 2}) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Config{})
			l := newLease("r", 2, "w1")
			end(b, l)
			b.progress(l)
			b.lives(l, false)
			b.charge(l)
			b.Observer().Admitted(l)
			b.lives(l, false)
			b.Progress(&protocol.ProgressReport{Lease: l.String()}) // its tombstone by id exists by now
			b.lives(l, false)
			b.advance(DefaultTombstone)
			b.progress(l)
			b.lives(l, true)
		})
	}
}

// A completion without a lease cancels what is still queued.
func TestCompletionOfReservation(t *testing.T) {
	b := newBench(t, Config{})
	if err := b.Begin("r", 1); err != nil {
		t.Fatal(err)
	}
	b.Complete(&protocol.CompleteReport{RequestID: "r"})
	b.stat("reservations", uint64(b.Stats().Reserved), 0)
	l := newLease("r", 1, "w1")
	b.charge(l)
	b.Observer().Admitted(l)
	b.lives(l, false)
	b.Abandon("r", 1)
	if got := code(t, b.Begin("r", 1)); got != protocol.CodeDuplicateRequest {
		t.Errorf("the cancelled attempt began: %q", got)
	}
}

// The caller that vanishes before its reply leaves no charge; after the reply
// the lease lives on without it.
func TestVanishedCaller(t *testing.T) {
	b := newBench(t, Config{})
	undelivered := b.admit(newLease("a", 1, "w1"))
	delivered := b.admit(newLease("b", 1, "w1"))
	b.Complete(&protocol.CompleteReport{RequestID: "a", Attempt: 1})
	b.lives(undelivered, false)
	b.lives(delivered, true)
	b.reap(&b.silent, b.cfg.QuietInterval)
	b.lives(delivered, true)
	b.reap(&b.silent, b.cfg.QuietInterval)
	b.lives(delivered, false)
}

// What a call ends is freed even if its caller is cancelled in the middle.
func TestCancelledCallerStillReleases(t *testing.T) {
	b := newBench(t, Config{})
	var ended []protocol.Lease
	for n := range uint32(3) {
		// Put in by hand: by admission each would supersede the one before.
		l := newLease("r", n+1, "w1")
		b.Manager.mu.Lock()
		b.insertLocked(&record{lease: l})
		b.Manager.mu.Unlock()
		b.charge(l)
		ended = append(ended, l)
	}
	ctx, cancel := context.WithCancel(t.Context())
	b.onRelease = func(protocol.LeaseID) { cancel() }
	done := make(chan error)
	go func() { done <- b.Begin("r", 4) }()
	<-ctx.Done()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, l := range ended {
		b.lives(l, false)
	}
}

// told is the other routers, as the manager tells them of completions.
type told struct{ completed []protocol.Lease }

func (p *told) Completed(l protocol.Lease) { p.completed = append(p.completed, l) }

func TestPeersHearCompletionsNotExpiries(t *testing.T) {
	peers := new(told)
	b := newBench(t, Config{Peers: peers})
	expired := b.admit(newLease("a", 1, "w1"))
	gone := b.admit(newLease("b", 1, "w2"))
	b.Observer().Completed(b.admit(newLease("c", 1, "w1")).ID) // as a peer said
	b.reap(&b.silent, b.cfg.QuietInterval)
	b.EndWorker(gone.Worker)
	b.reap(&b.silent, b.cfg.QuietInterval)
	b.lives(expired, false)
	if len(peers.completed) != 0 {
		t.Fatalf("peers were told of %+v", peers.completed)
	}
	l := b.admit(newLease("d", 1, "w1"))
	b.complete(l)
	b.complete(l)
	b.complete(expired)
	if len(peers.completed) != 1 || peers.completed[0] != l {
		t.Errorf("peers were told of %+v, want the one completion", peers.completed)
	}
}

// A worker that leaves takes its leases along, without tombstones.
func TestWorkerGone(t *testing.T) {
	b := newBench(t, Config{})
	var left []protocol.Lease
	for range 50 {
		left = append(left, b.admit(newLease(newLease("", 1, "").ID.String(), 1, "w1")))
	}
	stays := b.admit(newLease("stays", 1, "w2"))
	b.absent[left[0].Worker] = true
	b.EndWorker(left[0].Worker)
	b.EndWorker(left[0].Worker)
	for _, l := range left {
		b.lives(l, false)
	}
	b.lives(stays, true)
	b.stat("ended with their worker", b.Stats().WorkerGone, 50)
	if n := b.Stats().Tombstones; n != 0 {
		t.Errorf("%d tombstones", n)
	}

	for _, l := range left[:25] { // late completions change nothing
		if _, known := b.complete(l); known {
			t.Error("a late completion ended something")
		}
	}
	b.progress(left[30])
	b.lives(left[30], false)

	delete(b.absent, left[0].Worker) // the worker is back
	for _, l := range left {
		b.progress(l)
	}
	for i, l := range left {
		b.lives(l, i >= 25)
	}
}

// A ledger that is closed already knows no charge; completions return all the same.
func TestCompletionAfterLedgerClosed(t *testing.T) {
	b := newBench(t, Config{})
	l := b.admit(newLease("r", 1, "w1"))
	b.Release(l.ID)
	if _, known := b.complete(l); !known {
		t.Error("the lease was unknown")
	}
	if b.unfounded != 1 {
		t.Errorf("%d frees without a charge", b.unfounded)
	}
	b.unfounded = 0
}
