package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// storedLine is two blocks of the prompt 1..8 in blocks of 4.
const storedLine = `{"stored":{"parent":null,"blocks":[[1,14643705804678351452],[2,16777012769546811212]]}}` + "\n"

// stay runs `routerd publish --stay` until the test ends.
func stay(t *testing.T, nats, stdin string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan result, 1)
	go func() { // ends with the test's clean-up
		var stdout, stderr strings.Builder
		code := run(&app{ctx, strings.NewReader(stdin), &stdout, &stderr},
			append([]string{"publish", "--nats", nats, "--stay"}, args...))
		done <- result{code, stdout.String(), stderr.String()}
	}()
	t.Cleanup(func() {
		cancel()
		if r := <-done; r.code != exitDone {
			t.Errorf("publish %v ended with exit code %d: %s", args, r.code, r.stderr)
		}
	})
}

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("after 20 s still not: %s", what)
		}
		<-tick.C
	}
}

func TestCommandsAgainstServer(t *testing.T) {
	url := serve(t).NATS
	fails(t, exitFailed, "unknown_pool", "route", "--nats", url, "--pool", "p", "--tokens", "1")
	if out := ok(t, "", "pools", "--nats", url); out != "no pools\n" {
		t.Errorf("pools prints %q", out)
	}
	stay(t, url, storedLine, "--pool", "p", "--worker", "w1", "--block-size", "4", "--endpoint", "http://w1:8000")
	prompt := []string{"--nats", url, "--pool", "p", "--tokens", "1,2,3,4,5,6,7,8,9"}
	eventually(t, "overlap of two blocks", func() bool {
		r := cli(t, "", append([]string{"overlap", "--json"}, prompt...)...)
		return r.code == exitDone && strings.Contains(r.stdout, `"device": 2`)
	})
	reply := okJSON[protocol.RouteReply](t, "", append([]string{"route", "--explain"}, prompt...)...)
	if reply.Worker != "w1" || reply.Endpoint != "http://w1:8000" || reply.CachedTokens != 8 || reply.Trust != protocol.TrustExact ||
		reply.Lease == "" || len(reply.Candidates) != 1 {
		t.Errorf("route gives %+v", reply)
	}
	if out := ok(t, "", append([]string{"route", "--explain"}, prompt...)...); !strings.Contains(out, "8 cached, 1 to compute") {
		t.Errorf("route prints %q", out)
	}
	byHash := okJSON[protocol.RouteReply](t, "", "route", "--nats", url, "--pool", "p",
		"--hashes", "14643705804678351452,-1669731304162740404", "--isl-tokens", "9", "--query-only")
	if byHash.Overlap.Device != 2 || byHash.Lease != "" {
		t.Errorf("route by hashes gives %+v", byHash)
	}
	status := okJSON[[]protocol.StatusReply](t, "", "status", "--nats", url)
	if len(status) != 1 || len(status[0].Ranks) != 1 || status[0].Ranks[0].Blocks != 2 || status[0].Ranks[0].LastID != 1 {
		t.Errorf("status gives %+v", status)
	}
	if out := ok(t, "", "status", "--nats", url, "--pool", "p"); !strings.Contains(out, "exact") {
		t.Errorf("status prints %q", out)
	}
	testDrain(t, url, prompt)
	testPools(t, url)
}

func testDrain(t *testing.T, url string, prompt []string) {
	ok(t, "", "drain", "--nats", url, "--pool", "p", "--worker", "w1")
	eventually(t, "drained worker is not routed to", func() bool {
		return strings.Contains(cli(t, "", append([]string{"route", "--query-only"}, prompt...)...).stderr, "no_workers")
	})
	ok(t, "", "drain", "--nats", url, "--pool", "p", "--worker", "w1", "--off")
	eventually(t, "worker is back", func() bool {
		return cli(t, "", append([]string{"route", "--query-only"}, prompt...)...).code == exitDone
	})
}

