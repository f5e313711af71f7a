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
func (p *pricing) heldBlocks(o *protocol.Overlap) float64 {
	return float64(o.Device) + p.beyondDevice(o)
}

// beyondDevice is the part of E that follows on slower tiers.
func (p *pricing) beyondDevice(o *protocol.Overlap) float64 {
	return p.kv.HostWeight*float64(o.Host) + p.kv.DiskWeight*float64(o.Disk+o.External)
}

// cachedTokens is C, the tokens that E stands for.
func (p *pricing) cachedTokens(o *protocol.Overlap) int { return p.inTokens(p.heldBlocks(o)) }

func (p *pricing) inTokens(blocks float64) int { return int(math.Round(blocks * float64(p.blockSize))) }

// total is what the policy weighs for a candidate, lower being better.
func (p *pricing) total(c *candidate) float64 {
	switch p.policy {
	case protocol.PolicyKV, protocol.PolicyLoad:
		prefill, decode, requests := p.blocks(c)
		return p.multiplier(c) * (prefill + decode + requests)
	case protocol.PolicyLatency:
		queue, prefill, decode, memory := p.milliseconds(c)
		return p.multiplier(c) * (queue + prefill + decode + memory)
	}
	return 0
}

// cost is total with its terms.
func (p *pricing) cost(c *candidate) protocol.Cost {
	cost := protocol.Cost{Policy: p.policy, Multiplier: 1, Total: p.total(c)}
	switch p.policy {
	case protocol.PolicyKV, protocol.PolicyLoad:
		cost.PrefillBlocks, cost.DecodeBlocks, cost.RequestBlocks = p.blocks(c)
		cost.Multiplier = p.multiplier(c)
	case protocol.PolicyLatency:
		cost.QueueMS, cost.PrefillMS, cost.DecodeMS, cost.MemoryMS = p.milliseconds(c)
		cost.Multiplier = p.multiplier(c)
	}
	return cost
}

// multiplier is what the preferred taints make of a cost.
func (p *pricing) multiplier(c *candidate) float64 {
	if p.plain {
		return 1
	}
	return math.Exp(-math.Tanh(c.taints))
}

// blocks has the terms of the kv and load policies, see the package comment.
func (p *pricing) blocks(c *candidate) (prefill, decode, requests float64) {
	var credit, raw float64
	cached := 0
	if p.policy == protocol.PolicyKV {
		credit = p.kv.OverlapScoreCredit*p.decay(c.prefill)*float64(c.overlap.Device) +
			p.beyondDevice(&c.overlap) +
			p.kv.SharedCacheMultiplier*float64(c.shared)
		cached = p.cachedTokens(&c.overlap)
	}
	if p.track {
		raw = float64(c.prefill+max(p.tokens, cached)) / float64(p.blockSize)
	}
	// The two maxima keep a cost from falling below 0, where a taint's multiplier
	// would act the wrong way round.
	prefill = p.kv.PrefillLoadScale * max(0, raw-credit)
	decode = float64(c.blocks + c.fresh)
	if p.decodeOnly && !p.track && p.kv.OverlapScoreCredit > 0 {
		prefill, decode = 0, max(0, decode-credit)
	}
	return bounded(prefill), bounded(decode), bounded(p.kv.DecodeActiveRequestWeight * float64(c.requests))
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
