// Command routerd routes LLM inference requests to the worker that will answer
// soonest: it runs the router (serve), asks it (route, overlap, status, pools,
// drain), feeds it (publish), computes what it computes (hash), and shows on a
// recorded trace what it is worth (replay).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// commands is the command line.
type commands struct {
	Serve   serveCommand   `cmd:"" help:"Run a router, with its own NATS server or against a cluster."`
	Route   routeCommand   `cmd:"" help:"Ask where a prompt should go, and admit it there."`
	Overlap overlapCommand `cmd:"" help:"Ask what every worker holds of a prompt."`
	Status  statusCommand  `cmd:"" help:"Show what every router knows of its workers."`
	Publish publishCommand `cmd:"" help:"Register a worker and publish KV events from standard input."`
	Drain   drainCommand   `cmd:"" help:"Take a worker out of routing, or put it back."`
	Replay  replayCommand  `cmd:"" help:"Route a recorded trace over a real log with simulated workers, and compare policies."`
	Hash    hashCommand    `cmd:"" help:"Print the block hashes of a prompt."`
	Pools   poolsCommand   `cmd:"" help:"List pools; delete or resize a pool's stream."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

// app is what a command may touch.
type app struct {
	ctx    context.Context // ends with SIGINT or SIGTERM
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
}

// usageError is a fault of the command line, the environment or a file that the
// user gave: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(&app{ctx, os.Stdin, os.Stdout, os.Stderr}, os.Args[1:]))
}

// run carries out one command line and returns its exit code.
func run(a *app, args []string) int {
	var cli commands
	exited := -1
	parser, err := kong.New(&cli,
		kong.Name("routerd"),
		kong.Description("Routes LLM inference requests by what workers hold and how busy they are."),
		kong.Writers(a.stdout, a.stderr),
		kong.Exit(func(code int) { exited = code }),
		kong.Vars{"trace_help": "Trace file: JSON lines with timestamp, input_length, output_length, hash_ids."},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}))
	if err != nil {
		fmt.Fprintln(a.stderr, "routerd:", err)
		return exitUsage
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if exited >= 0 { // --help
		return exited
	}
	if err != nil {
		fmt.Fprintf(a.stderr, "routerd: %v (routerd --help lists commands and flags)\n", err)
		return exitUsage
	}
	err = parsed.Run(a)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errReported):
		return exitFailed
	}
	fmt.Fprintln(a.stderr, "routerd:", err)
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// errReported ends a command whose output already says what failed.
var errReported = errors.New("failed, as reported")
