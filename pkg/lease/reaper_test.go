package lease

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/routerd/routerd/pkg/clock"
	"github.com/routerd/routerd/pkg/protocol"
)

// underRun calls f in virtual time while the manager's reaper works.
func underRun(t *testing.T, cfg Config, f func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		cfg.Clock = clock.Wall{} // the bubble's
		b := newBench(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		synctest.Wait()
		f(b)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestTouchedLeaseIsNeverReaped(t *testing.T) {
	underRun(t, Config{Interval: 300 * time.Second}, func(b *bench) {
		l := b.admit(newLease("r", 1, "w1"))
		for range 36 { // an hour
			time.Sleep(100 * time.Second)
			b.progress(l)
			b.lives(l, true)
		}
		b.stat("revived", b.Stats().Revived, 0)
		b.stat("reaped", b.Stats().Reaped, 0)
	})
}

// A lease without a sign of life is reaped by the second scan after the last,
// not the first: between one and two intervals after it. The interval is the
// long one while nothing was reported, the short one afterwards.
func TestQuietLeaseIsReapedBySecondScan(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for _, c := range []struct {
		reports  bool
		interval time.Duration
	}{{false, DefaultQuietInterval}, {true, DefaultInterval}} {
		for range 20 {
			phase := time.Duration(random.Int64N(int64(c.interval)))
			underRun(t, Config{}, func(b *bench) {
				time.Sleep(phase)
				l := b.admit(newLease("r", 1, "w1"))
				if c.reports {
					b.progress(l)
				}
				last := time.Now()
				firstScan := c.interval - time.Since(last.Add(-phase))%c.interval
				time.Sleep(firstScan + time.Nanosecond)
				synctest.Wait()
				b.lives(l, true)
				time.Sleep(c.interval - 2*time.Nanosecond)
				synctest.Wait()
				b.lives(l, true)
				time.Sleep(2 * time.Nanosecond)
				synctest.Wait()
				b.lives(l, false)
				if quiet := time.Since(last); quiet < c.interval || quiet > 2*c.interval+time.Nanosecond {
					b.t.Errorf("reaped after %v, interval %v", quiet, c.interval)
				}
				b.stat("reaped", b.Stats().Reaped, 1)
			})
		}
	}
}

// A reaped lease's tombstone stops admissions for two intervals, and never a
// report of progress.
func TestReapedLeaseComesBackByProgressAlone(t *testing.T) {
	b := newBench(t, Config{})
	reapAll := func() {
		for _, c := range []*chain{&b.silent, &b.reporting} {
			b.reap(c, b.cfg.QuietInterval)
			b.reap(c, b.cfg.QuietInterval)
		}
	}
	l := b.admit(newLease("r", 1, "w1"))
	reapAll()
	b.lives(l, false)

	b.advance(2*DefaultQuietInterval - 1)
	b.charge(l)
	b.Observer().Admitted(l)
	b.lives(l, false)
	b.stat("late", b.Stats().Late, 1)

	b.progress(l)
	b.lives(l, true)
	b.stat("revived", b.Stats().Revived, 1)

	reapAll()
	b.advance(2 * DefaultQuietInterval)
	b.charge(l)
	b.Observer().Admitted(l)
	b.lives(l, true)
	b.complete(l)
	b.lives(l, false)
}

// A completion that comes while the reaper has claimed the lease and not yet
// removed it leaves its tombstones: progress does not revive it.
func TestCompletionDuringExpiry(t *testing.T) {
	b := newBench(t, Config{})
	l := b.admit(newLease("r", 1, "w1"))
	b.silent.cursor = b.silent.head
	b.look(&b.silent, nil)
	b.silent.cursor = b.silent.head
	found, _ := b.look(&b.silent, nil)
	if len(found) != 1 {
		t.Fatalf("claimed %d leases, want 1", len(found))
	}
	if _, known := b.complete(l); known {
		t.Error("two callers ended one lease")
	}
	b.progress(l)
	b.release(b.expire(found, time.Minute))
	b.lives(l, false)
	b.progress(l)
	b.lives(l, false)
	if err := b.Begin("r", 1); err == nil {
		t.Error("a completed attempt began again")
	}
}

// A pass that leaves the lock in between sees every lease once, whatever is
// removed or added meanwhile.
func TestPassSurvivesChanges(t *testing.T) {
	b := newBench(t, Config{})
	var all []protocol.Lease
	for range 5 * reapChunk {
		all = append(all, b.admit(newLease(uuid.NewString(), 1, "w1")))
	}
	b.silent.cursor = b.silent.head
	for chunk, more := 0, true; more; chunk++ {
		_, more = b.look(&b.silent, nil)
		if cursor := b.silent.cursor; cursor != nil {
			b.complete(cursor.lease)
		}
		late := b.admit(newLease(uuid.NewString(), 1, "w1"))
		if b.leases[late.ID].clock.state.Load() != touched {
			t.Error("a lease admitted during a pass was looked at")
		}
	}
	looked := 0
	for _, l := range all {
		if r := b.leases[l.ID]; r != nil {
			looked++
			if r.clock.state.Load() != quiet {
				t.Fatal("a pass missed a lease")
			}
		}
	}
	if looked < 4*reapChunk {
		t.Fatalf("%d leases are left", looked)
	}
}

// Run ends with the manager where nobody cancels it.
func TestReaperEndsWithManager(t *testing.T) {
	m, err := New(Config{Ledger: newBook(), Interval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func(m *Manager) { ended <- m.Run(context.Background()) }(m)
	for !m.ran.Load() {
		runtime.Gosched()
	}
	if err := m.Run(t.Context()); err == nil {
		t.Error("a second Run did not fail")
	}
	m = nil
	deadline := time.After(10 * time.Second)
	for {
		runtime.GC()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			return
		case <-deadline:
			t.Fatal("the reaper keeps its manager alive")
		default:
			runtime.Gosched()
		}
	}
}
