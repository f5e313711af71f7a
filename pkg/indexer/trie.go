package indexer

import (
	"fmt"
	"sync"

	"github.com/routerd/routerd/pkg/protocol"
)

// Trie is an exact Index: a tree of paths with the holders at each node, and per
// worker a table from sequence hash to node. The package comment has its layout,
// its costs and what it guarantees.
type Trie struct {
	scratch sync.Pool // *walk, of matches
	seen    sync.Pool // *repeats, of stores

	mu      sync.RWMutex // guards all below
	tree    tree
	workers map[protocol.Worker]*rank
	byID    []*rank    // by workerID; nil: free
	freeIDs []workerID // of workers that were dropped
}

var _ Index = (*Trie)(nil)

// rank is one worker's state.
type rank struct {
	id    workerID
	name  protocol.Worker
	held  map[protocol.SequenceHash]place
	state protocol.HeldState
}

// place is what one sequence hash of a worker stands for: a path, held on tiers
// (never none).
type place struct {
	node  nodeID
	tiers tierSet
}

// Size says how much a Trie holds.
type Size struct {
	Workers int // known ones
	Entries int // (worker, sequence hash) pairs
	Paths   int // held ones, and those that lead to a held one
}

// NewTrie makes an empty Trie. It is safe for concurrent use.
func NewTrie() *Trie {
	return &Trie{
		scratch: sync.Pool{New: func() any { return new(walk) }},
		seen:    sync.Pool{New: func() any { return newRepeats() }},
		tree:    newTree(),
		workers: map[protocol.Worker]*rank{},
	}
}

// Stored implements Index.
func (t *Trie) Stored(w protocol.Worker, tier protocol.Tier, atRoot bool, parent protocol.SequenceHash, blocks []protocol.Block) error {
	if len(blocks) == 0 {
		return nil
	}
	if tier >= protocol.Tiers {
		return fmt.Errorf("%w: no such tier: %d", ErrMalformedStore, tier)
	}
	if t.repeats(atRoot, parent, blocks) {
		return ErrMalformedStore
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.store(w, tier, atRoot, parent, blocks)
}

// Removed implements Index.
func (t *Trie) Removed(w protocol.Worker, tier protocol.Tier, hashes []protocol.SequenceHash) (unknown int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.workers[w]
	if r == nil || tier >= protocol.Tiers {
		return len(hashes)
	}
	return t.remove(r, tier, hashes)
}

// Cleared implements Index.
func (t *Trie) Cleared(w protocol.Worker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.workers[w]; r != nil {
		t.clear(r)
	}
}

// Drop implements Index.
func (t *Trie) Drop(w protocol.Worker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.workers[w]
	if r == nil {
		return
	}
	t.clear(r)
	delete(t.workers, w)
	t.byID[r.id] = nil
	t.freeIDs = append(t.freeIDs, r.id)
}

// Replace implements Index. It holds the lock while it works: readers see the
// old blocks or the new ones, and wait meanwhile.
func (t *Trie) Replace(w protocol.Worker, events []protocol.Event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	blocks := 0
	for i := range events {
		blocks += len(events[i].Blocks)
	}
	if r := t.workers[w]; r != nil {
		t.clear(r)
		r.held = make(map[protocol.SequenceHash]place, blocks)
	}
	for i := range events {
		if err := t.apply(w, &events[i]); err != nil {
			if r := t.workers[w]; r != nil {
				t.clear(r)
			}
			return fmt.Errorf("apply event %d of the snapshot of %s: %w", i, w, err)
		}
	}
	return nil
}

// Holds implements Index.
func (t *Trie) Holds(w protocol.Worker, hash protocol.SequenceHash) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r := t.workers[w]
	if r == nil {
		return false
	}
	_, held := r.held[hash]
	return held
}

// Match implements Index. It allocates nothing but what dst needs to grow.
func (t *Trie) Match(dst []protocol.Match, prompt []protocol.BlockHash) []protocol.Match {
	wk := t.scratch.Get().(*walk)
	defer t.scratch.Put(wk)
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.match(wk, dst, prompt)
}

// State implements Index.
func (t *Trie) State(w protocol.Worker) protocol.HeldState {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if r := t.workers[w]; r != nil {
		return r.state
	}
	return protocol.HeldState{}
}

// Size counts what the trie holds; all of it is 0 once every worker is dropped.
// It takes time in proportion to the workers.
func (t *Trie) Size() Size {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := Size{Workers: len(t.workers), Paths: t.tree.live}
	for _, r := range t.workers {
		s.Entries += len(r.held)
	}
	return s
}

func (t *Trie) repeats(atRoot bool, parent protocol.SequenceHash, blocks []protocol.Block) bool {
	seen := t.seen.Get().(*repeats)
	defer t.seen.Put(seen)
	return seen.any(atRoot, parent, blocks)
}

