package publisher

import (
	"slices"

	"github.com/routerd/routerd/pkg/protocol"
)

// maxAside bounds the blocks kept aside, as routers bound theirs.
const maxAside = 8192

// aside keeps stores behind blocks that were never heard of, in the order in
// which they came, until that block is stored. It is empty unless the engine's
// events are incomplete.
type aside struct {
	orphans []orphan
	blocks  int
	waiting map[protocol.SequenceHash]int // orphans by parent
}

type orphan struct {
	tier   protocol.Tier
	parent protocol.SequenceHash
	blocks []protocol.Block
}

// keep adds a store, at most maxAside blocks in all, and returns how many blocks
// it did not take.
func (a *aside) keep(tier protocol.Tier, parent protocol.SequenceHash, blocks []protocol.Block) (forgotten int) {
	taken := min(len(blocks), maxAside-a.blocks)
	if taken > 0 {
		a.orphans = append(a.orphans, orphan{tier, parent, blocks[:taken]})
		a.blocks += taken
		a.await(parent)
	}
	return len(blocks) - taken
}

// take removes and returns the stores that waited for a block.
func (a *aside) take(h protocol.SequenceHash) (found []orphan) {
	if a.waiting[h] == 0 {
		return nil
	}
	delete(a.waiting, h)
	a.orphans = slices.DeleteFunc(a.orphans, func(o orphan) bool {
		if o.parent != h {
			return false
		}
		found = append(found, o)
		a.blocks -= len(o.blocks)
		return true
	})
	return found
}

// remove takes one copy of a block away. What was stored behind it waits for it
// to be stored again.
func (a *aside) remove(tier protocol.Tier, h protocol.SequenceHash) removal {
	result := removedUnknown
	for i := 0; i < len(a.orphans); i++ {
		o := a.orphans[i]
		at := slices.IndexFunc(o.blocks, func(b protocol.Block) bool { return b.Sequence == h })
		if o.tier != tier || at < 0 {
			continue
		}
		if result != removedUnknown {
			return removedCopy
		}
		result = removedLast
		a.blocks--
		var parts []orphan
		if at > 0 {
			parts = append(parts, orphan{o.tier, o.parent, o.blocks[:at]})
		} else if a.waiting[o.parent]--; a.waiting[o.parent] == 0 {
			delete(a.waiting, o.parent)
		}
		if at+1 < len(o.blocks) {
			parts = append(parts, orphan{o.tier, h, o.blocks[at+1:]})
			a.await(h)
		}
		a.orphans = slices.Replace(a.orphans, i, i+1, parts...)
		i += len(parts) - 1
	}
	return result
}

func (a *aside) await(parent protocol.SequenceHash) {
	if a.waiting == nil {
		a.waiting = make(map[protocol.SequenceHash]int)
	}
	a.waiting[parent]++
}

func (a *aside) clear() { *a = aside{} }
