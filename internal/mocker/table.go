package mocker

import (
	"math/bits"

	"github.com/routerd/routerd/pkg/protocol"
)

// table maps sequence hashes to blocks: open addressing with linear probing, at
// most half full, and removal that moves the following entries up. A full cache
// replaces an entry with every block it takes; a removal that leaves no mark
// behind keeps probes as short after millions of them as at first. Go's map keeps
// marks, and a whole fleet's run takes a third more CPU time with it
// (BenchmarkFleet).
type table struct {
	slots []slot // a power of two of them
	shift int    // 64 - log2(len(slots))
	count int
}

// slot is 16 bytes, four to a cache line.
type slot struct {
	seq   protocol.SequenceHash
	block int32 // plus 1; 0 is an empty slot
}

// newTable makes a table for up to n entries.
func newTable(n int) table {
	size := 1 << bits.Len(uint(2*n-1))
	return table{slots: make([]slot, size), shift: 64 - bits.TrailingZeros(uint(size))}
}

// home is the slot where the search for a hash begins. Sequence hashes are an
// engine's own and may have patterns, so the high bits of a product decide.
func (t *table) home(seq protocol.SequenceHash) int {
	return int(uint64(seq) * 0x9E3779B97F4A7C15 >> t.shift)
}

func (t *table) next(i int) int { return (i + 1) & (len(t.slots) - 1) }

func (t *table) find(seq protocol.SequenceHash) (block int32, ok bool) {
	for i := t.home(seq); ; i = t.next(i) {
		s := &t.slots[i]
		if s.block == 0 {
			return 0, false
		}
		if s.seq == seq {
			return s.block - 1, true
		}
	}
}

// insert adds a hash that is not there.
func (t *table) insert(seq protocol.SequenceHash, block int32) {
	i := t.home(seq)
	for t.slots[i].block != 0 {
		i = t.next(i)
	}
	t.slots[i] = slot{seq, block + 1}
	t.count++
}

// remove takes out a hash that is there. The entries behind it up to the next
// empty slot move up where the gap lies on their way from home.
func (t *table) remove(seq protocol.SequenceHash) {
	gap := t.home(seq)
	for t.slots[gap].seq != seq || t.slots[gap].block == 0 {
		gap = t.next(gap)
	}
	for i := t.next(gap); t.slots[i].block != 0; i = t.next(i) {
		way := (i - t.home(t.slots[i].seq)) & (len(t.slots) - 1)
		if way >= (i-gap)&(len(t.slots)-1) {
			t.slots[gap] = t.slots[i]
			gap = i
		}
	}
	t.slots[gap] = slot{}
	t.count--
}