// apply is one event of a snapshot, mu held. Events that change nothing are skipped.
func (t *Trie) apply(w protocol.Worker, e *protocol.Event) error {
	if e.Refusal != "" {
		return nil
	}
	switch e.Kind {
	case protocol.EventStored:
		if len(e.Blocks) == 0 {
			return nil
		}
		if e.Tier >= protocol.Tiers || t.repeats(e.Root, e.Parent, e.Blocks) {
			return ErrMalformedStore
		}
		return t.store(w, e.Tier, e.Root, e.Parent, e.Blocks)
	case protocol.EventRemoved:
		if r := t.workers[w]; r != nil && e.Tier < protocol.Tiers {
			t.remove(r, e.Tier, e.Removed)
		}
	case protocol.EventCleared:
		if r := t.workers[w]; r != nil {
			t.clear(r)
		}
	}
	return nil
}

// store is Stored without its checks of the blocks, mu held.
func (t *Trie) store(w protocol.Worker, tier protocol.Tier, atRoot bool, parent protocol.SequenceHash, blocks []protocol.Block) error {
	r, id := t.workers[w], root
	if !atRoot {
		if r == nil {
			return ErrParentNotHeld
		}
		p, held := r.held[parent]
		if !held {
			return ErrParentNotHeld
		}
		id = p.node
	}
	if r == nil {
		r = t.know(w)
	}
	for _, b := range blocks {
		id = t.tree.childOrNew(id, b.Hash)
		t.put(r, b, id, tier)
	}
	return nil
}

// put makes a sequence hash stand for a path, also on tier, mu held.
func (t *Trie) put(r *rank, b protocol.Block, id nodeID, tier protocol.Tier) {
	bit := tierBit(tier)
	old, held := r.held[b.Sequence]
	if held && old.node == id {
		if old.tiers&bit == 0 {
			t.tree.hold(id, r.id, bit)
			r.held[b.Sequence] = place{id, old.tiers | bit}
			r.account(b, bit)
		}
		return
	}
	// A move takes the new place before it leaves the old one, which may be all
	// that keeps a path between the root and the new place.
	t.tree.hold(id, r.id, old.tiers|bit)
	r.held[b.Sequence] = place{id, old.tiers | bit}
	if held {
		r.discount(protocol.Block{Sequence: b.Sequence, Hash: t.tree.at(old.node).hash}, old.tiers)
		t.tree.release(old.node, r.id, old.tiers)
	}
	r.account(b, old.tiers|bit)
}

// remove is Removed for a known worker, mu held.
func (t *Trie) remove(r *rank, tier protocol.Tier, hashes []protocol.SequenceHash) (unknown int) {
	bit := tierBit(tier)
	for _, hash := range hashes {
		p, held := r.held[hash]
		if !held || p.tiers&bit == 0 {
			unknown++
			continue
		}
		if p.tiers &^= bit; p.tiers == 0 {
			delete(r.held, hash)
		} else {
			r.held[hash] = p
		}
		r.discount(protocol.Block{Sequence: hash, Hash: t.tree.at(p.node).hash}, bit)
		t.tree.release(p.node, r.id, bit)
	}
	return unknown
}

// clear empties a worker, mu held.
func (t *Trie) clear(r *rank) {
	for _, p := range r.held {
		t.tree.release(p.node, r.id, p.tiers)
	}
	r.held = map[protocol.SequenceHash]place{}
	r.state = protocol.HeldState{}
}

// know makes a worker known, mu held.
func (t *Trie) know(w protocol.Worker) *rank {
	r := &rank{name: w, held: map[protocol.SequenceHash]place{}}
	if k := len(t.freeIDs); k > 0 {
		r.id = t.freeIDs[k-1]
		t.freeIDs = t.freeIDs[:k-1]
		t.byID[r.id] = r
	} else {
		r.id = workerID(len(t.byID))
		t.byID = append(t.byID, r)
	}
	t.workers[w] = r
	return r
}

// account adds a sequence hash on each of tiers to the worker's state.
func (r *rank) account(b protocol.Block, tiers tierSet) {
	for tier := range protocol.Tier(protocol.Tiers) {
		if tiers&tierBit(tier) != 0 {
			r.state.Blocks++
			r.state.Checksum += protocol.EntryChecksum(b, tier)
		}
	}
}

// discount takes back what account added.
func (r *rank) discount(b protocol.Block, tiers tierSet) {
	for tier := range protocol.Tier(protocol.Tiers) {
		if tiers&tierBit(tier) != 0 {
			r.state.Blocks--
			r.state.Checksum -= protocol.EntryChecksum(b, tier)
		}
	}
}
