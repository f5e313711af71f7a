package indexertest

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/protocol"
)

type kind int

const (
	opStored kind = iota
	opRemoved
	opCleared
	opDrop
	opReplace  // a worker takes over what another one holds
	opBadStore // a replacement that fails
	opMatch
	opSnapshot
)

// operation is one step of a random run: plain data, so that a failing list of
// them can be cut down and printed.
type operation struct {
	kind   kind
	worker int
	tier   protocol.Tier
	root   bool
	parent protocol.SequenceHash
	blocks []protocol.Block
	hashes []protocol.SequenceHash
	prompt []protocol.BlockHash
	from   int // the worker whose blocks a replacement takes
	max    int // blocks per event of a snapshot
}

func (o operation) String() string {
	switch o.kind {
	case opStored:
		parent := fmt.Sprint(o.parent)
		if o.root {
			parent = "root"
		}
		return fmt.Sprintf("stored worker=%d %s parent=%s blocks=%v", o.worker, o.tier, parent, o.blocks)
	case opRemoved:
		return fmt.Sprintf("removed worker=%d %s %v", o.worker, o.tier, o.hashes)
	case opCleared:
		return fmt.Sprintf("cleared worker=%d", o.worker)
	case opDrop:
		return fmt.Sprintf("drop worker=%d", o.worker)
	case opReplace:
		return fmt.Sprintf("replace worker=%d by what %d holds", o.worker, o.from)
	case opBadStore:
		return fmt.Sprintf("replace worker=%d by a broken snapshot", o.worker)
	case opMatch:
		return fmt.Sprintf("match %v", o.prompt)
	case opSnapshot:
		return fmt.Sprintf("snapshot worker=%d max=%d", o.worker, o.max)
	}
	return "unknown operation"
}

func workerName(i int) protocol.Worker {
	return protocol.Worker{ID: fmt.Sprintf("w%d", i/2), Rank: uint16(i % 2)}
}

// sized is an Index that can tell whether it is empty.
type sized interface{ Size() indexer.Size }

// play does the operations on a new index and on the Model, and compares all
// they answer. A panic is an error like any other, so that it can be reduced.
func play(newIndex func() indexer.Index, workers int, operations []operation) (err error) {
	index, model := newIndex(), NewModel()
	at := -1
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("operation %d panicked: %v\n%s", at, p, debug.Stack())
		}
	}()
	for i, o := range operations {
		at = i
		if err := do(index, model, o); err != nil {
			return fmt.Errorf("operation %d (%v): %w", i, o, err)
		}
		if err := sameState(index, model, workerName(o.worker)); err != nil {
			return fmt.Errorf("after operation %d (%v): %w", i, o, err)
		}
	}
	return finish(index, model, workers)
}

