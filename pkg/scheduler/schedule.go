package scheduler

import (
	"context"
	"math"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// Request is one prompt that looks for a worker. The scheduler keeps nothing of
// it.
type Request struct {
	// Lease to charge: ID, RequestID and Attempt; the rest is filled in. The ID
	// must be new.
	Lease protocol.Lease

	Tokens  int                  // of the prompt, at least 1
	Hashes  []protocol.BlockHash // of its whole blocks
	Matches []protocol.Match     // what the ranks hold of it, in any order
	Shared  []Span               // of its blocks, what a cache shared by all workers holds; in order, not overlapping

	// Usable says whether what the index knows of a rank can be relied on; nil is
	// yes for all. It is called without a lock held and decides nothing but
	// whether a choice is called load_only.
	Usable func(protocol.Worker) bool

	Pinned          *protocol.Pin
	Allowed         *[]string // workers; nil is all, an empty list none
	Excluded        []string  // workers
	RequiredTaints  []string
	PreferredTaints map[string]float64 // weights, finite
	Overrides       protocol.Overrides // of the pool's settings, finite and at least 0

	QueryOnly bool // decide and charge nothing
	Explain   bool // fill in Decision.Candidates
}

// Span is the blocks Start to End-1 of a prompt.
type Span struct{ Start, End int }

// Decision is where a request goes and what it was chosen by.
type Decision struct {
	Lease         protocol.Lease // as charged; zero for a query
	Worker        protocol.Worker
	Overlap       protocol.Overlap // what the worker holds of the prompt
	CachedTokens  int              // what that is worth, at most the prompt
	PrefillTokens int              // the rest of the prompt
	Cost          protocol.Cost
	Reason        protocol.Reason

	// PotentialBlocks is how many blocks the worker has active with this request,
	// the partial last one of its prompt included.
	PotentialBlocks int

	Queued     time.Duration        // before the choice
	Candidates []protocol.Candidate // every rank in order, if explained; Trust is left empty
}

// Schedule chooses a rank and charges the request to it, in one step. It fails
// with a *protocol.Error (no_workers, pinned_not_allowed, invalid_request,
// duplicate_request if the lease is charged already), or with the wrapped error
// of a context that was done before the request was charged. A failure charges
// nothing. It does not block, takes O(ranks + blocks) and, beside the decision
// and the charge, allocates nothing.
func (s *Scheduler) Schedule(ctx context.Context, r *Request) (*Decision, error) {
	if err := s.check(r); err != nil {
		return nil, err
	}
	buf := s.scratch.Get().(*scratch)
	defer s.scratch.Put(buf)
	d := s.newDecider(r, buf)
	decision, err := d.decide(ctx)
	if err != nil {
		return nil, err
	}
	if d.weighs(decision.Reason) && !d.anyUsable(decision.Worker) {
		decision.Reason = protocol.ReasonLoadOnly
	}
	if s.observer != nil && !r.QueryOnly {
		s.observer.Admitted(decision.Lease)
	}
	return decision, nil
}

// check finds what would make a cost no number or a charge no prompt's. The
// bounds of a call are checked where it comes in.
func (s *Scheduler) check(r *Request) error {
	if r.Tokens < 1 {
		return protocol.Errorf(protocol.CodeInvalidRequest, "token_ids: the prompt must not be empty")
	}
	if whole := protocol.WholeBlocks(r.Tokens, s.cfg.BlockSize, s.cfg.Eagle); len(r.Hashes) > whole {
		return protocol.Errorf(protocol.CodeInvalidRequest,
			"block_hashes: has %d hashes, but a prompt of %d tokens has %d whole blocks", len(r.Hashes), r.Tokens, whole)
	}
	for name, weight := range r.PreferredTaints {
		if math.IsNaN(weight) || math.IsInf(weight, 0) {
			return protocol.Errorf(protocol.CodeInvalidRequest, "preferred_taints.%s: must be finite", name)
		}
	}
	var faults []error
	for _, o := range [...]struct {
		name  string
		value *float64
	}{
		{"overlap_score_credit", r.Overrides.OverlapScoreCredit},
		{"prefill_load_scale", r.Overrides.PrefillLoadScale},
		{"router_temperature", r.Overrides.Temperature},
		{"shared_cache_multiplier", r.Overrides.SharedCacheMultiplier},
	} {
		if o.value != nil {
			faults = between(faults, o.name, *o.value, math.MaxFloat64)
		}
	}
	if len(faults) > 0 {
		return protocol.Errorf(protocol.CodeInvalidRequest, "overrides.%v", faults[0])
	}
	return nil
}
