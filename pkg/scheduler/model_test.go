package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/pkg/protocol"
)

// model is the plainly right account of active load: a list of what runs, and
// everything counted anew each time it is asked.
type model struct {
	ranks []protocol.Worker
	runs  map[protocol.LeaseID]*run
}

type run struct {
	worker  protocol.Worker
	prompt  []protocol.BlockHash // nil if shared with nobody
	loose   int
	prefill int
}

func (m *model) load(w protocol.Worker) protocol.WorkerLoad {
	load := protocol.WorkerLoad{Worker: w.ID, Rank: w.Rank, ActiveDecodeBlocks: len(m.prefixes(w))}
	for _, r := range m.runs {
		if r.worker == w {
			load.ActiveRequests++
			load.ActivePrefillTokens += r.prefill
			load.ActiveDecodeBlocks += r.loose
		}
	}
	return load
}

// prefixes has every prefix of every prompt that runs on a worker.
func (m *model) prefixes(w protocol.Worker) map[string]bool {
	prefixes := map[string]bool{}
	for _, r := range m.runs {
		if r.worker != w {
			continue
		}
		for i := range r.prompt {
			prefixes[fmt.Sprint(r.prompt[:i+1])] = true
		}
	}
	return prefixes
}

// fresh is how many blocks of a prompt do not run on a worker.
func (m *model) fresh(w protocol.Worker, prompt []protocol.BlockHash) int {
	prefixes, depth := m.prefixes(w), 0
	for depth < len(prompt) && prefixes[fmt.Sprint(prompt[:depth+1])] {
		depth++
	}
	return len(prompt) - depth
}

// history is a random run of a scheduler beside its model.
type history struct {
	t   *testing.T
	rng *rand.Rand
	p   *pool
	m   model
	ids []protocol.LeaseID // ever given out
}

func TestLoadAgainstModel(t *testing.T) {
	kv := DefaultKVConfig()
	kv.DecodeActiveRequestWeight = 1
	h := &history{
		t: t, rng: newRand(t), m: model{runs: map[protocol.LeaseID]*run{}},
		p: newPool(t, Config{Policy: protocol.PolicyKV, KV: kv, BlockSize: 4}),
	}
	for range 3 {
		h.setRank()
	}
	operations := []func(){h.admit, h.admit, h.admit, h.admit, h.firstToken, h.firstToken, h.release, h.release, h.restore, h.setRank}
	for step := range 800 {
		if h.rng.IntN(60) == 0 {
			h.removeRank()
		} else {
			operations[h.rng.IntN(len(operations))]()
		}
		h.check(step)
	}
	for id := range h.m.runs {
		h.p.Release(id)
	}
	if total := h.p.total(); total != (protocol.WorkerLoad{}) {
		t.Errorf("load %+v is left after everything ended", total)
	}
	if !h.p.active.empty() || len(h.p.bookings) != 0 {
		t.Errorf("%d bookings are left after everything ended, trie empty: %v", len(h.p.bookings), h.p.active.empty())
	}
}

func (h *history) prompt() []protocol.BlockHash {
	prompt := make([]protocol.BlockHash, h.rng.IntN(8))
	for i := range prompt {
		prompt[i] = protocol.BlockHash(h.rng.IntN(2))
	}
	return prompt
}

// anyLease is one that runs, or one that ended.
func (h *history) anyLease() protocol.LeaseID {
	if len(h.ids) == 0 {
		return leaseID(0)
	}
	recent := h.ids[max(0, len(h.ids)-30):]
	return recent[h.rng.IntN(len(recent))]
}

