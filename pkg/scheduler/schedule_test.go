package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/pkg/protocol"
)

func TestDecision(t *testing.T) {
	p := newPool(t, Config{Policy: protocol.PolicyKV}, "w1", "w2")
	p.FirstToken(p.charge("w2", 10))
	p.FirstToken(p.charge("w1", 40))
	r := p.request(128)
	r.Matches = []protocol.Match{device("w2", 5), device("gone", 8)}
	d := p.schedule(r)

	lease := r.Lease
	lease.Worker, lease.PromptTokens, lease.CachedTokens, lease.Blocks = worker("w2"), 128, 80, 8
	want := &Decision{
		Lease: lease, Worker: worker("w2"), Overlap: protocol.Overlap{Device: 5},
		CachedTokens: 80, PrefillTokens: 48, PotentialBlocks: 18, Reason: protocol.ReasonLowestCost,
		Cost: protocol.Cost{Policy: protocol.PolicyKV, PrefillBlocks: 3, DecodeBlocks: 18, Multiplier: 1, Total: 21},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Error(diff)
	}
	if got, want := p.load("w2"), (protocol.WorkerLoad{Worker: "w2", ActivePrefillTokens: 48, ActiveDecodeBlocks: 18, ActiveRequests: 2}); got != want {
		t.Errorf("load %+v, want %+v", got, want)
	}
}

func TestCreditDecayCase6(t *testing.T) {
	for decay, want := range map[float64]string{0: "warm", 1: "xcold"} {
		p := decaying(t, decay)
		if d := p.schedule(toWarm(p)); d.Worker.ID != want {
			t.Errorf("decay %v: went to %s at %v, want %s", decay, d.Worker, d.Cost.Total, want)
		}
	}
}

// A rank's excess load is that over the ranks it competes with.
func TestCreditDecayAmongEligible(t *testing.T) {
	p := decaying(t, 1)
	pinned := toWarm(p)
	pinned.Pinned = &protocol.Pin{Worker: "warm"}
	alone := toWarm(p)
	alone.Excluded = []string{"xcold"}
	for name, r := range map[string]*Request{"pinned": pinned, "alone": alone} {
		r.QueryOnly = true
		near(t, name, p.schedule(r).Cost.Total, 3)
	}
	r := toWarm(p)
	r.QueryOnly, r.Explain = true, true
	near(t, "among both", p.schedule(r).Candidates[0].Cost.Total, 7-4/1.75)
}

// decaying is the pool of case 6: warm has 48 tokens to prefill, xcold none.
func decaying(t *testing.T, decay float64) *pool {
	kv := DefaultKVConfig()
	kv.OverlapCreditDecay = decay
	p := newPool(t, Config{Policy: protocol.PolicyKV, KV: kv}, "warm", "xcold")
	busy := p.request(48)
	busy.Hashes, busy.Pinned = nil, &protocol.Pin{Worker: "warm"}
	p.schedule(busy)
	return p
}

// toWarm is the request of case 6: warm holds all its blocks.
func toWarm(p *pool) *Request {
	r := p.request(64)
	r.Hashes, r.Matches = nil, []protocol.Match{device("warm", 4)}
	return r
}

func TestPreferredTaintsCase13(t *testing.T) {
	choose := func(preferred map[string]float64) (string, *Decision) {
		p := newPool(t, Config{Policy: protocol.PolicyKV})
		p.set(Rank{Worker: worker("tainted"), Taints: []string{"zone", "disk", "zone"}})
		p.set(Rank{Worker: worker("plain")})
		// tainted costs 101 and plain 91, or the other way round.
		more, less := "tainted", "plain"
		if preferred["zone"] < 0 {
			more, less = less, more
		}
		p.FirstToken(p.charge(more, 100))
		p.FirstToken(p.charge(less, 90))
		r := p.request(16)
		r.Hashes, r.PreferredTaints, r.Explain = nil, preferred, true
		d := p.schedule(r)
		return d.Worker.ID, d
	}
	cost := func(d *Decision, worker string) float64 {
		for _, c := range d.Candidates {
			if c.Worker == worker {
				return c.Cost.Total
			}
		}
		return -1
	}
	to, d := choose(map[string]float64{"zone": 0.85})
	if got := fmt.Sprintf("%.1f", cost(d, "tainted")); to != "tainted" || got != "50.6" {
		t.Errorf("+0.85: went to %s, tainted costs %s; want tainted at 50.6", to, got)
	}
	to, d = choose(map[string]float64{"zone": -0.25})
	if got := fmt.Sprintf("%.1f", cost(d, "tainted")); to != "plain" || got != "116.3" {
		t.Errorf("-0.25: went to %s, tainted costs %s; want plain, 116.3", to, got)
	}
	to, d = choose(map[string]float64{"zone": 0.85, "disk": -0.85, "none": 5})
	if got := cost(d, "tainted"); to != "plain" || got != 101 {
		t.Errorf("opposite weights: went to %s, tainted costs %v; want plain, 101", to, got)
	}
}

