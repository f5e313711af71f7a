package scheduler

import (
	"math"

	"github.com/routerd/routerd/pkg/protocol"
)

// choose takes one of the eligible ranks and says why.
func (d *decider) choose() (*rank, protocol.Cost, protocol.Reason) {
	if d.pinned != nil {
		return d.pinned, d.cost(d.pinned), protocol.ReasonPinned
	}
	var (
		chosen *rank
		cost   protocol.Cost
		reason protocol.Reason
	)
	switch {
	case d.price.policy == protocol.PolicyRoundRobin:
		chosen, reason = d.eligible[d.s.turn%uint64(len(d.eligible))], protocol.ReasonLowestCost
		d.s.turn++
		cost = d.cost(chosen)
	case d.price.policy == protocol.PolicyRandom:
		chosen, reason = d.eligible[d.s.rand.IntN(len(d.eligible))], protocol.ReasonSampled
		cost = d.cost(chosen)
	case d.temperature > 0:
		chosen, cost = d.sample()
		reason = protocol.ReasonSampled
	default:
		chosen, cost, reason = d.cheapest()
	}
	if len(d.eligible) == 1 {
		reason = protocol.ReasonOnlyEligible
	}
	return chosen, cost, reason
}

// cheapest takes the least cost. Of exactly equal ones each is taken with
// the same probability: the k-th takes the place of the one before with 1/k.
func (d *decider) cheapest() (*rank, protocol.Cost, protocol.Reason) {
	var (
		best protocol.Cost
		at   *rank
		tied int
	)
	for _, r := range d.eligible {
		cost := d.cost(r)
		switch {
		case at == nil || cost.Total < best.Total:
			best, at, tied = cost, r, 1
		case cost.Total == best.Total:
			tied++
			if d.s.rand.IntN(tied) == 0 {
				best, at = cost, r
			}
		}
	}
	if tied > 1 {
		return at, best, protocol.ReasonTie
	}
	return at, best, protocol.ReasonLowestCost
}

// sample draws a rank by the softmax of its cost at the temperature.
func (d *decider) sample() (*rank, protocol.Cost) {
	d.weights = d.weights[:0]
	for _, r := range d.eligible {
		d.weights = append(d.weights, d.cost(r).Total)
	}
	softmax(d.weights, d.temperature)
	chosen := d.eligible[draw(d.weights, d.s.rand.Float64())]
	return chosen, d.cost(chosen)
}

// softmax turns costs into probabilities in proportion to
// exp(-(cost - min)/((max - min)·temperature)): a shift or a positive scale of all
// costs changes nothing. Equal costs are equally likely.
func softmax(costs []float64, temperature float64) {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, c := range costs {
		lo, hi = min(lo, c), max(hi, c)
	}
	unit := 1.0
	if math.IsInf(hi-lo, 1) { // the range overflows: count in parts of the largest
		unit = max(math.Abs(lo), math.Abs(hi))
	}
	span := hi/unit - lo/unit
	sum := 0.0
	for i, c := range costs {
		costs[i] = 1
		if span > 0 {
			costs[i] = math.Exp(-(c/unit - lo/unit) / span / temperature)
		}
		sum += costs[i]
	}
	for i := range costs {
		costs[i] /= sum
	}
}

// draw is the first index at which the probabilities add up to u, or the last
// one where rounding leaves them short of it.
func draw(probabilities []float64, u float64) int {
	sum := 0.0
	for i, p := range probabilities {
		sum += p
		if u <= sum {
			return i
		}
	}
	return len(probabilities) - 1
}
