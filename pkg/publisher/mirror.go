package publisher

import (
	"slices"

	"github.com/routerd/routerd/pkg/protocol"
)

// mirror is what the rank holds: the state that the events say, by the rules by
// which a router's index applies them.
//
// Blocks are nodes of a forest, kept in one slice and linked to their parents by
// position: 48 bytes a node, and about 30 for its entry in the map from sequence
// hashes. A block that is gone while blocks behind it are held stays as a node
// without copies, so that a snapshot can still say their path; it goes with the
// last of them. Storing and removing a block is a map access and one hash for
// the checksum, whatever the mirror holds.
//
// A mirror is not safe for concurrent use.
type mirror struct {
	counting bool // count copies; else a block is held or not

	nodes  []node
	free   int32 // first of the list of free nodes, or none
	used   int   // nodes that are not free
	byHash map[protocol.SequenceHash]int32
	state  protocol.HeldState

	sorted []protocol.SequenceHash // reused by wellFormed
}

// node is one block. A free node has parent freed, and the next free one in
// children.
type node struct {
	block    protocol.Block
	parent   int32 // position, or none at the start of a prompt
	children int32
	copies   [protocol.Tiers]uint32
}

const (
	none  int32 = -1
	freed int32 = -2
)

// removal says what taking a block away came to.
type removal uint8

const (
	removedLast    removal = iota // the last copy is gone
	removedCopy                   // other copies are left
	removedUnknown                // there was none
)

func newMirror(counting bool) *mirror {
	m := &mirror{counting: counting}
	m.clear()
	return m
}

// clear empties the mirror and gives its memory back.
func (m *mirror) clear() {
	m.nodes, m.free, m.used = nil, none, 0
	m.byHash = make(map[protocol.SequenceHash]int32)
	m.state = protocol.HeldState{}
}

// find is the position of a block that is known, held or not.
func (m *mirror) find(h protocol.SequenceHash) (int32, bool) {
	i, ok := m.byHash[h]
	return i, ok
}

// held says whether a node's block is held on any tier.
func (m *mirror) held(i int32) bool { return m.nodes[i].copies != [protocol.Tiers]uint32{} }

// wellFormed says whether a store repeats no sequence hash and does not contain
// its own parent.
func (m *mirror) wellFormed(root bool, parent protocol.SequenceHash, blocks []protocol.Block) bool {
	m.sorted = m.sorted[:0]
	for _, b := range blocks {
		m.sorted = append(m.sorted, b.Sequence)
	}
	if !root {
		m.sorted = append(m.sorted, parent)
	}
	slices.Sort(m.sorted)
	for i := 1; i < len(m.sorted); i++ {
		if m.sorted[i] == m.sorted[i-1] {
			return false
		}
	}
	return true
}

// store holds blocks, in path order behind the node parent (or none), on a
// tier. The store must be well formed and the parent held.
func (m *mirror) store(tier protocol.Tier, parent int32, blocks []protocol.Block) {
	for _, b := range blocks {
		parent = m.place(parent, b)
		copies := &m.nodes[parent].copies[tier]
		switch {
		case *copies == 0:
			*copies = 1
			m.state.Blocks++
			m.state.Checksum += protocol.EntryChecksum(b, tier)
		case m.counting:
			*copies++
		}
	}
}

// place finds or makes the node of a block behind parent. A block known at
// another place, or by another content, moves with its copies on every tier;
// what was stored behind it stays where it was.
func (m *mirror) place(parent int32, b protocol.Block) int32 {
	old, known := m.byHash[b.Sequence]
	if known && m.nodes[old].parent == parent && m.nodes[old].block == b {
		return old
	}
	i := m.allocate(node{block: b, parent: parent})
	m.byHash[b.Sequence] = i
	if known {
		for t, copies := range m.nodes[old].copies {
			if copies > 0 {
				m.state.Checksum -= protocol.EntryChecksum(m.nodes[old].block, protocol.Tier(t))
				m.state.Checksum += protocol.EntryChecksum(b, protocol.Tier(t))
			}
		}
		m.nodes[i].copies, m.nodes[old].copies = m.nodes[old].copies, [protocol.Tiers]uint32{}
		m.prune(old)
	}
	return i
}

// remove takes one copy of a block away from a tier.
func (m *mirror) remove(tier protocol.Tier, h protocol.SequenceHash) removal {
	i, ok := m.byHash[h]
	if !ok || m.nodes[i].copies[tier] == 0 {
		return removedUnknown
	}
	n := &m.nodes[i]
	n.copies[tier]--
	if n.copies[tier] > 0 {
		return removedCopy
	}
	m.state.Blocks--
	m.state.Checksum -= protocol.EntryChecksum(n.block, tier)
	m.prune(i)
	return removedLast
}

// prune frees a node that is not held and has nothing behind it, then its
// parent if that is so of it now.
func (m *mirror) prune(i int32) {
	for i != none && m.nodes[i].children == 0 && !m.held(i) {
		n := &m.nodes[i]
		if m.byHash[n.block.Sequence] == i {
			delete(m.byHash, n.block.Sequence)
		}
		parent := n.parent
		*n = node{parent: freed, children: m.free}
		m.free = i
		m.used--
		i = parent
		if i != none {
			m.nodes[i].children--
		}
	}
}

// allocate puts a node into a free place and links it to its parent.
func (m *mirror) allocate(n node) int32 {
	if n.parent != none {
		m.nodes[n.parent].children++
	}
	m.used++
	i := m.free
	if i == none {
		m.nodes = append(m.nodes, n)
		return int32(len(m.nodes) - 1)
	}
	m.free = m.nodes[i].children
	m.nodes[i] = n
	return i
}

// missingBefore is the path of blocks that are not held, up to and with the
// node i, and the held block before them (root if there is none).
func (m *mirror) missingBefore(i int32) (root bool, parent protocol.SequenceHash, missing []protocol.Block) {
	for i != none && !m.held(i) {
		missing = append(missing, protocol.Block{Sequence: m.name(i), Hash: m.nodes[i].block.Hash})
		i = m.nodes[i].parent
	}
	slices.Reverse(missing)
	if i == none {
		return true, 0, missing
	}
	return false, m.nodes[i].block.Sequence, missing
}

// name is a sequence hash for a node: its own, or an unused one if its block has
// moved away and only the path is left here. Several nodes may have had one hash.
func (m *mirror) name(i int32) protocol.SequenceHash {
	h := m.nodes[i].block.Sequence
	if m.held(i) {
		return h
	}
	if at, taken := m.byHash[h]; taken && at == i {
		return h
	}
	for taken := true; taken; _, taken = m.byHash[h] {
		h = protocol.NextSequenceHash(h, protocol.BlockHash(i))
	}
	return h
}