func TestRequiredTaintsCase14(t *testing.T) {
	p := newPool(t, Config{}, "w1")
	p.set(Rank{Worker: worker("w2"), Taints: []string{"b", "a"}})
	r := p.request(64)
	r.RequiredTaints = []string{"a", "b"}
	if d := p.schedule(r); d.Worker.ID != "w2" || d.Reason != protocol.ReasonOnlyEligible {
		t.Errorf("went to %s for %s, want w2, the only eligible one", d.Worker, d.Reason)
	}
	r = p.request(64)
	r.RequiredTaints = []string{"a", "c"}
	if err := p.refused(r, protocol.CodeNoWorkers); !strings.Contains(err.Message, "required_taints 2") {
		t.Errorf("the error does not say why: %v", err)
	}
	r.Pinned = &protocol.Pin{Worker: "w2"}
	p.refused(r, protocol.CodeNoWorkers)
}

func TestRanksCase15(t *testing.T) {
	p := newPool(t, Config{}, "other")
	for rank := range uint16(3) {
		p.set(Rank{Worker: protocol.Worker{ID: "w", Rank: 2 + rank}})
	}
	r := p.request(64)
	r.Allowed, r.Explain = &[]string{"w"}, true
	var eligible []uint16
	for _, c := range p.schedule(r).Candidates {
		if c.Eligible {
			eligible = append(eligible, c.Rank)
		}
	}
	if diff := cmp.Diff([]uint16{2, 3, 4}, eligible); diff != "" {
		t.Errorf("eligible ranks: %s", diff)
	}
	pin := func(worker string, rank *uint16) *Request {
		r := p.request(64)
		r.Pinned = &protocol.Pin{Worker: worker, Rank: rank}
		return r
	}
	p.refused(pin("w", ptr(uint16(5))), protocol.CodeNoWorkers)
	p.refused(pin("nobody", nil), protocol.CodeNoWorkers)
	p.refused(pin("nobody", ptr(uint16(0))), protocol.CodeNoWorkers)
	if err := p.refused(pin("w", nil), protocol.CodeInvalidRequest); !strings.Contains(err.Message, "pinned.rank") {
		t.Errorf("the error does not name the field: %v", err)
	}
	outside := pin("w", ptr(uint16(2)))
	outside.Allowed = &[]string{"other"}
	p.refused(outside, protocol.CodePinnedNotAllowed)
	excluded := pin("w", nil)
	excluded.Excluded = []string{"w"}
	p.refused(excluded, protocol.CodePinnedNotAllowed)
	p.refused(&Request{Lease: protocol.Lease{ID: leaseID(77)}, Tokens: 16,
		Pinned: &protocol.Pin{Worker: "nobody"}, Allowed: &[]string{}}, protocol.CodePinnedNotAllowed)
	if d := p.schedule(pin("w", ptr(uint16(3)))); d.Worker.Rank != 3 || d.Reason != protocol.ReasonPinned {
		t.Errorf("went to %s for %s, want w/3, pinned", d.Worker, d.Reason)
	}
	if d := p.schedule(pin("other", nil)); d.Worker.ID != "other" {
		t.Errorf("went to %s, want the pinned worker's only rank", d.Worker)
	}
}

// What the allow-list rules out is reported before what cannot be routed to.
func TestIneligibleCase16(t *testing.T) {
	p := newPool(t, Config{}, "w8")
	p.set(Rank{Worker: worker("w7"), Draining: true})
	r := p.request(64)
	r.Allowed, r.Explain = &[]string{"w8"}, true
	if why := p.schedule(r).Candidates[0].Why; why != "not_allowed" {
		t.Errorf("a draining worker outside the list is %q, want not_allowed", why)
	}
	r = p.request(64)
	r.Pinned = &protocol.Pin{Worker: "w7"}
	p.refused(r, protocol.CodeNoWorkers)
	r.Allowed = &[]string{"w8"}
	p.refused(r, protocol.CodePinnedNotAllowed)
}

