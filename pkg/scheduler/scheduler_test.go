package scheduler

import (
	"context"
	"encoding/binary"
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 takes one from the clock")

// newRand is a random source that a failed test names, so that it can be repeated.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// pool is a scheduler with workers that a test can be short about.
type pool struct {
	*Scheduler
	t     testing.TB
	lease uint64
}

// newPool has workers of rank 0, each with 65,536 blocks.
func newPool(t testing.TB, cfg Config, workers ...string) *pool {
	t.Helper()
	if cfg.BlockSize == 0 {
		cfg.BlockSize = 16
	}
	if cfg.Seed == 0 {
		cfg.Seed = 1
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &pool{Scheduler: s, t: t}
	for _, w := range workers {
		p.set(Rank{Worker: worker(w), TotalBlocks: 65536})
	}
	return p
}

func (p *pool) set(r Rank) {
	p.t.Helper()
	if err := p.SetRank(r); err != nil {
		p.t.Fatal(err)
	}
}

// request is of a prompt that shares nothing with any other.
func (p *pool) request(tokens int) *Request {
	p.lease++
	r := &Request{Lease: protocol.Lease{ID: leaseID(p.lease), RequestID: "r", Attempt: 1}, Tokens: tokens}
	for i := range tokens / p.cfg.BlockSize {
		r.Hashes = append(r.Hashes, protocol.BlockHash(p.lease<<32+uint64(i)))
	}
	return r
}

func (p *pool) schedule(r *Request) *Decision {
	p.t.Helper()
	d, err := p.Schedule(context.Background(), r)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

// charge sends an unshared prompt of so many whole blocks to a worker.
func (p *pool) charge(worker string, blocks int) protocol.LeaseID {
	p.t.Helper()
	r := p.request(blocks * p.cfg.BlockSize)
	r.Pinned = &protocol.Pin{Worker: worker}
	return p.schedule(r).Lease.ID
}

// refused schedules a request that must fail with a code, and charge nothing.
func (p *pool) refused(r *Request, code protocol.Code) *protocol.Error {
	p.t.Helper()
	before := p.total()
	d, err := p.Schedule(context.Background(), r)
	if err == nil {
		p.t.Fatalf("went to %s, want error %s", d.Worker, code)
	}
	failure, ok := err.(*protocol.Error)
	if !ok || failure.Code != code {
		p.t.Fatalf("error %v, want code %s", err, code)
	}
	if after := p.total(); after != before {
		p.t.Fatalf("the refused request changed the load from %+v to %+v", before, after)
	}
	return failure
}

func (p *pool) total() protocol.WorkerLoad {
	var sum protocol.WorkerLoad
	for _, l := range p.Loads() {
		sum.ActivePrefillTokens += l.ActivePrefillTokens
		sum.ActiveDecodeBlocks += l.ActiveDecodeBlocks
		sum.ActiveRequests += l.ActiveRequests
	}
	return sum
}

func (p *pool) load(worker string) protocol.WorkerLoad {
	p.t.Helper()
	for _, l := range p.Loads() {
		if l.Worker == worker {
			return l
		}
	}
	p.t.Fatalf("no load row for %s", worker)
	return protocol.WorkerLoad{}
}

func worker(id string) protocol.Worker { return protocol.Worker{ID: id} }

func leaseID(n uint64) (id protocol.LeaseID) {
	binary.BigEndian.PutUint64(id[8:], n)
	return id
}

func device(worker string, blocks int) protocol.Match {
	return protocol.Match{Worker: protocol.Worker{ID: worker}, Overlap: protocol.Overlap{Device: blocks}}
}

func ptr[T any](v T) *T { return &v }

// near fails unless two figures agree but for rounding.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}
