package roster

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/routerd/routerd/pkg/protocol"
)

// DefaultTTL is how long a registration lives without a refresh.
const DefaultTTL = 10 * time.Second

// Bounds of what the buckets can make a router keep.
const (
	maxRanks     = 1 << 16 // accepted registrations of all pools
	maxPoolRanks = 1 << 14 // accepted registrations of one pool
	maxPools     = 1 << 12
	maxRefused   = 1 << 10 // refused registrations listed of one pool
	maxDrains    = 1 << 14
	maxRouters   = 1 << 10
	maxValue     = 64 << 10 // bytes
)

// Reasons for which a registration is refused, beside those of package protocol
// (undecodable, old_epoch, future_epoch, refresh_without_epoch).
const (
	// RefusedConflict is a value that names another pool, worker or rank than
	// its key, or another block size than its pool's.
	RefusedConflict protocol.Refusal = "conflict"
	// RefusedLimit is a registration beyond what a router keeps.
	RefusedLimit protocol.Refusal = "limit"
)

// Config configures a Watcher. JetStream has no default.
type Config struct {
	JetStream jetstream.JetStream
	Names     protocol.Names
	// TTL of the buckets that this router makes, 1 s to 1 h. 0: DefaultTTL.
	TTL time.Duration
	// Replicas of the buckets that this router makes, 1 to 5. 0: 1.
	Replicas int
	// Router is the token under which this router lists itself: 1 to 128 of
	// [A-Za-z0-9_-], new with each process. Empty: it does not.
	Router string
	// Handler hears of workers. May be nil.
	Handler Handler
	// Log takes warnings. The zero value drops them.
	Log zerolog.Logger
}

// Validate reports every fault of the configuration.
func (c Config) Validate() error {
	var faults []error
	if c.JetStream == nil {
		faults = append(faults, errors.New("JetStream: must be set"))
	}
	if c.TTL != 0 && (c.TTL < time.Second || c.TTL > time.Hour) {
		faults = append(faults, fmt.Errorf("TTL %s: must be 1s to 1h", c.TTL))
	}
	if c.Replicas < 0 || c.Replicas > 5 {
		faults = append(faults, fmt.Errorf("replicas %d: must be 1 to 5", c.Replicas))
	}
	if c.Router != "" && (protocol.CheckName(c.Router) != nil || protocol.Escape(c.Router) != c.Router) {
		faults = append(faults, fmt.Errorf("router %q: must be 1 to 128 of [A-Za-z0-9_-]", c.Router))
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	c.TTL = cmp.Or(c.TTL, DefaultTTL)
	c.Replicas = cmp.Or(c.Replicas, 1)
	return c
}

// Handler hears what becomes of workers, from one goroutine and in order. It may
// call the Watcher's methods. While it runs nothing is read and nobody expires,
// so it should not wait.
type Handler interface {
	// Accepted reports a registration that is new, refreshed or otherwise
	// changed (an operator's drain, a promotion after a conflict).
	Accepted(Entry)
	// Left reports that an accepted registration is gone: deleted, expired, or
	// in conflict now.
	Left(pool string, w protocol.Worker)
}

// Entry is an accepted registration.
type Entry struct {
	// Registration is the value of the latest put. It must not be changed.
	Registration *protocol.Registration
	// Epoch is the life that the put belongs to, 0 if the publisher uses none.
	Epoch protocol.Epoch
	// Revision is the put's own revision in the bucket.
	Revision uint64
	// Drain says that the worker gets no new requests: it says so itself, or
	// the operator does.
	Drain bool
	// OperatorDrain is the operator's part of Drain.
	OperatorDrain bool
}

// Refused is a registration that is in the bucket but not accepted.
type Refused struct {
	Worker protocol.Worker
	// Registration is nil if the value could not be decoded. It must not be
	// changed.
	Registration *protocol.Registration
	Reason       protocol.Refusal
	// Message says what is wrong in words.
	Message string
}
