package lease

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/pkg/clock"
	"github.com/routerd/routerd/pkg/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// book is a ledger that checks how it is kept.
type book struct {
	onRelease func(protocol.LeaseID) // called first, if set

	mu        sync.Mutex
	open      map[protocol.LeaseID]protocol.Lease
	prefill   map[protocol.LeaseID]bool
	taken     int // charges in all
	freed     int // charges freed
	unfounded int // Release without a charge
	absent    map[protocol.Worker]bool
}

func newBook() *book {
	return &book{
		open: map[protocol.LeaseID]protocol.Lease{}, prefill: map[protocol.LeaseID]bool{},
		absent: map[protocol.Worker]bool{},
	}
}

// charge is what a scheduler does before it calls its observer.
func (b *book) charge(l protocol.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.open[l.ID]; !ok {
		b.taken++
	}
	b.open[l.ID], b.prefill[l.ID] = l, true
}

func (b *book) FirstToken(id protocol.LeaseID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.prefill, id)
}

func (b *book) Release(id protocol.LeaseID) bool {
	if b.onRelease != nil {
		b.onRelease(id)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.open[id]; !ok {
		b.unfounded++
		return false
	}
	b.freed++
	delete(b.open, id)
	delete(b.prefill, id)
	return true
}

func (b *book) Restore(l protocol.Lease) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.absent[l.Worker] {
		return false
	}
	if _, ok := b.open[l.ID]; !ok {
		b.taken++
	}
	b.open[l.ID] = l
	return true
}

func (b *book) charged(id protocol.LeaseID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.open[id]
	return ok
}

func (b *book) prefilling(id protocol.LeaseID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.prefill[id]
}

// bench is a manager with its ledger and a clock that the test moves.
type bench struct {
	*Manager
	*book
	t     testing.TB
	clock *clock.Simulated
}

func newBench(t testing.TB, cfg Config) *bench {
	t.Helper()
	b := &bench{book: newBook(), t: t, clock: clock.NewSimulated(time.Unix(1_700_000_000, 0))}
	if cfg.Clock == nil {
		cfg.Clock = b.clock
	}
	cfg.Ledger = b.book
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.Manager = m
	t.Cleanup(func() { b.check() })
	return b
}

// check compares manager and ledger: what lives is charged, all else was freed
// once, and every index agrees with the others.
func (b *bench) check() {
	b.t.Helper()
	m := b.Manager
	m.mu.Lock()
	defer m.mu.Unlock()
	b.book.mu.Lock()
	defer b.book.mu.Unlock()
	if b.unfounded != 0 {
		b.t.Errorf("%d charges were freed twice or never taken", b.unfounded)
	}
	if b.taken-b.freed != len(b.open) {
		b.t.Errorf("%d charges taken, %d freed, %d open", b.taken, b.freed, len(b.open))
	}
	for id := range b.open {
		if m.leases[id] == nil {
			b.t.Errorf("lease %s is charged and does not live", id)
		}
	}
	inWorkers, inReaper := 0, 0
	for w, c := range m.workers {
		n := 0
		for r := c.head; r != nil; r = r.links[workerChain].next {
			n++
			if r.lease.Worker != w || m.leases[r.lease.ID] != r {
				b.t.Errorf("lease %s is in the chain of %s by mistake", r.lease.ID, w)
			}
		}
		if n == 0 {
			b.t.Errorf("worker %s is kept without a lease", w)
		}
		inWorkers += n
	}
	for _, c := range []*chain{&m.silent, &m.reporting} {
		for r := c.head; r != nil; r = r.links[reaperChain].next {
			inReaper++
			if m.reaperOf(r) != c {
				b.t.Errorf("lease %s is in the wrong reaper's chain", r.lease.ID)
			}
		}
	}
	if inWorkers != len(m.leases) || inReaper != len(m.leases) {
		b.t.Errorf("%d leases, %d in workers' chains, %d in reapers'", len(m.leases), inWorkers, inReaper)
	}
	if len(m.freeing) != 0 {
		b.t.Errorf("%d charges are still to be freed", len(m.freeing))
	}
	reserved := 0
	for id, attempts := range m.requests {
		if len(attempts) == 0 || len(attempts) > maxAttempts {
			b.t.Errorf("request %s has %d attempts", id, len(attempts))
		}
		for i := range attempts {
			a := &attempts[i]
			if a.reserved() {
				reserved++
			}
			if a.record != nil && (m.leases[a.record.lease.ID] != a.record || a.fate != running) {
				b.t.Errorf("request %s attempt %d has a record that does not live", id, a.number)
			}
		}
	}
	if reserved != m.reserved {
		b.t.Errorf("%d reservations counted, %d there", m.reserved, reserved)
	}
}

// advance moves the clock; a manager under Run reaps meanwhile.
func (b *bench) advance(d time.Duration) { b.clock.Advance(b.clock.Now().Add(d)) }

// admit reserves, charges and admits as a router does.
func (b *bench) admit(l protocol.Lease) protocol.Lease {
	b.t.Helper()
	if err := b.Begin(l.RequestID, l.Attempt); err != nil {
		b.t.Fatalf("begin %s/%d: %v", l.RequestID, l.Attempt, err)
	}
	b.charge(l)
	b.Observer().Admitted(l)
	return l
}

func newLease(request string, attempt uint32, worker string) protocol.Lease {
	return protocol.Lease{
		ID: uuid.New(), RequestID: request, Attempt: attempt, Worker: protocol.Worker{ID: worker},
		PromptTokens: 128, CachedTokens: 80, Blocks: 8,
	}
}

func (b *bench) progress(l protocol.Lease) {
	b.Progress(&protocol.ProgressReport{Lease: l.String(), RequestID: l.RequestID, Attempt: l.Attempt, OutputTokens: 1})
}

func (b *bench) complete(l protocol.Lease) (protocol.Lease, bool) {
	return b.Complete(&protocol.CompleteReport{Lease: l.String(), RequestID: l.RequestID, Attempt: l.Attempt})
}

func (b *bench) lives(l protocol.Lease, want bool) {
	b.t.Helper()
	b.Manager.mu.RLock()
	r := b.leases[l.ID]
	b.Manager.mu.RUnlock()
	if (r != nil) != want {
		b.t.Errorf("lease of %s/%d lives: %v, want %v", l.RequestID, l.Attempt, r != nil, want)
	}
	if b.charged(l.ID) != want {
		b.t.Errorf("lease of %s/%d is charged: %v, want %v", l.RequestID, l.Attempt, !want, want)
	}
}

// stat fails unless the named counter has a value.
func (b *bench) stat(name string, got uint64, want uint64) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s is %d, want %d", name, got, want)
	}
}
