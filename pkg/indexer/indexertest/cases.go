package indexertest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/protocol"
)

// path is a prompt's block hashes; its last block's sequence hash is the
// router's own chain over it.
type path []protocol.BlockHash

// count is the path from, from+1, … to.
func count(from, to int) path {
	var p path
	for i := from; i <= to; i++ {
		p = append(p, protocol.BlockHash(i))
	}
	return p
}

func (p path) name() protocol.SequenceHash {
	chain := protocol.SequenceHashes(nil, p)
	return chain[len(chain)-1]
}

func names(paths ...path) []protocol.SequenceHash {
	var all []protocol.SequenceHash
	for _, p := range paths {
		all = append(all, p.name())
	}
	return all
}

// blocks are the blocks of p from the one after its first `from` blocks.
func (p path) blocks(from int) []protocol.Block {
	chain := protocol.SequenceHashes(nil, p)
	var all []protocol.Block
	for i := from; i < len(p); i++ {
		all = append(all, protocol.Block{Sequence: chain[i], Hash: p[i]})
	}
	return all
}

// bench is one index under test.
type bench struct {
	*testing.T
	index indexer.Index
}

// store has a worker store p on device, all below its first `from` blocks.
func (b bench) store(worker int, p path, from int) { b.storeOn(protocol.TierDevice, worker, p, from) }

func (b bench) storeOn(tier protocol.Tier, worker int, p path, from int) {
	b.Helper()
	var parent protocol.SequenceHash
	if from > 0 {
		parent = p[:from].name()
	}
	b.mustStore(tier, worker, from == 0, parent, p.blocks(from)...)
}

func (b bench) mustStore(tier protocol.Tier, worker int, atRoot bool, parent protocol.SequenceHash, blocks ...protocol.Block) {
	b.Helper()
	if err := b.index.Stored(workerName(worker), tier, atRoot, parent, blocks); err != nil {
		b.Fatalf("worker %d stores %v: %v", worker, blocks, err)
	}
}

// removed takes blocks from device; unknown is how many of them are not held.
func (b bench) removed(worker, unknown int, hashes ...protocol.SequenceHash) {
	b.Helper()
	b.removedOn(protocol.TierDevice, worker, unknown, hashes...)
}

func (b bench) removedOn(tier protocol.Tier, worker, unknown int, hashes ...protocol.SequenceHash) {
	b.Helper()
	if got := b.index.Removed(workerName(worker), tier, hashes); got != unknown {
		b.Fatalf("worker %d removes %v: %d unknown, want %d", worker, hashes, got, unknown)
	}
}

// want compares a match with the blocks each worker has on device: worker 0's,
// worker 1's and so on.
func (b bench) want(p path, depths ...int) {
	b.Helper()
	var overlaps []protocol.Overlap
	for _, d := range depths {
		overlaps = append(overlaps, protocol.Overlap{Device: d})
	}
	b.wantOn(p, overlaps...)
}

func (b bench) wantOn(p path, overlaps ...protocol.Overlap) {
	b.Helper()
	var want []protocol.Match
	for worker, o := range overlaps {
		if o.Blocks() > 0 {
			want = append(want, protocol.Match{Worker: workerName(worker), Overlap: o})
		}
	}
	if got := matches(b.index, p); !slices.Equal(got, want) {
		b.Fatalf("match %v:\ngot  %v\nwant %v", p, got, want)
	}
}

// wantBlocks compares how many (tier, sequence hash) pairs a worker holds.
func (b bench) wantBlocks(worker int, blocks uint64) {
	b.Helper()
	state := b.index.State(workerName(worker))
	if state.Blocks != blocks || blocks == 0 && state.Checksum != 0 {
		b.Fatalf("worker %d holds %+v, want %d blocks", worker, state, blocks)
	}
}

// wantEmpty drops workers and checks that nothing is left.
func (b bench) wantEmpty(workers int) {
	b.Helper()
	for i := range workers {
		b.index.Drop(workerName(i))
	}
	if s, ok := b.index.(sized); ok && s.Size() != (indexer.Size{}) {
		b.Fatalf("all workers are dropped and the index has %+v", s.Size())
	}
}

// Cases runs the named cases of the contract, each on an index of its own.
func Cases(t *testing.T, newIndex func() indexer.Index) {
	all := slices.Concat(matchCases, changeCases, tierCases, nameCases, snapshotCases)
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) { c.run(bench{t, newIndex()}) })
	}
	t.Run("any order of a removal", func(t *testing.T) {
		for _, order := range [][]path{
			{count(1, 4), count(1, 2)},
			{count(1, 2), count(1, 4)},
		} {
			for _, together := range []bool{true, false} {
				t.Run(fmt.Sprint(order, together), func(t *testing.T) { removalOrder(bench{t, newIndex()}, order, together) })
			}
		}
	})
}

func removalOrder(b bench, order []path, together bool) {
	b.store(0, count(1, 5), 0)
	if together {
		b.removed(0, 0, names(order...)...)
	} else {
		for _, p := range order {
			b.removed(0, 0, p.name())
		}
	}
	b.want(count(1, 5), 1)
	b.wantBlocks(0, 3)
}

type testCase struct {
	name string
	run  func(b bench)
}
