package lease

import (
	"context"
	"errors"
	"sync"
	"time"
	"weak"

	"github.com/routerd/routerd/pkg/clock"
	"github.com/routerd/routerd/pkg/protocol"
)

// reapChunk is how many leases a pass looks at without letting others at the
// manager, and how many expired tombstones it frees at a time.
const reapChunk = 1024

// Run reaps leases without a sign of life until ctx ends. It is called once. It
// holds the manager weakly: where nobody else holds it any more Run ends by
// itself, within an interval.
func (m *Manager) Run(ctx context.Context) error {
	if m.ran.Swap(true) {
		return errors.New("run lease manager: it was run before, make a new one")
	}
	watch(ctx, weak.Make(m), m.cfg.Clock, m.cfg.Interval, m.cfg.QuietInterval)
	return nil
}

// watch is Run after it let go of the manager.
func watch(ctx context.Context, held weak.Pointer[Manager], c clock.Clock, interval, quietInterval time.Duration) {
	gone := make(chan struct{})
	collected := sync.OnceFunc(func() { close(gone) })
	pass := func(reap func(*Manager)) func() {
		return func() {
			if m := held.Value(); m != nil {
				reap(m)
			} else {
				collected()
			}
		}
	}
	defer c.Every(interval, pass(func(m *Manager) { m.reap(&m.reporting, interval) }))()
	defer c.Every(quietInterval, pass(func(m *Manager) { m.reap(&m.silent, quietInterval) }))()
	select {
	case <-ctx.Done():
	case <-gone:
	}
}

// reap offers each lease of a chain to the reaper once and ends those that had
// no sign of life since the pass before.
func (m *Manager) reap(c *chain, interval time.Duration) {
	m.mu.Lock()
	c.cursor = c.head
	m.mu.Unlock()
	var found []*record
	for more := true; more; {
		found, more = m.look(c, found[:0])
		if len(found) > 0 {
			m.release(m.expire(found, interval))
		}
	}
	m.forget()
}

// look is one chunk of a pass: it appends the leases that it claimed to found.
// It reads only, so that reports of progress go on beside it; the cursor is its
// own as long as nobody holds the lock for writing.
func (m *Manager) look(c *chain, found []*record) (claimed []*record, more bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := c.cursor
	for n := 0; r != nil && n < reapChunk; n++ {
		if r.clock.reap() {
			found = append(found, r)
		}
		r = r.links[reaperChain].next
	}
	c.cursor = r
	return found, r != nil
}

// expire removes claimed leases and returns those whose charge is to be freed.
func (m *Manager) expire(found []*record, interval time.Duration) []protocol.LeaseID {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	freed := make([]protocol.LeaseID, 0, len(found))
	for _, r := range found {
		freed = m.endLocked(freed, r, reaped, 2*interval, now)
		m.stats.Reaped++
	}
	return freed
}

// forget frees the memory of all tombstones whose time is over.
func (m *Manager) forget() {
	now := m.now()
	for more := true; more; {
		m.mu.Lock()
		before := m.tombstones.len()
		m.forgetLocked(now, reapChunk)
		more = before-m.tombstones.len() == reapChunk
		m.mu.Unlock()
	}
}