func (h *history) admit() {
	r := h.p.request(0)
	r.Hashes = h.prompt()
	r.Tokens = 4*len(r.Hashes) + 1 + h.rng.IntN(3)
	for _, w := range h.m.ranks {
		if held := h.rng.IntN(len(r.Hashes) + 1); held > 0 {
			r.Matches = append(r.Matches, protocol.Match{Worker: w, Overlap: protocol.Overlap{Device: held}})
		}
	}
	h.rng.Shuffle(len(r.Matches), func(i, j int) { r.Matches[i], r.Matches[j] = r.Matches[j], r.Matches[i] })
	reuse, track := h.rng.IntN(6) > 0, h.rng.IntN(6) > 0
	r.Overrides.AssumeKVReuse, r.Overrides.TrackPrefillTokens = &reuse, &track
	d, err := h.p.Schedule(context.Background(), r)
	if len(h.m.ranks) == 0 {
		if failure := (*protocol.Error)(nil); !errors.As(err, &failure) || failure.Code != protocol.CodeNoWorkers {
			h.t.Fatalf("error %v in an empty pool", err)
		}
		return
	}
	if err != nil {
		h.t.Fatal(err)
	}
	if !slices.Contains(h.m.ranks, d.Worker) {
		h.t.Fatalf("went to %s, which is not there", d.Worker)
	}
	admitted := &run{worker: d.Worker, prompt: r.Hashes}
	if !reuse {
		admitted.prompt, admitted.loose = nil, len(r.Hashes)
	}
	if track {
		admitted.prefill = r.Tokens - 4*d.Overlap.Device
	}
	h.m.runs[d.Lease.ID] = admitted
	h.ids = append(h.ids, d.Lease.ID)
}

func (h *history) firstToken() {
	id := h.anyLease()
	h.p.FirstToken(id)
	if r := h.m.runs[id]; r != nil {
		r.prefill = 0
	}
}

func (h *history) release() {
	id := h.anyLease()
	_, want := h.m.runs[id]
	if got := h.p.Release(id); got != want {
		h.t.Fatalf("Release is %v, want %v", got, want)
	}
	delete(h.m.runs, id)
}

func (h *history) restore() {
	l := protocol.Lease{ID: h.anyLease(), Worker: h.anyRank(), PromptTokens: 9, Blocks: h.rng.IntN(5)}
	want := h.m.runs[l.ID] == nil && slices.Contains(h.m.ranks, l.Worker)
	if got := h.p.Restore(l); got != want {
		h.t.Fatalf("Restore is %v, want %v", got, want)
	}
	if want {
		h.m.runs[l.ID] = &run{worker: l.Worker, loose: l.Blocks}
	}
}

func (h *history) anyRank() protocol.Worker {
	return protocol.Worker{ID: string(rune('a' + h.rng.IntN(3))), Rank: uint16(h.rng.IntN(2))}
}

func (h *history) setRank() {
	w := h.anyRank()
	h.p.set(Rank{Worker: w})
	if !slices.Contains(h.m.ranks, w) {
		h.m.ranks = append(h.m.ranks, w)
		slices.SortFunc(h.m.ranks, protocol.Worker.Compare)
	}
}

func (h *history) removeRank() {
	w := h.anyRank()
	h.p.RemoveRank(w)
	h.m.ranks = slices.DeleteFunc(h.m.ranks, func(other protocol.Worker) bool { return other == w })
	for id, r := range h.m.runs {
		if r.worker == w {
			delete(h.m.runs, id)
		}
	}
}

// check compares all loads, and what a query would cost on every rank.
func (h *history) check(step int) {
	h.t.Helper()
	want := make([]protocol.WorkerLoad, 0, len(h.m.ranks))
	for _, w := range h.m.ranks {
		want = append(want, h.m.load(w))
	}
	if diff := cmp.Diff(want, h.p.Loads()); diff != "" {
		h.t.Fatalf("step %d: %s", step, diff)
	}
	if len(h.m.ranks) == 0 {
		return
	}
	r := h.p.request(0)
	r.Hashes = h.prompt()
	r.Tokens = 4*len(r.Hashes) + 2
	r.QueryOnly, r.Explain = true, true
	for i, c := range h.p.schedule(r).Candidates {
		load := want[i]
		prefill := float64(load.ActivePrefillTokens+r.Tokens) / 4
		decode := float64(load.ActiveDecodeBlocks + h.m.fresh(h.m.ranks[i], r.Hashes))
		if c.Cost.PrefillBlocks != prefill || c.Cost.DecodeBlocks != decode || c.Cost.RequestBlocks != float64(load.ActiveRequests) {
			h.t.Fatalf("step %d: %s/%d costs %+v, want %v, %v and %d blocks", step, c.Worker, c.Rank, c.Cost, prefill, decode, load.ActiveRequests)
		}
	}
}
