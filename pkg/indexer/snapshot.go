package indexer

import (
	"cmp"
	"slices"

	"github.com/routerd/routerd/pkg/protocol"
)

// Snapshot implements Index. It holds the read lock while it copies what the
// worker holds, and not while it puts it in order.
func (t *Trie) Snapshot(w protocol.Worker, maxBlocks int) []protocol.Event {
	if maxBlocks < 1 {
		maxBlocks = protocol.MaxEventBlocks
	}
	s := t.copyHeld(w)
	s.nameMissing()
	stores := append(s.firstStores(), s.furtherStores()...)
	events := s.storeEvents(stores, maxBlocks)
	return append(events, s.missingEvents(maxBlocks)...)
}

// none is an index that says "no such path" or "no such entry": the root as a
// parent, the end of a list.
const none = -1

// snapshot is a worker's own part of the tree: every path it holds and every
// path above one.
type snapshot struct {
	paths   []snapshotPath
	entries []snapshotEntry // every sequence hash held
}

type snapshotPath struct {
	hash   protocol.BlockHash
	parent int // none: the root

	entry   int                   // the first of its sequence hashes; none: it is missing
	missing protocol.SequenceHash // what names it if it is missing

	tier    protocol.Tier // on which it is stored first
	child   int           // the first of its children
	sibling int           // the next child of its parent
	place   int           // in the order of first stores
}

type snapshotEntry struct {
	hash  protocol.SequenceHash
	tiers tierSet
	path  int
	next  int // another sequence hash of the same path
}

// snapshotStore is one block to store on one tier.
type snapshotStore struct {
	path int
	hash protocol.SequenceHash
	tier protocol.Tier
}

// copyHeld takes what the worker holds out of the trie.
func (t *Trie) copyHeld(w protocol.Worker) *snapshot {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r := t.workers[w]
	if r == nil {
		return &snapshot{}
	}
	s := &snapshot{
		paths:   make([]snapshotPath, 0, len(r.held)),
		entries: make([]snapshotEntry, 0, len(r.held)),
	}
	at := newPlaces(t.tree.next)
	for hash, p := range r.held {
		path := s.addPath(&t.tree, at, p.node)
		s.entries = append(s.entries, snapshotEntry{hash, p.tiers, path, s.paths[path].entry})
		s.paths[path].entry = len(s.entries) - 1
	}
	return s
}

// addPath adds a node and the nodes above it, as far as they are not there yet.
func (s *snapshot) addPath(t *tree, at places, id nodeID) int {
	first := at.of(id)
	if *first != 0 {
		return int(*first - 1)
	}
	below := none
	for id != root {
		here := at.of(id)
		known := *here != 0
		if !known {
			*here = int32(len(s.paths) + 1)
			s.paths = append(s.paths, snapshotPath{hash: t.at(id).hash, parent: none, entry: none, child: none, sibling: none})
		}
		if below != none {
			s.paths[below].parent = int(*here - 1)
		}
		if known {
			break
		}
		below = int(*here - 1)
		id = t.at(id).parent
	}
	return int(*first - 1)
}

// places says where each node is in snapshot.paths, plus 1; 0: not yet. It is a
// table over all nodes of the tree of which only the pages in use are made.
type places []*[placesPage]int32

const placesPage = 256

func newPlaces(nodes nodeID) places { return make(places, nodes/placesPage+1) }

func (p places) of(id nodeID) *int32 {
	page := &p[id/placesPage]
	if *page == nil {
		*page = new([placesPage]int32)
	}
	return &(*page)[id%placesPage]
}

// nameMissing gives every path that is not held itself a sequence hash that the
// worker does not use: the lowest free numbers.
func (s *snapshot) nameMissing() {
	missing := false
	for i := range s.paths {
		missing = missing || s.paths[i].entry == none
	}
	if !missing {
		return
	}
	used := make(map[protocol.SequenceHash]struct{}, len(s.entries))
	for i := range s.entries {
		used[s.entries[i].hash] = struct{}{}
	}
	unused := protocol.SequenceHash(0)
	for i := range s.paths {
		if s.paths[i].entry != none {
			continue
		}
		for unused++; ; unused++ {
			if _, taken := used[unused]; !taken {
				break
			}
		}
		s.paths[i].missing = unused
	}
}

