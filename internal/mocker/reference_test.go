//go:build !race

// The reference figures need the whole trace. Nothing in a fleet's simulation is
// concurrent, and the race detector makes it several times slower, so these tests
// run without it: `go test ./internal/mocker`.

package mocker

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

func row(s *Summary) string {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.0f", milliseconds(d)) }
	return fmt.Sprintf("reuse %.1f p50 %s p90 %s p99 %s mean %s preemptions %d last %.0f s",
		100*s.Reuse(), ms(s.TTFT.P50), ms(s.TTFT.P90), ms(s.TTFT.P99), ms(s.TTFT.Mean), s.Preemptions, s.Last.Seconds())
}

// The figures were measured with the simulator of NVIDIA Dynamo 1.6.1 and
// confirmed by an independent rebuild of it.
func TestRoundRobinMatchesReference(t *testing.T) {
	requests := readTrace(t, 0)
	for _, test := range []struct {
		load float64
		want string
	}{
		{1, "reuse 8.2 p50 184 p90 702 p99 2048 mean 321 preemptions 0 last 3543 s"},
		{4, "reuse 8.1 p50 273 p90 1174 p99 2780 mean 475 preemptions 0 last 895 s"},
		{6, "reuse 8.3 p50 1446 p90 10070 p99 20810 mean 3465 preemptions 78 last 615 s"},
	} {
		t.Run(fmt.Sprintf("load %v", test.load), func(t *testing.T) {
			_, s := runFleet(t, requests, test.load, 8, Config{}, Hooks{Route: roundRobin(8)})
			if got := row(&s); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if s.Errors != 0 || s.Completed != len(requests) || s.PromptTokens != 144793823 {
				t.Errorf("%d errors, %d completed, %d prompt tokens", s.Errors, s.Completed, s.PromptTokens)
			}
		})
	}
}

// The figures of this policy vary with its ties, so they hold within bounds.
func TestKVRoutingMatchesReference(t *testing.T) {
	requests := readTrace(t, 0)
	for _, test := range []struct {
		load                       float64
		reuse, p50, p90, p99, mean float64 // reuse in %, times in ms
	}{
		{load: 1, reuse: 20.2, p50: 169, p90: 560, p99: 1690, mean: 277},
		{load: 6, reuse: 18.3, p50: 406, p90: 1053, p99: 2360, mean: 534},
	} {
		t.Run(fmt.Sprintf("load %v", test.load), func(t *testing.T) {
			k := newKVChooser(DefaultBlockSize, 2)
			_, s := runFleet(t, requests, test.load, 8, Config{}, Hooks{Route: k.route, StepDone: k.stepDone})
			t.Log(row(&s))
			if got := 100 * s.Reuse(); math.Abs(got-test.reuse) > 0.5 {
				t.Errorf("reuse is %.2f %%, want %.1f within 0.5 points", got, test.reuse)
			}
			for name, times := range map[string][2]float64{
				"p50": {milliseconds(s.TTFT.P50), test.p50}, "p90": {milliseconds(s.TTFT.P90), test.p90},
				"p99": {milliseconds(s.TTFT.P99), test.p99}, "mean": {milliseconds(s.TTFT.Mean), test.mean},
			} {
				if got, want := times[0], times[1]; math.Abs(got-want) > 0.04*want {
					t.Errorf("TTFT %s is %.0f ms, want %.0f within 4 %%", name, got, want)
				}
			}
		})
	}
}

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
