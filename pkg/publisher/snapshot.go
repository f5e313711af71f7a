package publisher

import (
	"slices"

	"github.com/routerd/routerd/pkg/protocol"
)

// snapshot says the whole mirror in events that build it from nothing, parents
// first, with at most longest blocks in one. Blocks that are missing before held
// ones are stored on device and taken back at the end. The events share no
// memory with the mirror.
func (m *mirror) snapshot(longest int) []protocol.Event {
	w := snapshotWriter{
		mirror:  m,
		longest: longest,
		said:    make([]bool, len(m.nodes)),
		blocks:  make([]protocol.Block, 0, m.used),
	}
	for i := range m.nodes {
		if m.nodes[i].parent != freed && m.nodes[i].children == 0 {
			w.branch(int32(i))
		}
	}
	for part := range slices.Chunk(w.missing, longest) {
		w.events = append(w.events, protocol.Event{Kind: protocol.EventRemoved, Removed: part})
	}
	return w.events
}

// snapshotWriter collects a snapshot's events branch by branch. Each node is
// visited once.
type snapshotWriter struct {
	mirror  *mirror
	longest int

	said    []bool           // by position
	path    []int32          // of the branch, reused
	blocks  []protocol.Block // what the events' blocks are slices of
	missing []protocol.SequenceHash
	events  []protocol.Event
}

// branch says what is not said yet of the path to a node.
func (w *snapshotWriter) branch(leaf int32) {
	w.path = w.path[:0]
	i := leaf
	for i != none && !w.said[i] {
		w.said[i] = true
		w.path = append(w.path, i)
		i = w.mirror.nodes[i].parent
	}
	slices.Reverse(w.path)
	root, parent := i == none, protocol.SequenceHash(0)
	if !root {
		parent = w.mirror.name(i)
	}
	for rest := w.path; len(rest) > 0; {
		n := 1
		for n < len(rest) && n < w.longest && w.tiers(rest[n]) == w.tiers(rest[0]) {
			n++
		}
		parent = w.run(root, parent, rest[:n])
		root, rest = false, rest[n:]
	}
}

// run stores nodes of one path on the tiers that they share and returns the last
// one's name.
func (w *snapshotWriter) run(root bool, parent protocol.SequenceHash, run []int32) protocol.SequenceHash {
	first := len(w.blocks)
	for _, i := range run {
		name := w.mirror.name(i)
		w.blocks = append(w.blocks, protocol.Block{Sequence: name, Hash: w.mirror.nodes[i].block.Hash})
		if !w.mirror.held(i) {
			w.missing = append(w.missing, name)
		}
	}
	blocks := w.blocks[first:len(w.blocks):len(w.blocks)]
	for tier, on := range w.tiers(run[0]) {
		if on {
			w.events = append(w.events, protocol.Event{Kind: protocol.EventStored, Tier: protocol.Tier(tier),
				Root: root, Parent: parent, Blocks: blocks})
		}
	}
	return blocks[len(blocks)-1].Sequence
}

// tiers says on which tiers a node is stored; a missing one on device, for the
// time being.
func (w *snapshotWriter) tiers(i int32) (on [protocol.Tiers]bool) {
	for t, copies := range w.mirror.nodes[i].copies {
		on[t] = copies > 0
	}
	if on == [protocol.Tiers]bool{} {
		on[protocol.TierDevice] = true
	}
	return on
}
