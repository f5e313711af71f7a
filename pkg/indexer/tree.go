package indexer

import "github.com/routerd/routerd/pkg/protocol"

// nodeID names a node of the tree. Node 0 is the root, the empty path; since it
// is nobody's child, 0 also says "none".
type nodeID uint32

const root nodeID = 0

// Nodes live in segments that never move, so growth copies nothing.
const (
	segmentBits = 12
	segmentSize = 1 << segmentBits
)

// node is one path: the block hash at its end, below its parent's path.
// 32 bytes and no pointer, so that the collector does not scan nodes.
type node struct {
	hash   protocol.BlockHash
	parent nodeID // of a free node: the next free one
	child  nodeID // one of the children, found without a table; 0: none
	kids   uint32 // number of children
	list   listID // its holders if they are too many for inline; 0: none
	inline [inlineHolders]holder
}

// edge finds a child that is not its parent's favoured one (node.child).
type edge struct {
	hash   protocol.BlockHash
	parent nodeID
}

// tree is the set of paths that somebody holds or that lead to one. Every node
// but the root has a holder or a child.
type tree struct {
	segments []*[segmentSize]node
	next     nodeID // never used so far
	free     nodeID // freed ones, chained by parent; 0: none
	live     int    // nodes in use, without the root
	edges    map[edge]nodeID
	holders
}

func newTree() tree {
	return tree{
		segments: []*[segmentSize]node{new([segmentSize]node)},
		next:     root + 1,
		edges:    map[edge]nodeID{},
		holders:  newHolders(),
	}
}

func (t *tree) at(id nodeID) *node {
	return &t.segments[id>>segmentBits][id&(segmentSize-1)]
}

// child finds the path one block below parent; 0 if there is none.
func (t *tree) child(parent nodeID, hash protocol.BlockHash) nodeID {
	n := t.at(parent)
	if n.child != 0 {
		if t.at(n.child).hash == hash {
			return n.child
		}
		if n.kids == 1 {
			return 0
		}
	} else if n.kids == 0 {
		return 0
	}
	return t.edges[edge{hash, parent}]
}

// childOrNew finds or makes the path one block below parent. A new node has
// neither holder nor child; the caller gives it a holder.
func (t *tree) childOrNew(parent nodeID, hash protocol.BlockHash) nodeID {
	if id := t.child(parent, hash); id != 0 {
		return id
	}
	id := t.alloc()
	*t.at(id) = node{hash: hash, parent: parent}
	p := t.at(parent)
	p.kids++
	if p.child == 0 {
		p.child = id
	} else {
		t.edges[edge{hash, parent}] = id
	}
	return id
}

func (t *tree) alloc() nodeID {
	t.live++
	if id := t.free; id != 0 {
		t.free = t.at(id).parent
		return id
	}
	id := t.next
	t.next++
	if int(id>>segmentBits) == len(t.segments) {
		t.segments = append(t.segments, new([segmentSize]node))
	}
	return id
}

// prune frees a node that has neither holder nor child, and then each ancestor
// that is left without both.
func (t *tree) prune(id nodeID) {
	for id != root {
		n := t.at(id)
		if n.kids > 0 || n.held() {
			return
		}
		parent := n.parent
		p := t.at(parent)
		p.kids--
		if p.child == id {
			p.child = 0
		} else {
			delete(t.edges, edge{n.hash, parent})
		}
		*n = node{parent: t.free}
		t.free = id
		t.live--
		id = parent
	}
	if t.live == 0 && len(t.segments) > 1 {
		*t = newTree() // give back what a larger tree needed
	}
}

// hold notes that one more sequence hash of worker w names a path, on tiers.
func (t *tree) hold(id nodeID, w workerID, tiers tierSet) {
	n := t.at(id)
	hs := t.of(n)
	i, found := find(hs, w)
	if !found {
		t.insert(n, i, newHolder(w, tiers))
		return
	}
	if twice := hs[i].tiers() & tiers; twice != 0 {
		t.countAlias(id, w, twice)
		hs[i] |= aliased
	}
	hs[i] |= holder(tiers)
}

// release takes back what hold noted. A path without holders and children goes.
func (t *tree) release(id nodeID, w workerID, tiers tierSet) {
	n := t.at(id)
	hs := t.of(n)
	i, found := find(hs, w)
	if !found {
		return
	}
	if hs[i]&aliased != 0 {
		var more bool
		tiers, more = t.uncountAlias(id, w, tiers)
		if !more {
			hs[i] &^= aliased
		}
	}
	hs[i] &^= holder(tiers)
	if hs[i].tiers() == 0 {
		t.remove(n, i)
		t.prune(id)
	}
}
