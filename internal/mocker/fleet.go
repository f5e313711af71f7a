package mocker

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// Arrival is a request reaching the fleet. Request ids are unique in a fleet.
type Arrival struct {
	At time.Duration // since the start of the simulation
	Request
}

// Hooks are what a Fleet's owner does at the moments of the simulation. Simulated
// time stands still during each call. Only Route is required.
type Hooks struct {
	// Route chooses the worker of an arrival, 0 to the number of workers less 1.
	// An error fails this request alone.
	Route func(now time.Duration, r *Request) (worker int, err error)
	// StepDone sees what a worker's step did, when it ended. The result is valid
	// during the call. An error ends the run.
	StepDone func(now time.Duration, worker int, result *Result) error
	// Failed is called for a request that could not be routed (worker is -1) or
	// that its worker refused, see ErrPromptTooLarge. An error ends the run.
	Failed func(now time.Duration, worker int, r *Request, err error) error
}

// Fleet simulates several workers in one simulated time. It is not safe for
// concurrent use.
type Fleet struct {
	workers []*fleetWorker
	ends    stepEnds
	idle    []*fleetWorker // that may have work now
	record  recorder
	now     time.Duration
}

type fleetWorker struct {
	engine *Engine
	number int
	busy   bool
	end    time.Duration // of the step under way
}

// NewFleet makes a fleet of equal workers. Worker i has the seed of the
// configuration plus i.
func NewFleet(workers int, config Config) (*Fleet, error) {
	if workers < 1 {
		return nil, fmt.Errorf("fleet of %d workers: must have at least 1", workers)
	}
	f := &Fleet{workers: make([]*fleetWorker, workers)}
	for i := range f.workers {
		own := config
		own.Seed += uint64(i)
		engine, err := NewEngine(own)
		if err != nil {
			return nil, err
		}
		f.workers[i] = &fleetWorker{engine: engine, number: i}
	}
	f.record.init()
	return f, nil
}

// Run simulates until every arrival has been served. Arrivals come in the order
// of their times. At one instant, arrivals come before ends of steps, all of
// them are routed before any idle worker begins a step, and steps end in the
// order of the workers. It returns the error of ctx or of a hook, and may be
// called again with later arrivals.
func (f *Fleet) Run(ctx context.Context, arrivals iter.Seq[Arrival], hooks Hooks) error {
	if hooks.Route == nil {
		return errors.New("run fleet: Hooks.Route is nil")
	}
	next, stop := iter.Pull(arrivals)
	defer stop()
	arrival, more := next()
	for more || len(f.ends) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if more && arrival.At < f.now {
			return fmt.Errorf("request %d arrives at %v, before %v", arrival.ID, arrival.At, f.now)
		}
		if more && (len(f.ends) == 0 || arrival.At <= f.ends[0].end) {
			f.now = arrival.At
		} else {
			f.now = f.ends[0].end
		}
		for ; more && arrival.At == f.now; arrival, more = next() {
			if err := f.arrive(&arrival.Request, &hooks); err != nil {
				return err
			}
		}
		for len(f.ends) > 0 && f.ends[0].end == f.now {
			if err := f.endStep(&hooks); err != nil {
				return err
			}
		}
		f.startIdle()
	}
	return nil
}

func (f *Fleet) arrive(r *Request, hooks *Hooks) error {
	f.record.arrived(f.now, r)
	number, err := hooks.Route(f.now, r)
	if err != nil {
		return f.fail(-1, r, err, hooks)
	}
	if number < 0 || number >= len(f.workers) {
		return fmt.Errorf("request %d is routed to worker %d of %d", r.ID, number, len(f.workers))
	}
	w := f.workers[number]
	if err := w.engine.Submit(*r); err != nil {
		return f.fail(number, r, err, hooks)
	}
	f.idle = append(f.idle, w)
	return nil
}

func (f *Fleet) fail(worker int, r *Request, err error, hooks *Hooks) error {
	f.record.failed(r)
	if hooks.Failed == nil {
		return nil
	}
	return hooks.Failed(f.now, worker, r, err)
}

func (f *Fleet) endStep(hooks *Hooks) error {
	w := heap.Pop(&f.ends).(*fleetWorker)
	w.busy = false
	result := w.engine.Finish()
	f.record.stepDone(f.now, result)
	f.idle = append(f.idle, w)
	if hooks.StepDone == nil {
		return nil
	}
	return hooks.StepDone(f.now, w.number, result)
}

// startIdle begins a step on each worker that an arrival or the end of its last
// step may have given work; the others have had none since they were asked.
func (f *Fleet) startIdle() {
	for _, w := range f.idle {
		if w.busy {
			continue
		}
		if took, ok := w.engine.Start(); ok {
			w.busy, w.end = true, f.now+took
			heap.Push(&f.ends, w)
		}
	}
	f.idle = f.idle[:0]
}

// Now is the simulated time reached.
func (f *Fleet) Now() time.Duration { return f.now }

// State sums up what a worker's cache holds.
func (f *Fleet) State(worker int) protocol.HeldState { return f.workers[worker].engine.State() }

// Summary returns the figures of the run so far.
func (f *Fleet) Summary() Summary {
	s := f.record.summary()
	most, sum := 0, 0
	for _, w := range f.workers {
		c := w.engine.Counters()
		s.Steps += c.Steps
		s.Preemptions += c.Preemptions
		sum += c.ComputedTokens
		most = max(most, c.ComputedTokens)
	}
	s.ComputedTokens = sum
	s.LoadImbalance = 1
	if sum > 0 {
		s.LoadImbalance = float64(most) * float64(len(f.workers)) / float64(sum)
	}
	return s
}

// stepEnds is a heap of busy workers by the end of their step, then by number.
type stepEnds []*fleetWorker

func (h stepEnds) Len() int { return len(h) }
func (h stepEnds) Less(i, j int) bool {
	return h[i].end < h[j].end || h[i].end == h[j].end && h[i].number < h[j].number
}
func (h stepEnds) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *stepEnds) Push(x any)   { *h = append(*h, x.(*fleetWorker)) }
func (h *stepEnds) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	*h = (*h)[:last]
	return w
}
