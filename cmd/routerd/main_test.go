package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/internal/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyMain(m) }

// result is what a command line gave.
type result struct {
	code           int
	stdout, stderr string
}

// cli runs one command line with a standard input.
func cli(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := run(&app{ctx, strings.NewReader(stdin), &stdout, &stderr}, args)
	return result{code, stdout.String(), stderr.String()}
}

// ok runs a command line that must succeed and returns its standard output.
func ok(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	r := cli(t, stdin, args...)
	if r.code != exitDone {
		t.Fatalf("routerd %s: exit code %d: %s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}

// okJSON runs a command line that prints JSON.
func okJSON[T any](t *testing.T, stdin string, args ...string) T {
	t.Helper()
	var v T
	out := ok(t, stdin, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("routerd %s: %v in %s", strings.Join(args, " "), err, out)
	}
	return v
}

// fails runs a command line that must fail with a code and a message.
func fails(t *testing.T, code int, message string, args ...string) {
	t.Helper()
	r := cli(t, "", args...)
	if r.code != code || !strings.Contains(r.stderr, message) {
		t.Errorf("routerd %s: exit code %d, %q; want %d with %q", strings.Join(args, " "), r.code, r.stderr, code, message)
	}
	if lines := strings.Count(strings.TrimSpace(r.stderr), "\n"); lines > 3 {
		t.Errorf("routerd %s: error of %d lines: %s", strings.Join(args, " "), lines+1, r.stderr)
	}
}

// serve runs `routerd serve` with a store of its own until the test ends, and
// returns the lines of its log that say that it is ready.
func serve(t *testing.T, args ...string) (ready readyLine) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	logs, writer := io.Pipe()
	ended := make(chan int, 1)
	go func() { // ends with the test's clean-up
		args = append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-format", "json", "--store", t.TempDir()}, args...)
		ended <- run(&app{ctx, strings.NewReader(""), io.Discard, writer}, args)
		writer.Close()
	}()
	lines := bufio.NewScanner(logs)
	var seen []string
	for lines.Scan() {
		seen = append(seen, lines.Text())
		if json.Unmarshal(lines.Bytes(), &ready) == nil && ready.Message == "ready" {
			break
		}
	}
	drained := make(chan struct{})
	go func() { // ends with the log
		defer close(drained)
		_, _ = io.Copy(io.Discard, logs)
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitDone {
			t.Errorf("serve ended with exit code %d", code)
		}
		<-drained
	})
	if ready.Message != "ready" {
		t.Fatalf("serve is not ready: %s", strings.Join(seen, "\n"))
	}
	return ready
}

type readyLine struct {
	Message string `json:"message"`
	NATS    string `json:"nats"`
	Admin   string `json:"admin"`
	Router  string `json:"router"`
}

func TestUsageErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, test := range []struct {
		message string
		args    []string
	}{
		{"unexpected argument bogus", []string{"bogus"}},
		{"unknown flag --bogus", []string{"serve", "--bogus"}},
		{"--tokens: entry 1", []string{"hash", "--block-size", "4", "--tokens", "1,x"}},
		{"--block-size", []string{"hash", "--block-size", "0", "--tokens", "1"}},
		{"give the prompt", []string{"hash", "--block-size", "4"}},
		{"--tokens-file", []string{"hash", "--block-size", "4", "--tokens-file", missing}},
		{"prefix", []string{"status", "--prefix", "Not.Good"}},
		{"prefix", []string{"serve", "--prefix", "Not.Good", "--print-config"}},
		{"open configuration", []string{"serve", "--config", missing}},
		{"--mock-workers", []string{"serve", "--mock-workers", "-1"}},
		{"stream-bytes", []string{"serve", "--stream-bytes", "many"}},
		{"--pool", []string{"drain", "--pool", strings.Repeat("x", 200), "--worker", "w"}},
		{"give --stream-bytes", []string{"pools", "resize", "p"}},
		{missing, []string{"replay", missing}},
	} {
		fails(t, exitUsage, test.message, test.args...)
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"serve", "--help"}, {"replay", "--help"}} {
		if out := ok(t, "", args...); !strings.Contains(out, "Usage: routerd") {
			t.Errorf("routerd %v prints %q", args, out)
		}
	}
	if v := okJSON[versionReport](t, "", "version"); v.Protocol != 1 || v.Go == "" {
		t.Errorf("version is %+v", v)
	}
}

func TestHash(t *testing.T) {
	report := okJSON[hashReport](t, "", "hash", "--block-size", "4", "--tokens", "1,2,3,4,5,6,7,8,9,10,11,12,13")
	if len(report.BlockHashes) != 3 || report.BlockHashes[0] != 14643705804678351452 ||
		report.SequenceHashes[2] != 12583592247330656132 || report.Tokens != 13 {
		t.Errorf("hashes are %+v", report)
	}
	file := filepath.Join(t.TempDir(), "tokens.json")
	if err := os.WriteFile(file, []byte("[0,1,2,3]"), 0o600); err != nil {
		t.Fatal(err)
	}
	salted := okJSON[hashReport](t, "", "hash", "--block-size", "4", "--tokens-file", file, "--lora", "adapter-a", "--salt", "tenant-a")
	if salted.BlockHashes[0] != 8269515957840517240 {
		t.Errorf("salted hash is %d", salted.BlockHashes[0])
	}
	if out := ok(t, "[1,2,3,4]", "hash", "--block-size", "4", "--tokens-file", "-"); out != "0\t14643705804678351452\n" {
		t.Errorf("from standard input: %q", out)
	}
}

func TestConfigurationPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "routerd.yaml")
	text := "prefix: fromfile\ndrain_timeout: 3s\nadmin: none\nrouting: {policy: kv}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ROUTERD_PREFIX", "fromenv")
	t.Setenv("ROUTERD_DRAIN_TIMEOUT", "4s")
	out := ok(t, "", "serve", "--config", file, "--drain-timeout", "5s", "--nats", "nats://me:secret@host:4222", "--print-config")
	for _, line := range []string{"prefix: fromenv", "drain_timeout: 5s", "admin: none", "policy: kv", "listen: 127.0.0.1:4222"} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("configuration lacks %q:\n%s", line, out)
		}
	}
	if strings.Contains(out, "secret") {
		t.Errorf("configuration shows the password:\n%s", out)
	}
}
