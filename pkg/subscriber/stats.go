package subscriber

import (
	"sync/atomic"

	"github.com/routerd/routerd/pkg/protocol"
)

// Stats counts what a subscriber has done. Counts of ranks that have left are
// included.
type Stats struct {
	Messages uint64 // read from the log
	Bytes    uint64
	Skipped  uint64 // messages of ranks that are not in the roster

	Events        uint64 // applied
	BlocksStored  uint64 // named by stores that were applied
	BlocksRemoved uint64 // named by removals that were applied
	BlocksUnknown uint64 // of those, not held
	Refused       map[protocol.Refusal]uint64

	Rereads         uint64 // times a subject was read again
	Repairs         uint64 // runs
	RepairsSettled  uint64 // that neither the log nor the publisher could help
	SnapshotsRead   uint64 // adopted
	SnapshotsWrong  uint64 // contradicted an exact state
	SnapshotsProven uint64 // found right, so that what they cover may be purged
	SnapshotsMade   uint64 // written by this router
	SnapshotsFailed uint64 // not written in whole
	Purges          uint64 // of what a snapshot covers
	Departures      uint64 // subjects purged because their worker is gone
	StreamGrown     uint64
	StreamCeiling   uint64 // times the stream needed to grow and may not

	Reopened uint64 // times the log was opened again
	LogsLost uint64 // times it was found to be another, or cut short

	Ranks   int
	Partial int // of the ranks
	Lag     uint64
}

// counters are those of the subscriber itself.
type counters struct {
	read, bytes, skipped     atomic.Uint64
	rereads                  atomic.Uint64
	proven, made, makeFailed atomic.Uint64
	purges, departures       atomic.Uint64
	grown, ceiling           atomic.Uint64
	reopened, logsLost       atomic.Uint64
}

// Stats reads all counters. It takes each rank's lock once.
func (s *Subscriber) Stats() Stats {
	c := &s.stats
	out := Stats{
		Messages: c.read.Load(), Bytes: c.bytes.Load(), Skipped: c.skipped.Load(),
		Refused: map[protocol.Refusal]uint64{}, Rereads: c.rereads.Load(),
		SnapshotsProven: c.proven.Load(), SnapshotsMade: c.made.Load(), SnapshotsFailed: c.makeFailed.Load(),
		Purges: c.purges.Load(), Departures: c.departures.Load(),
		StreamGrown: c.grown.Load(), StreamCeiling: c.ceiling.Load(),
		Reopened: c.reopened.Load(), LogsLost: c.logsLost.Load(),
	}
	if known, applied := s.Known(), s.Applied(); known > applied {
		out.Lag = uint64(known - applied)
	}
	s.mu.Lock()
	out.add(&s.left)
	s.mu.Unlock()
	for _, r := range s.all() {
		r.addTo(&out)
	}
	return out
}

func (o *Stats) add(c *rankCounters) {
	o.Events += c.events
	o.BlocksStored += c.stored
	o.BlocksRemoved += c.removed
	o.BlocksUnknown += c.unknown
	o.SnapshotsRead += c.adopted
	o.SnapshotsWrong += c.mismatched
	o.Repairs += c.repairs
	o.RepairsSettled += c.accepted
	for why, n := range c.refused {
		o.Refused[why] += n
	}
}

// merge adds the counters of a rank that leaves.
func (c *rankCounters) merge(o *rankCounters) {
	c.events += o.events
	c.stored += o.stored
	c.removed += o.removed
	c.unknown += o.unknown
	c.adopted += o.adopted
	c.mismatched += o.mismatched
	c.repairs += o.repairs
	c.accepted += o.accepted
	for why, n := range o.refused {
		c.refused[why] += n
	}
}
