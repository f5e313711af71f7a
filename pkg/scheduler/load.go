package scheduler

import (
	"slices"

	"github.com/routerd/routerd/pkg/protocol"
)

// rank is one rank of a worker and what is charged to it.
type rank struct {
	worker protocol.Worker // never changes: may be read without the mutex
	slot   uint32          // index into what is kept per rank of the pool

	draining bool
	taints   []string // sorted, each once
	profile  profile

	prefill  int        // tokens of prompts whose first token is awaited
	blocks   int        // blocks of active prompts; those shared by prefix count once
	bookings []*booking // in no order
}

// booking is what one lease charges.
type booking struct {
	id      protocol.LeaseID
	rank    *rank
	index   int // into the rank's bookings
	prefill int // tokens still charged
	end     *node
	loose   int // blocks that are shared with no other request; end is nil then
}

// chargeLocked adds a booking to its rank.
func (s *Scheduler) chargeLocked(b *booking) {
	r := b.rank
	b.index = len(r.bookings)
	r.bookings = append(r.bookings, b)
	r.prefill += b.prefill
	r.blocks += b.loose
	s.bookings[b.id] = b
}

// bookLocked charges an admitted request; its blocks are shared by prefix with the
// rank's other requests if reuse is set.
func (s *Scheduler) bookLocked(r *rank, id protocol.LeaseID, prefill int, prompt []protocol.BlockHash, reuse bool) {
	b := &booking{id: id, rank: r, prefill: prefill}
	if reuse {
		end, added := s.active.add(r.slot, prompt)
		b.end, r.blocks = end, r.blocks+added
	} else {
		b.loose = len(prompt)
	}
	s.chargeLocked(b)
}

// dischargeLocked takes back all that a booking charges.
func (s *Scheduler) dischargeLocked(b *booking) {
	r := b.rank
	last := len(r.bookings) - 1
	r.bookings[b.index] = r.bookings[last]
	r.bookings[b.index].index = b.index
	r.bookings[last] = nil
	r.bookings = r.bookings[:last]
	r.prefill -= b.prefill
	r.blocks -= b.loose
	if b.end != nil {
		r.blocks -= s.active.remove(r.slot, b.end)
	}
	delete(s.bookings, b.id)
}

// FirstToken ends a lease's charge for prefill. A repeat, or an unknown lease,
// changes nothing.
func (s *Scheduler) FirstToken(id protocol.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.bookings[id]; b != nil {
		b.rank.prefill -= b.prefill
		b.prefill = 0
	}
}

// Release frees all that a lease charges, and says whether it charged anything.
// A repeat, or an unknown lease, changes nothing.
func (s *Scheduler) Release(id protocol.LeaseID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bookings[id]
	if b == nil {
		return false
	}
	s.dischargeLocked(b)
	return true
}

// Restore charges a lease that was admitted elsewhere and is known by its string
// alone: without prefill, and its blocks, whose hashes are not known, shared
// with no other request. It returns false, and changes nothing, if the lease is
// charged already or its worker is not in the pool.
func (s *Scheduler) Restore(l protocol.Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rankLocked(l.Worker)
	if r == nil || s.bookings[l.ID] != nil {
		return false
	}
	s.chargeLocked(&booking{id: l.ID, rank: r, loose: max(l.Blocks, 0)})
	return true
}

// Loads is what every rank is charged with, ordered by worker and rank.
func (s *Scheduler) Loads() []protocol.WorkerLoad {
	s.mu.Lock()
	defer s.mu.Unlock()
	loads := make([]protocol.WorkerLoad, 0, len(s.order))
	for _, r := range s.order {
		loads = append(loads, protocol.WorkerLoad{
			Worker: r.worker.ID, Rank: r.worker.Rank,
			ActivePrefillTokens: r.prefill, ActiveDecodeBlocks: r.blocks, ActiveRequests: len(r.bookings),
		})
	}
	return loads
}

// hasTaints says whether a rank has all of a list of taints.
func (r *rank) hasTaints(required []string) bool {
	for _, taint := range required {
		if _, found := slices.BinarySearch(r.taints, taint); !found {
			return false
		}
	}
	return true
}
