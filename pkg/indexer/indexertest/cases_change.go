package indexertest

import (
	"errors"
	"sync"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/protocol"
)

// changeCases: stores, removals and clears on one tier.
var changeCases = []testCase{
	{"a store below what is held", func(b bench) {
		b.store(0, count(1, 3), 0)
		b.store(0, count(1, 5), 3)
		b.want(count(1, 5), 5)
	}},
	{"a parent that is not held", func(b bench) {
		b.store(0, count(1, 3), 0)
		b.store(1, count(1, 6), 0)
		// That worker 1 holds the parent is nothing to worker 0.
		below := count(1, 7).blocks(6)
		err := b.index.Stored(workerName(0), protocol.TierDevice, false, count(1, 6).name(), below)
		if !errors.Is(err, indexer.ErrParentNotHeld) {
			b.Fatalf("got error %v", err)
		}
		b.want(count(1, 7), 3, 6)
		b.wantBlocks(0, 3)
		// A worker that nobody knows stays unknown.
		err = b.index.Stored(workerName(2), protocol.TierDevice, false, count(1, 6).name(), below)
		if !errors.Is(err, indexer.ErrParentNotHeld) {
			b.Fatalf("got error %v", err)
		}
		b.want(count(1, 7), 3, 6)
		b.wantEmpty(2)
	}},
	{"a removed parent", func(b bench) {
		b.store(0, count(1, 2), 0)
		b.removed(0, 0, count(1, 2).name())
		err := b.index.Stored(workerName(0), protocol.TierDevice, false, count(1, 2).name(), count(1, 3).blocks(2))
		if !errors.Is(err, indexer.ErrParentNotHeld) {
			b.Fatalf("got error %v", err)
		}
	}},
	{"stored twice", func(b bench) {
		b.store(0, count(1, 3), 0)
		state := b.index.State(workerName(0))
		b.store(0, count(1, 3), 0)
		b.store(0, count(1, 3), 1)
		b.want(count(1, 3), 3)
		if again := b.index.State(workerName(0)); again != state {
			b.Fatalf("state %+v became %+v", state, again)
		}
		b.removed(0, 0, count(1, 3).name())
		b.want(count(1, 3), 2)
	}},
	{"no blocks", func(b bench) {
		for _, atRoot := range []bool{true, false} {
			b.mustStore(protocol.TierDevice, 0, atRoot, 12345)
		}
		b.wantBlocks(0, 0)
		b.removed(0, 0)
	}},
	{"a store that contains its parent", func(b bench) {
		b.store(0, count(1, 3), 0)
		parent := count(1, 3).name()
		err := b.index.Stored(workerName(0), protocol.TierDevice, false, parent,
			[]protocol.Block{{Sequence: 500, Hash: 4}, {Sequence: parent, Hash: 5}})
		if !errors.Is(err, indexer.ErrMalformedStore) {
			b.Fatalf("got error %v", err)
		}
		b.want(count(1, 5), 3)
		b.wantBlocks(0, 3)
	}},
	{"a store that repeats a block", func(b bench) {
		// At any place and of any length: a table of some kind finds the repeat.
		for _, n := range []int{2, 3, 9, 100, 5000} {
			blocks := count(1, n).blocks(0)
			blocks[n-1].Sequence = blocks[n/3].Sequence
			if err := b.index.Stored(workerName(0), protocol.TierDevice, true, 0, blocks); !errors.Is(err, indexer.ErrMalformedStore) {
				b.Fatalf("%d blocks: got error %v", n, err)
			}
		}
		b.wantBlocks(0, 0)
		b.wantEmpty(1)
	}},
	{"a block may have its root's parent hash", func(b bench) {
		// At the root the parent says nothing, whatever it is.
		b.mustStore(protocol.TierDevice, 0, true, 7, protocol.Block{Sequence: 7, Hash: 1})
		b.want(path{1}, 1)
	}},
	{"removal from the tail, then of all", func(b bench) {
		b.store(0, count(1, 3), 0)
		b.removed(0, 0, count(1, 3).name())
		b.want(count(1, 3), 2)
		b.removed(0, 1, names(count(1, 3), count(1, 2), count(1, 1))...)
		b.want(count(1, 3))
		b.wantBlocks(0, 0)
	}},
	{"a long tail removed", func(b bench) {
		b.store(0, count(1, 100), 0)
		for i := 100; i > 79; i-- {
			b.removed(0, 0, count(1, i).name())
		}
		b.want(count(1, 100), 79)
	}},
	{"an inner block removed and restored", func(b bench) {
		b.store(0, count(1, 5), 0)
		b.removed(0, 0, count(1, 3).name())
		b.want(count(1, 5), 2)
		b.want(count(1, 2), 2)
		b.wantBlocks(0, 4)
		b.store(0, count(1, 3), 2)
		b.want(count(1, 5), 5) // what was behind it was held all the time
	}},
	{"an inner block and its tail removed", func(b bench) {
		b.store(0, count(1, 5), 0)
		b.removed(0, 0, count(1, 3).name())
		b.removed(0, 0, names(count(1, 4), count(1, 5))...)
		b.store(0, count(1, 3), 2)
		b.want(count(1, 5), 3)
		b.store(0, count(1, 5), 3)
		b.want(count(1, 5), 5)
	}},
	{"a store below a block that is held behind a hole", func(b bench) {
		b.store(0, count(1, 3), 0)
		b.removed(0, 0, count(1, 2).name())
		b.store(0, count(1, 4), 3)
		b.want(count(1, 4), 1)
		b.store(0, count(1, 2), 1)
		b.want(count(1, 4), 4)
	}},
	{"unknown blocks in a removal are skipped", func(b bench) {
		b.store(0, count(1, 5), 0)
		b.removed(0, 2, 999, count(1, 5).name(), 998)
		b.want(count(1, 5), 4)
	}},
	{"a block named twice in a removal", func(b bench) {
		b.store(0, count(1, 2), 0)
		b.removed(0, 1, count(1, 2).name(), count(1, 2).name())
		b.want(count(1, 2), 1)
	}},
	{"removal for an unknown worker", func(b bench) {
		b.store(0, count(1, 3), 0)
		b.removed(7, 3, names(count(1, 1), count(1, 2), count(1, 3))...)
		b.want(count(1, 3), 3)
	}},
	{"dropped", func(b bench) {
		b.store(0, count(1, 3), 0)
		b.store(1, count(1, 3), 0)
		b.index.Drop(workerName(0))
		b.want(count(1, 3), 0, 3)
		b.index.Drop(workerName(0))
		b.wantBlocks(0, 0)
		b.store(2, count(1, 2), 0) // may get the number that is free now
		b.want(count(1, 3), 0, 3, 2)
		b.wantEmpty(3)
	}},
	{"cleared", func(b bench) {
		b.store(0, count(1, 3), 0)
		b.store(1, count(1, 3), 0)
		b.index.Cleared(workerName(0))
		b.index.Cleared(workerName(5))
		b.want(count(1, 3), 0, 3)
		b.wantBlocks(0, 0)
		b.store(0, count(1, 3), 0)
		b.want(count(1, 3), 3, 3)
	}},
	{"stored and removed a hundred times", func(b bench) {
		for range 100 {
			b.store(0, count(1, 20), 0)
			b.store(0, append(count(1, 10), count(50, 60)...), 10)
			for i := 20; i > 0; i-- {
				b.removed(0, 0, count(1, i).name())
			}
			b.want(count(1, 20))
			for i := 60; i >= 50; i-- {
				b.removed(0, 0, append(count(1, 10), count(50, i)...).name())
			}
		}
		b.wantBlocks(0, 0)
		if s, ok := b.index.(sized); ok && s.Size().Paths != 0 {
			b.Fatalf("nothing is held and the index has %+v", s.Size())
		}
	}},
	{"more than one page of paths, cleared and stored again", func(b bench) {
		for range 3 {
			b.store(0, count(1, 20_000), 0)
			b.store(1, count(1, 10), 0)
			b.want(count(1, 20_000), 20_000, 10)
			b.index.Cleared(workerName(0))
			b.want(count(1, 20_000), 0, 10)
			b.index.Cleared(workerName(1))
		}
		b.wantEmpty(2)
	}},
	{"two writers of different workers", func(b bench) {
		var writers sync.WaitGroup
		for worker := range 2 {
			writers.Go(func() {
				for i := 1; i <= 200; i++ {
					if err := b.index.Stored(workerName(worker), protocol.TierDevice, true, 0, count(1, i).blocks(0)); err != nil {
						b.Error(err)
					}
				}
			})
		}
		writers.Wait()
		b.want(count(1, 200), 200, 200)
	}},
}
