package scheduler

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/routerd/routerd/pkg/protocol"
)

// BenchmarkSchedule decides, charges and releases one request. Every worker
// holds a part of the prompt, and the first quarter of it is active on all that
// have requests: a system prompt.
func BenchmarkSchedule(b *testing.B) {
	for _, workers := range []int{8, 256, 4096} {
		for _, blocks := range []int{16, 128, 2048} {
			for _, active := range []int{0, 1000} {
				b.Run(fmt.Sprintf("workers=%d/blocks=%d/active=%d", workers, blocks, active), func(b *testing.B) {
					benchmarkSchedule(b, protocol.PolicyLatency, workers, blocks, active)
				})
			}
		}
	}
}

func BenchmarkPolicy(b *testing.B) {
	for _, policy := range protocol.Policies {
		b.Run(string(policy), func(b *testing.B) { benchmarkSchedule(b, policy, 256, 128, 1000) })
	}
}

func benchmarkSchedule(b *testing.B, policy protocol.Policy, workers, blocks, active int) {
	names := make([]string, workers)
	for i := range names {
		names[i] = fmt.Sprintf("worker-%04d", i)
	}
	p := newPool(b, Config{Policy: policy}, names...)
	system := p.request(blocks / 4 * 16).Hashes
	for range active {
		r := p.request(blocks * 16)
		copy(r.Hashes, system)
		p.schedule(r)
	}
	requests := make([]*Request, 64)
	for i := range requests {
		r := p.request(blocks * 16)
		copy(r.Hashes, system)
		for j, name := range names {
			r.Matches = append(r.Matches, device(name, 1+(j+i)%blocks))
		}
		requests[i] = r
	}
	ctx := context.Background()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := requests[i%len(requests)]
		if _, err := p.Schedule(ctx, r); err != nil {
			b.Fatal(err)
		}
		p.Release(r.Lease.ID)
	}
}

// A decision's memory does not grow with the number of workers.
func TestScheduleAllocations(t *testing.T) {
	measure := func(workers int) float64 {
		names := make([]string, workers)
		for i := range names {
			names[i] = fmt.Sprintf("worker-%04d", i)
		}
		p := newPool(t, Config{}, names...)
		r := p.request(2048)
		for _, name := range names {
			r.Matches = append(r.Matches, device(name, 3))
		}
		least := math.Inf(1) // a collection, or the race detector, may empty the pool
		for range 50 {
			least = min(least, testing.AllocsPerRun(1, func() {
				p.schedule(r)
				p.Release(r.Lease.ID)
			}))
		}
		return least
	}
	if few, many := measure(2), measure(1024); many > few {
		t.Errorf("%v allocations with 2 workers, %v with 1,024", few, many)
	}
}
