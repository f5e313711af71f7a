package indexertest

import (
	"errors"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/protocol"
)

// copyOf is a Model of what an index says that a worker holds.
func copyOf(index indexer.Index, worker int) *Model {
	m := NewModel()
	if err := m.Replace(workerName(worker), index.Snapshot(workerName(worker), 1<<20)); err != nil {
		panic(err)
	}
	return m
}

// wantSnapshot checks a worker's snapshot against the model, in events of three
// sizes, and has another worker of the same index take it over.
func (b bench) wantSnapshot(worker int, model *Model) {
	b.Helper()
	for _, size := range []int{1, 3, 1 << 20} {
		if err := sameSnapshot(b.index, model, workerName(worker), size); err != nil {
			b.Fatal(err)
		}
	}
	if err := b.index.Replace(workerName(99), b.index.Snapshot(workerName(worker), 3)); err != nil {
		b.Fatal(err)
	}
	if got, want := b.index.State(workerName(99)), model.State(workerName(worker)); got != want {
		b.Fatalf("from its snapshot: %+v, want %+v", got, want)
	}
	b.index.Drop(workerName(99))
}

// snapshotCases: what a snapshot says, and what becomes of one.
var snapshotCases = []testCase{
	{"a chain in one event", func(b bench) {
		b.store(0, count(1, 3), 0)
		b.store(0, count(1, 7), 3)
		b.store(0, count(1, 9), 7)
		events := b.index.Snapshot(workerName(0), 8192)
		if _, model := b.index.(*Model); !model && len(events) != 1 {
			b.Fatalf("got %d events", len(events))
		}
		b.wantSnapshot(0, copyOf(b.index, 0))
	}},
	{"branches, parents first", func(b bench) {
		model := NewModel()
		for worker, paths := range [][]path{{count(1, 6)}, {count(1, 3), {1, 2, 3, 7, 8}}} {
			for _, p := range paths {
				b.store(worker, p, 0)
				if err := model.Stored(workerName(worker), device, true, 0, p.blocks(0)); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.wantSnapshot(0, model)
		b.wantSnapshot(1, model)
	}},
	{"a worker that holds nothing", func(b bench) {
		if events := b.index.Snapshot(workerName(0), 10); len(events) != 0 {
			b.Fatalf("an unknown worker has %v", events)
		}
		b.store(0, count(1, 2), 0)
		b.index.Cleared(workerName(0))
		if events := b.index.Snapshot(workerName(0), 10); len(events) != 0 {
			b.Fatalf("an empty worker has %v", events)
		}
		b.store(0, count(1, 2), 0)
		if err := b.index.Replace(workerName(0), nil); err != nil {
			b.Fatal(err)
		}
		b.want(count(1, 2))
		b.wantBlocks(0, 0)
	}},
	{"holes, aliases and tiers", func(b bench) {
		model := NewModel()
		for _, index := range []indexer.Index{b.index, model} {
			both := bench{b.T, index}
			both.mustStore(device, 0, true, 0, count(1, 9).alias(1)...)
			both.mustStore(device, 0, true, 0, count(1, 6).alias(101)...)
			both.mustStore(host, 0, true, 0, count(1, 4).alias(1)...)
			both.mustStore(disk, 0, false, 3, protocol.Block{Sequence: 50, Hash: 50}, protocol.Block{Sequence: 51, Hash: 51})
			both.removed(0, 0, 1, 101, 7, 8)
			both.removedOn(host, 0, 0, 1)
			both.removedOn(disk, 0, 0, 50)
		}
		b.wantSnapshot(0, model)
	}},
	{"names for what is missing are nobody's", func(b bench) {
		model := NewModel()
		for _, index := range []indexer.Index{b.index, model} {
			both := bench{b.T, index}
			both.mustStore(device, 0, true, 0, count(1, 6).alias(1)...)
			both.removed(0, 0, 1, 3, 5)
		}
		b.wantSnapshot(0, model)
	}},
	{"a replacement empties first", func(b bench) {
		b.store(0, count(1, 5), 0)
		b.store(1, count(1, 5), 0)
		events := []protocol.Event{
			{Kind: protocol.EventNote, Note: []byte("{}")},
			{Kind: protocol.EventStored, Root: true, Blocks: count(50, 52).blocks(0)},
			{Kind: protocol.EventStored, Refusal: protocol.RefusedMalformedStore, Parent: 1, Blocks: count(1, 2).blocks(0)},
			{Kind: protocol.EventRemoved, Removed: names(count(50, 52), count(1, 5))},
		}
		if err := b.index.Replace(workerName(0), events); err != nil {
			b.Fatal(err)
		}
		b.want(count(1, 5), 0, 5)
		b.want(count(50, 52), 2)
		b.wantBlocks(0, 2)
	}},
	{"a replacement that fails leaves nothing", func(b bench) {
		good := protocol.Event{Kind: protocol.EventStored, Root: true, Blocks: count(1, 3).blocks(0)}
		repeats := append(count(6, 7).blocks(0), count(6, 7).blocks(0)...)
		for want, bad := range map[error]protocol.Event{
			indexer.ErrParentNotHeld:  {Kind: protocol.EventStored, Parent: 12345, Blocks: count(6, 7).blocks(0)},
			indexer.ErrMalformedStore: {Kind: protocol.EventStored, Root: true, Blocks: repeats},
		} {
			b.store(0, count(1, 5), 0)
			b.store(1, count(1, 5), 0)
			err := b.index.Replace(workerName(0), []protocol.Event{good, bad, good})
			if !errors.Is(err, want) {
				b.Fatalf("got error %v, want %v", err, want)
			}
			b.want(count(1, 5), 0, 5)
			b.wantBlocks(0, 0)
			if b.index.Holds(workerName(0), count(1, 1).name()) {
				b.Fatal("it still holds a block")
			}
		}
		b.wantEmpty(2)
	}},
}
