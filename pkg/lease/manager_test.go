package lease

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/routerd/routerd/pkg/protocol"
)

func TestConfigReportsAllFaults(t *testing.T) {
	_, err := New(Config{Interval: -1, QuietInterval: 25 * time.Hour, Tombstone: 1, MaxLeases: -1, MaxTombstones: 1<<24 + 1})
	for _, name := range []string{"ledger", "interval", "quiet interval", "tombstone", "max leases", "max tombstones"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in %v", name, err)
		}
	}
	if _, err := New(Config{Ledger: newBook(), Interval: time.Hour}); err != nil {
		t.Errorf("a long interval alone: %v", err)
	}
}

// code is the error's code on the wire, "" for none.
func code(t *testing.T, err error) protocol.Code {
	t.Helper()
	if err == nil {
		return ""
	}
	failure, ok := errors.AsType[*protocol.Error](err)
	if !ok {
		t.Fatalf("%v is no wire error", err)
	}
	return failure.Code
}

func TestEqualAdmissionIsOneRecord(t *testing.T) {
	b := newBench(t, Config{})
	l := b.admit(newLease("r", 1, "w1"))
	b.reap(&b.silent, b.cfg.QuietInterval)
	b.Observer().Admitted(l)
	if b.Len() != 1 {
		t.Errorf("%d records", b.Len())
	}
	if state := b.leases[l.ID].clock.state.Load(); state != touched {
		t.Errorf("an equal admission left the clock at %d", state)
	}
	if !b.prefilling(l.ID) {
		t.Error("an equal admission ended the prefill charge")
	}
}

// Another booking of a lease, or of an attempt, is an error: the first is kept.
func TestDifferentAdmissionIsCounted(t *testing.T) {
	b := newBench(t, Config{})
	first := b.admit(newLease("r", 1, "w1"))

	moved := first
	moved.Worker.ID = "w2"
	b.Observer().Admitted(moved)
	b.stat("conflicts", b.Stats().Conflicts, 1)

	second := newLease("r", 1, "w2")
	b.charge(second)
	b.Observer().Admitted(second)
	b.stat("conflicts", b.Stats().Conflicts, 2)
	b.lives(second, false)
	b.progress(second)
	b.lives(second, false)

	b.lives(first, true)
	if got := b.leases[first.ID].lease; got != first {
		t.Errorf("the first booking became %+v", got)
	}
}

func TestAttempts(t *testing.T) {
	b := newBench(t, Config{})
	begin := func(attempt uint32, want protocol.Code) {
		t.Helper()
		if got := code(t, b.Begin("r", attempt)); got != want {
			t.Errorf("begin %d: %q, want %q", attempt, got, want)
		}
	}
	begin(1, "")
	begin(1, protocol.CodeDuplicateRequest) // reserved
	begin(0, protocol.CodeDuplicateRequest)
	b.Abandon("r", 1)
	b.Abandon("r", 1)
	begin(1, "")

	first := newLease("r", 1, "w1")
	b.charge(first)
	b.Observer().Admitted(first)
	b.Abandon("r", 1) // too late
	begin(1, protocol.CodeDuplicateRequest)
	b.lives(first, true)

	begin(3, "") // nothing was reported on 1
	b.lives(first, false)
	begin(2, protocol.CodeDuplicateRequest)
	b.progress(first)
	b.lives(first, false)

	third := newLease("r", 3, "w3")
	b.charge(third)
	b.Observer().Admitted(third)
	b.progress(third)
	begin(4, "")
	b.lives(third, true) // it reported: it goes on beside its retry

	// The fourth is superseded before it is admitted.
	begin(5, "")
	fourth := newLease("r", 4, "w4")
	b.charge(fourth)
	b.Observer().Admitted(fourth)
	b.lives(fourth, false)
	b.progress(fourth)
	b.lives(fourth, false)

	// The end of one attempt is not the end of another.
	b.Complete(&protocol.CompleteReport{RequestID: "r", Attempt: 4})
	b.lives(third, true)
	b.complete(third)
	b.lives(third, false)
	begin(3, protocol.CodeDuplicateRequest)
	if code(t, b.Begin("", 1)) != protocol.CodeInvalidRequest {
		t.Error("a request without id began")
	}
	b.stat("superseded", b.Stats().Superseded, 2)
	b.stat("reservations", uint64(b.Stats().Reserved), 1)
}

