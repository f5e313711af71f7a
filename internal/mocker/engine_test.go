package mocker

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// blocks makes a prompt of block hashes from small numbers.
func blocks(hashes ...protocol.BlockHash) HashedPrompt { return hashes }

func newTestEngine(t testing.TB, config Config) *Engine {
	t.Helper()
	e, err := NewEngine(config)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func submit(t testing.TB, e *Engine, id RequestID, tokens, output int, prompt Prompt) {
	t.Helper()
	if err := e.Submit(Request{ID: id, PromptTokens: tokens, OutputTokens: output, Prompt: prompt}); err != nil {
		t.Fatal(err)
	}
}

// step runs a step that must have something to do and returns a copy of its result.
func step(t testing.TB, e *Engine) Result {
	t.Helper()
	if _, ok := e.Start(); !ok {
		t.Fatal("nothing to do")
	}
	r := e.Finish()
	return Result{
		Events: slices.Clone(r.Events), Admitted: slices.Clone(r.Admitted), Generated: slices.Clone(r.Generated),
		FirstTokens: slices.Clone(r.FirstTokens), Completed: slices.Clone(r.Completed), Preempted: slices.Clone(r.Preempted),
	}
}

// drain runs steps until nothing is left to do.
func drain(t testing.TB, e *Engine) {
	t.Helper()
	for e.Running()+e.Waiting() > 0 {
		step(t, e)
	}
}

func TestEngineStepByStep(t *testing.T) {
	e := newTestEngine(t, Config{Blocks: 16, BlockSize: 4})
	if _, ok := e.Start(); ok {
		t.Fatal("an engine without requests began a step")
	}
	submit(t, e, 1, 9, 3, blocks(10, 11)) // two blocks and a token
	got := step(t, e)
	second := protocol.NextSequenceHash(10, 11)
	want := Result{
		Events: []protocol.Event{{
			Kind: protocol.EventStored, Root: true,
			Blocks: []protocol.Block{{Sequence: 10, Hash: 10}, {Sequence: second, Hash: 11}},
		}},
		Admitted: []Admission{{ID: 1}}, Generated: []RequestID{1}, FirstTokens: []RequestID{1},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("first step:\ngot  %+v\nwant %+v", got, want)
	}
	if got, want := step(t, e), (Result{Generated: []RequestID{1}}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("second step: %+v", got)
	}
	// With its third token the request has 12 tokens, the last of which is never
	// computed: its third block is not full.
	if got, want := step(t, e), (Result{Generated: []RequestID{1}, Completed: []RequestID{1}}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("third step: %+v", got)
	}
	if e.Running() != 0 || e.UsedBlocks() != 0 || e.State().Blocks != 2 {
		t.Errorf("%d run, %d blocks in use, %d cached; want 0, 0, 2", e.Running(), e.UsedBlocks(), e.State().Blocks)
	}
}

func TestOutputBlocksAreCachedAndUnshared(t *testing.T) {
	a := newTestEngine(t, Config{Blocks: 16, BlockSize: 4, Seed: 1})
	b := newTestEngine(t, Config{Blocks: 16, BlockSize: 4, Seed: 2})
	for _, e := range []*Engine{a, b} {
		submit(t, e, 1, 6, 7, blocks(10))
		submit(t, e, 2, 6, 7, blocks(10))
		drain(t, e)
		// The prompt's block is shared; each request fills two with what it generates.
		if got := e.State().Blocks; got != 5 {
			t.Errorf("%d blocks are cached, want 5", got)
		}
	}
	if a.State() == b.State() {
		t.Error("engines of different seeds hold the same output blocks")
	}
}

func TestReuseStopsBeforeTheLastToken(t *testing.T) {
	for _, test := range []struct{ tokens, want int }{{8, 4}, {9, 8}, {7, 4}, {12, 8}, {13, 8}} {
		e := newTestEngine(t, Config{Blocks: 16, BlockSize: 4})
		submit(t, e, 1, 8, 1, blocks(10, 11))
		drain(t, e)
		submit(t, e, 2, test.tokens, 1, blocks(10, 11, 12)[:test.tokens/4])
		got := step(t, e)
		if len(got.Admitted) != 1 || got.Admitted[0].CachedTokens != test.want {
			t.Errorf("prompt of %d tokens: admitted %+v, want %d cached tokens", test.tokens, got.Admitted, test.want)
		}
		for _, event := range got.Events {
			if event.Kind == protocol.EventStored && event.Blocks[0].Hash <= 11 {
				t.Errorf("prompt of %d tokens: a cached block was entered again: %+v", test.tokens, event)
			}
		}
	}
}

func TestBlocksOfAStepAreReusedInIt(t *testing.T) {
	e := newTestEngine(t, Config{Blocks: 16, BlockSize: 4})
	submit(t, e, 1, 10, 1, blocks(10, 11))
	submit(t, e, 2, 10, 1, blocks(10, 12))
	got := step(t, e)
	if want := []Admission{{ID: 1}, {ID: 2, CachedTokens: 4}}; !slices.Equal(got.Admitted, want) {
		t.Errorf("admitted %+v, want %+v", got.Admitted, want)
	}
	if e.State().Blocks != 3 {
		t.Errorf("%d blocks are cached, want 3", e.State().Blocks)
	}
}

func TestBudgetIsServedInOrder(t *testing.T) {
	e := newTestEngine(t, Config{Blocks: 64, BlockSize: 4, TokenBudget: 10})
	submit(t, e, 1, 4, 100, nil)
	step(t, e)
	submit(t, e, 2, 16, 1, nil)
	submit(t, e, 3, 4, 1, nil)
	// One token for the first, nine of the second's prompt.
	if got := step(t, e); !slices.Equal(got.Generated, []RequestID{1}) || len(got.Admitted) != 1 {
		t.Errorf("second step: %+v", got)
	}
	// One, the other seven, and two tokens are left for the third.
	got := step(t, e)
	if !slices.Equal(got.Generated, []RequestID{1, 2}) || !slices.Equal(got.Admitted, []Admission{{ID: 3}}) {
		t.Errorf("third step: %+v", got)
	}
	if got := step(t, e); !slices.Equal(got.Completed, []RequestID{3}) {
		t.Errorf("fourth step: %+v", got)
	}
}

func TestAdmissionNeedsRoomForTheWholePrompt(t *testing.T) {
	e := newTestEngine(t, Config{Blocks: 6, BlockSize: 4, TokenBudget: 4})
	submit(t, e, 1, 12, 1, blocks(10, 11, 12))
	submit(t, e, 2, 20, 1, blocks(20, 21, 22, 23, 24)) // 5 blocks beside the first's are too many
	submit(t, e, 3, 4, 1, blocks(30))                  // would fit, but is behind
	for range 2 {
		step(t, e)
		if e.Running() != 1 || e.Waiting() != 2 {
			t.Fatalf("%d run and %d wait, want 1 and 2", e.Running(), e.Waiting())
		}
	}
	drain(t, e)

	// Cached blocks that others use need no room; cached ones that nobody uses do.
	e = newTestEngine(t, Config{Blocks: 6, BlockSize: 4})
	submit(t, e, 1, 16, 100, blocks(10, 11, 12, 13))
	step(t, e)
	submit(t, e, 2, 20, 1, blocks(10, 11, 12, 13, 14))
	if got := step(t, e); len(got.Admitted) != 1 || got.Admitted[0].CachedTokens != 16 {
		t.Errorf("admitted %+v, want request 2 with 16 cached tokens", got.Admitted)
	}
}

func TestPreemption(t *testing.T) {
	e := newTestEngine(t, Config{Blocks: 4, BlockSize: 4, MaxRunning: 3})
	submit(t, e, 1, 7, 6, blocks(10))
	submit(t, e, 2, 7, 6, blocks(20))
	submit(t, e, 3, 3, 1, nil)
	step(t, e) // each has 8 tokens known and two blocks
	step(t, e) // and fills them
	got := step(t, e)
	// The first needs a third block: the second gives its own up, and in a step
	// with a preemption nobody is admitted.
	if !slices.Equal(got.Preempted, []RequestID{2}) || !slices.Equal(got.Generated, []RequestID{1}) || len(got.Admitted) != 0 {
		t.Fatalf("third step: %+v", got)
	}
	// The preempted one is the head of the queue; its prompt's block is still cached.
	var again []Admission
	var completed []RequestID
	for e.Running()+e.Waiting() > 0 {
		r := step(t, e)
		again = append(again, r.Admitted...)
		completed = append(completed, r.Completed...)
		if slices.Contains(r.FirstTokens, 2) {
			t.Error("the preempted request has a second first token")
		}
	}
	if len(again) != 2 || again[0].ID != 2 || !again[0].Again || again[1].ID != 3 || again[1].Again {
		t.Errorf("admitted after the preemption: %+v, want 2 again, then 3", again)
	}
	if !slices.Equal(completed, []RequestID{1, 3, 2}) || e.Counters().Preemptions != 1 {
		t.Errorf("completed %v with %d preemptions, want 1, 3, 2 with 1", completed, e.Counters().Preemptions)
	}
}

func TestEvictionTakesFreeThenLeastRecentTailFirst(t *testing.T) {
	e := newTestEngine(t, Config{Blocks: 6, BlockSize: 4})
	submit(t, e, 1, 12, 1, blocks(10, 11, 12))
	drain(t, e)
	submit(t, e, 2, 8, 1, blocks(20, 21))
	drain(t, e)
	s11 := protocol.NextSequenceHash(10, 11)
	s12 := protocol.NextSequenceHash(s11, 12)
	// One block is free, the next two come from the tail of the oldest prompt.
	submit(t, e, 3, 12, 1, blocks(30, 31, 32))
	got := step(t, e)
	if len(got.Events) != 2 || got.Events[0].Kind != protocol.EventRemoved ||
		!slices.Equal(got.Events[0].Removed, []protocol.SequenceHash{s12, s11}) {
		t.Errorf("events %+v, want the removal of %d and %d first", got.Events, s12, s11)
	}
	// The first prompt's head is the oldest now, but about to be used.
	submit(t, e, 4, 5, 1, blocks(10))
	got = step(t, e)
	if want := protocol.NextSequenceHash(20, 21); !slices.Equal(got.Events[0].Removed, []protocol.SequenceHash{want}) {
		t.Errorf("events %+v, want the removal of %d", got.Events, want)
	}
}

func TestSubmitRefuses(t *testing.T) {
	e := newTestEngine(t, Config{Blocks: 4, BlockSize: 4})
	if err := e.Submit(Request{ID: 1, PromptTokens: 17, OutputTokens: 1}); !errors.Is(err, ErrPromptTooLarge) {
		t.Errorf("17 tokens in 16: %v", err)
	}
	for _, r := range []Request{{PromptTokens: 0, OutputTokens: 1}, {PromptTokens: -1, OutputTokens: 1}, {PromptTokens: 1}} {
		if err := e.Submit(r); err == nil || errors.Is(err, ErrPromptTooLarge) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if e.Waiting() != 0 {
		t.Errorf("%d requests wait", e.Waiting())
	}
}

func TestOutputEndsWhereTheWorkerIsFull(t *testing.T) {
	e := newTestEngine(t, Config{Blocks: 4, BlockSize: 4})
	submit(t, e, 1, 14, 1000, nil)
	generated := 0
	for e.Running()+e.Waiting() > 0 {
		generated += len(step(t, e).Generated)
	}
	if generated != 3 || e.Counters().Preemptions != 0 {
		t.Errorf("%d tokens with %d preemptions, want 3 without", generated, e.Counters().Preemptions)
	}
}

func TestCancel(t *testing.T) {
	e := newTestEngine(t, Config{Blocks: 8, BlockSize: 4, MaxRunning: 2})
	submit(t, e, 1, 8, 50, blocks(10, 11))
	submit(t, e, 2, 8, 50, blocks(20, 21))
	submit(t, e, 3, 8, 50, blocks(30, 31))
	step(t, e)
	if !e.Cancel(3) || e.Waiting() != 0 {
		t.Error("a waiting request was not cancelled")
	}
	if !e.Cancel(2) || e.Running() != 1 || e.UsedBlocks() != 2 {
		t.Errorf("between steps: %d run with %d blocks, want 1 with 2", e.Running(), e.UsedBlocks())
	}
	e.Start()
	if !e.Cancel(1) || e.Running() != 1 {
		t.Error("a request in a step was not left there")
	}
	if r := e.Finish(); len(r.Generated) != 0 || e.Running() != 0 || e.UsedBlocks() != 0 {
		t.Errorf("after the step: generated %v, %d run with %d blocks", r.Generated, e.Running(), e.UsedBlocks())
	}
	if e.Cancel(1) {
		t.Error("a request that is gone was cancelled")
	}
}

func TestWithoutChunkedPrefill(t *testing.T) {
	e := newTestEngine(t, Config{Blocks: 64, BlockSize: 4, TokenBudget: 10, NoChunkedPrefill: true})
	submit(t, e, 1, 8, 1, nil)
	submit(t, e, 2, 4, 1, nil)  // does not fit beside the first
	submit(t, e, 3, 25, 1, nil) // fits no step
	for i, want := range [][]RequestID{{1}, {2}, nil, nil, {3}} {
		if got := step(t, e); !slices.Equal(got.Completed, want) {
			t.Errorf("step %d completed %v, want %v", i, got.Completed, want)
		}
	}
}

func TestWithoutPrefixCache(t *testing.T) {
	e := newTestEngine(t, Config{Blocks: 8, BlockSize: 4, NoPrefixCache: true})
	for id := range RequestID(2) {
		submit(t, e, id, 8, 2, blocks(10, 11))
		for e.Running()+e.Waiting() > 0 {
			if r := step(t, e); len(r.Events) != 0 || len(r.Admitted) == 1 && r.Admitted[0].CachedTokens != 0 {
				t.Errorf("request %d: %+v", id, r)
			}
		}
	}
	if e.State() != (protocol.HeldState{}) {
		t.Errorf("state %+v, want nothing", e.State())
	}
}

func TestStepTimes(t *testing.T) {
	took := func(e *Engine) time.Duration {
		t.Helper()
		d, ok := e.Start()
		if !ok {
			t.Fatal("nothing to do")
		}
		e.Finish()
		return d
	}
	ms := func(v float64) time.Duration { return duration(v) }

	e := newTestEngine(t, Config{Blocks: 100, BlockSize: 10})
	submit(t, e, 1, 100, 5, nil)
	if got, want := took(e), ms(4.209989e-7*100*100+0.01518344*100+16.50142); got != want {
		t.Errorf("prefill of 100 tokens takes %v, want %v: its first token costs no decode time", got, want)
	}
	u := 101.0 / 1000
	if got, want := took(e), ms(-25.74*u*u+54.01*u+5.74); got != want {
		t.Errorf("decode with 101 tokens takes %v, want %v", got, want)
	}
	// Two prefills of 11 and 22 tokens, mean 16.5: twice 16.
	submit(t, e, 2, 11, 1, nil)
	submit(t, e, 3, 22, 1, nil)
	u = 102.0 / 1000
	if got, want := took(e), ms(4.209989e-7*32*32+0.01518344*32+16.50142-25.74*u*u+54.01*u+5.74); got != want {
		t.Errorf("two prefills and a decode take %v, want %v", got, want)
	}

	e = newTestEngine(t, Config{SpeedUp: 4, Timing: Fixed{Prefill: 20 * time.Millisecond, Decode: 8 * time.Millisecond}})
	submit(t, e, 1, 5, 2, nil)
	if got := took(e); got != 5*time.Millisecond {
		t.Errorf("fixed prefill, four times as fast: %v, want 5ms", got)
	}
	if got := took(e); got != 2*time.Millisecond {
		t.Errorf("fixed decode, four times as fast: %v, want 2ms", got)
	}
}

func TestConfigValidateReportsAllFaults(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("zero value: %v", err)
	}
	bad := Config{Blocks: -1, BlockSize: 1 << 20, MaxRunning: -2, TokenBudget: -3, SpeedUp: -1, Timing: Fixed{Decode: -1}}
	err := bad.Validate()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 6 {
		t.Errorf("got %v, want six faults", err)
	}
	if _, err := NewEngine(bad); err == nil {
		t.Error("NewEngine took it")
	}
}
