package mocker

import (
	"context"
	"fmt"
	"iter"
	"math"
	"testing"
	"time"

	"github.com/routerd/routerd/internal/trace"
	"github.com/routerd/routerd/pkg/protocol"
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
			t.Parallel()
			_, s := runFleet(t, requests, test.load, 8, Config{}, Hooks{Route: roundRobin(8)})
			if got := row(&s); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			t.Logf("%+v", s)
			if s.Errors != 0 || s.Completed != len(requests) || s.PromptTokens != 144793823 {
				t.Errorf("%d errors, %d completed, %d prompt tokens", s.Errors, s.Completed, s.PromptTokens)
			}
		})
	}
}

var _ protocol.Tier