// name is the sequence hash by which a path's children are stored below it.
func (s *snapshot) name(path int) protocol.SequenceHash {
	p := &s.paths[path]
	if p.entry == none {
		return p.missing
	}
	return s.entries[p.entry].hash
}

// firstStores is one store of every path, parents before children: depth first,
// so that a chain of blocks on one tier stays together.
func (s *snapshot) firstStores() []snapshotStore {
	var open []int // paths whose parent is stored
	for i := range s.paths {
		p := &s.paths[i]
		if p.parent == none {
			open = append(open, i)
			continue
		}
		above := &s.paths[p.parent]
		p.sibling, above.child = above.child, i
	}
	stores := make([]snapshotStore, 0, len(s.entries))
	for len(open) > 0 {
		i := open[len(open)-1]
		open = open[:len(open)-1]
		p := &s.paths[i]
		p.place = len(stores)
		switch {
		case p.entry != none:
			p.tier = s.entries[p.entry].tiers.first()
		case p.parent != none:
			p.tier = s.paths[p.parent].tier
		}
		stores = append(stores, snapshotStore{i, s.name(i), p.tier})
		for c := p.child; c != none; c = s.paths[c].sibling {
			open = append(open, c)
		}
	}
	return stores
}

// furtherStores is all that is held beyond the first stores: the other tiers of
// a sequence hash and the other sequence hashes of a path. They are sorted for
// long chains: the k-th sequence hash of each path on one tier, from the root down.
func (s *snapshot) furtherStores() []snapshotStore {
	type layered struct {
		snapshotStore
		layer int
	}
	var further []layered
	for i := range s.paths {
		p := &s.paths[i]
		for e, layer := p.entry, 0; e != none; e, layer = s.entries[e].next, layer+1 {
			tiers := s.entries[e].tiers
			if layer == 0 {
				tiers &^= tierBit(p.tier)
			}
			for ; tiers != 0; tiers &^= tierBit(tiers.first()) {
				further = append(further, layered{snapshotStore{i, s.entries[e].hash, tiers.first()}, layer})
			}
		}
	}
	slices.SortFunc(further, func(a, b layered) int {
		return cmp.Or(cmp.Compare(a.layer, b.layer), cmp.Compare(a.tier, b.tier),
			cmp.Compare(s.paths[a.path].place, s.paths[b.path].place))
	})
	stores := make([]snapshotStore, len(further))
	for i := range further {
		stores[i] = further[i].snapshotStore
	}
	return stores
}

// storeEvents joins stores that follow one another down a path into events.
func (s *snapshot) storeEvents(stores []snapshotStore, maxBlocks int) []protocol.Event {
	var events []protocol.Event
	blocks := make([]protocol.Block, 0, len(stores)) // of all events
	first := 0                                       // where the last event's begin
	for i, store := range stores {
		p := &s.paths[store.path]
		joins := i > 0 && i-first < maxBlocks && store.tier == stores[i-1].tier && p.parent == stores[i-1].path
		if !joins {
			first = i
			e := protocol.Event{Kind: protocol.EventStored, Tier: store.tier, Root: p.parent == none}
			if !e.Root {
				e.Parent = s.name(p.parent)
			}
			events = append(events, e)
		}
		blocks = append(blocks, protocol.Block{Sequence: store.hash, Hash: p.hash})
		events[len(events)-1].Blocks = blocks[first : i+1 : i+1]
	}
	return events
}

// missingEvents takes the missing paths back.
func (s *snapshot) missingEvents(maxBlocks int) []protocol.Event {
	var missing [protocol.Tiers][]protocol.SequenceHash
	for i := range s.paths {
		if p := &s.paths[i]; p.entry == none {
			missing[p.tier] = append(missing[p.tier], p.missing)
		}
	}
	var events []protocol.Event
	for tier, hashes := range missing {
		for some := range slices.Chunk(hashes, maxBlocks) {
			events = append(events, protocol.Event{Kind: protocol.EventRemoved, Tier: protocol.Tier(tier), Removed: some})
		}
	}
	return events
}
