package indexertest

import (
	"github.com/routerd/routerd/pkg/protocol"
)

// alias is p's blocks under other sequence hashes, numbered from `first`.
func (p path) alias(first int) []protocol.Block {
	blocks := p.blocks(0)
	for i := range blocks {
		blocks[i].Sequence = protocol.SequenceHash(first + i)
	}
	return blocks
}

// nameCases: sequence hashes that differ between workers, name one path twice,
// or come to name another path.
var nameCases = []testCase{
	{"workers that hash differently share the tree", func(b bench) {
		b.store(0, count(1, 2), 0)
		b.mustStore(device, 1, true, 0, count(1, 2).alias(101)...)
		b.want(count(1, 5), 2, 2)
		b.mustStore(device, 1, false, 102, protocol.Block{Sequence: 103, Hash: 3})
		b.want(count(1, 5), 2, 3)
		b.removed(0, 1, 102)
		b.removed(1, 0, 102)
		b.want(count(1, 5), 2, 1)
	}},
	{"two names of one path, removed in either order", func(b bench) {
		for worker, first := range []int{1, 101} {
			b.mustStore(device, worker, true, 0, count(1, 3).alias(1)...)
			b.mustStore(device, worker, true, 0, count(1, 3).alias(101)...)
			b.wantBlocks(worker, 6)
			last := 102 - first
			b.removed(worker, 0, protocol.SequenceHash(first+1), protocol.SequenceHash(first+2))
			b.want(count(1, 3), []int{3 * (1 - worker), 3 * worker}...)
			b.removed(worker, 0, protocol.SequenceHash(last+2))
			b.want(count(1, 3), []int{2 * (1 - worker), 2 * worker}...)
			b.index.Cleared(workerName(worker))
		}
		b.wantEmpty(2)
	}},
	{"names are counted tier by tier", func(b bench) {
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 1, Hash: 1})
		b.mustStore(host, 0, true, 0, protocol.Block{Sequence: 1, Hash: 1})
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 2, Hash: 1})
		b.mustStore(host, 0, true, 0, protocol.Block{Sequence: 3, Hash: 1})
		b.wantBlocks(0, 4)
		b.removed(0, 0, 1)
		b.wantOn(path{1}, overlap{Device: 1})
		b.removed(0, 1, 3, 2)
		b.wantOn(path{1}, overlap{Host: 1})
		b.removedOn(host, 0, 0, 3)
		b.wantOn(path{1}, overlap{Host: 1})
		b.removedOn(host, 0, 0, 1)
		b.want(path{1})
		b.wantEmpty(1)
	}},
	{"a child under either name of its parent", func(b bench) {
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 1, Hash: 1})
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 101, Hash: 1})
		b.mustStore(device, 0, false, 1, protocol.Block{Sequence: 2, Hash: 2})
		b.mustStore(device, 0, false, 101, protocol.Block{Sequence: 103, Hash: 3})
		b.want(path{1, 2}, 2)
		b.want(path{1, 3}, 2)
	}},
	{"a name moves to another path", func(b bench) {
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 11, Hash: 1}, protocol.Block{Sequence: 12, Hash: 2})
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 21, Hash: 5}, protocol.Block{Sequence: 12, Hash: 6})
		b.want(path{1, 2}, 1)
		b.want(path{5, 6}, 2)
		b.wantBlocks(0, 3)
		b.removed(0, 0, 12)
		b.want(path{1, 2}, 1)
		b.want(path{5, 6}, 1)
	}},
	{"a move takes every tier along", func(b bench) {
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 1, Hash: 1})
		b.mustStore(disk, 0, true, 0, protocol.Block{Sequence: 1, Hash: 1})
		b.mustStore(host, 0, true, 0, protocol.Block{Sequence: 1, Hash: 2})
		b.want(path{1})
		b.wantOn(path{2}, overlap{Device: 1})
		b.removed(0, 0, 1)
		b.wantOn(path{2}, overlap{Host: 1})
		b.removedOn(host, 0, 0, 1)
		b.wantOn(path{2}, overlap{Disk: 1})
		// The content enters the checksum: it is that of a block 2.
		want := protocol.HeldState{Blocks: 1, Checksum: protocol.EntryChecksum(protocol.Block{Sequence: 1, Hash: 2}, disk)}
		if got := b.index.State(workerName(0)); got != want {
			b.Fatalf("got %+v, want %+v", got, want)
		}
	}},
	{"what lies below a moved block stays", func(b bench) {
		b.mustStore(device, 0, true, 0, count(1, 3).alias(1)...)
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 2, Hash: 50})
		b.want(count(1, 3), 1)
		b.want(path{50, 3}, 1)
		b.mustStore(device, 0, false, 1, protocol.Block{Sequence: 9, Hash: 2})
		b.want(count(1, 3), 3)
	}},
	{"a store that moves its own ancestors", func(b bench) {
		b.mustStore(device, 0, true, 0, count(1, 3).alias(1)...)
		b.mustStore(device, 0, false, 3, protocol.Block{Sequence: 1, Hash: 4}, protocol.Block{Sequence: 2, Hash: 5})
		b.want(count(1, 5))
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 101, Hash: 1}, protocol.Block{Sequence: 102, Hash: 2})
		b.want(count(1, 5), 5)
		b.wantEmpty(1)
	}},
	{"a move up the path that it leaves", func(b bench) {
		// The old place is all that holds the new one in the tree.
		b.mustStore(device, 0, true, 0, count(1, 3).alias(1)...)
		b.removed(0, 0, 1, 2)
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 3, Hash: 1})
		b.want(count(1, 3), 1)
		b.wantBlocks(0, 1)
		b.wantEmpty(1)
	}},
	{"a move onto a path that another name holds", func(b bench) {
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 1, Hash: 1})
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 2, Hash: 2})
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 2, Hash: 1})
		b.want(path{2})
		b.removed(0, 0, 1)
		b.want(path{1}, 1)
		b.removed(0, 0, 2)
		b.want(path{1})
		b.wantEmpty(1)
	}},
	{"the largest and the smallest numbers", func(b bench) {
		most := ^uint64(0)
		blocks := []protocol.Block{
			{Sequence: protocol.SequenceHash(most), Hash: protocol.BlockHash(most)},
			{Sequence: 0, Hash: 0},
			{Sequence: 1 << 63, Hash: 1<<53 + 1},
		}
		b.mustStore(device, 0, true, 0, blocks[:2]...)
		b.mustStore(device, 0, false, 0, blocks[2])
		b.want(path{blocks[0].Hash, 0, 1<<53 + 1}, 3)
		b.want(path{blocks[0].Hash, 0, 1 << 53}, 2)
		if err := sameSnapshot(b.index, copyOf(b.index, 0), workerName(0), 2); err != nil {
			b.Fatal(err)
		}
	}},
}
