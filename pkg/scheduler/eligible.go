package scheduler

import (
	"fmt"
	"strings"

	"github.com/routerd/routerd/pkg/protocol"
)

// Why a rank is not eligible, in the order in which they are looked for.
const (
	whyNotAllowed     = "not_allowed"
	whyExcluded       = "excluded"
	whyNotPinned      = "not_pinned"
	whyDraining       = "draining"
	whyRequiredTaints = "required_taints"
)

// mark is what a request says about one rank, kept by slot.
type mark struct {
	match    int32 // 1 + index into the request's matches, 0 if there is none
	depth    int32 // leading blocks of the prompt that are active on the rank
	allowed  bool
	excluded bool
}

// scratch is the memory that one decision needs and the next one reuses. Its
// size follows the number of ranks.
type scratch struct {
	marks    []mark
	eligible []*rank // in order
	weights  []float64
}

// mark notes what the request says about the ranks.
func (d *decider) mark() {
	s, r := d.s, d.r
	if cap(d.marks) < len(s.slots) {
		d.marks = make([]mark, len(s.slots))
	}
	d.marks = d.marks[:len(s.slots)]
	clear(d.marks)
	for i := range r.Matches {
		if rank := s.rankLocked(r.Matches[i].Worker); rank != nil {
			d.marks[rank.slot].match = int32(i + 1)
		}
	}
	if d.reuse {
		s.active.match(r.Hashes, func(slot uint32, depth int) { d.marks[slot].depth = int32(depth) })
	}
	if r.Allowed != nil {
		for _, worker := range *r.Allowed {
			for _, rank := range s.workers[worker] {
				d.marks[rank.slot].allowed = true
			}
		}
	}
	for _, worker := range r.Excluded {
		for _, rank := range s.workers[worker] {
			d.marks[rank.slot].excluded = true
		}
	}
}

// why is the reason why a rank is not eligible, "" if it is.
func (d *decider) why(r *rank) string {
	m := &d.marks[r.slot]
	switch {
	case d.r.Allowed != nil && !m.allowed:
		return whyNotAllowed
	case m.excluded:
		return whyExcluded
	case d.pinned != nil && r != d.pinned:
		return whyNotPinned
	case r.draining:
		return whyDraining
	case !r.hasTaints(d.r.RequiredTaints):
		return whyRequiredTaints
	}
	return ""
}

// filter finds the eligible ranks, and the least prefill among them.
func (d *decider) filter() error {
	d.eligible = d.eligible[:0]
	if d.pinned != nil {
		if why := d.why(d.pinned); why != "" {
			return pinError(d.pinned.worker, why)
		}
		d.eligible = append(d.eligible, d.pinned)
		d.price.leastLoad = d.pinned.prefill
		return nil
	}
	for _, r := range d.s.order {
		if d.why(r) != "" {
			continue
		}
		if len(d.eligible) == 0 || r.prefill < d.price.leastLoad {
			d.price.leastLoad = r.prefill
		}
		d.eligible = append(d.eligible, r)
	}
	if len(d.eligible) == 0 {
		return d.noWorkers()
	}
	return nil
}

// resolvePin finds the pinned rank. Whether the request allows the worker
// is looked at first, so that a pin it forbids is refused whatever the pool has.
func (d *decider) resolvePin() error {
	pin := d.r.Pinned
	if pin == nil {
		return nil
	}
	if !d.r.allows(pin.Worker) {
		return protocol.Errorf(protocol.CodePinnedNotAllowed,
			"pinned.worker: %q is not among allowed_workers, or is among excluded_workers", pin.Worker)
	}
	ranks := d.s.workers[pin.Worker]
	if pin.Rank == nil && len(ranks) > 1 {
		return protocol.Errorf(protocol.CodeInvalidRequest,
			"pinned.rank: must be given, since worker %q has %d ranks", pin.Worker, len(ranks))
	}
	for _, r := range ranks {
		if pin.Rank == nil || r.worker.Rank == *pin.Rank {
			d.pinned = r
			return nil
		}
	}
	if pin.Rank != nil && len(ranks) > 0 {
		return protocol.Errorf(protocol.CodeNoWorkers, "pinned worker %q has no rank %d", pin.Worker, *pin.Rank)
	}
	return protocol.Errorf(protocol.CodeNoWorkers, "pinned worker %q is not in the pool", pin.Worker)
}

// allows says whether the request's lists admit a worker.
func (r *Request) allows(worker string) bool {
	for _, name := range r.Excluded {
		if name == worker {
			return false
		}
	}
	if r.Allowed == nil {
		return true
	}
	for _, name := range *r.Allowed {
		if name == worker {
			return true
		}
	}
	return false
}

func pinError(w protocol.Worker, why string) error {
	if why == whyDraining {
		return protocol.Errorf(protocol.CodeNoWorkers, "pinned worker %s is draining", w)
	}
	return protocol.Errorf(protocol.CodeNoWorkers, "pinned worker %s has not all of required_taints", w)
}

// noWorkers says how many ranks were left out for what.
func (d *decider) noWorkers() error {
	if len(d.s.order) == 0 {
		return protocol.Errorf(protocol.CodeNoWorkers, "the pool has no worker")
	}
	counts := map[string]int{}
	for _, r := range d.s.order {
		counts[d.why(r)]++
	}
	var text strings.Builder
	for _, why := range []string{whyNotAllowed, whyExcluded, whyDraining, whyRequiredTaints} {
		if counts[why] > 0 {
			fmt.Fprintf(&text, ", %s %d", why, counts[why])
		}
	}
	return protocol.Errorf(protocol.CodeNoWorkers, "none of the pool's %d ranks is eligible: %s",
		len(d.s.order), strings.TrimPrefix(text.String(), ", "))
}
