package scheduler

import (
	"context"
	"fmt"
	"slices"

	"github.com/routerd/routerd/pkg/protocol"
)

// decider is one request's way through the scheduler. Its methods are called
// with the scheduler's mutex held, but where they say otherwise.
type decider struct {
	s *Scheduler
	r *Request
	*scratch
	price       pricing
	temperature float64
	reuse       bool  // blocks are shared by prefix between requests
	pinned      *rank // nil if the request is not pinned
	next        candidate
}

// newDecider puts a request's overrides over the pool's settings.
func (s *Scheduler) newDecider(r *Request, buf *scratch) *decider {
	o := &r.Overrides
	d := &decider{
		s: s, r: r, scratch: buf,
		temperature: override(o.Temperature, s.cfg.Temperature),
		reuse:       override(o.AssumeKVReuse, true),
		price: pricing{
			policy: s.cfg.Policy, kv: s.cfg.KV, sharedHits: s.cfg.KV.SharedCacheMultiplier,
			blockSize: s.cfg.BlockSize, tokens: r.Tokens,
			track:      override(o.TrackPrefillTokens, true),
			decodeOnly: s.cfg.DecodeOnly,
			plain:      r.Pinned != nil || len(r.PreferredTaints) == 0,
		},
	}
	kv := &d.price.kv
	kv.OverlapScoreCredit = override(o.OverlapScoreCredit, kv.OverlapScoreCredit)
	kv.PrefillLoadScale = override(o.PrefillLoadScale, kv.PrefillLoadScale)
	kv.SharedCacheMultiplier = override(o.SharedCacheMultiplier, kv.SharedCacheMultiplier)
	return d
}

func override[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

// decide is the step that nothing comes between: eligibility, costs, choice and
// charge. It takes the mutex.
func (d *decider) decide(ctx context.Context) (*Decision, error) {
	s, r := d.s, d.r
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("schedule request: %w", err)
	}
	if !r.QueryOnly && s.bookings[r.Lease.ID] != nil {
		return nil, protocol.Errorf(protocol.CodeDuplicateRequest, "lease %s is charged already", r.Lease.ID)
	}
	if err := d.resolvePin(); err != nil {
		return nil, err
	}
	d.mark()
	if err := d.filter(); err != nil {
		return nil, err
	}
	if r.QueryOnly { // leaves the next request's luck and turn as they are
		source, turn := s.source, s.turn
		defer func() { s.source, s.turn = source, turn }()
	}
	chosen, reason := d.choose()
	decision := d.decision(chosen, reason)
	if r.Explain {
		decision.Candidates = d.explain()
	}
	if !r.QueryOnly {
		d.admit(chosen, decision)
	}
	return decision, nil
}

func (d *decider) decision(chosen *rank, reason protocol.Reason) *Decision {
	c := d.candidate(chosen)
	cached := min(d.price.cachedTokens(&c.overlap), d.r.Tokens)
	partial := max(d.price.promptBlocks()-len(d.r.Hashes), 0)
	return &Decision{
		Worker: chosen.worker, Overlap: c.overlap,
		CachedTokens: cached, PrefillTokens: d.r.Tokens - cached,
		PotentialBlocks: c.blocks + c.fresh + partial,
		Cost:            d.price.cost(c), Reason: reason,
	}
}

// admit charges the request. The charge is the work that the worker will do,
// whatever the policy made of what it holds.
func (d *decider) admit(chosen *rank, decision *Decision) {
	prefill := 0
	if d.price.track {
		prefill = decision.PrefillTokens
	}
	d.s.bookLocked(chosen, d.r.Lease.ID, prefill, d.r.Hashes, d.reuse)
	decision.Lease = d.r.Lease
	decision.Lease.Worker = chosen.worker
	decision.Lease.PromptTokens, decision.Lease.CachedTokens = d.r.Tokens, decision.CachedTokens
	decision.Lease.Blocks = len(d.r.Hashes)
}

// candidate collects what a rank's cost is made of. What it returns is good
// until the next call.
func (d *decider) candidate(r *rank) *candidate {
	c, m := &d.next, &d.marks[r.slot]
	c.prefill, c.blocks, c.requests = r.prefill, r.blocks, len(r.bookings)
	c.fresh = len(d.r.Hashes) - int(m.depth)
	c.overlap, c.profile = d.overlap(r), &r.profile
	c.shared, c.taints = 0, 0
	for _, span := range d.r.Shared {
		c.shared += max(0, span.End-max(span.Start, c.overlap.Device))
	}
	if !d.price.plain {
		for _, taint := range r.taints {
			c.taints += d.r.PreferredTaints[taint]
		}
	}
	return c
}

func (d *decider) total(r *rank) float64 { return d.price.total(d.candidate(r)) }

func (d *decider) overlap(r *rank) protocol.Overlap {
	if at := d.marks[r.slot].match; at > 0 {
		return d.r.Matches[at-1].Overlap
	}
	return protocol.Overlap{}
}

// explain has every rank of the pool with its cost or why it has none.
func (d *decider) explain() []protocol.Candidate {
	candidates := make([]protocol.Candidate, 0, len(d.s.order))
	for _, r := range d.s.order {
		overlap := d.overlap(r)
		candidate := protocol.Candidate{
			Worker: r.worker.ID, Rank: r.worker.Rank, Overlap: overlap,
			CachedTokens: min(d.price.cachedTokens(&overlap), d.r.Tokens),
			Why:          d.why(r),
		}
		if candidate.Why == "" {
			cost := d.price.cost(d.candidate(r))
			candidate.Cost, candidate.Eligible = &cost, true
		}
		candidates = append(candidates, candidate)
	}
	return candidates
}

// weighs says whether a choice for this reason was made by cost.
func (d *decider) weighs(reason protocol.Reason) bool {
	switch d.price.policy {
	case protocol.PolicyRandom, protocol.PolicyRoundRobin:
		return false
	}
	return reason != protocol.ReasonPinned && reason != protocol.ReasonOnlyEligible
}

// anyUsable says whether some eligible rank's part of the index can be relied
// on. It reads what never changes, and is called without the mutex.
func (d *decider) anyUsable(chosen protocol.Worker) bool {
	usable := d.r.Usable
	if usable == nil || usable(chosen) {
		return true
	}
	return slices.ContainsFunc(d.eligible, func(r *rank) bool { return usable(r.worker) })
}
