package scheduler

import (
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/routerd/routerd/pkg/protocol"
)

// Observer hears of admitted requests. Its method is called by Schedule's own
// goroutine, without a lock held and before Schedule returns.
type Observer interface{ Admitted(protocol.Lease) }

// Rank is one serving rank of a worker, as the roster has it.
type Rank struct {
	Worker           protocol.Worker
	TotalBlocks      uint64            // that the rank can hold; 0 if unknown: how full it is does not count then
	MaxBatchedTokens uint64            // of one of its steps; 0 if unknown: 8,192
	Taints           []string          // that requests may require or prefer
	Attributes       map[string]string // "latency.<key>" sets a rate of LatencyConfig for this rank
	Draining         bool              // takes no new requests
}

// Scheduler chooses workers for one pool's requests and keeps what they are
// charged with. All methods but Observe are safe for concurrent use and none of
// them blocks, but for each other. Its memory grows with ranks and leases, whose
// numbers others bound.
type Scheduler struct {
	cfg      Config
	observer Observer
	scratch  sync.Pool // of *scratch

	mu       sync.Mutex // guards what follows, and all ranks but their names
	source   rand.PCG
	rand     *rand.Rand                    // draws from source
	turn     uint64                        // of round-robin
	order    []*rank                       // by worker and rank
	workers  map[string][]*rank            // the same ranks by worker, each worker's by rank
	slots    []bool                        // which slots are taken
	bookings map[protocol.LeaseID]*booking // of all ranks
	active   trie                          // prompts of all bookings that share their blocks
}

// New makes a scheduler for a pool without workers.
func New(cfg Config) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure scheduler: %w", err)
	}
	s := &Scheduler{
		cfg:      cfg.withDefaults(),
		workers:  make(map[string][]*rank),
		bookings: make(map[protocol.LeaseID]*booking),
	}
	seed := cfg.Seed
	if seed == 0 {
		var random [8]byte
		crand.Read(random[:]) // never fails
		seed = binary.LittleEndian.Uint64(random[:])
	}
	s.source.Seed(seed, seed)
	s.rand = rand.New(&s.source)
	s.scratch.New = func() any { return new(scratch) }
	return s, nil
}

// Observe sets who hears of admitted requests; nil is nobody. It must be called
// before the first Schedule.
func (s *Scheduler) Observe(o Observer) { s.observer = o }

// SetRank adds a rank, or changes a known one, which keeps what is charged to
// it. The error names attributes that are no rates; the rank is set all the
// same, with the pool's rates in their place.
func (s *Scheduler) SetRank(r Rank) error {
	profile, err := newProfile(r, s.cfg.Latency)
	taints := slices.Compact(slices.Sorted(slices.Values(r.Taints)))

	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.rankLocked(r.Worker)
	if known == nil {
		known = &rank{worker: r.Worker, slot: s.takeSlotLocked()}
		s.order = insert(s.order, known)
		s.workers[r.Worker.ID] = insert(s.workers[r.Worker.ID], known)
	}
	known.draining, known.taints, known.profile = r.Draining, taints, profile
	return err
}

// RemoveRank forgets a rank and all that is charged to it. An unknown one
// changes nothing.
func (s *Scheduler) RemoveRank(w protocol.Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rankLocked(w)
	if r == nil {
		return
	}
	for len(r.bookings) > 0 {
		s.dischargeLocked(r.bookings[len(r.bookings)-1])
	}
	s.slots[r.slot] = false
	s.order = without(s.order, r)
	s.workers[w.ID] = without(s.workers[w.ID], r)
	if len(s.workers[w.ID]) == 0 {
		delete(s.workers, w.ID)
	}
}

// rankLocked is a known rank, nil if there is none.
func (s *Scheduler) rankLocked(w protocol.Worker) *rank {
	ranks := s.workers[w.ID]
	if at := int(w.Rank); at < len(ranks) && ranks[at].worker.Rank == w.Rank {
		return ranks[at] // ranks count from 0 without a hole, as nearly always
	}
	if at, found := find(ranks, w); found {
		return ranks[at]
	}
	return nil
}

// find is where a rank is, or belongs, among ordered ranks.
func find(ranks []*rank, w protocol.Worker) (int, bool) {
	return slices.BinarySearchFunc(ranks, w, func(r *rank, w protocol.Worker) int { return r.worker.Compare(w) })
}

func insert(ranks []*rank, r *rank) []*rank {
	at, _ := find(ranks, r.worker)
	return slices.Insert(ranks, at, r)
}

func without(ranks []*rank, r *rank) []*rank {
	at, _ := find(ranks, r.worker)
	return slices.Delete(ranks, at, at+1)
}

// takeSlotLocked reserves the lowest free slot, so that slots stay as few as the
// most ranks there were at a time.
func (s *Scheduler) takeSlotLocked() uint32 {
	free := slices.Index(s.slots, false)
	if free < 0 {
		free = len(s.slots)
		s.slots = append(s.slots, false)
	}
	s.slots[free] = true
	return uint32(free)
}
