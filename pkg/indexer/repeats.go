package indexer

import (
	"hash/maphash"
	"math/bits"

	"github.com/routerd/routerd/pkg/protocol"
)

// repeats finds a sequence hash that occurs twice in one store. It is a hash
// set with linear probing that empties itself by counting on its stamp, so that
// a small store after a large one costs what a small store costs.
type repeats struct {
	slots []repeatSlot
	stamp uint32
	odd   uint64 // random: engines choose the hashes, nobody the collisions
}

type repeatSlot struct {
	hash  protocol.SequenceHash
	stamp uint32 // the slot is taken if this is the set's
}

func newRepeats() *repeats {
	return &repeats{odd: maphash.Bytes(maphash.MakeSeed(), nil) | 1}
}

// any says whether a block's sequence hash repeats or, unless atRoot, is parent.
func (r *repeats) any(atRoot bool, parent protocol.SequenceHash, blocks []protocol.Block) bool {
	logSize := bits.Len(uint(2*len(blocks) + 1)) // at most half full
	if len(r.slots) < 1<<logSize {
		r.slots, r.stamp = make([]repeatSlot, 1<<logSize), 0
	}
	if r.stamp++; r.stamp == 0 {
		clear(r.slots)
		r.stamp = 1
	}
	slots := r.slots[:1<<logSize]
	mask, shift := uint64(len(slots)-1), 64-logSize
	if !atRoot {
		slots[uint64(parent)*r.odd>>shift] = repeatSlot{parent, r.stamp}
	}
	for i := range blocks {
		hash := blocks[i].Sequence
		at := uint64(hash) * r.odd >> shift
		for slots[at].stamp == r.stamp {
			if slots[at].hash == hash {
				return true
			}
			at = (at + 1) & mask
		}
		slots[at] = repeatSlot{hash, r.stamp}
	}
	return false
}
