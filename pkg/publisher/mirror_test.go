package publisher

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// model is what a mirror must say, kept in the plainest way: every block's
// copies, content and path, all of it looked up anew each time.
type model struct {
	counting bool
	places   map[protocol.SequenceHash]modelPlace
	copies   map[modelKey]int
}

type modelKey struct {
	tier protocol.Tier
	hash protocol.SequenceHash
}

type modelPlace struct {
	content protocol.BlockHash
	path    protocol.SequenceHash // chained from the contents since the start of the prompt
}

func newModel(counting bool) *model {
	return &model{counting, make(map[protocol.SequenceHash]modelPlace), make(map[modelKey]int)}
}

func (m *model) held(h protocol.SequenceHash) bool {
	for t := range protocol.Tier(protocol.Tiers) {
		if m.copies[modelKey{t, h}] > 0 {
			return true
		}
	}
	return false
}

// store applies a store and says whether its parent was held.
func (m *model) store(t protocol.Tier, root bool, parent protocol.SequenceHash, blocks []protocol.Block) bool {
	path := protocol.SequenceHash(0)
	if !root {
		if !m.held(parent) {
			return false
		}
		path = m.places[parent].path
	}
	for _, b := range blocks {
		path = protocol.NextSequenceHash(path, b.Hash)
		m.places[b.Sequence] = modelPlace{b.Hash, path}
		if k := (modelKey{t, b.Sequence}); m.counting || m.copies[k] == 0 {
			m.copies[k]++
		}
	}
	return true
}

func (m *model) remove(t protocol.Tier, h protocol.SequenceHash) removal {
	k := modelKey{t, h}
	if m.copies[k] == 0 {
		return removedUnknown
	}
	m.copies[k]--
	if m.copies[k] > 0 {
		return removedCopy
	}
	delete(m.copies, k)
	return removedLast
}

// apply applies a snapshot's events.
func (m *model) apply(t testing.TB, events []protocol.Event) {
	t.Helper()
	for i, e := range events {
		switch e.Kind {
		case protocol.EventStored:
			if !m.store(e.Tier, e.Root, e.Parent, e.Blocks) {
				t.Fatalf("event %d of the snapshot stores behind %d, which is not held", i, e.Parent)
			}
		case protocol.EventRemoved:
			for _, h := range e.Removed {
				m.remove(e.Tier, h)
			}
		}
	}
}

func (m *model) state() (s protocol.HeldState) {
	for k := range m.copies {
		s.Blocks++
		s.Checksum += protocol.EntryChecksum(protocol.Block{Sequence: k.hash, Hash: m.places[k.hash].content}, k.tier)
	}
	return s
}

// content is every held (tier, hash) with its path.
func (m *model) content() map[modelKey]modelPlace {
	all := make(map[modelKey]modelPlace)
	for k := range m.copies {
		all[k] = m.places[k.hash]
	}
	return all
}

