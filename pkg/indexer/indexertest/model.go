package indexertest

import (
	"maps"
	"slices"
	"sync"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/protocol"
)

// Model is an Index that is plainly right: per worker a map from sequence hash
// to path and tiers, and how many sequence hashes name each path on each tier.
// It forgets no path, and one lock serves every call.
type Model struct {
	mu      sync.Mutex
	paths   []step       // by number; paths[0] is the root
	numbers map[step]int // the other way round
	workers map[protocol.Worker]*modelWorker
}

var _ indexer.Index = (*Model)(nil)

// step is a path as one block below another path.
type step struct {
	parent int
	hash   protocol.BlockHash
}

type modelWorker struct {
	blocks map[protocol.SequenceHash]modelBlock
	count  map[modelSpot]int
}

type modelBlock struct {
	path  int
	tiers [protocol.Tiers]bool
}

type modelSpot struct {
	path int
	tier int
}

// NewModel makes an empty Model.
func NewModel() *Model {
	return &Model{paths: make([]step, 1), numbers: map[step]int{}, workers: map[protocol.Worker]*modelWorker{}}
}

func newModelWorker() *modelWorker {
	return &modelWorker{blocks: map[protocol.SequenceHash]modelBlock{}, count: map[modelSpot]int{}}
}

// Stored implements indexer.Index.
func (m *Model) Stored(w protocol.Worker, tier protocol.Tier, atRoot bool, parent protocol.SequenceHash, blocks []protocol.Block) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stored(w, tier, atRoot, parent, blocks)
}

func (m *Model) stored(w protocol.Worker, tier protocol.Tier, atRoot bool, parent protocol.SequenceHash, blocks []protocol.Block) error {
	if len(blocks) == 0 {
		return nil
	}
	seen := map[protocol.SequenceHash]bool{}
	if !atRoot {
		seen[parent] = true
	}
	for _, b := range blocks {
		if seen[b.Sequence] {
			return indexer.ErrMalformedStore
		}
		seen[b.Sequence] = true
	}
	path := 0
	if !atRoot {
		above, held := m.worker(w).blocks[parent]
		if !held {
			return indexer.ErrParentNotHeld
		}
		path = above.path
	}
	known := m.worker(w)
	m.workers[w] = known
	for _, b := range blocks {
		path = m.number(step{path, b.Hash})
		block := known.blocks[b.Sequence]
		known.take(block)
		block.path, block.tiers[tier] = path, true
		known.put(block)
		known.blocks[b.Sequence] = block
	}
	return nil
}

// worker is a worker's state, a new one if it is not known.
func (m *Model) worker(w protocol.Worker) *modelWorker {
	if known := m.workers[w]; known != nil {
		return known
	}
	return newModelWorker()
}

func (m *Model) number(s step) int {
	path, known := m.numbers[s]
	if !known {
		path = len(m.paths)
		m.paths = append(m.paths, s)
		m.numbers[s] = path
	}
	return path
}

// put counts a block where it is.
func (w *modelWorker) put(b modelBlock) {
	for tier, held := range b.tiers {
		if held {
			w.count[modelSpot{b.path, tier}]++
		}
	}
}

// take takes back what put counted.
func (w *modelWorker) take(b modelBlock) {
	for tier, held := range b.tiers {
		if held {
			w.count[modelSpot{b.path, tier}]--
		}
	}
}

// Removed implements indexer.Index.
func (m *Model) Removed(w protocol.Worker, tier protocol.Tier, hashes []protocol.SequenceHash) (unknown int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.worker(w).removed(tier, hashes)
}

func (w *modelWorker) removed(tier protocol.Tier, hashes []protocol.SequenceHash) (unknown int) {
	for _, hash := range hashes {
		block := w.blocks[hash]
		if !block.tiers[tier] {
			unknown++
			continue
		}
		w.take(block)
		block.tiers[tier] = false
		w.put(block)
		w.blocks[hash] = block
		if block.tiers == [protocol.Tiers]bool{} {
			delete(w.blocks, hash)
		}
	}
	return unknown
}

// Cleared implements indexer.Index.
func (m *Model) Cleared(w protocol.Worker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.workers[w] != nil {
		m.workers[w] = newModelWorker()
	}
}

