package lease

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/routerd/routerd/pkg/clock"
	"github.com/routerd/routerd/pkg/protocol"
)

// Defaults of a Config.
const (
	DefaultInterval      = 60 * time.Second
	DefaultQuietInterval = 300 * time.Second
	DefaultTombstone     = 300 * time.Second
	DefaultMaxLeases     = 1 << 18
	DefaultMaxTombstones = 1 << 18
)

const (
	minDuration = time.Millisecond
	maxDuration = 24 * time.Hour
	maxRecords  = 1 << 24
)

// Ledger is what charges workers, the scheduler. The manager calls it without
// holding a lock, from any goroutine. A lease id that the ledger does not know
// is no error.
type Ledger interface {
	// FirstToken ends the prefill charge of a lease.
	FirstToken(id protocol.LeaseID)
	// Release frees the whole charge of a lease; false: there was none.
	Release(id protocol.LeaseID) bool
	// Restore charges a lease known from its string alone, without prefill. It
	// does nothing and returns false if the worker is unknown.
	Restore(l protocol.Lease) bool
}

// Peers are the pool's other routers. Completed is called, without a lock held,
// once for each lease that a report completed, and for none that ended in another
// way: expiry and departures are for each router to see for itself.
type Peers interface {
	Completed(l protocol.Lease)
}

// Config says how leases live. The zero value of each field but Ledger is usable.
type Config struct {
	// Ledger charges the workers. Required.
	Ledger Ledger
	// Peers hear of completions; nil: there are none.
	Peers Peers
	// Clock times the reaper and tombstones; default the machine's.
	Clock clock.Clock
	// Interval: a lease whose frontend has reported progress ends between one
	// and two of it after the last report. Default 60 s.
	Interval time.Duration
	// QuietInterval is the same for a lease on which nothing has been reported.
	// Default 300 s, or Interval if that is longer.
	QuietInterval time.Duration
	// Tombstone is how long a completed lease cannot be revived. Default 300 s.
	Tombstone time.Duration
	// MaxLeases bounds live leases and reservations together, 1 to 2^24. Default 2^18.
	MaxLeases int
	// MaxTombstones bounds ended leases remembered, 1 to 2^24. Default 2^18.
	MaxTombstones int
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = clock.Wall{}
	}
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	c.QuietInterval = cmp.Or(c.QuietInterval, max(DefaultQuietInterval, c.Interval))
	c.Tombstone = cmp.Or(c.Tombstone, DefaultTombstone)
	c.MaxLeases = cmp.Or(c.MaxLeases, DefaultMaxLeases)
	c.MaxTombstones = cmp.Or(c.MaxTombstones, DefaultMaxTombstones)
	return c
}

// Validate reports every field that is out of bounds.
func (c Config) Validate() error {
	c = c.withDefaults()
	var faults []error
	if c.Ledger == nil {
		faults = append(faults, errors.New("ledger is missing"))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"interval", c.Interval}, {"quiet interval", c.QuietInterval}, {"tombstone", c.Tombstone}} {
		if d.value < minDuration || d.value > maxDuration {
			faults = append(faults, fmt.Errorf("%s is %v, must be %v to %v", d.name, d.value, minDuration, maxDuration))
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"max leases", c.MaxLeases}, {"max tombstones", c.MaxTombstones}} {
		if n.value < 1 || n.value > maxRecords {
			faults = append(faults, fmt.Errorf("%s is %d, must be 1 to %d", n.name, n.value, maxRecords))
		}
	}
	return errors.Join(faults...)
}