func TestPotentialBlocksCase19(t *testing.T) {
	p := newPool(t, Config{}, "w1")
	p.charge("w1", 98)
	known := p.request(32)
	p.schedule(known)
	for _, test := range []struct {
		name   string
		tokens int
		hashes []protocol.BlockHash
		want   int
	}{
		{"untracked", 32, nil, 102},
		{"two new", 32, []protocol.BlockHash{1, 2}, 102},
		{"two shared", 32, known.Hashes, 100},
		{"two new and a partial one", 33, []protocol.BlockHash{1, 2}, 103},
	} {
		r := p.request(test.tokens)
		r.Hashes, r.QueryOnly = test.hashes, true
		if got := p.schedule(r).PotentialBlocks; got != test.want {
			t.Errorf("%s: %d blocks, want %d", test.name, got, test.want)
		}
	}
}

func TestPrefillCase22(t *testing.T) {
	p := newPool(t, Config{}, "w1")
	send := func(tokens, cached int) protocol.LeaseID {
		r := p.request(tokens)
		r.Matches = []protocol.Match{device("w1", cached)}
		return p.schedule(r).Lease.ID
	}
	send(12, 0)
	second := send(20, 1)
	send(32, 2)
	if got := p.load("w1").ActivePrefillTokens; got != 16 {
		t.Errorf("%d prefill tokens, want 16", got)
	}
	p.Release(second)
	if got := p.load("w1").ActivePrefillTokens; got != 12 {
		t.Errorf("%d prefill tokens, want 12", got)
	}
}

func TestDuplicateCase27(t *testing.T) {
	p := newPool(t, Config{}, "w1", "w2")
	r := p.request(64)
	r.Pinned = &protocol.Pin{Worker: "w1"}
	lease := p.schedule(r).Lease
	r.Pinned = &protocol.Pin{Worker: "w2"}
	p.refused(r, protocol.CodeDuplicateRequest)
	if p.Restore(lease) {
		t.Error("a charged lease was restored")
	}
	if p.Release(leaseID(12345)) {
		t.Error("an unknown lease was released")
	}
	if got := p.load("w1").ActiveRequests; got != 1 {
		t.Errorf("%d requests, want 1", got)
	}
	r.QueryOnly = true // charges nothing, so nothing is duplicated
	p.schedule(r)
}

func TestFirstTokenAndRelease(t *testing.T) {
	p := newPool(t, Config{}, "w1")
	id := p.schedule(p.request(100)).Lease.ID
	for range 2 {
		p.FirstToken(id)
		if got, want := p.load("w1"), (protocol.WorkerLoad{Worker: "w1", ActiveDecodeBlocks: 6, ActiveRequests: 1}); got != want {
			t.Errorf("after the first token %+v, want %+v", got, want)
		}
	}
	if !p.Release(id) || p.Release(id) {
		t.Error("Release must be true once and false then")
	}
	p.FirstToken(id)
	if got := p.load("w1"); got != (protocol.WorkerLoad{Worker: "w1"}) {
		t.Errorf("load %+v is left", got)
	}
}

func TestRestore(t *testing.T) {
	p := newPool(t, Config{}, "w1")
	r := p.request(64)
	p.schedule(r)
	l := protocol.Lease{ID: leaseID(500), Worker: worker("w1"), PromptTokens: 64, CachedTokens: 0, Blocks: 4}
	if !p.Restore(l) || p.Restore(l) {
		t.Error("Restore must be true once and false then")
	}
	if got, want := p.load("w1"), (protocol.WorkerLoad{Worker: "w1", ActivePrefillTokens: 64, ActiveDecodeBlocks: 8, ActiveRequests: 2}); got != want {
		t.Errorf("load %+v, want %+v", got, want)
	}
	l.ID, l.Worker = leaseID(501), worker("gone")
	if p.Restore(l) {
		t.Error("a lease of a worker that is not in the pool was restored")
	}
}

