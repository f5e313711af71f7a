package mocker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// ErrPromptTooLarge is the failure of a request whose prompt needs more blocks
// than the worker has.
var ErrPromptTooLarge = errors.New("prompt needs more KV blocks than the worker has")

// Engine simulates one worker. Its owner submits requests, begins a step with
// Start, lets the step's time pass in whatever way it keeps time, and ends it
// with Finish. It is not safe for concurrent use.
type Engine struct {
	config  Config
	cache   *cache
	log     eventLog
	waiting queue
	running []*task // in the order of admission
	batch   []*task // of the current step, in the order in which they were served
	stepped bool    // a step is under way

	result   Result
	counters Counters
	prefix   []int32                // scratch of cachedPrefix
	spare    [][]protocol.BlockHash // buffers of requests that ended
}

// Counters sum up an engine's life.
type Counters struct {
	Steps          int
	ComputedTokens int // of prompts and output, again after a preemption
	Preemptions    int
}

// Result is what a step did. Its slices are valid until the next Start.
type Result struct {
	// Events are the changes of the cache in their order, without ids.
	Events []protocol.Event
	// Admitted are the requests that were admitted, again after a preemption too.
	Admitted []Admission
	// Generated are the requests that got a token, FirstTokens those of them
	// whose first it was, Completed those whose last it was.
	Generated   []RequestID
	FirstTokens []RequestID
	Completed   []RequestID
	// Preempted are the requests that went back to the queue.
	Preempted []RequestID
}

// Admission is a request beginning to run.
type Admission struct {
	ID           RequestID
	CachedTokens int  // leading prompt tokens that were cached
	Again        bool // it ran before and was preempted
}

func (r *Result) reset() {
	*r = Result{
		Admitted: r.Admitted[:0], Generated: r.Generated[:0], FirstTokens: r.FirstTokens[:0],
		Completed: r.Completed[:0], Preempted: r.Preempted[:0],
	}
}

// NewEngine makes an engine with an empty cache.
func NewEngine(config Config) (*Engine, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure simulated engine: %w", err)
	}
	config = config.withDefaults()
	return &Engine{config: config, cache: newCache(config.Blocks)}, nil
}

// Submit appends a request to the queue; during a step too, for the next one. It
// fails with ErrPromptTooLarge, and for lengths below 1.
func (e *Engine) Submit(r Request) error {
	switch {
	case r.PromptTokens < 1:
		return fmt.Errorf("request %d: prompt of %d tokens: must have at least 1", r.ID, r.PromptTokens)
	case r.OutputTokens < 1:
		return fmt.Errorf("request %d: output of %d tokens: must be at least 1", r.ID, r.OutputTokens)
	case e.blocksFor(r.PromptTokens) > e.config.Blocks:
		return fmt.Errorf("request %d: %d blocks, worker has %d: %w",
			r.ID, e.blocksFor(r.PromptTokens), e.config.Blocks, ErrPromptTooLarge)
	}
	// The last token generated is never computed, so it needs no room.
	r.OutputTokens = min(r.OutputTokens, e.config.capacity()-r.PromptTokens+1)
	e.waiting.pushBack(&task{Request: r})
	return nil
}

// Cancel takes a request out of the engine: at once, or at the end of the step if
// it is running in one. It reports whether the request was there. O(requests).
func (e *Engine) Cancel(id RequestID) bool {
	if t := e.waiting.remove(id); t != nil {
		e.retire(t)
		return true
	}
	i := slices.IndexFunc(e.running, func(t *task) bool { return t.ID == id })
	if i < 0 {
		return false
	}
	if t := e.running[i]; e.stepped {
		t.cancelled = true
	} else {
		e.running = slices.Delete(e.running, i, i+1)
		e.retire(t)
	}
	return true
}

// Start begins a step and tells how long it takes, or reports false if there is
// nothing to do. A step must be finished before the next one starts.
func (e *Engine) Start() (time.Duration, bool) {
	if e.stepped {
		panic("mocker: Start before the step under way is finished")
	}
	if len(e.running) == 0 && e.waiting.len() == 0 {
		return 0, false
	}
	e.stepped = true
	e.batch = e.batch[:0]
	e.log.reset()
	e.result.reset()
	e.schedule()
	e.counters.Steps++
	return e.stepTime(), true
}

// Finish ends the step under way: requests that are ready get their token, those
// that have all of theirs release their blocks.
func (e *Engine) Finish() *Result {
	if !e.stepped {
		panic("mocker: Finish without a step under way")
	}
	e.stepped = false
	for _, t := range e.batch {
		if !t.ready() || t.cancelled {
			continue
		}
		t.generated++
		e.result.Generated = append(e.result.Generated, t.ID)
		if t.generated == 1 {
			e.result.FirstTokens = append(e.result.FirstTokens, t.ID)
		}
		if t.generated == t.OutputTokens {
			e.result.Completed = append(e.result.Completed, t.ID)
		}
	}
	stay := e.running[:0]
	for _, t := range e.running {
		if t.generated == t.OutputTokens || t.cancelled {
			e.retire(t)
		} else {
			stay = append(stay, t)
		}
	}
	clear(e.running[len(stay):])
	e.running = stay
	e.result.Events = e.log.take()
	return &e.result
}

// retire releases what a request that ended holds.
func (e *Engine) retire(t *task) {
	e.release(t)
	if t.hashes != nil {
		e.spare = append(e.spare, t.hashes[:0])
		t.hashes = nil
	}
}

// release gives back a request's blocks, tail first, so that the head of a
// prompt, which others may share, stays cached longest.
func (e *Engine) release(t *task) {
	for _, b := range slices.Backward(t.blocks) {
		e.cache.release(b)
	}
	t.blocks, t.full, t.computed = t.blocks[:0], 0, 0
}

// State sums up what the cache holds; during a step, as of its end. O(1).
func (e *Engine) State() protocol.HeldState { return e.cache.state() }

// Counters returns what the engine has done so far.
func (e *Engine) Counters() Counters { return e.counters }

// Running and Waiting are the numbers of requests admitted and queued.
func (e *Engine) Running() int { return len(e.running) }

// Waiting is the number of requests in the queue.
func (e *Engine) Waiting() int { return e.waiting.len() }

// UsedBlocks is the number of blocks that running requests use.
func (e *Engine) UsedBlocks() int { return e.cache.used }

func (e *Engine) blocksFor(tokens int) int {
	return (tokens + e.config.BlockSize - 1) / e.config.BlockSize
}
