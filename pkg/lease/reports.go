package lease

import (
	"cmp"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// Progress takes a report that a request is alive. An unknown lease is revived
// from its string, unless it is known to have ended. Malformed leases and those
// of unknown workers are counted and ignored.
func (m *Manager) Progress(report *protocol.ProgressReport) {
	l, ok := m.parse(report.Lease)
	if !ok || m.touch(l.ID) {
		return
	}
	l.RequestID = report.RequestID
	m.revive(l)
}

// parse reads a lease string; one that no router gave out is counted.
func (m *Manager) parse(s string) (protocol.Lease, bool) {
	l, err := protocol.ParseLease(s)
	if err != nil || l.ID == (protocol.LeaseID{}) {
		m.malformed()
		return l, false
	}
	l.Attempt = max(l.Attempt, 1)
	return l, true
}

func (m *Manager) malformed() {
	m.mu.Lock()
	m.stats.Malformed++
	m.mu.Unlock()
}

// touch notes a sign of life, the first of which ends the prefill charge; false:
// the lease is unknown.
func (m *Manager) touch(id protocol.LeaseID) bool {
	m.mu.RLock()
	r := m.leases[id]
	first := false
	if r != nil {
		r.clock.touch()
		first = !r.reported
	}
	m.mu.RUnlock()
	if first {
		m.firstReport(r)
	}
	return r != nil
}

func (m *Manager) firstReport(r *record) {
	m.mu.Lock()
	first := !r.reported && !r.removed
	if first {
		m.silent.remove(r)
		r.reported = true
		m.reporting.push(r)
	}
	m.mu.Unlock()
	if first {
		m.cfg.Ledger.FirstToken(r.lease.ID)
	}
}

// revive admits a lease known from its string alone.
func (m *Manager) revive(l protocol.Lease) {
	now := m.now()
	m.mu.Lock()
	r := m.reviveLocked(&l, now)
	m.mu.Unlock()
	if r == nil {
		return
	}
	taken := m.cfg.Ledger.Restore(l)
	m.mu.Lock()
	ended := m.restoredLocked(r, taken)
	m.mu.Unlock()
	if ended {
		m.release([]protocol.LeaseID{l.ID})
	}
}

// reviveLocked inserts the record of an unknown lease, to be charged; nil if it
// may not live.
func (m *Manager) reviveLocked(l *protocol.Lease, now time.Duration) *record {
	m.forgetLocked(now, forgetPerCall)
	if _, ending := m.freeing[l.ID]; ending || m.leases[l.ID] != nil {
		return nil // the next report revives it; or another was faster
	}
	a := find(m.requests.known(l.RequestID, now), l.Attempt)
	switch {
	case m.tombstones.fate(l.ID, now) == completed || a != nil && a.fate == completed:
		m.stats.Late++
		return nil
	case a != nil && a.fate == running: // reserved, or live as another lease
		m.stats.Conflicts++
		return nil
	case m.fullLocked():
		m.stats.Full++
		return nil
	}
	r := &record{lease: *l, charge: charging, reported: true}
	if !m.insertLocked(r) {
		m.stats.Full++
		return nil
	}
	delete(m.tombstones.leases, l.ID)
	return r
}

// restoredLocked takes the ledger's answer for a revived record. It returns
// whether the lease has ended meanwhile, so that its charge is to be freed.
func (m *Manager) restoredLocked(r *record, taken bool) bool {
	if taken {
		r.charge = charged
		m.stats.Revived++
		return r.removed
	}
	r.charge = uncharged
	m.stats.UnknownWorker++
	delete(m.freeing, r.lease.ID)
	if r.clock.claim() {
		m.removeLocked(nil, r)
	}
	return false
}

// Complete takes a report that a request has ended. Without a lease it ends the
// attempt of the request, also one that is not admitted yet. It returns the
// lease that it ended; known is false if there was none that lived.
func (m *Manager) Complete(report *protocol.CompleteReport) (l protocol.Lease, known bool) {
	if report.Lease != "" {
		if l, known = m.parse(report.Lease); !known {
			return l, false
		}
	} else if report.RequestID == "" {
		m.malformed()
		return l, false
	} else {
		l.Attempt = max(report.Attempt, 1)
	}
	l.RequestID = report.RequestID
	if l, known = m.complete(l); known && m.cfg.Peers != nil {
		m.cfg.Peers.Completed(l)
	}
	return l, known
}

// complete ends a lease: claim, remove, free the charge, in that order. The
// tombstones are left whether it is known or not.
func (m *Manager) complete(l protocol.Lease) (ended protocol.Lease, known bool) {
	now := m.now()
	m.mu.Lock()
	m.forgetLocked(now, forgetPerCall)
	r := m.leases[l.ID]
	if l.ID == (protocol.LeaseID{}) {
		if a := find(m.requests.known(l.RequestID, now), l.Attempt); a != nil {
			r = a.record
		}
	}
	if r != nil {
		requestID := cmp.Or(r.lease.RequestID, l.RequestID)
		l = r.lease
		l.RequestID = requestID
	}
	m.buryLocked(l.ID, l.RequestID, l.Attempt, completed, m.cfg.Tombstone, now)
	var freed []protocol.LeaseID
	if r != nil && r.clock.claim() {
		known = true
		freed = m.removeLocked(nil, r)
		m.stats.Completed++
	}
	m.mu.Unlock()
	m.release(freed)
	return l, known
}

// EndWorker ends all leases of a worker that left. They leave no tombstones:
// progress revives them if the worker is back. The ledger must have forgotten
// the worker before, so that no report brings one back meanwhile.
func (m *Manager) EndWorker(w protocol.Worker) {
	m.mu.Lock()
	var freed []protocol.LeaseID
	if of := m.workers[w]; of != nil {
		for r := of.head; r != nil; {
			next := r.links[workerChain].next
			if r.clock.claim() {
				freed = m.removeLocked(freed, r)
				m.stats.WorkerGone++
			}
			r = next
		}
	}
	m.mu.Unlock()
	m.release(freed)
}