// Drop implements indexer.Index.
func (m *Model) Drop(w protocol.Worker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.workers, w)
}

// Replace implements indexer.Index.
func (m *Model) Replace(w protocol.Worker, events []protocol.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.workers[w] = newModelWorker()
	for _, e := range events {
		switch {
		case e.Refusal != "":
		case e.Kind == protocol.EventStored:
			if err := m.stored(w, e.Tier, e.Root, e.Parent, e.Blocks); err != nil {
				m.workers[w] = newModelWorker()
				return err
			}
		case e.Kind == protocol.EventRemoved:
			m.workers[w].removed(e.Tier, e.Removed)
		case e.Kind == protocol.EventCleared:
			m.workers[w] = newModelWorker()
		}
	}
	return nil
}

// Holds implements indexer.Index.
func (m *Model) Holds(w protocol.Worker, hash protocol.SequenceHash) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, held := m.worker(w).blocks[hash]
	return held
}

// Match implements indexer.Index.
func (m *Model) Match(dst []protocol.Match, prompt []protocol.BlockHash) []protocol.Match {
	m.mu.Lock()
	defer m.mu.Unlock()
	var paths []int // of each leading part of the prompt that anybody ever held
	path := 0
	for _, hash := range prompt {
		var known bool
		if path, known = m.numbers[step{path, hash}]; !known {
			break
		}
		paths = append(paths, path)
	}
	for name, w := range m.workers {
		var blocks [protocol.Tiers]int
		depth := 0
		for tier := range blocks {
			for depth < len(paths) && w.count[modelSpot{paths[depth], tier}] > 0 {
				blocks[tier]++
				depth++
			}
		}
		if depth > 0 {
			dst = append(dst, protocol.Match{Worker: name, Overlap: protocol.Overlap{
				Device: blocks[0], Host: blocks[1], Disk: blocks[2], External: blocks[3]}})
		}
	}
	return dst
}

// State implements indexer.Index; it adds everything up anew.
func (m *Model) State(w protocol.Worker) (state protocol.HeldState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for hash, block := range m.worker(w).blocks {
		for tier, held := range block.tiers {
			if held {
				state.Blocks++
				state.Checksum += protocol.EntryChecksum(protocol.Block{Sequence: hash, Hash: m.paths[block.path].hash}, protocol.Tier(tier))
			}
		}
	}
	return state
}

// Paths counts the paths that a worker holds on any tier, however many sequence
// hashes name them.
func (m *Model) Paths(w protocol.Worker) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := map[int]bool{}
	for _, block := range m.worker(w).blocks {
		held[block.path] = true
	}
	return len(held)
}

// Snapshot implements indexer.Index. It stores every path under a name of its
// own, block by block, hangs what is held below those and takes the names back.
func (m *Model) Snapshot(w protocol.Worker, maxBlocks int) []protocol.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	blocks := m.worker(w).blocks
	names := map[int]protocol.SequenceHash{}
	unused := ^protocol.SequenceHash(0)
	for _, block := range blocks {
		for path := block.path; path != 0; path = m.paths[path].parent {
			for ; blocks[unused] != (modelBlock{}); unused-- {
			}
			if _, named := names[path]; !named {
				names[path] = unused
				unused--
			}
		}
	}
	var events []protocol.Event
	store := func(path int, name protocol.SequenceHash, tier int) {
		s := m.paths[path]
		events = append(events, protocol.Event{Kind: protocol.EventStored, Tier: protocol.Tier(tier), Root: s.parent == 0,
			Parent: names[s.parent], Blocks: []protocol.Block{{Sequence: name, Hash: s.hash}}})
	}
	for _, path := range slices.Sorted(maps.Keys(names)) { // parents have lower numbers
		store(path, names[path], 0)
	}
	hashes := slices.Sorted(maps.Keys(blocks))
	for _, hash := range hashes {
		for tier, held := range blocks[hash].tiers {
			if held {
				store(blocks[hash].path, hash, tier)
			}
		}
	}
	for removed := range slices.Chunk(slices.Sorted(maps.Values(names)), maxBlocks) {
		events = append(events, protocol.Event{Kind: protocol.EventRemoved, Removed: removed})
	}
	return events
}