// finish compares every worker once more, then drops them all.
func finish(index indexer.Index, model *Model, workers int) error {
	for i := range workers {
		if err := sameState(index, model, workerName(i)); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
		if err := sameSnapshot(index, model, workerName(i), 1000); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	for i := range workers {
		index.Drop(workerName(i))
	}
	if s, ok := index.(sized); ok && s.Size() != (indexer.Size{}) {
		return fmt.Errorf("all workers are dropped and the index has %+v", s.Size())
	}
	return nil
}

// do does one operation on both.
func do(index indexer.Index, model *Model, o operation) error {
	w := workerName(o.worker)
	switch o.kind {
	case opStored:
		got := index.Stored(w, o.tier, o.root, o.parent, o.blocks)
		want := model.Stored(w, o.tier, o.root, o.parent, o.blocks)
		if !errors.Is(got, want) {
			return fmt.Errorf("got error %v, want %v", got, want)
		}
	case opRemoved:
		got, want := index.Removed(w, o.tier, o.hashes), model.Removed(w, o.tier, o.hashes)
		if got != want {
			return fmt.Errorf("got %d unknown, want %d", got, want)
		}
	case opCleared:
		index.Cleared(w)
		model.Cleared(w)
	case opDrop:
		index.Drop(w)
		model.Drop(w)
	case opReplace:
		events := model.Snapshot(workerName(o.from), o.max)
		if err := errors.Join(index.Replace(w, events), model.Replace(w, events)); err != nil {
			return err
		}
	case opBadStore:
		events := append(model.Snapshot(w, o.max), protocol.Event{Kind: protocol.EventStored, Parent: o.parent, Blocks: o.blocks})
		if got, want := index.Replace(w, events), model.Replace(w, events); !errors.Is(got, want) {
			return fmt.Errorf("got error %v, want %v", got, want)
		}
	case opMatch:
		if err := sameMatches(index, model, o.prompt); err != nil {
			return err
		}
	case opSnapshot:
		return sameSnapshot(index, model, w, o.max)
	}
	for _, b := range o.blocks {
		if got, want := index.Holds(w, b.Sequence), model.Holds(w, b.Sequence); got != want {
			return fmt.Errorf("holds %d: got %v, want %v", b.Sequence, got, want)
		}
	}
	return nil
}

func sameState(index, model indexer.Index, w protocol.Worker) error {
	if got, want := index.State(w), model.State(w); got != want {
		return fmt.Errorf("state of %s: got %+v, want %+v", w, got, want)
	}
	return nil
}

func sameMatches(index, model indexer.Index, prompt []protocol.BlockHash) error {
	got, want := matches(index, prompt), matches(model, prompt)
	if !slices.Equal(got, want) {
		return fmt.Errorf("match %v: got %v, want %v", prompt, got, want)
	}
	return nil
}

// matches asks an index and sorts its answer.
func matches(index indexer.Index, prompt []protocol.BlockHash) []protocol.Match {
	found := index.Match(nil, prompt)
	slices.SortFunc(found, func(a, b protocol.Match) int { return a.Worker.Compare(b.Worker) })
	return found
}

// sameSnapshot checks that a worker's snapshot is well formed and rebuilds what
// the model knows of it.
func sameSnapshot(index indexer.Index, model *Model, w protocol.Worker, maxBlocks int) error {
	events := index.Snapshot(w, maxBlocks)
	for i, e := range events {
		named := len(e.Blocks) + len(e.Removed)
		if named < 1 || named > maxBlocks || e.ID != 0 || e.Kind != protocol.EventStored && e.Kind != protocol.EventRemoved {
			return fmt.Errorf("snapshot of %s in events of %d: event %d is %+v", w, maxBlocks, i, e)
		}
	}
	blocks, checksum, err := protocol.SummarizeSnapshot(events)
	state := protocol.HeldState{Blocks: blocks, Checksum: checksum}
	if want := model.State(w); err != nil || state != want {
		return fmt.Errorf("snapshot of %s sums up to %+v (error %v), want %+v", w, state, err, want)
	}
	copied := NewModel()
	if err := copied.Replace(w, events); err != nil {
		return fmt.Errorf("snapshot of %s is refused: %w", w, err)
	}
	if err := sameState(copied, model, w); err != nil {
		return fmt.Errorf("from its snapshot: %w", err)
	}
	return samePaths(copied, model, w)
}

// samePaths compares, block by block, the tiers and the path of all that a
// worker holds in two models.
func samePaths(got, want *Model, w protocol.Worker) error {
	a, b := got.worker(w).blocks, want.worker(w).blocks
	same := map[int]int{0: 0} // paths of got that are known to be these of want
	var isSame func(p, q int) bool
	isSame = func(p, q int) bool {
		if known, ok := same[p]; ok {
			return known == q
		}
		if q == 0 || got.paths[p].hash != want.paths[q].hash || !isSame(got.paths[p].parent, want.paths[q].parent) {
			return false
		}
		same[p] = q
		return true
	}
	for hash, block := range b {
		if other, held := a[hash]; !held || other.tiers != block.tiers || !isSame(other.path, block.path) {
			return fmt.Errorf("from its snapshot %s holds %d on tiers %v of path %v, want %v of %v",
				w, hash, other.tiers, got.pathTo(other.path), block.tiers, want.pathTo(block.path))
		}
	}
	if len(a) != len(b) {
		return fmt.Errorf("from its snapshot %s holds %d blocks, want %d", w, len(a), len(b))
	}
	return nil
}

// pathTo writes a path out.
func (m *Model) pathTo(at int) (p path) {
	for ; at != 0; at = m.paths[at].parent {
		p = append(p, m.paths[at].hash)
	}
	slices.Reverse(p)
	return p
}
