package lease

import (
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// tombstones remember leases that ended; those of attempts are in requests, and
// both are forgotten together. A tombstone holds until its time and not longer;
// its memory is freed in the order of endings, so one with a long time delays
// that of later ones.
type tombstones struct {
	leases map[protocol.LeaseID]stone
	order  []grave // from first on
	first  int
}

// stone is the tombstone of a lease.
type stone struct {
	fate  fate
	until time.Duration
}

// grave says what to forget, and when.
type grave struct {
	until   time.Duration
	lease   protocol.LeaseID // zero: none
	request string           // "": none
	attempt uint32
}

// fate is that of a lease, running if none is known.
func (t *tombstones) fate(id protocol.LeaseID, now time.Duration) fate {
	if s, ok := t.leases[id]; ok && s.until > now {
		return s.fate
	}
	return running
}

func (t *tombstones) len() int { return len(t.order) - t.first }

func (t *tombstones) push(g grave) { t.order = append(t.order, g) }

func (t *tombstones) pop() grave {
	g := t.order[t.first]
	t.order[t.first] = grave{}
	t.first++
	if t.first > 1024 && t.first > len(t.order)/2 {
		n := copy(t.order, t.order[t.first:])
		clear(t.order[n:])
		t.order, t.first = t.order[:n], 0
	}
	return g
}

// forgetLocked frees the memory of tombstones whose time is over, at most limit
// of them, so that no single call pays for many.
func (m *Manager) forgetLocked(now time.Duration, limit int) {
	for ; limit > 0 && m.tombstones.len() > 0 && m.tombstones.order[m.tombstones.first].until <= now; limit-- {
		m.exhumeLocked(m.tombstones.pop())
	}
}

// exhumeLocked forgets what a grave names, unless it has ended again since.
func (m *Manager) exhumeLocked(g grave) {
	if s, ok := m.tombstones.leases[g.lease]; ok && s.until <= g.until {
		delete(m.tombstones.leases, g.lease)
	}
	if a := find(m.requests[g.request], g.attempt); a != nil && a.fate != running && a.until <= g.until {
		m.requests.drop(g.request, g.attempt)
	}
}

// buryLocked leaves tombstones: of a lease unless id is zero, of an attempt
// unless request is empty. Completed is final; a reservation of the attempt ends;
// an attempt that lives as another lease is left alone.
func (m *Manager) buryLocked(id protocol.LeaseID, request string, number uint32, f fate, ttl, now time.Duration) {
	until, fresh := now+ttl, false
	if id != (protocol.LeaseID{}) && m.tombstones.fate(id, now) != completed {
		m.tombstones.leases[id] = stone{f, until}
		fresh = true
	}
	if request != "" {
		a := find(m.requests.known(request, now), number)
		switch {
		case a == nil:
			fresh = m.requests.add(request, attempt{number: number, fate: f, until: until}) || fresh
		case a.record != nil && a.record.lease.ID != id, a.fate == completed:
		default:
			if a.reserved() {
				m.reserved--
			}
			a.record, a.fate, a.until = nil, f, until
			fresh = true
		}
	}
	if !fresh {
		return
	}
	m.tombstones.push(grave{until, id, request, number})
	if m.tombstones.len() > m.cfg.MaxTombstones {
		m.exhumeLocked(m.tombstones.pop())
		m.stats.TombstonesDropped++
	}
}
