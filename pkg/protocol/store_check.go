package protocol

import (
	"hash/maphash"
	"math/bits"
)

// storeCheck finds stores that contain their own parent or a sequence hash
// twice. It keeps its memory from one store to the next.
type storeCheck struct {
	// Above a few blocks a set: open addressing, at most half full, 0 for an
	// empty place. The factor is random, so that nobody can choose hashes that
	// fall together.
	table  []SequenceHash
	shift  int
	factor uint64
	zero   bool // the set holds 0
}

// malformed says whether a store is to be refused.
func (c *storeCheck) malformed(e *Event) bool {
	const few = 16 // up to here comparing each with each is faster
	if len(e.Blocks) > few {
		return c.repeats(e)
	}
	for i, b := range e.Blocks {
		if !e.Root && b.Sequence == e.Parent {
			return true
		}
		for _, earlier := range e.Blocks[:i] {
			if earlier.Sequence == b.Sequence {
				return true
			}
		}
	}
	return false
}

func (c *storeCheck) repeats(e *Event) bool {
	c.reset(len(e.Blocks) + 1)
	if !e.Root {
		c.add(e.Parent)
	}
	for _, b := range e.Blocks {
		if !c.add(b.Sequence) {
			return true
		}
	}
	return false
}

// reset empties the set and makes room for n hashes.
func (c *storeCheck) reset(n int) {
	if c.factor == 0 {
		c.factor = maphash.Bytes(maphash.MakeSeed(), nil) | 1
	}
	log := bits.Len(uint(2*n - 1))
	if size := 1 << log; size > cap(c.table) {
		c.table = make([]SequenceHash, size)
	} else {
		c.table = c.table[:size]
		clear(c.table)
	}
	c.shift, c.zero = 64-log, false
}

// add returns false if the set held the hash.
func (c *storeCheck) add(h SequenceHash) bool {
	if h == 0 {
		was := c.zero
		c.zero = true
		return !was
	}
	mix := uint64(h) * c.factor
	mix = (mix ^ mix>>32) * c.factor
	mask := len(c.table) - 1
	for i := int(mix >> c.shift); ; i++ {
		switch c.table[i&mask] {
		case 0:
			c.table[i&mask] = h
			return true
		case h:
			return false
		}
	}
}
