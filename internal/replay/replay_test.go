package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/internal/mocker"
	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/internal/replay"
	"github.com/routerd/routerd/internal/trace"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/server"
)

func TestMain(m *testing.M) { natstest.VerifyMain(m) }

const patience = 60 * time.Second // of whatever a test waits for

// options replay the first n requests of the conversation trace on small workers,
// so that blocks are evicted and requests wait for each other.
func options(t *testing.T, n int, policies ...protocol.Policy) replay.Options {
	t.Helper()
	requests, err := trace.ReadFile("../../testdata/conversation_trace.jsonl", n)
	if err != nil {
		t.Fatal(err)
	}
	o := replay.DefaultOptions()
	o.File, o.Requests, o.Policies = "conversation_trace.jsonl", requests, policies
	o.Workers, o.Blocks, o.Load = 4, 12000, 10
	return o
}

// sessions are conversations that take turns, each turn with all that was said
// before: 9 of 12 turns, ever a second apart.
func sessions() []trace.Request {
	var requests []trace.Request
	for turn := range 12 {
		for session := range 9 {
			r := trace.Request{
				Timestamp: time.Duration(len(requests)) * time.Second, InputLength: (turn + 1) * trace.TokensPerID, OutputLength: 50,
			}
			for i := range turn + 1 {
				r.HashIDs = append(r.HashIDs, uint64(session*1000+i))
			}
			requests = append(requests, r)
		}
	}
	return requests
}