// random is a source with a printed seed.
func random(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// workload makes up what an engine might do, over few enough hashes that blocks
// come back, hold each other up and leave holes.
type workload struct {
	rng    *rand.Rand
	moving bool // blocks may come back at another place or with another content
}

// A block's place is a function of its hash, unless it moves.
func (w *workload) blocks(parent protocol.SequenceHash, n int) []protocol.Block {
	var out []protocol.Block
	for range n {
		h := parent*4 + 1 + protocol.SequenceHash(w.rng.IntN(3))
		if h > 4000 {
			break
		}
		if w.moving && w.rng.IntN(20) == 0 {
			h = 1 + protocol.SequenceHash(w.rng.IntN(4000))
		}
		content := protocol.BlockHash(h % 7)
		if w.moving && w.rng.IntN(20) == 0 {
			content++
		}
		out = append(out, protocol.Block{Sequence: h, Hash: content})
		parent = h
	}
	return out
}

func TestMirrorAgainstModel(t *testing.T) {
	for _, counting := range []bool{false, true} {
		for _, moving := range []bool{false, true} {
			t.Run(fmt.Sprintf("counting=%v,moving=%v", counting, moving), func(t *testing.T) {
				checkMirror(t, counting, &workload{random(t), moving})
			})
		}
	}
}

func checkMirror(t *testing.T, counting bool, w *workload) {
	m, want := newMirror(counting), newModel(counting)
	known := []protocol.SequenceHash{1}
	for step := range 4000 {
		tier := protocol.Tier(w.rng.IntN(protocol.Tiers))
		switch op := w.rng.IntN(100); {
		case op < 45:
			root := w.rng.IntN(3) == 0
			parent := protocol.SequenceHash(0)
			if !root {
				parent = known[w.rng.IntN(len(known))]
			}
			blocks := w.blocks(parent, 1+w.rng.IntN(4))
			at, found := none, true
			if !root {
				at, found = m.find(parent)
			}
			if !m.wellFormed(root, parent, blocks) || !root && (!found || !m.held(at)) {
				if held := root || want.held(parent); held && m.wellFormed(root, parent, blocks) {
					t.Fatalf("step %d: %d is held, the mirror does not know it", step, parent)
				}
				continue
			}
			m.store(tier, at, blocks)
			if !want.store(tier, root, parent, blocks) {
				t.Fatalf("step %d: %d is not held, the mirror says it is", step, parent)
			}
			for _, b := range blocks {
				known = append(known, b.Sequence)
			}
		case op < 99:
			h := known[w.rng.IntN(len(known))]
			if got, want := m.remove(tier, h), want.remove(tier, h); got != want {
				t.Fatalf("step %d: remove %d = %d, want %d", step, h, got, want)
			}
		case step%7 == 0:
			m.clear()
			want = newModel(counting)
		}
		if step%10 == 0 && m.state != want.state() {
			t.Fatalf("step %d: state %+v, want %+v", step, m.state, want.state())
		}
		if step%100 == 0 {
			checkSnapshot(t, m, want, 1+w.rng.IntN(5))
		}
	}
	removeAll(t, m, want)
}

// checkSnapshot builds a model from the mirror's snapshot and compares.
func checkSnapshot(t *testing.T, m *mirror, want *model, longest int) {
	t.Helper()
	events := m.snapshot(longest)
	blocks, checksum, err := protocol.SummarizeSnapshot(events)
	if got := (protocol.HeldState{Blocks: blocks, Checksum: checksum}); err != nil || got != m.state {
		t.Fatalf("snapshot sums up to %+v, %v; want %+v", got, err, m.state)
	}
	for _, e := range events {
		if len(e.Blocks) > longest || len(e.Removed) > longest {
			t.Fatalf("event of %d blocks, at most %d are allowed", len(e.Blocks)+len(e.Removed), longest)
		}
	}
	rebuilt := newModel(false)
	rebuilt.apply(t, events)
	got := rebuilt.content()
	for k, place := range want.content() {
		if got[k] != place {
			t.Fatalf("snapshot gives %+v at %+v, want %+v", k, got[k], place)
		}
		delete(got, k)
	}
	if len(got) > 0 {
		t.Fatalf("snapshot gives %v besides", got)
	}
}

// removeAll empties the mirror block by block: nothing may be left.
func removeAll(t *testing.T, m *mirror, want *model) {
	t.Helper()
	for k, copies := range want.copies {
		for range copies {
			m.remove(k.tier, k.hash)
		}
	}
	if m.used != 0 || len(m.byHash) != 0 || m.state != (protocol.HeldState{}) {
		t.Errorf("%d nodes, %d hashes and state %+v are left", m.used, len(m.byHash), m.state)
	}
}

func TestMirrorSaysHoles(t *testing.T) {
	m := newMirror(false)
	chain := []protocol.Block{{Sequence: 1, Hash: 11}, {Sequence: 2, Hash: 12}, {Sequence: 3, Hash: 13}}
	m.store(protocol.TierDevice, none, chain)
	m.remove(protocol.TierDevice, 1)
	m.remove(protocol.TierDevice, 2)
	root, _, missing := m.missingBefore(m.byHash[2])
	if !root || !slices.Equal(missing, chain[:2]) {
		t.Errorf("missing before block 3: root %v, %v", root, missing)
	}
	events := m.snapshot(protocol.MaxEventBlocks)
	if len(events) != 2 || events[1].Kind != protocol.EventRemoved || !slices.Equal(events[1].Removed, []protocol.SequenceHash{1, 2}) {
		t.Errorf("snapshot = %+v, want the chain and the removal of its first two blocks", events)
	}
	m.remove(protocol.TierDevice, 3)
	if m.used != 0 {
		t.Errorf("%d nodes are left when nothing is held", m.used)
	}
}

func TestMalformedStores(t *testing.T) {
	m := newMirror(false)
	for _, tt := range []struct {
		root   bool
		parent protocol.SequenceHash
		hashes []protocol.SequenceHash
		want   bool
	}{
		{true, 0, []protocol.SequenceHash{1, 2, 3}, true},
		{true, 0, []protocol.SequenceHash{0}, true},
		{true, 0, []protocol.SequenceHash{1, 2, 1}, false},
		{false, 0, []protocol.SequenceHash{0}, false},
		{false, 9, []protocol.SequenceHash{1, 9}, false},
		{false, 9, []protocol.SequenceHash{8, 10}, true},
	} {
		var blocks []protocol.Block
		for _, h := range tt.hashes {
			blocks = append(blocks, protocol.Block{Sequence: h})
		}
		if got := m.wellFormed(tt.root, tt.parent, blocks); got != tt.want {
			t.Errorf("wellFormed(%v, %d, %v) = %v", tt.root, tt.parent, tt.hashes, got)
		}
	}
}

// chains makes prompts of a number of blocks each that share nothing.
func chains(prompts, blocks int) [][]protocol.Block {
	var out [][]protocol.Block
	for i := range prompts {
		hashes := make([]protocol.BlockHash, blocks)
		for j := range hashes {
			hashes[j] = protocol.BlockHash(i<<20+j)*0x9e3779b97f4a7c15 + 1
		}
		var chain []protocol.Block
		for j, h := range protocol.SequenceHashes(nil, hashes) {
			chain = append(chain, protocol.Block{Sequence: h, Hash: hashes[j]})
		}
		out = append(out, chain)
	}
	return out
}

// One operation is one block stored and one removed, in a mirror of 65,536.
func BenchmarkMirror(b *testing.B) {
	const blocks = 64
	all := chains(2048, blocks)
	m := newMirror(true)
	for _, chain := range all[:1024] {
		m.store(protocol.TierDevice, none, chain)
	}
	b.ReportAllocs()
	oldest, next := 0, 1024
	for n := 0; b.Loop(); n++ {
		if n%blocks == 0 {
			m.store(protocol.TierDevice, none, all[next%len(all)])
			next++
		}
		m.remove(protocol.TierDevice, all[oldest%len(all)][blocks-1-n%blocks].Sequence)
		if n%blocks == blocks-1 {
			oldest++
		}
	}
}

func BenchmarkMirrorSnapshot65536(b *testing.B) {
	m := newMirror(false)
	for _, chain := range chains(1024, 64) {
		m.store(protocol.TierDevice, none, chain)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.snapshot(protocol.MaxEventBlocks)
	}
}

// The claim of the mirror's comment, with what growth leaves unused.
func TestMirrorMemory(t *testing.T) {
	const blocks = 65536
	all := chains(blocks/64, 64)
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	m := newMirror(true)
	for _, chain := range all {
		m.store(protocol.TierDevice, none, chain)
	}
	perBlock := float64(heap()-before) / blocks
	t.Logf("%.0f bytes a block", perBlock)
	if perBlock > 120 {
		t.Errorf("%.0f bytes a block, at most 120 are promised", perBlock)
	}
	runtime.KeepAlive(m)
	runtime.KeepAlive(all)
}
