package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/nats-io/nats.go"

	"github.com/routerd/routerd/internal/replay"
	"github.com/routerd/routerd/internal/trace"
	"github.com/routerd/routerd/pkg/protocol"
)

// replayCommand routes a trace.
type replayCommand struct {
	Trace     string            `arg:"" type:"path" help:"${trace_help}"`
	Policy    []protocol.Policy `default:"latency,kv,load,random,round-robin" help:"Policies to compare (${default})."`
	Workers   int               `default:"8" help:"Simulated workers (${default})."`
	Blocks    int               `default:"65536" help:"KV blocks of a worker (${default})."`
	BlockSize int               `default:"16" help:"Tokens of a block; divides 512 (${default})."`
	Load      float64           `default:"1" help:"Speed of the arrivals against the engines' clock (${default})."`
	Requests  int               `default:"0" help:"Replay the first N requests only." placeholder:"N"`
	Seed      uint64            `default:"1" help:"Seed of tie breaks; 0 is random (${default})."`
	EventLag  time.Duration     `default:"0s" help:"Simulated time until KV events reach the log (${default})."`
	NATS      string            `name:"nats" help:"NATS servers of a running router to use, with its policy and the machine's clock, instead of one for this replay." placeholder:"URL"`
	Creds     string            `name:"nats-creds" env:"ROUTERD_NATS_CREDS" help:"NATS credentials file." placeholder:"FILE"`
	TLSCA     string            `name:"nats-tls-ca" env:"ROUTERD_NATS_TLS_CA" help:"PEM file of the authority that signed the servers' certificate." placeholder:"FILE"`
	TLSCert   string            `name:"nats-tls-cert" env:"ROUTERD_NATS_TLS_CERT" help:"PEM file of the client certificate." placeholder:"FILE"`
	TLSKey    string            `name:"nats-tls-key" env:"ROUTERD_NATS_TLS_KEY" help:"PEM file of the client certificate's key." placeholder:"FILE"`
	Prefix    string            `env:"ROUTERD_PREFIX" default:"kvr" help:"Prefix of the running router."`
	JSON      bool              `name:"json" help:"Print the report as JSON."`
}

// Run implements the command.
func (c *replayCommand) Run(a *app) error {
	if c.Requests < 0 {
		return usagef("--requests: must not be negative")
	}
	requests, err := trace.ReadFile(c.Trace, c.Requests)
	if err != nil {
		return usageError{err}
	}
	options := replay.Options{
		File: filepath.Base(c.Trace), Requests: requests, Policies: c.Policy, Workers: c.Workers, Blocks: c.Blocks,
		BlockSize: c.BlockSize, Load: c.Load, Seed: c.Seed, EventLag: c.EventLag,
	}
	if c.NATS != "" {
		if options.Names, err = protocol.NewNames(c.Prefix); err != nil {
			return usageError{err}
		}
		target := connection{NATS: c.NATS, Creds: c.Creds, TLSCA: c.TLSCA, TLSCert: c.TLSCert, TLSKey: c.TLSKey}
		options.Connect = func() (*nats.Conn, error) { return target.dial() }
	}
	bar := newProgressBar(a.stderr, len(requests))
	options.Progress = bar.show
	if err := options.Validate(); err != nil {
		return usageError{err}
	}
	report, err := replay.Run(a.ctx, options)
	bar.clear()
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(a.stdout, report)
	} else {
		err = report.Print(a.stdout)
	}
	if err == nil && !report.OK {
		err = errReported
	}
	return err
}

// progressBar shows how far a replay is, on a terminal as a line that is written
// anew, else as a line now and then.
type progressBar struct {
	out      io.Writer
	total    int
	terminal bool
	policy   protocol.Policy
	begun    time.Time
	shown    time.Time
}

func newProgressBar(out io.Writer, total int) *progressBar {
	file, ok := out.(*os.File)
	return &progressBar{out: out, total: total, terminal: ok && isatty.IsTerminal(file.Fd())}
}

// Widths and intervals of the bar.
const (
	barWidth      = 30
	barInterval   = 100 * time.Millisecond
	lineInterval  = 10 * time.Second
	clearTheLine  = "\r\x1b[K"
	barFull, rest = "#", "."
)

func (b *progressBar) show(policy protocol.Policy, done, total int) {
	now := time.Now()
	if policy != b.policy {
		b.policy, b.begun = policy, now
	}
	interval := lineInterval
	if b.terminal {
		interval = barInterval
	}
	if now.Sub(b.shown) < interval && done < total {
		return
	}
	b.shown = now
	if !b.terminal {
		fmt.Fprintf(b.out, "%s: %d of %d requests in %.1f s\n", policy, done, total, now.Sub(b.begun).Seconds())
		return
	}
	full := barWidth * done / total
	fmt.Fprintf(b.out, "%s%-12s [%s%s] %d of %d requests, %.1f s", clearTheLine, policy,
		strings.Repeat(barFull, full), strings.Repeat(rest, barWidth-full), done, total, now.Sub(b.begun).Seconds())
}

// clear removes the bar from a terminal.
func (b *progressBar) clear() {
	if b.terminal {
		fmt.Fprint(b.out, clearTheLine)
	}
}