func TestRanksComeAndGo(t *testing.T) {
	p := newPool(t, Config{}, "w1", "w2")
	lost := p.charge("w1", 4)
	kept := p.charge("w2", 3)
	p.set(Rank{Worker: worker("w2"), Draining: true, Taints: []string{"a"}})
	p.RemoveRank(worker("w1"))
	p.RemoveRank(worker("w1"))
	if p.Release(lost) {
		t.Error("a removed rank's lease was still charged")
	}
	p.set(Rank{Worker: worker("w0")}) // takes the slot that w1 had
	p.set(Rank{Worker: worker("w1")})
	want := []protocol.WorkerLoad{
		{Worker: "w0"}, {Worker: "w1"},
		{Worker: "w2", ActivePrefillTokens: 48, ActiveDecodeBlocks: 3, ActiveRequests: 1},
	}
	if diff := cmp.Diff(want, p.Loads()); diff != "" {
		t.Error(diff)
	}
	for i := range 100 {
		w := worker(fmt.Sprint("passing-", i))
		p.set(Rank{Worker: w})
		p.RemoveRank(w)
	}
	if len(p.slots) != 4 || len(p.workers) != 3 {
		t.Errorf("%d slots and %d workers are kept for 3 ranks, at most 4 at a time", len(p.slots), len(p.workers))
	}
	p.Release(kept)
	if !p.active.empty() || len(p.bookings) != 0 {
		t.Error("something is charged after all leases ended")
	}
}

func TestQueryOnlyChangesNothing(t *testing.T) {
	choices := func(queries int) (workers string) {
		p := newPool(t, Config{Policy: protocol.PolicyRandom, Seed: 3}, "a", "b", "c", "d")
		observed := &recorder{}
		p.Observe(observed)
		for range 32 {
			for range queries {
				r := p.request(64)
				r.QueryOnly = true
				if d := p.schedule(r); d.Lease != (protocol.Lease{}) || d.PrefillTokens != 64 {
					t.Fatalf("a query gave lease %+v", d.Lease)
				}
			}
			if p.total().ActiveRequests != 0 {
				t.Fatal("a query was charged")
			}
			d := p.schedule(p.request(64))
			workers += d.Worker.ID
			p.Release(d.Lease.ID)
		}
		if len(observed.leases) != 32 {
			t.Errorf("%d admissions were observed, want 32", len(observed.leases))
		}
		return workers
	}
	if with, without := choices(3), choices(0); with != without {
		t.Errorf("queries changed the choices from %s to %s", without, with)
	}
}

type recorder struct {
	leases []protocol.Lease
	then   func(protocol.Lease)
}

func (r *recorder) Admitted(l protocol.Lease) {
	r.leases = append(r.leases, l)
	if r.then != nil {
		r.then(l)
	}
}

// The observer hears of the charged lease before Schedule returns, and may call
// back.
func TestObserver(t *testing.T) {
	p := newPool(t, Config{}, "w1")
	o := &recorder{then: func(l protocol.Lease) { p.FirstToken(l.ID) }}
	p.Observe(o)
	d := p.schedule(p.request(64))
	if len(o.leases) != 1 || o.leases[0] != d.Lease {
		t.Errorf("observed %+v, want %+v", o.leases, d.Lease)
	}
	if got := p.load("w1"); got.ActivePrefillTokens != 0 || got.ActiveRequests != 1 {
		t.Errorf("load %+v", got)
	}
}

func TestContextDone(t *testing.T) {
	p := newPool(t, Config{}, "w1")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := p.Schedule(ctx, p.request(64))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	if p.total().ActiveRequests != 0 {
		t.Error("a request without a caller was charged")
	}
}

func TestReasons(t *testing.T) {
	none := func(protocol.Worker) bool { return false }
	some := func(w protocol.Worker) bool { return w.ID == "w2" }
	tests := []struct {
		name   string
		cfg    Config
		change func(*Request)
		want   protocol.Reason
	}{
		{"pinned before all", Config{}, func(r *Request) { r.Pinned = &protocol.Pin{Worker: "w1"}; r.Usable = none }, protocol.ReasonPinned},
		{"only eligible", Config{}, func(r *Request) { r.Excluded = []string{"w1", "w3"}; r.Usable = none }, protocol.ReasonOnlyEligible},
		{"only eligible, sampling", Config{Temperature: 1}, func(r *Request) { r.Allowed = &[]string{"w1", "none"} }, protocol.ReasonOnlyEligible},
		{"no index", Config{}, func(r *Request) { r.Usable = none }, protocol.ReasonLoadOnly},
		{"no index, sampling", Config{Temperature: 1}, func(r *Request) { r.Usable = none }, protocol.ReasonLoadOnly},
		{"no index of an eligible one", Config{}, func(r *Request) { r.Usable = some; r.Excluded = []string{"w2"} }, protocol.ReasonLoadOnly},
		{"some index", Config{}, func(r *Request) { r.Usable = some }, protocol.ReasonTie},
		{"no index, random", Config{Policy: protocol.PolicyRandom}, func(r *Request) { r.Usable = none }, protocol.ReasonSampled},
		{"no index, round-robin", Config{Policy: protocol.PolicyRoundRobin}, func(r *Request) { r.Usable = none }, protocol.ReasonLowestCost},
		{"least cost", Config{}, func(r *Request) { r.Matches = []protocol.Match{device("w3", 2)} }, protocol.ReasonLowestCost},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := newPool(t, test.cfg, "w1", "w2", "w3")
			r := p.request(64)
			test.change(r)
			if got := p.schedule(r).Reason; got != test.want {
				t.Errorf("reason %q, want %q", got, test.want)
			}
		})
	}
}

