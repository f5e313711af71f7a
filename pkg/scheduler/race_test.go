package scheduler

import (
	"context"
	"sync"
	"testing"

	"github.com/routerd/routerd/pkg/protocol"
)

// Two requests never see the same free capacity: equal requests to equal workers
// end up equally many on each, however many callers there are.
func TestConcurrentRequestsBalance(t *testing.T) {
	const callers, each = 32, 25
	workers := []string{"w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8"}
	for _, policy := range []protocol.Policy{protocol.PolicyLoad, protocol.PolicyKV, protocol.PolicyLatency} {
		p := newPool(t, Config{Policy: policy}, workers...)
		var requests [callers][each]*Request
		for c := range requests {
			for i := range requests[c] {
				requests[c][i] = p.request(512)
			}
		}
		var group sync.WaitGroup
		for _, mine := range requests {
			group.Go(func() {
				for _, r := range mine {
					if _, err := p.Schedule(context.Background(), r); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		for _, l := range p.Loads() {
			if want := callers * each / len(workers); l.ActiveRequests != want {
				t.Errorf("%s: %s has %d requests, want %d", policy, l.Worker, l.ActiveRequests, want)
			}
		}
	}
}

// Everything at once leaves nothing charged.
func TestConcurrentUse(t *testing.T) {
	p := newPool(t, Config{Policy: protocol.PolicyKV}, "w1", "w2", "w3", "stays")
	var requests [8][200]*Request
	shared := p.request(320).Hashes
	for c := range requests {
		for i := range requests[c] {
			r := p.request(320)
			r.Hashes = append(shared[:i%20:i%20], r.Hashes[i%20:]...)
			r.Explain, r.QueryOnly = i%7 == 0, i%11 == 0
			r.Usable = func(protocol.Worker) bool { return false }
			requests[c][i] = r
		}
	}
	var group sync.WaitGroup
	for _, mine := range requests {
		group.Go(func() {
			for _, r := range mine {
				d, err := p.Schedule(context.Background(), r)
				if err != nil {
					t.Error(err)
					return
				}
				p.FirstToken(d.Lease.ID)
				p.Release(d.Lease.ID)
			}
		})
	}
	group.Go(func() {
		for i := range 300 {
			w := worker([]string{"w1", "w2", "w3"}[i%3])
			p.RemoveRank(w)
			if err := p.SetRank(Rank{Worker: w, Draining: i%2 == 0, Taints: []string{"a"}}); err != nil {
				t.Error(err)
			}
			p.Restore(protocol.Lease{ID: leaseID(1<<32 + uint64(i)), Worker: w, Blocks: 3})
			p.Loads()
		}
	})
	group.Wait()
	for i := range uint64(300) {
		p.Release(leaseID(1<<32 + i))
	}
	if got := p.total(); got != (protocol.WorkerLoad{}) || !p.active.empty() || len(p.bookings) != 0 {
		t.Errorf("load %+v is left after everything ended", got)
	}
}
