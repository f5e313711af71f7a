package scheduler

import (
	"math"

	"github.com/routerd/routerd/pkg/protocol"
)

// candidate is what the cost of a request on one rank is made of.
type candidate struct {
	prefill  int // A: active prefill tokens of the rank
	blocks   int // D: active blocks of the rank
	requests int // Q: active requests of the rank
	fresh    int // X: blocks of the request that are not active on the rank

	overlap protocol.Overlap // of the prompt, held by the rank
	shared  int              // blocks behind overlap's device part in a cache shared by all workers

	taints  float64 // sum of the weights of preferred taints that the rank has
	profile *profile
}

// pricing is what the costs of one request depend on beside the candidate.
type pricing struct {
	policy     protocol.Policy
	kv         KVConfig // with the request's overrides
	sharedHits float64  // what a shared hit counts for in cached tokens under latency
	blockSize  int
	tokens     int  // L
	track      bool // prefill is tracked
	decodeOnly bool
	leastLoad  int  // the least A of the eligible ranks
	plain      bool // preferred taints do not count
}

// heldBlocks is E: leading blocks held, weighted by tier.
func (p *pricing) heldBlocks(o protocol.Overlap) float64 {
	return float64(o.Device) + p.beyondDevice(o)
}

// beyondDevice is the part of E that follows on slower tiers.
func (p *pricing) beyondDevice(o protocol.Overlap) float64 {
	return p.kv.HostWeight*float64(o.Host) + p.kv.DiskWeight*float64(o.Disk+o.External)
}

// cachedTokens is C, the tokens that E stands for.
func (p *pricing) cachedTokens(o protocol.Overlap) int { return p.inTokens(p.heldBlocks(o)) }

func (p *pricing) inTokens(blocks float64) int { return int(math.Round(blocks * float64(p.blockSize))) }

// cost is what the policy weighs for a candidate, lower being better.
func (p *pricing) cost(c *candidate) protocol.Cost {
	var cost protocol.Cost
	switch p.policy {
	case protocol.PolicyKV:
		cost = p.kvCost(c)
	case protocol.PolicyLoad:
		bare := *c
		bare.overlap, bare.shared = protocol.Overlap{}, 0
		cost = p.kvCost(&bare)
	case protocol.PolicyLatency:
		cost = p.latencyCost(c)
	default:
		return protocol.Cost{Policy: p.policy, Multiplier: 1}
	}
	cost.Policy, cost.Multiplier = p.policy, 1
	if !p.plain {
		cost.Multiplier = math.Exp(-math.Tanh(c.taints))
	}
	cost.Total = cost.Multiplier * (cost.PrefillBlocks + cost.DecodeBlocks + cost.RequestBlocks +
		cost.QueueMS + cost.PrefillMS + cost.DecodeMS + cost.MemoryMS)
	return cost
}

// kvCost has the block terms of the kv policy, see the package comment.
func (p *pricing) kvCost(c *candidate) protocol.Cost {
	credit := p.kv.OverlapScoreCredit*p.decay(c.prefill)*float64(c.overlap.Device) +
		p.beyondDevice(c.overlap) +
		p.kv.SharedCacheMultiplier*float64(c.shared)
	raw := 0.0
	if p.track {
		raw = float64(c.prefill+max(p.tokens, p.cachedTokens(c.overlap))) / float64(p.blockSize)
	}
	// The two maxima keep a cost from falling below 0, where a taint's multiplier
	// would act the wrong way round.
	prefill := p.kv.PrefillLoadScale * max(0, raw-credit)
	decode := float64(c.blocks + c.fresh)
	if p.decodeOnly && !p.track && p.kv.OverlapScoreCredit > 0 {
		prefill, decode = 0, max(0, decode-credit)
	}
	return protocol.Cost{
		PrefillBlocks: bounded(prefill),
		DecodeBlocks:  bounded(decode),
		RequestBlocks: bounded(p.kv.DecodeActiveRequestWeight * float64(c.requests)),
	}
}

// decay is the part of the device credit that is left to a rank with more
// prefill ahead than the least loaded one.
func (p *pricing) decay(prefill int) float64 {
	if !p.track || p.kv.OverlapCreditDecay == 0 {
		return 1
	}
	excess := float64(max(prefill-p.leastLoad, 0)) / float64(p.blockSize)
	return 1 / (1 + p.kv.OverlapCreditDecay*excess/float64(p.promptBlocks()))
}

// promptBlocks is the blocks of the prompt, a partial last one included.
func (p *pricing) promptBlocks() int { return (p.tokens + p.blockSize - 1) / p.blockSize }

// bounded keeps a term finite, so that sums and multiples of terms are, whatever
// settings a request brings along.
func bounded(term float64) float64 { return min(term, math.MaxFloat64/64) }