func TestNoWorkers(t *testing.T) {
	p := newPool(t, Config{})
	p.refused(p.request(64), protocol.CodeNoWorkers)
	p.set(Rank{Worker: worker("w1")})
	p.set(Rank{Worker: worker("w2"), Draining: true})
	p.set(Rank{Worker: worker("w3")})
	r := p.request(64)
	r.Allowed, r.Excluded = &[]string{"w1", "w2"}, []string{"w1"}
	err := p.refused(r, protocol.CodeNoWorkers)
	if want := "not_allowed 1, excluded 1, draining 1"; !strings.Contains(err.Message, want) || !err.Retryable {
		t.Errorf("error %q, want %q in it", err.Message, want)
	}
	r.Allowed = &[]string{}
	p.refused(r, protocol.CodeNoWorkers)
}

func TestExplain(t *testing.T) {
	p := newPool(t, Config{Policy: protocol.PolicyKV}, "w1", "w5")
	p.set(Rank{Worker: worker("w2"), Draining: true})
	p.set(Rank{Worker: protocol.Worker{ID: "w3", Rank: 1}, Taints: []string{"a"}})
	p.set(Rank{Worker: protocol.Worker{ID: "w3", Rank: 0}, Taints: []string{"a"}})
	r := p.request(64)
	r.Explain, r.Excluded, r.RequiredTaints = true, []string{"w5"}, []string{"a"}
	r.Matches = []protocol.Match{device("w1", 3), device("w2", 1), {Worker: protocol.Worker{ID: "w3", Rank: 1}, Overlap: protocol.Overlap{Host: 4}}}
	d := p.schedule(r)
	want := []protocol.Candidate{
		{Worker: "w1", Overlap: protocol.Overlap{Device: 3}, CachedTokens: 48, Why: "required_taints"},
		{Worker: "w2", Overlap: protocol.Overlap{Device: 1}, CachedTokens: 16, Why: "draining"},
		{Worker: "w3", Eligible: true,
			Cost: &protocol.Cost{Policy: protocol.PolicyKV, PrefillBlocks: 4, DecodeBlocks: 4, Multiplier: 1, Total: 8}},
		{Worker: "w3", Rank: 1, Overlap: protocol.Overlap{Host: 4}, CachedTokens: 48, Eligible: true,
			Cost: &protocol.Cost{Policy: protocol.PolicyKV, PrefillBlocks: 1, DecodeBlocks: 4, Multiplier: 1, Total: 5}},
		{Worker: "w5", Why: "excluded"},
	}
	if diff := cmp.Diff(want, d.Candidates); diff != "" {
		t.Error(diff)
	}
	if d.Worker.Rank != 1 || d.Cost != *d.Candidates[3].Cost {
		t.Errorf("went to %s at %+v", d.Worker, d.Cost)
	}
	r = p.request(64)
	r.Explain, r.Pinned = true, &protocol.Pin{Worker: "w1"}
	whys := []string{}
	for _, c := range p.schedule(r).Candidates {
		whys = append(whys, c.Why)
	}
	if diff := cmp.Diff([]string{"", "not_pinned", "not_pinned", "not_pinned", "not_pinned"}, whys); diff != "" {
		t.Error(diff)
	}
}

