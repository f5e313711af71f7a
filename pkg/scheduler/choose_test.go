package scheduler

import (
	"math"
	"testing"

	"github.com/routerd/routerd/pkg/protocol"
)

// uniform fails if the counts of equally likely draws differ by more than chance
// explains: at up to five cells a chi-square of 45 is beyond one in 10 million.
func uniform(t *testing.T, counts map[string]int, cells int) {
	t.Helper()
	total := 0
	for _, n := range counts {
		total += n
	}
	want := float64(total) / float64(cells)
	chi := want * float64(cells-len(counts))
	for _, n := range counts {
		chi += (float64(n) - want) * (float64(n) - want) / want
	}
	if chi > 45 {
		t.Errorf("%v is not uniform: chi-square %.1f", counts, chi)
	}
}

func (p *pool) draw(n int, change func(*Request)) map[string]int {
	p.t.Helper()
	counts := map[string]int{}
	for range n {
		r := p.request(64)
		change(r)
		d := p.schedule(r)
		counts[d.Worker.ID]++
		p.Release(d.Lease.ID)
	}
	return counts
}

func TestTiesCase18(t *testing.T) {
	for _, policy := range []protocol.Policy{protocol.PolicyLatency, protocol.PolicyKV, protocol.PolicyLoad} {
		p := newPool(t, Config{Policy: policy}, "w1", "w2", "w3")
		counts := p.draw(120, func(r *Request) {})
		if len(counts) < 2 {
			t.Errorf("%s: 120 ties went to %v", policy, counts)
		}
		uniform(t, counts, 3)
	}
}

func TestTiesAreUniform(t *testing.T) {
	p := newPool(t, Config{Policy: protocol.PolicyKV}, "w1", "w2", "w3", "w4", "w5")
	p.charge("w2", 3)
	counts := p.draw(20000, func(r *Request) {})
	if counts["w2"] > 0 {
		t.Errorf("the busy worker was drawn %d times", counts["w2"])
	}
	uniform(t, counts, 4)
}

func TestReasonTie(t *testing.T) {
	p := newPool(t, Config{Policy: protocol.PolicyKV}, "w1", "w2", "w3")
	if d := p.schedule(p.request(64)); d.Reason != protocol.ReasonTie {
		t.Errorf("reason %q, want tie", d.Reason)
	}
	p.schedule(p.request(64))
	if d := p.schedule(p.request(64)); d.Reason != protocol.ReasonLowestCost {
		t.Errorf("reason %q, want lowest_cost", d.Reason)
	}
}

func TestEqualSeedsChooseAlike(t *testing.T) {
	run := func(seed uint64) (workers string) {
		p := newPool(t, Config{Policy: protocol.PolicyKV, Seed: seed}, "a", "b", "c", "d")
		for range 64 {
			d := p.schedule(p.request(64))
			workers += d.Worker.ID
			p.Release(d.Lease.ID)
		}
		return workers
	}
	if a, b := run(7), run(7); a != b {
		t.Errorf("one seed gave %s and %s", a, b)
	}
	if a, b := run(7), run(8); a == b {
		t.Errorf("two seeds gave %s", a)
	}
}

func TestTemperature(t *testing.T) {
	p := newPool(t, Config{Policy: protocol.PolicyKV, Temperature: 0.5}, "w1", "w2", "w3")
	p.charge("w2", 1) // costs 2 more than w1
	p.charge("w3", 2) // costs 4 more than w1
	d := p.schedule(&Request{Lease: protocol.Lease{ID: leaseID(999)}, Tokens: 64, QueryOnly: true})
	if d.Reason != protocol.ReasonSampled {
		t.Errorf("reason %q, want sampled", d.Reason)
	}
	const draws = 30000
	counts := p.draw(draws, func(r *Request) {})
	sum := 1 + math.Exp(-1) + math.Exp(-2)
	for worker, weight := range map[string]float64{"w1": 1, "w2": math.Exp(-1), "w3": math.Exp(-2)} {
		want := weight / sum
		if got := float64(counts[worker]) / draws; math.Abs(got-want) > 0.02 {
			t.Errorf("%s was drawn with frequency %.3f, want %.3f", worker, got, want)
		}
	}
	exact := p.draw(100, func(r *Request) { r.Overrides.Temperature = ptr(0.0) })
	if exact["w1"] != 100 {
		t.Errorf("at temperature 0 went to %v, want the cheapest alone", exact)
	}
}

func TestSoftmax(t *testing.T) {
	tests := []struct {
		name        string
		costs       []float64
		temperature float64
		want        []float64
	}{
		{"equal costs", []float64{3, 3, 3, 3}, 0.1, []float64{0.25, 0.25, 0.25, 0.25}},
		{"range", []float64{0, 10}, 1, []float64{1 / (1 + math.Exp(-1)), math.Exp(-1) / (1 + math.Exp(-1))}},
		{"shifted and scaled", []float64{1000, 1005}, 1, []float64{1 / (1 + math.Exp(-1)), math.Exp(-1) / (1 + math.Exp(-1))}},
		{"cold", []float64{5, 1, 9}, 1e-300, []float64{0, 1, 0}},
		{"hot", []float64{5, 1}, math.MaxFloat64, []float64{0.5, 0.5}},
		{"overflowing range", []float64{-math.MaxFloat64, math.MaxFloat64}, 1, []float64{1 / (1 + math.Exp(-1)), math.Exp(-1) / (1 + math.Exp(-1))}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			softmax(test.costs, test.temperature)
			for i := range test.costs {
				near(t, "probability", test.costs[i], test.want[i])
			}
		})
	}
}

func TestDraw(t *testing.T) {
	p := []float64{0.25, 0.5, 0.25 - 1e-9}
	for u, want := range map[float64]int{0: 0, 0.25: 0, 0.26: 1, 0.75: 1, 0.76: 2, 0.9999999999: 2} {
		if got := draw(p, u); got != want {
			t.Errorf("draw at %v is %d, want %d", u, got, want)
		}
	}
}

func TestRoundRobin(t *testing.T) {
	p := newPool(t, Config{Policy: protocol.PolicyRoundRobin}, "w3", "w1", "w2")
	order := []string{"w1", "w2", "w3", "w1", "w2"}
	for i, want := range order {
		query := p.request(64)
		query.QueryOnly = true
		p.schedule(query)
		d := p.schedule(p.request(64))
		if d.Worker.ID != want || d.Reason != protocol.ReasonLowestCost || d.Cost.Total != 0 || d.Cost.Multiplier != 1 {
			t.Errorf("request %d went to %s with %+v for %s, want %s", i, d.Worker, d.Cost, d.Reason, want)
		}
	}
	p.set(Rank{Worker: worker("w2"), Draining: true})
	for _, want := range []string{"w3", "w1", "w3"} { // requests 5, 6, 7 modulo two eligible workers
		if d := p.schedule(p.request(64)); d.Worker.ID != want {
			t.Errorf("went to %s, want %s", d.Worker, want)
		}
	}
}

func TestRandomPolicy(t *testing.T) {
	p := newPool(t, Config{Policy: protocol.PolicyRandom, Temperature: 1}, "w1", "w2", "w3", "w4")
	p.charge("w1", 100)
	d := p.schedule(p.request(64))
	if d.Reason != protocol.ReasonSampled || d.Cost.Total != 0 {
		t.Errorf("%+v for %s, want no cost and sampled", d.Cost, d.Reason)
	}
	uniform(t, p.draw(8000, func(*Request) {}), 4)
}
