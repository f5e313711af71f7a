package lease

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"weak"

	"github.com/routerd/routerd/pkg/protocol"
)

// watcher is what a scheduler calls.
type watcher interface {
	Admitted(protocol.Lease)
	Progressed(protocol.LeaseID)
	Completed(protocol.LeaseID)
}

// strongObserver is the mistake that Observer avoids: it does the same and holds
// its manager for good.
type strongObserver struct{ manager *Manager }

func (o strongObserver) Admitted(l protocol.Lease)      { o.manager.admit(l) }
func (o strongObserver) Progressed(id protocol.LeaseID) { o.manager.touch(id) }
func (o strongObserver) Completed(id protocol.LeaseID) {
	o.manager.complete(protocol.Lease{ID: id})
}

// booker is a scheduler in so far as it outlives its router and calls an
// observer. The manager has it as its ledger.
type booker struct {
	*book
	observer watcher
}

func (s *booker) schedule(l protocol.Lease) {
	s.charge(l)
	s.observer.Admitted(l)
}

// build makes the manager of a router with its reaper running; stop ends that.
func build(t *testing.T, observe func(*Manager) watcher) (s *booker, m *Manager, stop func()) {
	t.Helper()
	s = &booker{book: newBook()}
	m, err := New(Config{Ledger: s})
	if err != nil {
		t.Fatal(err)
	}
	s.observer = observe(m)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func(m *Manager) { ended <- m.Run(ctx) }(m)
	return s, m, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// useAndClose builds a router, uses it as the sequence says and closes it. What
// is left are the scheduler and weak pointers.
func useAndClose(t *testing.T, observe func(*Manager) watcher) (*booker, weak.Pointer[Manager]) {
	t.Helper()
	s, m, stop := build(t, observe)
	l := newLease("r", 1, "w1")
	if err := m.Begin("r", 1); err != nil {
		t.Fatal(err)
	}
	s.schedule(l)
	r := m.leases[l.ID]
	if r == nil {
		t.Fatal("no record after admission")
	}
	if r.clock.reap() {
		t.Error("the first scan reaped a new lease")
	}
	s.observer.Progressed(l.ID)
	if r.clock.reap() {
		t.Error("the scan after progress reaped the lease")
	}
	s.observer.Completed(l.ID)
	if m.Len() != 0 || s.charged(l.ID) {
		t.Error("a completed lease has a record or a charge")
	}
	held := weak.Make(m)
	stop()
	return s, held
}

// collected runs the collector until the manager is gone, or has had its chances.
func collected(held weak.Pointer[Manager]) bool {
	for range 20 {
		runtime.GC()
		if held.Value() == nil {
			return true
		}
	}
	return false
}

func weakly(m *Manager) watcher   { return m.Observer() }
func strongly(m *Manager) watcher { return strongObserver{m} }

func TestObserverDoesNotKeepManager(t *testing.T) {
	s, held := useAndClose(t, weakly)
	if !collected(held) {
		t.Fatal("the manager of a closed router is still there")
	}
	late := newLease("late", 1, "w1")
	s.observer.Admitted(late)
	s.observer.Progressed(late.ID)
	s.observer.Completed(late.ID)
	if held.Value() != nil || s.taken != 1 || s.freed != 1 {
		t.Error("a dangling observer did something")
	}
	runtime.KeepAlive(s)
}

// The same sequence with an observer that holds its manager: it shows that the
// check can fail.
func TestStrongObserverKeepsManager(t *testing.T) {
	s, held := useAndClose(t, strongly)
	if collected(held) {
		t.Fatal("the manager went although a strong observer holds it")
	}
	runtime.KeepAlive(s)
}

// Construction that fails after the observer was handed over leaves nothing.
func TestFailedConstructionLeavesNoManager(t *testing.T) {
	construct := func() (*booker, weak.Pointer[Manager], error) {
		s := &booker{book: newBook()}
		m, err := New(Config{Ledger: s})
		if err != nil {
			t.Fatal(err)
		}
		s.observer = m.Observer()
		return s, weak.Make(m), errors.New("the next step failed")
	}
	s, held, err := construct()
	if err == nil {
		t.Fatal("construction went on")
	}
	if !collected(held) {
		t.Fatal("a half-built router's manager is still there")
	}
	s.schedule(newLease("r", 1, "w1"))
	runtime.KeepAlive(s)
}

// Callbacks that race with the collection of the manager are either taken or do
// nothing, and do not keep it.
func TestCallbacksDuringCollection(t *testing.T) {
	s, m, stop := build(t, weakly)
	l := newLease("r", 1, "w1")
	s.schedule(l)
	held := weak.Make(m)
	m = nil
	stop()
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for range 1000 {
				s.observer.Progressed(l.ID)
				runtime.Gosched()
			}
		})
	}
	for range 5 {
		runtime.GC()
	}
	group.Wait()
	if !collected(held) {
		t.Fatal("callbacks keep the manager alive")
	}
	s.observer.Completed(l.ID)
	if !s.charged(l.ID) {
		t.Error("a dangling observer completed a lease")
	}
}
