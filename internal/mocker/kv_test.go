package mocker

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// kvChooser is the plain form of cost-based routing on what the workers publish:
// cost = max(0, (A + L)/B - overlap) + D + X, with A the prompt tokens charged to
// the worker whose first token is outstanding, D its active blocks, X those that
// the prompt adds. The fewest blocks win, ties by chance. It is here to check the
// engines by figures that are known for this policy.
type kvChooser struct {
	blockSize int
	rand      *rand.Rand
	held      map[protocol.SequenceHash]uint64    // workers that hold a block, as bits
	active    map[protocol.SequenceHash]*[8]int32 // requests that use a block, per worker
	prefill   [8]int
	blocks    [8]int
	booked    map[RequestID]*booking
	hashes    []protocol.BlockHash
}

type booking struct {
	worker  int
	prefill int
	chain   []protocol.SequenceHash
}

func newKVChooser(blockSize int, seed uint64) *kvChooser {
	return &kvChooser{
		blockSize: blockSize, rand: rand.New(rand.NewPCG(seed, 1)),
		held: map[protocol.SequenceHash]uint64{}, active: map[protocol.SequenceHash]*[8]int32{},
		booked: map[RequestID]*booking{},
	}
}

func (k *kvChooser) route(_ time.Duration, r *Request) (int, error) {
	k.hashes = r.Prompt.AppendBlockHashes(k.hashes[:0], k.blockSize)
	chain := protocol.SequenceHashes(nil, k.hashes)
	var overlap, depth [8]int
	k.match(chain, &overlap, &depth)
	best, ties, worker := 0.0, 0, 0
	for w := range 8 {
		cost := max(0, float64(k.prefill[w]+r.PromptTokens)/float64(k.blockSize)-float64(overlap[w])) +
			float64(k.blocks[w]+len(chain)-depth[w])
		switch {
		case ties == 0 || cost < best:
			best, ties, worker = cost, 1, w
		case cost == best:
			if ties++; k.rand.IntN(ties) == 0 {
				worker = w
			}
		}
	}
	b := &booking{worker: worker, prefill: r.PromptTokens - overlap[worker]*k.blockSize, chain: chain}
	k.booked[r.ID] = b
	k.prefill[worker] += b.prefill
	k.charge(b, 1)
	return worker, nil
}

// match finds, per worker, the leading blocks that it holds and that are active.
func (k *kvChooser) match(chain []protocol.SequenceHash, overlap, depth *[8]int) {
	holders, users := uint64(1<<8-1), uint64(1<<8-1)
	for _, seq := range chain {
		holders &= k.held[seq]
		counts := k.active[seq]
		for w := range 8 {
			if holders&(1<<w) != 0 {
				overlap[w]++
			}
			if counts == nil || counts[w] == 0 {
				users &^= 1 << w
			} else if users&(1<<w) != 0 {
				depth[w]++
			}
		}
		if holders|users == 0 {
			return
		}
	}
}

func (k *kvChooser) charge(b *booking, by int32) {
	for _, seq := range b.chain {
		counts := k.active[seq]
		if counts == nil {
			counts = new([8]int32)
			k.active[seq] = counts
		}
		was := counts[b.worker]
		counts[b.worker] += by
		switch {
		case was == 0:
			k.blocks[b.worker]++
		case counts[b.worker] == 0:
			k.blocks[b.worker]--
			if *counts == ([8]int32{}) {
				delete(k.active, seq)
			}
		}
	}
}

func (k *kvChooser) stepDone(_ time.Duration, worker int, result *Result) error {
	bit := uint64(1) << worker
	for _, e := range result.Events {
		for _, b := range e.Blocks {
			k.held[b.Sequence] |= bit
		}
		for _, seq := range e.Removed {
			if k.held[seq] &^= bit; k.held[seq] == 0 {
				delete(k.held, seq)
			}
		}
	}
	for _, id := range result.FirstTokens {
		b := k.booked[id]
		k.prefill[worker] -= b.prefill
	}
	for _, id := range result.Completed {
		k.charge(k.booked[id], -1)
		delete(k.booked, id)
	}
	return nil
}

func TestKVRoutingMatchesReference(t *testing.T) {
	requests := readTrace(t, 0)
	for _, test := range []struct {
		load                       float64
		reuse, p50, p90, p99, mean float64 // reuse in %, times in ms
		reuseWithin, timesWithin   float64 // points, fraction
	}{
		{load: 1, reuse: 20.2, p50: 169, p90: 560, p99: 1690, mean: 277, reuseWithin: 0.5, timesWithin: 0.03},
		{load: 4, reuse: 16.5, p50: 313, p90: 789, p99: 1904, mean: 406, reuseWithin: 0.5, timesWithin: 0.03},
		{load: 6, reuse: 18.3, p50: 406, p90: 1053, p99: 2360, mean: 534, reuseWithin: 0.5, timesWithin: 0.06},
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("load %v seed %d", test.load, seed), func(t *testing.T) {
				k := newKVChooser(DefaultBlockSize, seed)
				_, s := runFleet(t, requests, test.load, 8, Config{}, Hooks{Route: k.route, StepDone: k.stepDone})
				t.Log(row(&s), float64(s.FirstReusedTokens)/float64(s.PromptTokens))
			})
		}
	}
}
