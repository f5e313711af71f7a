package mocker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/internal/trace"
)

const conversation = "../../testdata/conversation_trace.jsonl"

// readTrace reads the first n requests of the conversation trace, 0 for all.
func readTrace(t testing.TB, n int) []trace.Request {
	t.Helper()
	requests, err := trace.ReadFile(conversation, n)
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

// arrivalsOf makes a trace's requests arrive load times as fast, numbered from 0.
func arrivalsOf(requests []trace.Request, load float64) iter.Seq[Arrival] {
	return func(yield func(Arrival) bool) {
		for i := range requests {
			r := &requests[i]
			at := time.Duration(math.Round(float64(r.Timestamp) / load))
			if !yield(Arrival{At: at, Request: Request{
				ID: RequestID(i), PromptTokens: r.InputLength, OutputTokens: r.OutputLength, Prompt: r,
			}}) {
				return
			}
		}
	}
}

func roundRobin(workers int) func(time.Duration, *Request) (int, error) {
	return func(_ time.Duration, r *Request) (int, error) { return int(r.ID) % workers, nil }
}

func runFleet(t testing.TB, requests []trace.Request, load float64, workers int, config Config, hooks Hooks) (*Fleet, Summary) {
	t.Helper()
	fleet, err := NewFleet(workers, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.Run(context.Background(), arrivalsOf(requests, load), hooks); err != nil {
		t.Fatal(err)
	}
	return fleet, fleet.Summary()
}

// A small fleet on the head of the trace: what the workers publish gives what
// they hold, every request is served, and a second run is the same.
func TestFleetPublishesWhatItHolds(t *testing.T) {
	requests := readTrace(t, 120)
	config := Config{Blocks: 16384}
	var first Summary
	for run := range 2 {
		held := []heldModel{{}, {}}
		var last time.Duration
		fleet, s := runFleet(t, requests, 4, 2, config, Hooks{
			Route: roundRobin(2),
			StepDone: func(now time.Duration, worker int, result *Result) error {
				if now < last {
					t.Errorf("a step ended at %v, after one at %v", now, last)
				}
				last = now
				for i := range result.Events {
					if err := held[worker].apply(&result.Events[i]); err != nil {
						return err
					}
				}
				return nil
			},
		})
		for worker := range held {
			if got, want := fleet.State(worker), held[worker].state(); got != want || got.Blocks == 0 {
				t.Errorf("worker %d holds %+v, its events give %+v", worker, got, want)
			}
		}
		if s.Completed != len(requests) || s.Errors != 0 || s.LoadImbalance < 1 || s.Last != fleet.Now() {
			t.Errorf("summary %+v", s)
		}
		if run == 0 {
			first = s
		} else if s != first {
			t.Errorf("second run %+v, first %+v", s, first)
		}
	}
}

// One line per hook call, for three workers whose steps take 10 ms.
func TestFleetOrderAtOneInstant(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	arrivals := []Arrival{
		{At: ms(0), Request: Request{ID: 0, PromptTokens: 10, OutputTokens: 1}},
		{At: ms(10), Request: Request{ID: 1, PromptTokens: 10, OutputTokens: 2}},
		{At: ms(10), Request: Request{ID: 2, PromptTokens: 10, OutputTokens: 1}},
		{At: ms(10), Request: Request{ID: 3, PromptTokens: 9999, OutputTokens: 1}},
		{At: ms(15), Request: Request{ID: 4, PromptTokens: 10, OutputTokens: 1}},
	}
	fleet, err := NewFleet(2, Config{
		Blocks: 100, Timing: Fixed{Prefill: 10 * time.Millisecond, Decode: 10 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	say := func(now time.Duration, format string, args ...any) {
		got = append(got, fmt.Sprintf("%d ", now.Milliseconds())+fmt.Sprintf(format, args...))
	}
	refused := errors.New("no worker")
	err = fleet.Run(context.Background(), slices.Values(arrivals), Hooks{
		Route: func(now time.Duration, r *Request) (int, error) {
			say(now, "route %d", r.ID)
			if r.ID == 4 {
				return 0, refused
			}
			return int(r.ID) % 2, nil
		},
		StepDone: func(now time.Duration, worker int, r *Result) error {
			say(now, "worker %d: first %v, completed %v", worker, r.FirstTokens, r.Completed)
			return nil
		},
		Failed: func(now time.Duration, worker int, r *Request, err error) error {
			say(now, "failed %d at %d: %v", r.ID, worker, errors.Is(err, ErrPromptTooLarge) || errors.Is(err, refused))
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"0 route 0",
		"10 route 1", "10 route 2", "10 route 3", "10 failed 3 at 1: true",
		"10 worker 0: first [0], completed [0]",
		"15 route 4", "15 failed 4 at -1: true",
		"20 worker 0: first [2], completed [2]",
		"20 worker 1: first [1], completed []",
		"30 worker 1: first [], completed [1]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	s := fleet.Summary()
	if s.Requests != 5 || s.Completed != 3 || s.Errors != 2 || s.PromptTokens != 30 || s.TTFT.P50 != ms(10) || s.EndToEnd.P99 != ms(20) {
		t.Errorf("summary %+v", s)
	}
}

func TestFleetStops(t *testing.T) {
	one := func(at ...time.Duration) iter.Seq[Arrival] {
		return func(yield func(Arrival) bool) {
			for i, at := range at {
				if !yield(Arrival{At: at, Request: Request{ID: RequestID(i), PromptTokens: 10, OutputTokens: 5}}) {
					return
				}
			}
		}
	}
	broken := errors.New("broken")
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	to := func(worker int) func(time.Duration, *Request) (int, error) {
		return func(time.Duration, *Request) (int, error) { return worker, nil }
	}
	for _, test := range []struct {
		name  string
		ctx   context.Context
		at    []time.Duration
		hooks Hooks
		want  string
	}{
		{"context", cancelled, []time.Duration{0}, Hooks{Route: to(0)}, "context canceled"},
		{"no route hook", context.Background(), []time.Duration{0}, Hooks{}, "Hooks.Route is nil"},
		{"falling times", context.Background(), []time.Duration{5, 4}, Hooks{Route: to(0)}, "arrives at 4ns, before 5ns"},
		{"unknown worker", context.Background(), []time.Duration{0}, Hooks{Route: to(2)}, "is routed to worker 2 of 2"},
		{"hook fails", context.Background(), []time.Duration{0}, Hooks{
			Route: to(1), StepDone: func(time.Duration, int, *Result) error { return broken },
		}, "broken"},
	} {
		t.Run(test.name, func(t *testing.T) {
			fleet, err := NewFleet(2, Config{})
			if err != nil {
				t.Fatal(err)
			}
			err = fleet.Run(test.ctx, one(test.at...), test.hooks)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
		})
	}
	if _, err := NewFleet(0, Config{}); err == nil {
		t.Error("a fleet of no workers was made")
	}
	if _, err := NewFleet(1, Config{Blocks: -1}); err == nil {
		t.Error("a fleet of bad engines was made")
	}
}

func TestSummarizeTimes(t *testing.T) {
	if got := SummarizeTimes(nil); got != (Times{}) {
		t.Errorf("empty sample: %+v", got)
	}
	var sample []time.Duration
	for i := range 10 {
		sample = append(sample, time.Duration(10-i))
	}
	// Elements floor(0.5 x 10), floor(0.9 x 10) and floor(0.99 x 10) of 1 .. 10.
	if got, want := SummarizeTimes(sample), (Times{Mean: 5, P50: 6, P90: 10, P99: 10}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
