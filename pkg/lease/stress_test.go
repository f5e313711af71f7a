package lease

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// act does one random thing to a manager, with few names so that they meet.
// leases are those made so far, shared by all that act.
func (b *bench) act(random *rand.Rand, leases *leaseList) {
	request := fmt.Sprint("r", random.IntN(8))
	attempt := uint32(1 + random.IntN(4))
	worker := fmt.Sprint("w", random.IntN(3))
	switch random.IntN(16) {
	case 0, 1, 2, 3: // a routing call that is admitted, given up, or withdrawn
		if b.Begin(request, attempt) != nil {
			return
		}
		if random.IntN(4) == 0 {
			b.Abandon(request, attempt)
			return
		}
		l := newLease(request, attempt, worker)
		b.charge(l)
		b.Observer().Admitted(l)
		leases.add(l) // nobody has the lease before
		if random.IntN(8) == 0 {
			b.Complete(&protocol.CompleteReport{RequestID: request, Attempt: attempt})
		}
	case 4: // an admission that nobody reserved
		l := newLease(request, attempt, worker)
		b.charge(l)
		b.Observer().Admitted(l)
		leases.add(l) // nobody has the lease before
	case 5: // a lease that this router never heard of
		l := newLease(request, attempt, worker)
		b.progress(l)
		leases.add(l)
	case 6, 7, 8:
		b.progress(leases.pick(random))
	case 9:
		b.Progress(&protocol.ProgressReport{Lease: new(leases.pick(random)).String()})
	case 10, 11:
		b.complete(leases.pick(random))
	case 12:
		b.Complete(&protocol.CompleteReport{RequestID: request, Attempt: attempt})
	case 13:
		b.EndWorker(protocol.Worker{ID: worker})
	case 14:
		b.Observer().Completed(leases.pick(random).ID)
	case 15:
		b.Stats()
		b.advance(time.Duration(random.IntN(30)) * time.Second)
	}
}

// leaseList holds the last leases that were made.
type leaseList struct {
	mu   sync.Mutex
	last [32]protocol.Lease
	n    int
}

func (l *leaseList) add(lease protocol.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last[l.n%len(l.last)] = lease
	l.n++
}

// pick is one of the last leases; a lease of nobody if there is none.
func (l *leaseList) pick(random *rand.Rand) protocol.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == 0 {
		return newLease("r0", 1, "w0")
	}
	return l.last[random.IntN(min(l.n, len(l.last)))]
}

// After each of many random operations, one at a time, the indexes agree with
// each other and with the ledger, also with bounds so tight that all are met.
func TestRandomOperations(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range 40 {
		random := rand.New(rand.NewPCG(seed, uint64(round)))
		b := newBench(t, Config{MaxLeases: 1 + random.IntN(12), MaxTombstones: 1 + random.IntN(24)})
		leases := new(leaseList)
		for step := range 400 {
			switch random.IntN(20) {
			case 0:
				b.reap(&b.silent, b.cfg.QuietInterval)
			case 1:
				b.reap(&b.reporting, b.cfg.Interval)
			default:
				b.act(random, leases)
			}
			if b.check(); t.Failed() {
				t.Fatalf("round %d, step %d", round, step)
			}
			if s := b.Stats(); s.Live+s.Reserved > b.cfg.MaxLeases || s.Tombstones > b.cfg.MaxTombstones {
				t.Fatalf("round %d, step %d: past a bound: %+v", round, step, s)
			}
		}
	}
}

// Completions, expiries, reports, retries and departures race on the same few
// leases; every charge is freed exactly once, and in the end none is left.
func TestEveryChargeIsFreedOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range 5 {
		b := newBench(t, Config{MaxLeases: 64, MaxTombstones: 256})
		leases := new(leaseList)
		var actors, reaper sync.WaitGroup
		for actor := range 6 {
			random := rand.New(rand.NewPCG(seed, uint64(10*round+actor)))
			actors.Go(func() {
				for range 1000 {
					b.act(random, leases)
				}
			})
		}
		stop := make(chan struct{})
		reaper.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					b.reap(&b.silent, b.cfg.QuietInterval)
					b.reap(&b.reporting, b.cfg.Interval)
				}
			}
		})
		actors.Wait()
		close(stop)
		reaper.Wait()
		if b.check(); t.Failed() {
			t.Fatalf("round %d", round)
		}
		for range 2 {
			b.reap(&b.silent, b.cfg.QuietInterval)
			b.reap(&b.reporting, b.cfg.Interval)
		}
		if len(b.open) != 0 || b.Len() != 0 || b.taken != b.freed {
			t.Fatalf("round %d: %d charges open, %d leases, %d taken, %d freed", round, len(b.open), b.Len(), b.taken, b.freed)
		}
	}
}

// One lease, everyone at once: the tightest race, many times.
func TestOneLeaseEndsOnce(t *testing.T) {
	b := newBench(t, Config{})
	for range 2000 {
		l := b.admit(newLease("r", uint32(b.taken+1), "w1"))
		var group sync.WaitGroup
		start := make(chan struct{})
		for _, f := range []func(){
			func() { b.complete(l) },
			func() { b.Complete(&protocol.CompleteReport{RequestID: l.RequestID, Attempt: l.Attempt}) },
			func() { b.progress(l) },
			func() { b.EndWorker(l.Worker) },
			func() { b.reap(&b.silent, b.cfg.QuietInterval); b.reap(&b.silent, b.cfg.QuietInterval) },
			func() { b.reap(&b.reporting, b.cfg.Interval); b.reap(&b.reporting, b.cfg.Interval) },
		} {
			group.Go(func() {
				<-start
				f()
			})
		}
		close(start)
		group.Wait()
		b.progress(l)
		b.lives(l, false) // it was completed
		if t.Failed() {
			t.FailNow()
		}
	}
}
