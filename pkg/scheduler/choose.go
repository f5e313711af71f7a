package scheduler

import (
	"math"

	"github.com/routerd/routerd/pkg/protocol"
)

// choose takes one of the eligible ranks and says why.
func (d *decider) choose() (chosen *rank, reason protocol.Reason) {
	if d.pinned != nil {
		return d.pinned, protocol.ReasonPinned
	}
	switch {
	case d.price.policy == protocol.PolicyRoundRobin:
		chosen, reason = d.eligible[d.s.turn%uint64(len(d.eligible))], protocol.ReasonLowestCost
		d.s.turn++
	case d.price.policy == protocol.PolicyRandom:
		chosen, reason = d.eligible[d.s.rand.IntN(len(d.eligible))], protocol.ReasonSampled
	case d.temperature > 0:
		chosen, reason = d.sample(), protocol.ReasonSampled
	default:
		chosen, reason = d.cheapest()
	}
	if len(d.eligible) == 1 {
		reason = protocol.ReasonOnlyEligible
	}
	return chosen, reason
}

// cheapest takes the least cost. Of exactly equal ones each is taken with
// the same probability: the k-th takes the place of the one before with 1/k.
func (d *decider) cheapest() (*rank, protocol.Reason) {
	var (
		chosen *rank
		least  float64
		tied   int
	)
	for _, r := range d.eligible {
		total := d.total(r)
		switch {
		case chosen == nil || total < least:
			chosen, least, tied = r, total, 1
		case total == least:
			tied++
			if d.s.rand.IntN(tied) == 0 {
				chosen = r
			}
		}
	}
	if tied > 1 {
		return chosen, protocol.ReasonTie
	}
	return chosen, protocol.ReasonLowestCost
}

// sample draws a rank by the softmax of its cost at the temperature.
func (d *decider) sample() *rank {
	d.weights = d.weights[:0]
	for _, r := range d.eligible {
		d.weights = append(d.weights, d.total(r))
	}
	softmax(d.weights, d.temperature)
	return d.eligible[draw(d.weights, d.s.rand.Float64())]
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
