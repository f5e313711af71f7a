package replay

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/routerd/routerd/internal/trace"
	"github.com/routerd/routerd/pkg/protocol"
)

// Options say what is replayed, and how. Start from DefaultOptions.
type Options struct {
	File     string // name of the trace, for the report
	Requests []trace.Request

	Policies  []protocol.Policy
	Workers   int           // 1 to 1,024
	Blocks    int           // KV blocks of a worker
	BlockSize int           // tokens of a block; divides 512
	Load      float64       // speed of the arrivals against the engines' clock, above 0
	Seed      uint64        // of ties; 0 is random
	EventLag  time.Duration // simulated time until an event reaches the log

	// Connect opens a connection to a running server, whose own policy is used
	// then. Nil starts a server of its own for each policy.
	Connect func() (*nats.Conn, error)
	Names   protocol.Names // of the running server

	// Progress hears how many requests have been routed; may be nil.
	Progress func(policy protocol.Policy, done, total int)
}

// DefaultOptions are those of the command line.
func DefaultOptions() Options {
	return Options{Policies: protocol.Policies, Workers: 8, Blocks: 65536, BlockSize: 16, Load: 1, Seed: 1}
}

// Bounds of Options.
const (
	maxWorkers = 1024
	maxBlocks  = 1 << 26
)

// Validate reports every fault of the options.
func (o *Options) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(len(o.Requests) == 0, "trace: has no request")
	fault(len(o.Policies) == 0, "policy: name at least one")
	for _, p := range o.Policies {
		fault(!slices.Contains(protocol.Policies, p), "policy: %q is none of %v", p, protocol.Policies)
	}
	fault(o.Workers < 1 || o.Workers > maxWorkers, "workers: must be 1 to %d", maxWorkers)
	fault(o.Blocks < 1 || o.Blocks > maxBlocks, "blocks: must be 1 to %d", maxBlocks)
	if err := trace.CheckBlockSize(o.BlockSize); err != nil {
		faults = append(faults, err)
	}
	fault(!(o.Load > 0) || math.IsInf(o.Load, 0), "load: must be a number above 0")
	fault(o.EventLag < 0, "event lag: must not be negative")
	return errors.Join(faults...)
}
