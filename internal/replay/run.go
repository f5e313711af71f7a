package replay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/routerd/routerd/internal/mocker"
	"github.com/routerd/routerd/pkg/protocol"
)

// maxFailures bounds the errors that a result quotes.
const maxFailures = 5

// Run replays the trace once per policy. Requests that fail are counted in the
// report; an error means that the replay itself could not go on.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	report := &Report{
		Trace:    Trace{File: o.File, Requests: len(o.Requests)},
		Settings: Settings{o.Workers, o.Blocks, o.BlockSize, o.Load, o.Seed, ms(o.EventLag)},
		OK:       true,
	}
	for i := range o.Requests {
		report.Trace.PromptTokens += o.Requests[i].InputLength
	}
	policies := o.Policies
	if o.Connect != nil {
		policies = policies[:1] // the running server has one
	}
	for _, policy := range policies {
		result, err := runPolicy(ctx, &o, policy)
		if err != nil {
			return nil, fmt.Errorf("replay under %s: %w", policy, err)
		}
		report.Policies = append(report.Policies, *result)
		report.OK = report.OK && result.Errors == 0 && result.IndexEqual
	}
	return report, nil
}

func runPolicy(ctx context.Context, o *Options, policy protocol.Policy) (result *Result, err error) {
	system, err := open(ctx, o, policy)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, system.close()) }()
	fleet, err := mocker.NewFleet(o.Workers, mocker.Config{Blocks: o.Blocks, BlockSize: o.BlockSize})
	if err != nil {
		return nil, err
	}
	result = &Result{Policy: policy}
	front := newFrontend(ctx, o, system, result)
	start := time.Now()
	err = fleet.Run(ctx, arrivals(o), mocker.Hooks{Route: front.route, StepDone: front.stepDone, Failed: front.failed})
	if err == nil {
		err = front.finish()
	}
	if err != nil {
		return nil, err
	}
	summary := fleet.Summary()
	result.fill(&summary, front.calls, time.Since(start))
	result.MaxRSSBytes = maxRSS()
	result.IndexEqual, err = indexEqual(ctx, o, system, fleet, result)
	return result, err
}

// arrivals are the requests at their times, numbered from 0.
func arrivals(o *Options) iter.Seq[mocker.Arrival] {
	return func(yield func(mocker.Arrival) bool) {
		for i := range o.Requests {
			r := &o.Requests[i]
			at := time.Duration(math.Round(float64(r.Timestamp) / o.Load))
			if !yield(mocker.Arrival{At: at, Request: mocker.Request{
				ID: mocker.RequestID(i), PromptTokens: r.InputLength, OutputTokens: r.OutputLength, Prompt: r,
			}}) {
				return
			}
		}
	}
}

// indexEqual compares what every router holds of each worker with its cache.
func indexEqual(ctx context.Context, o *Options, system *system, fleet *mocker.Fleet, result *Result) (bool, error) {
	replies, err := system.client.Status(ctx, system.pool, 0)
	if err != nil {
		return false, fmt.Errorf("compare index with caches: %w", err)
	}
	equal := len(replies) > 0
	for _, reply := range replies {
		rows := map[string]*protocol.RankStatus{}
		for i := range reply.Ranks {
			rows[reply.Ranks[i].Worker] = &reply.Ranks[i]
		}
		for i := range o.Workers {
			want := fleet.State(i)
			row := rows[workerName(i, o.Workers)]
			if row != nil && row.Checksum != nil && row.Blocks == want.Blocks && *row.Checksum == want.Checksum {
				continue
			}
			equal = false
			result.fail("router %s: index of worker %s differs from its cache of %d blocks, checksum %016x", reply.Router, workerName(i, o.Workers), want.Blocks, want.Checksum)
		}
	}
	return equal, nil
}

func (r *Result) fail(format string, args ...any) {
	if len(r.Failures) < maxFailures {
		r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
	}
}

// workerName names worker i of n, so that names are in the order of numbers.
func workerName(i, n int) string {
	return fmt.Sprintf("w%0*d", len(fmt.Sprint(n-1)), i)
}
