package scheduler

import (
	"cmp"
	"slices"

	"github.com/routerd/routerd/pkg/protocol"
)

// trie counts, for all ranks of a pool together, which prompt prefixes are
// active on which rank. It is a compressed prefix tree over block hashes: a node
// stands for a run of blocks that the same requests have in common, so that a
// prompt passes through few nodes however long it is. A node knows the ranks
// with requests through it and how many; a rank is named by its slot.
//
// Adding and removing a prompt of d blocks take O(d) plus, in each node passed,
// a search among its ranks; match takes O(d) plus the ranks of the nodes passed.
// Nodes split where prompts part and merge again when the reason is gone: an
// unused tree is empty. Memory is 8 bytes per distinct active block, some 100
// per node and 8 per node and rank. The zero trie is empty and ready for use.
type trie struct {
	root node // of no blocks; its shares are not kept
}

type node struct {
	run      []protocol.BlockHash // never empty, but in the root
	parent   *node                // nil in the root
	children map[protocol.BlockHash]*node
	ends     int     // prompts that end with this run
	shares   []share // by slot
}

// share says how many prompts of one rank pass through a node or end there.
type share struct{ slot, prompts uint32 }

// add enters a prompt of a rank. It returns the node where the prompt ends, to
// remove it by, and how many of its blocks the rank did not have yet.
func (t *trie) add(slot uint32, prompt []protocol.BlockHash) (end *node, added int) {
	n := &t.root
	for len(prompt) > 0 {
		child := n.children[prompt[0]]
		if child == nil {
			child = n.adopt(&node{run: slices.Clone(prompt)})
		}
		shared := commonPrefix(child.run, prompt)
		if shared < len(child.run) {
			child = child.split(shared)
		}
		if child.enter(slot) {
			added += len(child.run)
		}
		n, prompt = child, prompt[shared:]
	}
	n.ends++
	return n, added
}

// remove takes out a prompt of a rank by the node that add returned, and returns
// how many of its blocks the rank has no more.
func (t *trie) remove(slot uint32, end *node) (freed int) {
	end.ends--
	for n := end; n.parent != nil; {
		parent := n.parent
		if n.leave(slot) {
			freed += len(n.run)
		}
		switch {
		case len(n.shares) == 0:
			delete(parent.children, n.run[0])
		case n.ends == 0 && len(n.children) == 1:
			n.merge()
		}
		n = parent
	}
	return freed
}

// match calls found for every rank with an active prompt that begins as this one
// does, with the number of leading blocks in common: of several calls for a rank
// the last one counts.
func (t *trie) match(prompt []protocol.BlockHash, found func(slot uint32, depth int)) {
	n, depth := &t.root, 0
	for depth < len(prompt) {
		child := n.children[prompt[depth]]
		if child == nil {
			return
		}
		shared := commonPrefix(child.run, prompt[depth:])
		depth += shared
		for _, s := range child.shares {
			found(s.slot, depth)
		}
		if shared < len(child.run) {
			return
		}
		n = child
	}
}

// empty says that no prompt is in the tree.
func (t *trie) empty() bool { return len(t.root.children) == 0 && t.root.ends == 0 }

func (n *node) adopt(child *node) *node {
	if n.children == nil {
		n.children = make(map[protocol.BlockHash]*node, 1)
	}
	child.parent = n
	n.children[child.run[0]] = child
	return child
}

// split gives the first blocks of n to a new node above it, which is returned.
// n keeps its identity, since prompts that end there refer to it. Both runs are
// copied, so that neither keeps the memory of the other.
func (n *node) split(at int) *node {
	upper := &node{run: slices.Clone(n.run[:at]), shares: slices.Clone(n.shares)}
	n.parent.adopt(upper)
	n.run = slices.Clone(n.run[at:])
	upper.adopt(n)
	return upper
}

// merge puts n's run in front of its only child's, and the child in n's place:
// without a prompt that ends at n both have the same shares.
func (n *node) merge() {
	for _, child := range n.children {
		child.run = slices.Concat(n.run, child.run)
		n.parent.adopt(child)
	}
}

// enter counts one more prompt of a rank and says whether it is the rank's first.
func (n *node) enter(slot uint32) (first bool) {
	at, found := n.find(slot)
	if !found {
		n.shares = slices.Insert(n.shares, at, share{slot: slot})
	}
	n.shares[at].prompts++
	return !found
}

// leave counts one prompt of a rank less and says whether it was the rank's last.
func (n *node) leave(slot uint32) (last bool) {
	at, found := n.find(slot)
	if !found {
		return false
	}
	n.shares[at].prompts--
	if n.shares[at].prompts > 0 {
		return false
	}
	n.shares = slices.Delete(n.shares, at, at+1)
	return true
}

func (n *node) find(slot uint32) (int, bool) {
	return slices.BinarySearchFunc(n.shares, slot, func(s share, slot uint32) int { return cmp.Compare(s.slot, slot) })
}

func commonPrefix(a, b []protocol.BlockHash) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
