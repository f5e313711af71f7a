package lease

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

func TestClockStates(t *testing.T) {
	in := func(state uint32) *clockWord {
		c := new(clockWord)
		c.state.Store(state)
		return c
	}
	for _, c := range []struct {
		from, touch, claim, reap uint32
		claims, reaps            bool
	}{
		{from: touched, touch: touched, claim: claimed, claims: true, reap: quiet},
		{from: quiet, touch: touched, claim: claimed, claims: true, reap: claimed, reaps: true},
		{from: claimed, touch: claimed, claim: claimed, reap: claimed},
	} {
		w := in(c.from)
		if w.touch(); w.state.Load() != c.touch {
			t.Errorf("touch of %d gives %d, want %d", c.from, w.state.Load(), c.touch)
		}
		w = in(c.from)
		if got := w.claim(); got != c.claims || w.state.Load() != c.claim {
			t.Errorf("claim of %d gives %v, %d", c.from, got, w.state.Load())
		}
		w = in(c.from)
		if got := w.reap(); got != c.reaps || w.state.Load() != c.reap {
			t.Errorf("reap of %d gives %v, %d", c.from, got, w.state.Load())
		}
	}
	if new(clockWord).state.Load() != touched {
		t.Error("a new clock is not touched")
	}
}

// A claimed lease stays claimed whatever is done to it.
func TestClaimedIsFinal(t *testing.T) {
	var c clockWord
	if !c.claim() {
		t.Fatal("first claim refused")
	}
	c.touch()
	if c.reap() || c.claim() || c.state.Load() != claimed {
		t.Error("a claimed clock changed")
	}
}

// Whatever races, one caller ends a lease.
func TestOneCallerEndsALease(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range 2000 {
		var c clockWord
		var ended atomic.Int32
		var group sync.WaitGroup
		start := make(chan struct{})
		for worker := range 4 {
			random := rand.New(rand.NewPCG(seed, uint64(4*round+worker)))
			group.Go(func() {
				<-start
				for range 8 {
					switch random.IntN(3) {
					case 0:
						c.touch()
					case 1:
						if c.reap() {
							ended.Add(1)
						}
					default:
						if random.IntN(4) == 0 && c.claim() {
							ended.Add(1)
						}
					}
				}
			})
		}
		close(start)
		group.Wait()
		if final := c.state.Load() == claimed; ended.Load() > 1 || (ended.Load() == 1) != final {
			t.Fatalf("round %d: ended %d times, claimed %v", round, ended.Load(), final)
		}
	}
}
