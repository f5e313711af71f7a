package subscriber

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/routerd/routerd/pkg/protocol"
)

// Sink is the index that events are applied to. It must be safe for concurrent
// use, do no I/O and return promptly: it is called with a rank's lock held.
type Sink interface {
	// Stored fails with the errors given as Config.ParentNotHeld and
	// Config.MalformedStore; the index is unchanged then.
	Stored(w protocol.Worker, tier protocol.Tier, root bool, parent protocol.SequenceHash, blocks []protocol.Block) error
	// Removed returns how many of the blocks were not held.
	Removed(w protocol.Worker, tier protocol.Tier, hashes []protocol.SequenceHash) (unknown int)
	// Cleared empties a rank on all tiers; Drop forgets it.
	Cleared(w protocol.Worker)
	Drop(w protocol.Worker)
	// Replace makes a rank hold what a snapshot's events say, and nothing if it fails.
	Replace(w protocol.Worker, events []protocol.Event) error
	Holds(w protocol.Worker, hash protocol.SequenceHash) bool
	State(w protocol.Worker) protocol.HeldState
	// Snapshot is the events that rebuild what a rank holds.
	Snapshot(w protocol.Worker, maxBlocks int) []protocol.Event
}

// Repairer asks a rank's publisher for what the log does not hold.
type Repairer interface {
	// Ask returns once the worker has answered, its answer then being in the log,
	// or with an error once the attempts are used up or ctx has ended.
	Ask(ctx context.Context, w protocol.Worker, q protocol.Query) (protocol.QueryReply, error)
}

// EpochSource knows which epochs the roster bucket has given out.
type EpochSource interface {
	// LastRevision is the bucket's newest revision.
	LastRevision(ctx context.Context) (protocol.Epoch, error)
}

// Config of a Subscriber. JetStream, Stream.Pool, Sink, ParentNotHeld and
// MalformedStore are required; every other zero value means its default.
type Config struct {
	// JetStream reads the log. A connection of its own over loopback TCP is twice
	// as fast for bulk as an in-process one.
	JetStream jetstream.JetStream
	// Publish writes snapshots and purges; default JetStream.
	Publish jetstream.JetStream
	// Stream names the pool and says how its stream is made if it is gone.
	Stream StreamConfig
	// Router is this router's name, part of the ids of the snapshots it writes.
	Router string

	Sink           Sink
	ParentNotHeld  error // what Sink.Stored returns for a parent that is not held
	MalformedStore error // and for a store that is malformed

	Repairer Repairer    // nil: no worker is ever asked
	Epochs   EpochSource // nil: events ahead of the roster are refused at once

	Log zerolog.Logger // zero: silent

	Lanes         int // goroutines that decode and apply; default GOMAXPROCS-1, 1 to 64
	LaneMessages  int // messages that wait in one lane; default 256; a full lane stops the reader
	InFlightBytes int // bytes that wait in all lanes; default 32 MiB

	Window      int           // messages asked for ahead; default 2,000
	WindowBytes int           // bytes asked for ahead; default 8 MiB, more than the largest message
	Heartbeat   time.Duration // of the log's consumer; default 750 ms, at least 500 ms
	Retry       time.Duration // longest pause before a consumer is made again; default 500 ms

	Tick        time.Duration // how often ranks are looked after; default 100 ms
	RepairDelay time.Duration // from a hole until repair starts; default 50 ms
	RepairPause time.Duration // until a repair that failed is tried again; default 60 s
	Repairs     int           // ranks under repair at once; default 16
	Rereads     int           // subjects read again at once; default 8

	Compaction Compaction

	Grace time.Duration // from a worker's departure until its subject is purged; default 60 s
	// Registered says whether a rank has a roster entry, accepted or refused. Where it
	// is given, the subjects of ranks that have none are purged too, Grace after
	// their last message was read: they left while no router ran.
	Registered func(protocol.Worker) bool
}

// Compaction says when a rank's tail (what lies on its subject after its last
// complete snapshot) is long enough to write a snapshot and purge.
type Compaction struct {
	Off          bool          // this router writes no snapshot and purges nothing
	Bytes        int64         // of the tail; default 1 MiB; twice the snapshot's size if that is more
	Messages     int           // of the tail; default 4,096
	Full         float64       // fraction of the stream in use from which every tail counts; default 0.5
	ChunkBytes   int           // of one message of a snapshot; default 256 KiB, at most the max payload
	Jitter       time.Duration // longest pause before it is written; default 300 ms
	Timeout      time.Duration // for writing it and for reading it back; default 30 s
	UsageEvery   time.Duration // how often the stream's fullness is read; default 5 s
	purgeBacklog int
}

