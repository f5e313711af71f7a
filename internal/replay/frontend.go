package replay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/routerd/routerd/internal/mocker"
	"github.com/routerd/routerd/pkg/protocol"
)

// keepAlive is how often, in simulated time, a running request is reported.
const keepAlive = 10 * time.Second

// frontend makes the routing calls of the simulation, and carries what the
// engines did to the log and to the router before each of them.
type frontend struct {
	ctx     context.Context // of the replay, for the hooks of the simulation
	options *Options
	system  *system
	result  *Result

	request protocol.RouteRequest // reused
	running []running             // by request id
	lagging [][]lagging           // by worker, in order
	dirty   []bool                // by worker: has events that are not flushed
	reports []report
	calls   []time.Duration // wall time of each routing call
}

// running is what the frontend knows of a request.
type running struct {
	lease    string
	admitted time.Duration
	reported time.Duration
	output   int
}

// lagging is an event that the log is to see later.
type lagging struct {
	due   time.Duration
	event protocol.Event
}

// report is a lease report that is not sent yet.
type report struct {
	at       time.Duration
	progress *protocol.ProgressReport // or
	complete *protocol.CompleteReport
}

func newFrontend(ctx context.Context, o *Options, s *system, result *Result) *frontend {
	return &frontend{
		ctx: ctx, options: o, system: s, result: result,
		running: make([]running, len(o.Requests)),
		lagging: make([][]lagging, o.Workers), dirty: make([]bool, o.Workers),
		calls: make([]time.Duration, 0, len(o.Requests)),
	}
}

// route implements mocker.Hooks.
func (f *frontend) route(now time.Duration, r *mocker.Request) (int, error) {
	if err := f.catchUp(now); err != nil {
		return 0, err
	}
	f.system.advance(now)
	f.request = protocol.RouteRequest{
		RequestID: fmt.Sprintf("request-%d", r.ID), Attempt: 1,
		Prompt: protocol.Prompt{
			ByHash: true, ISLTokens: r.PromptTokens,
			BlockHashes: r.Prompt.AppendBlockHashes(f.request.BlockHashes[:0], f.options.BlockSize),
		},
	}
	start := time.Now()
	reply, err := f.system.client.Route(f.ctx, f.system.pool, &f.request)
	f.calls = append(f.calls, time.Since(start))
	if f.options.Progress != nil {
		f.options.Progress(f.result.Policy, len(f.calls), len(f.options.Requests))
	}
	if err != nil {
		return 0, err
	}
	worker, ok := f.system.numbers[reply.Worker]
	if !ok {
		return 0, fmt.Errorf("routed to %q, which is no worker of this replay", reply.Worker)
	}
	f.result.Policy = reply.Cost.Policy
	f.running[r.ID] = running{lease: reply.Lease, admitted: now, reported: now}
	return worker, nil
}

// stepDone implements mocker.Hooks.
func (f *frontend) stepDone(now time.Duration, worker int, step *mocker.Result) error {
	f.result.Events += len(step.Events)
	for i := range step.Events {
		event := &step.Events[i]
		f.result.EventBlocks += len(event.Blocks) + len(event.Removed)
		if f.options.EventLag > 0 {
			f.lagging[worker] = append(f.lagging[worker], lagging{now + f.options.EventLag, copyEvent(event)})
		} else {
			f.publish(worker, event)
		}
	}
	for _, id := range step.Generated {
		r := &f.running[id]
		r.output++
		if r.output == 1 || now-r.reported >= keepAlive {
			r.reported = now
			f.reports = append(f.reports, report{at: now, progress: &protocol.ProgressReport{
				Lease: r.lease, Attempt: 1, OutputTokens: r.output, ElapsedMS: ms(now - r.admitted),
			}})
		}
	}
	for _, id := range step.Completed {
		f.reports = append(f.reports, report{at: now, complete: &protocol.CompleteReport{Lease: f.running[id].lease, Attempt: 1}})
		f.running[id] = running{}
	}
	return nil
}

// failed implements mocker.Hooks: a request without a worker, or one that its
// worker refused, which ends its lease.
func (f *frontend) failed(now time.Duration, worker int, r *mocker.Request, err error) error {
	if ctxErr := f.ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	if worker < 0 {
		err = fmt.Errorf("request %d: %w", r.ID, err) // an engine says which one by itself
	}
	f.result.fail("%v", err)
	if lease := f.running[r.ID].lease; lease != "" {
		f.reports = append(f.reports, report{at: now, complete: &protocol.CompleteReport{Lease: lease, Attempt: 1, Error: err.Error()}})
		f.running[r.ID] = running{}
	}
	return nil
}

// publish hands one event to a worker's publisher.
func (f *frontend) publish(worker int, e *protocol.Event) {
	p := f.system.publishers[worker]
	if e.Kind == protocol.EventStored {
		p.Stored(e.Tier, e.Root, e.Parent, e.Blocks)
	} else {
		p.Removed(e.Tier, e.Removed)
	}
	f.dirty[worker] = true
}

// copyEvent keeps an event beyond the step that it belongs to.
func copyEvent(e *protocol.Event) protocol.Event {
	c := *e
	c.Blocks = append([]protocol.Block(nil), e.Blocks...)
	c.Removed = append([]protocol.SequenceHash(nil), e.Removed...)
	return c
}

// catchUp brings to the router all that it can know at a time: lease reports,
// and the events that have reached the log by then.
func (f *frontend) catchUp(now time.Duration) error {
	for worker, queue := range f.lagging {
		n := 0
		for n < len(queue) && queue[n].due <= now {
			f.publish(worker, &queue[n].event)
			n++
		}
		f.lagging[worker] = queue[n:]
	}
	if err := f.report(); err != nil {
		return err
	}
	return f.flush()
}

// report sends the lease reports in their order, each at its time.
func (f *frontend) report() error {
	for i := range f.reports {
		r := &f.reports[i]
		f.system.advance(r.at)
		var err error
		if r.progress != nil {
			err = f.system.client.ReportProgress(f.ctx, f.system.pool, r.progress)
		} else {
			err = f.system.client.ReportComplete(f.ctx, f.system.pool, r.complete)
		}
		if err != nil {
			return fmt.Errorf("report to router: %w", err)
		}
	}
	f.reports = f.reports[:0]
	return nil
}

// flush waits until what the workers have published is in the index.
func (f *frontend) flush() error {
	var group sync.WaitGroup
	seqs := make([]protocol.StreamSeq, len(f.dirty))
	errs := make([]error, len(f.dirty))
	for worker, dirty := range f.dirty {
		if dirty {
			group.Go(func() { seqs[worker], errs[worker] = f.system.publishers[worker].Flush(f.ctx) })
		}
	}
	group.Wait()
	var last protocol.StreamSeq
	for worker := range f.dirty {
		if errs[worker] != nil {
			return fmt.Errorf("publish events of worker %d: %w", worker, errs[worker])
		}
		last = max(last, seqs[worker])
		f.dirty[worker] = false
	}
	if last == 0 {
		return nil
	}
	if err := f.system.waitApplied(f.ctx, last); err != nil {
		return fmt.Errorf("wait for the index: %w", err)
	}
	return nil
}

// forever is a time by which every event has reached the log.
const forever = time.Duration(1<<63 - 1)

// finish brings everything that is left to the router.
func (f *frontend) finish() error { return f.catchUp(forever) }