func TestOverrides(t *testing.T) {
	kv := DefaultKVConfig()
	kv.SharedCacheMultiplier = 1
	shared := []Span{{0, 1}, {3, 6}} // of which blocks 3, 4, 5 are behind the device's part
	tests := []struct {
		name      string
		policy    protocol.Policy
		overrides protocol.Overrides
		prefill   float64 // blocks
		decode    float64
	}{
		{"none", protocol.PolicyKV, protocol.Overrides{}, 8 - 2 - 3, 8},
		{"credit", protocol.PolicyKV, protocol.Overrides{OverlapScoreCredit: ptr(2.0)}, 8 - 4 - 3, 8},
		{"scale", protocol.PolicyKV, protocol.Overrides{PrefillLoadScale: ptr(3.0)}, 9, 8},
		{"shared", protocol.PolicyKV, protocol.Overrides{SharedCacheMultiplier: ptr(0.0)}, 6, 8},
		{"untracked", protocol.PolicyKV, protocol.Overrides{TrackPrefillTokens: ptr(false)}, 0, 8},
		{"load", protocol.PolicyLoad, protocol.Overrides{OverlapScoreCredit: ptr(2.0), PrefillLoadScale: ptr(2.0)}, 16, 8},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := newPool(t, Config{Policy: test.policy, KV: kv}, "w1")
			r := p.request(128)
			r.Matches, r.Shared, r.Overrides = []protocol.Match{device("w1", 2)}, shared, test.overrides
			d := p.schedule(r)
			if d.Cost.PrefillBlocks != test.prefill || d.Cost.DecodeBlocks != test.decode {
				t.Errorf("cost %+v, want %v and %v blocks", d.Cost, test.prefill, test.decode)
			}
			charged := 96 // what the worker computes, whatever the policy counts
			if test.overrides.TrackPrefillTokens != nil {
				charged = 0
			}
			if got := p.load("w1").ActivePrefillTokens; got != charged || d.PrefillTokens != 96 || d.CachedTokens != 32 {
				t.Errorf("charged %d of %d tokens beside %d cached ones, want %d of 96 beside 32", got, d.PrefillTokens, d.CachedTokens, charged)
			}
		})
	}
}

// Under latency the credits and the scale mean nothing.
func TestOverridesUnderLatency(t *testing.T) {
	p := newPool(t, Config{}, "w1")
	cost := func(o protocol.Overrides) protocol.Cost {
		r := p.request(128)
		r.Matches, r.Shared, r.Overrides, r.QueryOnly = []protocol.Match{device("w1", 2)}, []Span{{0, 8}}, o, true
		return p.schedule(r).Cost
	}
	plain := cost(protocol.Overrides{})
	changed := cost(protocol.Overrides{OverlapScoreCredit: ptr(9.0), PrefillLoadScale: ptr(9.0), SharedCacheMultiplier: ptr(9.0)})
	if plain != changed {
		t.Errorf("cost %+v became %+v", plain, changed)
	}
}

// Without assumed reuse a request shares its blocks with no other.
func TestAssumeNoReuse(t *testing.T) {
	p := newPool(t, Config{Policy: protocol.PolicyKV}, "w1")
	first := p.request(64)
	p.schedule(first)
	for i, reuse := range []bool{true, false} {
		r := p.request(64)
		r.Hashes, r.Overrides.AssumeKVReuse = first.Hashes, ptr(reuse)
		d := p.schedule(r)
		want := []int{4, 8}[i]
		if got := p.load("w1").ActiveDecodeBlocks; got != want || d.Cost.DecodeBlocks != float64(want) {
			t.Errorf("reuse %v: %d active blocks, cost %v; want %d", reuse, got, d.Cost.DecodeBlocks, want)
		}
		p.Release(d.Lease.ID)
	}
}

func TestBadRequests(t *testing.T) {
	p := newPool(t, Config{}, "w1")
	for field, change := range map[string]func(*Request){
		"token_ids":                         func(r *Request) { r.Tokens, r.Hashes = 0, nil },
		"block_hashes":                      func(r *Request) { r.Hashes = make([]protocol.BlockHash, 5) },
		"preferred_taints.a":                func(r *Request) { r.PreferredTaints = map[string]float64{"a": math.NaN()} },
		"preferred_taints.b":                func(r *Request) { r.PreferredTaints = map[string]float64{"b": math.Inf(-1)} },
		"overrides.overlap_score_credit":    func(r *Request) { r.Overrides.OverlapScoreCredit = ptr(-1.0) },
		"overrides.prefill_load_scale":      func(r *Request) { r.Overrides.PrefillLoadScale = ptr(math.Inf(1)) },
		"overrides.router_temperature":      func(r *Request) { r.Overrides.Temperature = ptr(math.NaN()) },
		"overrides.shared_cache_multiplier": func(r *Request) { r.Overrides.SharedCacheMultiplier = ptr(-0.5) },
	} {
		r := p.request(64)
		change(r)
		if err := p.refused(r, protocol.CodeInvalidRequest); !strings.Contains(err.Message, field) {
			t.Errorf("error %q does not name %s", err.Message, field)
		}
	}
}