// maxLanes bounds Config.Lanes.
const maxLanes = 64

func (c Config) withDefaults() Config {
	if c.Publish == nil {
		c.Publish = c.JetStream
	}
	c.Lanes = cmp.Or(c.Lanes, min(max(runtime.GOMAXPROCS(0)-1, 1), maxLanes))
	c.LaneMessages = cmp.Or(c.LaneMessages, 256)
	c.InFlightBytes = cmp.Or(c.InFlightBytes, 32<<20)
	c.Window = cmp.Or(c.Window, 2000)
	c.WindowBytes = cmp.Or(c.WindowBytes, 8<<20)
	c.Heartbeat = cmp.Or(c.Heartbeat, 750*time.Millisecond)
	c.Retry = cmp.Or(c.Retry, 500*time.Millisecond)
	c.Tick = cmp.Or(c.Tick, 100*time.Millisecond)
	c.RepairDelay = cmp.Or(c.RepairDelay, 50*time.Millisecond)
	c.RepairPause = cmp.Or(c.RepairPause, 60*time.Second)
	c.Repairs = cmp.Or(c.Repairs, 16)
	c.Rereads = cmp.Or(c.Rereads, 8)
	c.Grace = cmp.Or(c.Grace, 60*time.Second)

	k := &c.Compaction
	k.Bytes = cmp.Or(k.Bytes, 1<<20)
	k.Messages = cmp.Or(k.Messages, 4096)
	k.Full = cmp.Or(k.Full, 0.5)
	k.ChunkBytes = cmp.Or(k.ChunkBytes, 256<<10)
	k.Jitter = cmp.Or(k.Jitter, 300*time.Millisecond)
	k.Timeout = cmp.Or(k.Timeout, 30*time.Second)
	k.UsageEvery = cmp.Or(k.UsageEvery, 5*time.Second)
	k.purgeBacklog = 1024
	return c
}

// Validate reports every fault of the configuration.
func (c Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if err := c.Stream.Validate(); err != nil {
		faults = append(faults, err)
	}
	if c.JetStream == nil {
		fault("jetstream: is required")
	}
	if c.Sink == nil || c.ParentNotHeld == nil || c.MalformedStore == nil {
		fault("sink: is required, with its errors ParentNotHeld and MalformedStore")
	}
	c = c.withDefaults()
	if c.Lanes < 1 || c.Lanes > maxLanes {
		fault("lanes %d: must be 1 to %d", c.Lanes, maxLanes)
	}
	if c.Heartbeat < 500*time.Millisecond {
		fault("heartbeat %v: must be at least 500ms", c.Heartbeat)
	}
	for _, bound := range []struct {
		name  string
		value int64
	}{
		{"lane messages", int64(c.LaneMessages)}, {"in flight bytes", int64(c.InFlightBytes)},
		{"window", int64(c.Window)}, {"window bytes", int64(c.WindowBytes)},
		{"retry", int64(c.Retry)}, {"tick", int64(c.Tick)}, {"repair delay", int64(c.RepairDelay)}, {"repair pause", int64(c.RepairPause)},
		{"repairs", int64(c.Repairs)}, {"rereads", int64(c.Rereads)}, {"grace", int64(c.Grace)},
		{"compaction bytes", c.Compaction.Bytes}, {"compaction messages", int64(c.Compaction.Messages)},
		{"compaction jitter", int64(c.Compaction.Jitter)}, {"compaction timeout", int64(c.Compaction.Timeout)},
		{"compaction usage interval", int64(c.Compaction.UsageEvery)},
	} {
		if bound.value < 1 {
			fault("%s: must be above 0", bound.name)
		}
	}
	if k := c.Compaction; k.Full < 0 || k.Full > 1 {
		fault("compaction full %v: must be 0 to 1", k.Full)
	}
	if k := c.Compaction; k.ChunkBytes < 1<<10 {
		fault("compaction chunk bytes %d: must be at least 1024", k.ChunkBytes)
	}
	return errors.Join(faults...)
}
