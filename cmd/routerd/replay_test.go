package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/routerd/routerd/internal/replay"
)

const conversation = "../../testdata/conversation_trace.jsonl"

func TestReplay(t *testing.T) {
	report := okJSON[replay.Report](t, "", "replay", conversation, "--requests", "60", "--load", "6", "--policy", "round-robin,latency", "--workers", "4")
	if !report.OK || len(report.Policies) != 2 || report.Trace.Requests != 60 || report.Trace.File != "conversation_trace.jsonl" {
		t.Fatalf("report is %+v", report)
	}
	for _, p := range report.Policies {
		if p.Requests != 60 || p.Errors != 0 || !p.IndexEqual || p.EventBlocks == 0 || p.TTFT.P50 <= 0 || p.RouteCall.P50 <= 0 {
			t.Errorf("%s: %+v", p.Policy, p)
		}
	}
	r := cli(t, "", "replay", conversation, "--requests", "20", "--policy", "kv")
	if r.code != exitDone || !strings.Contains(r.stdout, "kv") || !strings.Contains(r.stdout, "equal") || !strings.Contains(r.stderr, "20 of 20") {
		t.Errorf("replay: %+v", r)
	}
}

func TestReplayOnRunningServer(t *testing.T) {
	url := serve(t).NATS
	report := okJSON[replay.Report](t, "", "replay", conversation, "--requests", "20", "--workers", "2", "--nats", url)
	if !report.OK || len(report.Policies) != 1 || report.Policies[0].Policy != "latency" {
		t.Errorf("report is %+v", report)
	}
	if rows := okJSON[[]poolRow](t, "", "pools", "--nats", url); len(rows) != 0 {
		t.Errorf("the replay left %+v", rows)
	}
}

func TestReplayOfBadTraces(t *testing.T) {
	good := `{"timestamp":5,"input_length":600,"output_length":2,"hash_ids":[1,2]}` + "\n"
	for _, test := range []struct{ line, message string }{
		{`not json`, ":2"},
		{`{"timestamp":5,"input_length":600,"hash_ids":[1,2]}`, ":2: output_length"},
		{`{"timestamp":-5,"input_length":600,"output_length":2,"hash_ids":[1,2]}`, ":2: timestamp"},
		{`{"timestamp":4,"input_length":600,"output_length":2,"hash_ids":[1,2]}`, ":2: timestamp"},
		{`{"timestamp":5,"input_length":600,"output_length":0,"hash_ids":[1,2]}`, ":2: output_length"},
		{`{"timestamp":5,"input_length":600,"output_length":2,"hash_ids":[1]}`, ":2: hash_ids"},
	} {
		file := filepath.Join(t.TempDir(), "trace.jsonl")
		if err := os.WriteFile(file, []byte(good+test.line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		fails(t, exitUsage, test.message, "replay", file)
	}
	fails(t, exitUsage, "512", "replay", conversation, "--requests", "1", "--block-size", "48")
	fails(t, exitUsage, "load", "replay", conversation, "--requests", "1", "--load", "0")
	fails(t, exitUsage, "policy", "replay", conversation, "--requests", "1", "--policy", "best")

	file := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	r := cli(t, "", "replay", file, "--blocks", "8", "--policy", "kv", "--json")
	if r.code != exitFailed || !strings.Contains(r.stdout, `"errors": 1`) || !strings.Contains(r.stdout, `"ok": false`) {
		t.Errorf("prompt larger than a worker: %+v", r)
	}
}