// A peer's admission with a higher attempt ends lower ones; with a lower attempt
// than one that is known it comes too late.
func TestAttemptsOfPeers(t *testing.T) {
	b := newBench(t, Config{})
	first := b.admit(newLease("r", 1, "w1"))
	second := newLease("r", 2, "w2")
	b.charge(second)
	b.Observer().Admitted(second)
	b.lives(first, false)
	b.lives(second, true)

	other := newLease("q", 2, "w2")
	b.charge(other)
	b.Observer().Admitted(other)
	late := newLease("q", 1, "w1")
	b.charge(late)
	b.Observer().Admitted(late)
	b.lives(late, false)
	b.lives(other, true)
}

func TestTombstoneOfAttemptExpires(t *testing.T) {
	b := newBench(t, Config{})
	l := b.admit(newLease("r", 1, "w1"))
	b.complete(l)
	b.advance(DefaultTombstone - 1)
	if got := code(t, b.Begin("r", 1)); got != protocol.CodeDuplicateRequest {
		t.Errorf("before its time: %q", got)
	}
	b.advance(1)
	if err := b.Begin("r", 1); err != nil {
		t.Errorf("after its time: %v", err)
	}
	if n := b.Stats().Tombstones; n != 0 {
		t.Errorf("%d tombstones are left", n)
	}
}

// At the bound nothing more is begun or revived; what is admitted without a
// reservation is freed at once.
func TestBoundOfLeases(t *testing.T) {
	b := newBench(t, Config{MaxLeases: 2})
	l := b.admit(newLease("a", 1, "w1"))
	if err := b.Begin("b", 1); err != nil {
		t.Fatal(err)
	}
	if got := code(t, b.Begin("c", 1)); got != protocol.CodeOverloaded {
		t.Errorf("begin at the bound: %q", got)
	}
	unknown := newLease("d", 1, "w1")
	b.progress(unknown)
	b.lives(unknown, false)
	b.charge(unknown)
	b.Observer().Admitted(unknown)
	b.lives(unknown, false)
	b.stat("full", b.Stats().Full, 3)

	reserved := newLease("b", 1, "w1")
	b.charge(reserved)
	b.Observer().Admitted(reserved)
	b.lives(reserved, true)
	b.complete(l)
	b.progress(unknown)
	b.lives(unknown, true)
}

// Past the bound the oldest tombstone goes before its time.
func TestBoundOfTombstones(t *testing.T) {
	b := newBench(t, Config{MaxTombstones: 3})
	var ended []protocol.Lease
	for i := range 4 {
		l := b.admit(newLease(fmt.Sprint("r", i), 1, "w1"))
		b.complete(l)
		ended = append(ended, l)
	}
	if s := b.Stats(); s.Tombstones != 3 || s.TombstonesDropped != 1 {
		t.Errorf("%d tombstones, %d dropped", s.Tombstones, s.TombstonesDropped)
	}
	for _, l := range ended[1:] {
		b.progress(l)
		b.lives(l, false)
	}
	b.progress(ended[0])
	b.lives(ended[0], true)
	if n := len(b.requests); n != 4 {
		t.Errorf("%d requests are known", n)
	}
}

// A flood of reports on strangers' leases stays within the bounds, and its
// memory is freed when its time is over.
func TestFloodOfCompletions(t *testing.T) {
	b := newBench(t, Config{MaxTombstones: 5000})
	for range 20_000 {
		b.complete(newLease(uuid.NewString(), 1, "w1"))
	}
	if n, m, o := len(b.tombstones.leases), len(b.requests), len(b.tombstones.order); n != 5000 || m != 5000 || o > 10_001 {
		t.Errorf("%d leases, %d requests, %d graves", n, m, o)
	}
	b.advance(DefaultTombstone)
	b.forget()
	if n, m, o := len(b.tombstones.leases), len(b.requests), b.tombstones.len(); n+m+o != 0 {
		t.Errorf("%d leases, %d requests, %d graves are left", n, m, o)
	}
}

// One request id with ever higher attempts stays bounded too.
func TestBoundOfAttempts(t *testing.T) {
	b := newBench(t, Config{MaxTombstones: 100})
	for n := range uint32(1000) {
		if err := b.Begin("r", n+1); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(b.requests["r"]); n != maxAttempts {
		t.Errorf("%d attempts are known", n)
	}
	for n := range uint32(maxAttempts) {
		l := b.admit(newLease("running", n+1, "w1"))
		b.progress(l)
	}
	if got := code(t, b.Begin("running", maxAttempts+1)); got != protocol.CodeOverloaded {
		t.Errorf("begin with %d attempts running: %q", maxAttempts, got)
	}
	if n := b.Len(); n != maxAttempts {
		t.Errorf("%d leases live", n)
	}
}
