package indexertest

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/protocol"
)

// Race has writers change workers as fast as they can while readers ask. Some
// workers never change, on the very paths that the others come and go on: their
// answers must not either. One worker is replaced back and forth between two
// contents: a reader sees one or the other.
func Race(t *testing.T, newIndex func() indexer.Index) {
	b := bench{t, newIndex()}
	const still, movers, flipper = 4, 6, 30
	prompt := count(1, 120)
	want := stillWorkers(b, still, prompt)

	here, there := contents(prompt[:50]), contents(count(1001, 1050))
	states := []protocol.HeldState{stateOf(b, here), stateOf(b, there)}
	if err := b.index.Replace(workerName(flipper), there); err != nil {
		t.Fatal(err)
	}

	var writing atomic.Int32
	var all sync.WaitGroup
	for writer := range 2 {
		writing.Add(1)
		all.Go(func() {
			defer writing.Add(-1)
			churn(b, writer, still, movers, prompt)
		})
	}
	writing.Add(1)
	all.Go(func() {
		defer writing.Add(-1)
		for i := range 100 {
			if err := b.index.Replace(workerName(flipper), [][]protocol.Event{here, there}[i%2]); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2 {
		all.Go(func() {
			var dst []protocol.Match
			for asked := 0; asked < 100 || writing.Load() > 0; asked++ {
				dst = b.index.Match(dst[:0], prompt)
				checkRead(t, dst, want, workerName(flipper))
				if state := b.index.State(workerName(flipper)); !slices.Contains(states, state) {
					t.Errorf("a worker in replacement has %+v, want one of %+v", state, states)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
	all.Go(func() {
		for writing.Load() > 0 {
			snapshotOfStill(t, b, want)
		}
	})
	all.Wait()
	b.wantEmpty(flipper + 1)
}

// stillWorkers fills workers 0 to n-1 for good and says what they must answer.
func stillWorkers(b bench, n int, prompt path) map[protocol.Worker]protocol.Overlap {
	want := map[protocol.Worker]protocol.Overlap{}
	for worker := range n {
		depth := len(prompt) * (worker + 1) / n
		b.store(worker, prompt[:depth], 0)
		want[workerName(worker)] = protocol.Overlap{Device: depth}
	}
	// One with a hole that host fills, one with a hole that nothing fills.
	b.storeOn(host, 1, prompt[:20], 10)
	b.removed(1, 0, prompt[:15].name())
	want[workerName(1)] = protocol.Overlap{Device: 14, Host: 6}
	b.removed(2, 0, prompt[:30].name())
	want[workerName(2)] = protocol.Overlap{Device: 29}
	return want
}

func contents(p path) []protocol.Event {
	return []protocol.Event{
		{Kind: protocol.EventStored, Root: true, Blocks: p[:20].blocks(0)},
		{Kind: protocol.EventStored, Parent: p[:20].name(), Blocks: p.blocks(20)},
	}
}

func stateOf(b bench, events []protocol.Event) protocol.HeldState {
	b.Helper()
	blocks, checksum, err := protocol.SummarizeSnapshot(events)
	if err != nil {
		b.Fatal(err)
	}
	return protocol.HeldState{Blocks: blocks, Checksum: checksum}
}

// churn changes workers first+writer, first+writer+2, ... below first+n at random.
func churn(b bench, writer, first, n int, prompt path) {
	rng := rand.New(rand.NewPCG(uint64(writer), 1)) // which order the race takes is not ours to repeat
	for range 500 {
		w := workerName(first + writer + 2*rng.IntN(n/2))
		own := slices.Concat(prompt[:rng.IntN(len(prompt))], path{protocol.BlockHash(5000 + rng.IntN(20))})
		switch rng.IntN(10) {
		case 0:
			b.index.Cleared(w)
		case 1:
			b.index.Drop(w)
		case 2, 3, 4:
			p := prompt[:1+rng.IntN(len(prompt))]
			b.index.Removed(w, device, names(p, p[:1+rng.IntN(len(p))]))
		default:
			if err := b.index.Stored(w, device, true, 0, own.blocks(0)); err != nil {
				b.Error(err)
			}
		}
	}
}

// checkRead looks for the still workers' answers among all.
func checkRead(t *testing.T, found []protocol.Match, want map[protocol.Worker]protocol.Overlap, flipper protocol.Worker) {
	seen := 0
	for _, m := range found {
		if o, still := want[m.Worker]; still {
			seen++
			if m.Overlap != o {
				t.Errorf("worker %s has not changed: got %+v, want %+v", m.Worker, m.Overlap, o)
			}
		}
		if m.Worker == flipper && m.Overlap != (protocol.Overlap{Device: 50}) {
			t.Errorf("a worker in replacement matches %+v, want all of 50 blocks or none", m.Overlap)
		}
	}
	if seen != len(want) {
		t.Errorf("got answers of %d workers that have not changed, want %d", seen, len(want))
	}
}

// snapshotOfStill checks that a snapshot taken during the race says what its
// worker holds.
func snapshotOfStill(t *testing.T, b bench, want map[protocol.Worker]protocol.Overlap) {
	for w := range want {
		blocks, checksum, err := protocol.SummarizeSnapshot(b.index.Snapshot(w, 50))
		if got, want := (protocol.HeldState{Blocks: blocks, Checksum: checksum}), b.index.State(w); err != nil || got != want {
			t.Errorf("snapshot of %s sums up to %+v (error %v), want %+v", w, got, err, want)
		}
	}
}
