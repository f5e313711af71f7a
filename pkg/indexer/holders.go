package indexer

import (
	"math/bits"
	"slices"

	"github.com/routerd/routerd/pkg/protocol"
)

// workerID is a worker's small number inside one trie.
type workerID uint32

// tierSet has bit t set for protocol.Tier t.
type tierSet uint8

func tierBit(t protocol.Tier) tierSet { return 1 << t }

// first is the fastest tier of a set that is not empty.
func (s tierSet) first() protocol.Tier { return protocol.Tier(bits.TrailingZeros8(uint8(s))) }

// holder says that a worker holds a path, and on which tiers: the worker's
// number above five bits, the alias mark and a bit per tier. Ordering holders by
// value orders them by worker.
type holder uint32

const (
	tierBits   = protocol.Tiers
	workerBits = tierBits + 1

	// aliased marks a holder of which on some tier two or more sequence hashes
	// name the path; holders.aliases counts them.
	aliased holder = 1 << tierBits
)

func newHolder(w workerID, tiers tierSet) holder {
	return holder(w)<<workerBits | holder(tiers)
}

func (h holder) worker() workerID { return workerID(h >> workerBits) }
func (h holder) tiers() tierSet   { return tierSet(h & (1<<tierBits - 1)) }

// inlineHolders is how many holders fit in the node itself.
const inlineHolders = 2

// listID names a list of holders outside its node; 0: none.
type listID uint32

type aliasKey struct {
	node   nodeID
	worker workerID
}

// holders has what does not fit into the nodes: the lists of paths with many
// holders, and the counts of paths that one worker names more than once. Every
// list, inline or not, is in ascending order of worker.
type holders struct {
	lists     [][]holder
	freeLists []listID
	aliases   map[aliasKey][protocol.Tiers]uint32 // sequence hashes beyond the first
}

func newHolders() holders {
	return holders{lists: make([][]holder, 1), aliases: map[aliasKey][protocol.Tiers]uint32{}}
}

// held says whether anybody holds the node's path.
func (n *node) held() bool { return n.list != 0 || n.inline[0] != 0 }

// of is the node's holders. The slice is the index's own: it may be written to,
// and is good until the next insert or remove.
func (h *holders) of(n *node) []holder {
	switch {
	case n.list != 0:
		return h.lists[n.list]
	case n.inline[1] != 0:
		return n.inline[:]
	case n.inline[0] != 0:
		return n.inline[:1]
	}
	return nil
}

// find is where w is among hs, or would be.
func find(hs []holder, w workerID) (int, bool) {
	i, _ := slices.BinarySearch(hs, newHolder(w, 0))
	return i, i < len(hs) && hs[i].worker() == w
}

// insert puts a holder at its place i among the node's.
func (h *holders) insert(n *node, i int, add holder) {
	if n.list != 0 {
		h.lists[n.list] = slices.Insert(h.lists[n.list], i, add)
		return
	}
	have := len(h.of(n))
	if have < inlineHolders {
		copy(n.inline[i+1:], n.inline[i:have])
		n.inline[i] = add
		return
	}
	n.list = h.newList()
	list := append(h.lists[n.list], n.inline[:]...)
	h.lists[n.list] = slices.Insert(list, i, add)
	n.inline = [inlineHolders]holder{}
}

// remove takes the node's i-th holder out.
func (h *holders) remove(n *node, i int) {
	if n.list == 0 {
		copy(n.inline[i:], n.inline[i+1:])
		n.inline[inlineHolders-1] = 0
		return
	}
	list := slices.Delete(h.lists[n.list], i, i+1)
	h.lists[n.list] = list
	// Only a list of one goes back into the node, so that a path that gains and
	// loses its third holder all the time does not move each time.
	if len(list) == 1 {
		n.inline[0] = list[0]
		h.freeList(n.list)
		n.list = 0
	}
}

// keepList is the largest capacity with which an unused list is kept.
const keepList = 16

func (h *holders) newList() listID {
	if k := len(h.freeLists); k > 0 {
		id := h.freeLists[k-1]
		h.freeLists = h.freeLists[:k-1]
		return id
	}
	h.lists = append(h.lists, make([]holder, 0, 2*inlineHolders))
	return listID(len(h.lists) - 1)
}

func (h *holders) freeList(id listID) {
	if list := h.lists[id]; cap(list) <= keepList {
		h.lists[id] = list[:0]
	} else {
		h.lists[id] = nil
	}
	h.freeLists = append(h.freeLists, id)
}

// countAlias adds one sequence hash on each of tiers.
func (h *holders) countAlias(id nodeID, w workerID, tiers tierSet) {
	key := aliasKey{id, w}
	more := h.aliases[key]
	for t := range more {
		if tiers&tierBit(protocol.Tier(t)) != 0 {
			more[t]++
		}
	}
	h.aliases[key] = more
}

// uncountAlias takes one sequence hash off each of tiers. It returns the tiers
// on which it was the last one, and whether any alias is left.
func (h *holders) uncountAlias(id nodeID, w workerID, tiers tierSet) (last tierSet, left bool) {
	key := aliasKey{id, w}
	more := h.aliases[key]
	for t := range more {
		switch bit := tierBit(protocol.Tier(t)); {
		case tiers&bit == 0:
		case more[t] > 0:
			more[t]--
		default:
			last |= bit
		}
	}
	if left = more != [protocol.Tiers]uint32{}; left {
		h.aliases[key] = more
	} else {
		delete(h.aliases, key)
	}
	return last, left
}