func testPools(t *testing.T, url string) {
	rows := okJSON[[]poolRow](t, "", "pools", "--nats", url)
	if len(rows) != 1 || rows[0].Pool != "p" || rows[0].Workers != 1 || rows[0].MaxBytes != 256<<20 {
		t.Errorf("pools gives %+v", rows)
	}
	ok(t, "", "pools", "resize", "p", "--nats", url, "--stream-bytes", "64MiB")
	if rows := okJSON[[]poolRow](t, "", "pools", "--nats", url); rows[0].MaxBytes != 64<<20 {
		t.Errorf("resized to %d", rows[0].MaxBytes)
	}
	fails(t, exitFailed, "has 1 registered workers", "pools", "delete", "p", "--nats", url)
	fails(t, exitFailed, "has no stream", "pools", "delete", "q", "--nats", url)
	fails(t, exitUsage, "--stream-bytes", "pools", "resize", "p", "--nats", url, "--stream-bytes", "1")
}

func TestPublishLeavesAtTheEnd(t *testing.T) {
	url := serve(t).NATS
	report := okJSON[publishReport](t, storedLine+"\n"+`{"id":7,"removed":{"blocks":[2]}}`+"\n"+`{"cleared":{}}`+"\n",
		"publish", "--nats", url, "--pool", "p", "--worker", "w1", "--rank", "3", "--block-size", "4")
	if report.Events != 3 || report.LastID != 8 || report.StreamSeq != 3 || report.Rank != 3 || report.Epoch == 0 {
		t.Errorf("publish reports %+v", report)
	}
	if rows := okJSON[[]poolRow](t, "", "pools", "--nats", url); len(rows) != 1 || rows[0].Workers != 0 {
		t.Errorf("pools gives %+v", rows)
	}
	ok(t, "", "pools", "delete", "p", "--nats", url)
	r := cli(t, storedLine+"[1]\n", "publish", "--nats", url, "--pool", "p", "--worker", "w1", "--block-size", "4")
	if r.code != exitUsage || !strings.Contains(r.stderr, "line 2: must be one JSON object") {
		t.Errorf("bad line: %+v", r)
	}
}

// A prompt is routed, sent to the worker's endpoint, and found there by the next.
func TestMockWorkersServeWhatIsRouted(t *testing.T) {
	ready := serve(t, "--mock-workers", "3", "--mock-pool", "llama")
	tokens := strings.TrimSuffix(strings.Repeat("7,", 40), ",")
	prompt := []string{"--nats", ready.NATS, "--pool", "llama", "--tokens", tokens}
	eventually(t, "three mock workers", func() bool {
		return strings.Count(cli(t, "", append([]string{"overlap", "--json"}, prompt...)...).stdout, `"exact"`) == 3
	})
	reply := okJSON[protocol.RouteReply](t, "", append([]string{"route"}, prompt...)...)
	if reply.ZeroOverlap != protocol.ZeroNonePublished {
		t.Errorf("first reply is %+v", reply)
	}
	body := `{"model":"llama","prompt":[` + tokens + `],"max_tokens":4}`
	answer, err := http.Post(reply.Endpoint+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK || !strings.Contains(string(text), `"completion_tokens":4`) {
		t.Fatalf("worker answers %d %s", answer.StatusCode, text)
	}
	eventually(t, "overlap with what was computed", func() bool {
		next := okJSON[protocol.RouteReply](t, "", append([]string{"route", "--query-only"}, prompt...)...)
		return next.Worker == reply.Worker && next.CachedTokens == 32
	})
}

func TestServeRefusesToStart(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	address := busy.Addr().String()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	here := func(args ...string) []string {
		return append([]string{"serve", "--listen", "none", "--admin", "none", "--store", t.TempDir(), "--log-level", "error"}, args...)
	}
	fails(t, exitFailed, "--listen", here("--listen", address)...)
	fails(t, exitFailed, "--admin", here("--admin", address)...)
	fails(t, exitFailed, "--store", here("--store", filepath.Join(file, "store"))...)
	fails(t, exitFailed, "cannot reach NATS", here("--nats", "nats://"+address)...)

	if err := os.WriteFile(file, []byte("routing:\n  polcy: kv\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := cli(t, "", here("--config", file)...)
	if r.code != exitUsage || !strings.Contains(r.stderr, "polcy") || !strings.Contains(r.stderr, "2:") {
		t.Errorf("unknown key: %+v", r)
	}
}
