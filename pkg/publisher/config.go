package publisher

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/routerd/routerd/pkg/protocol"
)

// Config is what a Publisher is made of. Conn and the registration's Pool,
// Worker and BlockSize are required; the zero value of all else is a good choice.
type Config struct {
	// Conn is the connection to NATS, which many publishers may share. It should
	// reconnect for ever (nats.MaxReconnects(-1)). The publisher does not close it.
	Conn *nats.Conn
	// Names of subjects and buckets; the zero value has the default prefix.
	Names protocol.Names
	// Registration describes the worker. Version, Events, Epoch, LastID,
	// StreamSeq, Checksum and Unsent are filled in.
	Registration protocol.Registration

	// NoEvents registers a worker whose engine reports no events: none is
	// published, no query is answered, and routers predict what it holds.
	NoEvents bool
	// Copies counts the physical copies of a block that the engine reports, and
	// passes on the removal of the last. Otherwise a block is held or not.
	Copies bool
	// JSON writes events as JSON, for people to read. The default is msgpack with
	// packed hashes, a third of the size.
	JSON bool

	// FlushInterval is how long an event may wait for others to share a message
	// with: 0 (send at once) to 5 ms. Flush does not wait for it.
	FlushInterval time.Duration
	// Window is how many messages may be under way: 1 to 1,024, default 256.
	Window int
	// AckTimeout is how long the log may take to acknowledge a message before it
	// is sent again. Default 3 s.
	AckTimeout time.Duration
	// MaxBuffered bounds the events that are kept because the log does not take
	// them, in units of 16 bytes: an event counts 1, each block 1 and each removal
	// a half. Beyond it they are dropped, and a snapshot is published in their
	// place. From 32,768; default 262,144 (4 MiB), several snapshots of a worker of
	// 65,536 blocks.
	MaxBuffered int
	// RefreshInterval of the roster entry. Default 3 s, which suits a bucket whose
	// entries live 10 s.
	RefreshInterval time.Duration
	// ShutdownTimeout bounds the publishing of what waits when Run's context ends,
	// and then the taking back of the registration. Default 5 s each.
	ShutdownTimeout time.Duration
	// Abandon makes the end of Run like a crash: what waits is not published, and
	// the roster entry is left to expire.
	Abandon bool

	// Log gets warnings and one line at the start and end of a life; the zero value
	// logs nothing.
	Log zerolog.Logger
}

const (
	maxFlushInterval = 5 * time.Millisecond
	maxWindow        = 1024
	minBuffered      = 2 * recentWeight
	maxBlockSize     = 1 << 16
)

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	r := &c.Registration
	fault(c.Conn == nil, "conn: is required")
	if err := protocol.CheckName(r.Pool); err != nil {
		faults = append(faults, fmt.Errorf("registration.pool: %w", err))
	}
	if err := protocol.CheckName(r.Worker); err != nil {
		faults = append(faults, fmt.Errorf("registration.worker: %w", err))
	}
	fault(r.BlockSize < 1 || r.BlockSize > maxBlockSize, "registration.block_size: is %d, must be 1 to %d", r.BlockSize, maxBlockSize)
	fault(len(r.Taints) > protocol.MaxTaints, "registration.taints: are %d, at most %d are allowed", len(r.Taints), protocol.MaxTaints)
	fault(c.FlushInterval < 0 || c.FlushInterval > maxFlushInterval, "flush interval: is %v, must be 0 to %v", c.FlushInterval, maxFlushInterval)
	fault(c.Window < 0 || c.Window > maxWindow, "window: is %d, must be 1 to %d", c.Window, maxWindow)
	fault(c.AckTimeout < 0, "ack timeout: is %v, must be positive", c.AckTimeout)
	fault(c.MaxBuffered != 0 && c.MaxBuffered < minBuffered, "max buffered: is %d, must be at least %d", c.MaxBuffered, minBuffered)
	fault(c.RefreshInterval < 0, "refresh interval: is %v, must be positive", c.RefreshInterval)
	fault(c.ShutdownTimeout < 0, "shutdown timeout: is %v, must be positive", c.ShutdownTimeout)
	return errors.Join(faults...)
}

// withDefaults fills in what was left at zero.
func (c Config) withDefaults() Config {
	c.Registration.Version = 1
	c.Registration.Events = !c.NoEvents
	if c.Window == 0 {
		c.Window = 256
	}
	if c.AckTimeout == 0 {
		c.AckTimeout = 3 * time.Second
	}
	if c.MaxBuffered == 0 {
		c.MaxBuffered = 1 << 18
	}
	if c.RefreshInterval == 0 {
		c.RefreshInterval = 3 * time.Second
	}
	if c.ShutdownTimeout == 0 {
		c.ShutdownTimeout = 5 * time.Second
	}
	return c
}