// run replays, and checks that nothing of it is left on the disk.
func run(t *testing.T, ctx context.Context, o replay.Options) (*replay.Report, error) {
	t.Helper()
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	report, err := replay.Run(ctx, o)
	left, listErr := os.ReadDir(temporary)
	if listErr != nil || len(left) > 0 {
		t.Errorf("left on the disk: %v, %v", left, listErr)
	}
	return report, err
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func mustRun(t *testing.T, o replay.Options) *replay.Report {
	t.Helper()
	report, err := run(t, patient(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// simulated leaves out of a result what is of this machine.
func simulated(r replay.Result) replay.Result {
	r.RouteCall, r.EventsPerS, r.BlocksPerS, r.WallS, r.MaxRSSBytes = replay.Quantiles{}, 0, 0, 0, 0
	return r
}

// Under round-robin the router adds nothing to the simulation, and takes nothing
// away: all figures are those of the fleet alone.
func TestRoundRobinIsTheSimulation(t *testing.T) {
	o := options(t, 80, protocol.PolicyRoundRobin)
	report := mustRun(t, o)
	if !report.OK || len(report.Policies) != 1 {
		t.Fatalf("report %+v", report)
	}
	fleet, err := mocker.NewFleet(o.Workers, mocker.Config{Blocks: o.Blocks, BlockSize: o.BlockSize})
	if err != nil {
		t.Fatal(err)
	}
	var events, blocks int
	err = fleet.Run(context.Background(), replay.Arrivals(&o), mocker.Hooks{
		Route: func(_ time.Duration, r *mocker.Request) (int, error) { return int(r.ID) % o.Workers, nil },
		StepDone: func(_ time.Duration, _ int, step *mocker.Result) error {
			events += len(step.Events)
			for i := range step.Events {
				blocks += len(step.Events[i].Blocks) + len(step.Events[i].Removed)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := fleet.Summary()
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	want := replay.Result{
		Policy: protocol.PolicyRoundRobin, Requests: 80,
		PromptTokens: s.PromptTokens, ReusedTokens: s.ReusedTokens, Reuse: s.Reuse(),
		TTFT:      replay.Times{Mean: ms(s.TTFT.Mean), P50: ms(s.TTFT.P50), P90: ms(s.TTFT.P90), P99: ms(s.TTFT.P99)},
		EndToEnd:  replay.MeanP99{Mean: ms(s.EndToEnd.Mean), P99: ms(s.EndToEnd.P99)},
		Imbalance: s.LoadImbalance, Preemptions: s.Preemptions, Events: events, EventBlocks: blocks, IndexEqual: true,
	}
	if diff := cmp.Diff(want, simulated(report.Policies[0])); diff != "" {
		t.Errorf("figures (-fleet alone +replayed):\n%s", diff)
	}
	if got := report.Policies[0]; got.WallS <= 0 || got.RouteCall.P50 <= 0 || got.RouteCall.P99 < got.RouteCall.P50 || got.EventsPerS <= 0 {
		t.Errorf("wall times %+v", got)
	}
}

// One seed gives one result, under every policy; and the policies that know who
// holds what reuse more than those that do not.
func TestOneSeedOneResult(t *testing.T) {
	o := options(t, 1, protocol.Policies...)
	o.Requests = sessions()
	first, second := mustRun(t, o), mustRun(t, o)
	reuse := map[protocol.Policy]float64{}
	for i, result := range first.Policies {
		if diff := cmp.Diff(simulated(result), simulated(second.Policies[i])); diff != "" {
			t.Errorf("%s (-first +second):\n%s", result.Policy, diff)
		}
		if !result.IndexEqual || result.Errors != 0 {
			t.Errorf("%s: %+v", result.Policy, result)
		}
		reuse[result.Policy] = result.Reuse
	}
	if !first.OK || reuse[protocol.PolicyKV] < 1.2*reuse[protocol.PolicyLoad] || reuse[protocol.PolicyLatency] < 1.2*reuse[protocol.PolicyRandom] {
		t.Errorf("ok %v, reuse %v", first.OK, reuse)
	}
}

// Events that reach the log late cost reuse, and none is lost.
func TestEventLag(t *testing.T) {
	o := options(t, 1, protocol.PolicyKV)
	o.Requests = sessions()
	prompt := mustRun(t, o).Policies[0]
	o.EventLag = time.Hour // beyond the end
	late := mustRun(t, o).Policies[0]
	if !late.IndexEqual || late.Events == 0 || late.Errors != 0 {
		t.Errorf("late: %+v", late)
	}
	if 1.2*late.Reuse > prompt.Reuse {
		t.Errorf("reuse is %v with events after the end, %v with events at once", late.Reuse, prompt.Reuse)
	}
}

// A prompt larger than a worker is counted, and the run goes on.
func TestPromptTooLarge(t *testing.T) {
	o := options(t, 60, protocol.PolicyKV)
	o.Blocks = 1000 // 16,000 tokens
	large := 0
	for i := range o.Requests {
		if o.Requests[i].InputLength > o.Blocks*o.BlockSize {
			large++
		}
	}
	report := mustRun(t, o)
	result := report.Policies[0]
	if large == 0 || result.Errors != large || report.OK || !result.IndexEqual || result.Requests != 60 {
		t.Errorf("%d requests are too large: ok %v, %+v", large, report.OK, result)
	}
	if len(result.Failures) == 0 || len(result.Failures) > 5 || !strings.HasPrefix(result.Failures[0], "request 6: 1447 blocks") {
		t.Errorf("failures %q", result.Failures)
	}
}

// A replay that is called off ends at once and leaves nothing.
func TestCancel(t *testing.T) {
	for _, at := range []int{1, 50} {
		o := options(t, 200, protocol.PolicyKV)
		ctx, cancel := context.WithCancel(patient(t))
		o.Progress = func(_ protocol.Policy, done, total int) {
			if done > at+1 || total != 200 { // one may arrive at the same instant
				t.Errorf("progress %d of %d after it was called off at %d", done, total, at)
			}
			if done == at {
				cancel()
			}
		}
		if _, err := run(t, ctx, o); !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v, want context.Canceled", err)
		}
		cancel()
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := run(t, ended, options(t, 10, protocol.PolicyKV)); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want context.Canceled", err)
	}
}

// A running server is used with its own policy, and left as it was.
func TestRunningServer(t *testing.T) {
	cfg := server.DefaultConfig()
	cfg.Listen, cfg.Admin, cfg.Store = "none", "none", t.TempDir()
	cfg.Routing.Policy, cfg.Roster.PoolGrace = protocol.PolicyLoad, 50*time.Millisecond
	srv, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-srv.Ready():
	case <-time.After(patience):
		t.Fatal("server is not ready")
	}

	o := options(t, 100, protocol.PolicyKV, protocol.PolicyRandom)
	o.Connect = func() (*nats.Conn, error) { return srv.Connect() }
	report := mustRun(t, o)
	if !report.OK || len(report.Policies) != 1 || report.Policies[0].Policy != protocol.PolicyLoad {
		t.Errorf("report %+v", report)
	}
	js, err := jetstream.New(srv.Conn())
	if err != nil {
		t.Fatal(err)
	}
	streams := js.StreamNames(patient(t))
	for name := range streams.Name() {
		if pool, ok := srv.Names().StreamPool(name); ok {
			t.Errorf("the log of pool %q is left", pool)
		}
	}

	o.Connect = func() (*nats.Conn, error) { return nil, errors.New("nobody is there") }
	if _, err := run(t, patient(t), o); err == nil || !strings.Contains(err.Error(), "nobody is there") {
		t.Errorf("error is %v", err)
	}
}

func TestReport(t *testing.T) {
	report := mustRun(t, options(t, 30, protocol.PolicyKV, protocol.PolicyRoundRobin))
	var text bytes.Buffer
	if err := report.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"30 requests", "4 workers", "kv", "round-robin", "equal"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("table does not say %q:\n%s", part, &text)
		}
	}
	body, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	var fields struct {
		Trace    map[string]any   `json:"trace"`
		Settings map[string]any   `json:"settings"`
		Policies []map[string]any `json:"policies"`
		OK       bool             `json:"ok"`
	}
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"policy", "requests", "errors", "prompt_tokens", "reused_tokens", "reuse", "ttft_ms", "e2e_ms", "route_us", "load_imbalance",
		"preemptions", "events", "event_blocks", "events_per_s", "blocks_per_s", "wall_s", "max_rss_bytes", "index_equal",
	} {
		if _, ok := fields.Policies[0][name]; !ok {
			t.Errorf("JSON has no %s: %s", name, body)
		}
	}
	if !fields.OK || fields.Trace["file"] != "conversation_trace.jsonl" || fields.Settings["workers"] != 4. {
		t.Errorf("JSON %s", body)
	}
}

func TestOptions(t *testing.T) {
	o := replay.Options{Load: -1, EventLag: -1, Blocks: 1 << 30, Workers: 5000, Policies: []protocol.Policy{"best"}, BlockSize: 24}
	_, err := replay.Run(context.Background(), o)
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"trace:", "policy:", "workers:", "blocks:", "block size", "load:", "event lag:"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not name %q: %v", part, err)
		}
	}
}
