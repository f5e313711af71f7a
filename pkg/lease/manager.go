package lease

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// forgetPerCall bounds the expired tombstones that one call frees.
const forgetPerCall = 16

// Manager keeps the leases of one pool. All methods are safe for concurrent use
// and block for no longer than the ledger does.
type Manager struct {
	cfg   Config
	start time.Time
	ran   atomic.Bool

	mu         sync.RWMutex // guards what follows
	leases     map[protocol.LeaseID]*record
	workers    map[protocol.Worker]*chain
	silent     chain // nothing was reported yet
	reporting  chain
	requests   requests
	reserved   int                           // attempts begun and not yet admitted
	freeing    map[protocol.LeaseID]struct{} // ended, their charge about to be freed, see release
	tombstones tombstones
	stats      Stats
}

// New makes a manager without leases. Its reaper works while Run does.
func New(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make lease manager: %w", err)
	}
	cfg = cfg.withDefaults()
	m := &Manager{
		cfg: cfg, start: cfg.Clock.Now(),
		leases:     map[protocol.LeaseID]*record{},
		workers:    map[protocol.Worker]*chain{},
		silent:     chain{slot: reaperChain},
		reporting:  chain{slot: reaperChain},
		requests:   requests{},
		freeing:    map[protocol.LeaseID]struct{}{},
		tombstones: tombstones{leases: map[protocol.LeaseID]stone{}},
	}
	return m, nil
}

// now is the time since the manager was made.
func (m *Manager) now() time.Duration { return m.cfg.Clock.Now().Sub(m.start) }

// Len is the number of live leases.
func (m *Manager) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.leases)
}

// Begin reserves an attempt of a request, from 1 (0 counts as 1), before its
// worker is chosen: either the observer's Admitted or Abandon must follow. Lower
// attempts of the request on which nothing was reported end, their charge freed.
// Its error is a *protocol.Error: invalid_request
// without a request id, duplicate_request for an attempt that is not
// higher than all that are known, ended ones included, overloaded where there is
// no room for another lease.
func (m *Manager) Begin(requestID string, attempt uint32) error {
	now := m.now()
	m.mu.Lock()
	freed, err := m.beginLocked(requestID, max(attempt, 1), now)
	m.mu.Unlock()
	m.release(freed)
	return err
}

func (m *Manager) beginLocked(requestID string, number uint32, now time.Duration) ([]protocol.LeaseID, error) {
	m.forgetLocked(now, forgetPerCall)
	if requestID == "" {
		return nil, protocol.Errorf(protocol.CodeInvalidRequest, "request_id is empty: give each request an id of its own")
	}
	if top := highest(m.requests.known(requestID, now)); number <= top {
		m.stats.Duplicates++
		return nil, protocol.Errorf(protocol.CodeDuplicateRequest,
			"attempt %d of request %q is known already: retry with attempt %d or more", number, requestID, uint64(top)+1)
	}
	if m.fullLocked() {
		m.stats.Full++
		return nil, protocol.Errorf(protocol.CodeOverloaded, "%d leases are live, the most that this router keeps: report completed requests", m.cfg.MaxLeases)
	}
	freed := m.supersedeLocked(requestID, number, now)
	if !m.requests.add(requestID, attempt{number: number}) {
		m.stats.Full++
		return freed, protocol.Errorf(protocol.CodeOverloaded, "%d attempts of request %q run at a time: report those that ended", maxAttempts, requestID)
	}
	m.reserved++
	return freed, nil
}

func (m *Manager) fullLocked() bool { return len(m.leases)+m.reserved >= m.cfg.MaxLeases }

// supersedeLocked ends the attempts below number on which nothing was reported
// and returns the leases whose charge is to be freed.
func (m *Manager) supersedeLocked(requestID string, number uint32, now time.Duration) (freed []protocol.LeaseID) {
	// A copy: a tombstone more can push out one of this request.
	for _, a := range slices.Clone(m.requests.known(requestID, now)) {
		switch {
		case a.number >= number || a.fate != running:
		case a.record == nil:
			m.buryLocked(protocol.LeaseID{}, requestID, a.number, completed, m.cfg.Tombstone, now)
			m.stats.Superseded++
		case !a.record.reported && a.record.clock.claim():
			freed = m.endLocked(freed, a.record, completed, m.cfg.Tombstone, now)
			m.stats.Superseded++
		}
	}
	return freed
}

// Abandon gives a reservation back that was not admitted; the attempt may begin again.
func (m *Manager) Abandon(requestID string, attempt uint32) {
	number := max(attempt, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := find(m.requests[requestID], number); a != nil && a.reserved() {
		m.requests.drop(requestID, number)
		m.reserved--
	}
}

// admit takes a lease that the ledger has charged. Where it cannot live its
// charge is freed at once.
func (m *Manager) admit(l protocol.Lease) {
	l.Attempt = max(l.Attempt, 1)
	now := m.now()
	m.mu.Lock()
	m.forgetLocked(now, forgetPerCall)
	if r := m.leases[l.ID]; r != nil {
		prefilled := m.repeatLocked(r, &l, now)
		m.mu.Unlock()
		if prefilled {
			m.cfg.Ledger.FirstToken(l.ID)
		}
		return
	}
	freed := m.admitLocked(&l, now)
	m.mu.Unlock()
	m.release(freed)
}

// repeatLocked takes the admission of a lease that lives. It returns whether
// that lease's prefill is over.
func (m *Manager) repeatLocked(r *record, l *protocol.Lease, now time.Duration) bool {
	known := &r.lease
	if known.Worker != l.Worker || known.Attempt != l.Attempt ||
		known.RequestID != l.RequestID && known.RequestID != "" && l.RequestID != "" {
		m.stats.Conflicts++
		return false
	}
	r.clock.touch()
	if known.RequestID == "" && l.RequestID != "" && find(m.requests.known(l.RequestID, now), l.Attempt) == nil &&
		m.requests.add(l.RequestID, attempt{number: l.Attempt, record: r}) {
		known.RequestID = l.RequestID // a report on the lease alone had revived it
	}
	return r.reported
}

// admitLocked takes the admission of an unknown lease and returns the leases
// whose charge is to be freed: attempts that it supersedes, or itself.
func (m *Manager) admitLocked(l *protocol.Lease, now time.Duration) (freed []protocol.LeaseID) {
	refused := []protocol.LeaseID{l.ID}
	if m.tombstones.fate(l.ID, now) != running {
		m.stats.Late++
		return refused
	}
	attempts := m.requests.known(l.RequestID, now)
	a := find(attempts, l.Attempt)
	switch {
	case a == nil && highest(attempts) > l.Attempt:
		m.stats.Superseded++
		m.buryLocked(l.ID, l.RequestID, l.Attempt, completed, m.cfg.Tombstone, now)
		return refused
	case a != nil && a.fate == reaped:
		m.stats.Late++
		return refused
	case a != nil && a.fate == completed: // ended while it was being admitted
		m.stats.Late++
		m.buryLocked(l.ID, "", 0, completed, m.cfg.Tombstone, now)
		return refused
	case a != nil && a.record != nil: // the same attempt, booked twice
		m.stats.Conflicts++
		m.buryLocked(l.ID, "", 0, completed, m.cfg.Tombstone, now)
		return refused
	case a == nil && m.fullLocked():
		m.stats.Full++
		return refused
	case a != nil:
		m.reserved--
	default:
		freed = m.supersedeLocked(l.RequestID, l.Attempt, now)
	}
	r := &record{lease: *l}
	if !m.insertLocked(r) {
		m.stats.Full++
		return append(freed, l.ID)
	}
	m.stats.Admitted++
	return freed
}

// insertLocked makes a record findable by lease, worker and attempt; false: too
// many attempts of its request run.
func (m *Manager) insertLocked(r *record) bool {
	l := &r.lease
	if l.RequestID != "" {
		if a := find(m.requests[l.RequestID], l.Attempt); a != nil {
			a.record, a.fate = r, running
		} else if !m.requests.add(l.RequestID, attempt{number: l.Attempt, record: r}) {
			return false
		}
	}
	m.leases[l.ID] = r
	of := m.workers[l.Worker]
	if of == nil {
		of = &chain{slot: workerChain}
		m.workers[l.Worker] = of
	}
	of.push(r)
	m.reaperOf(r).push(r)
	return true
}

func (m *Manager) reaperOf(r *record) *chain {
	if r.reported {
		return &m.reporting
	}
	return &m.silent
}

// removeLocked makes a claimed record unfindable and forgets its attempt. It
// appends the lease to freed if its charge is the caller's to free.
func (m *Manager) removeLocked(freed []protocol.LeaseID, r *record) []protocol.LeaseID {
	l := &r.lease
	delete(m.leases, l.ID)
	of := m.workers[l.Worker]
	of.remove(r)
	if of.head == nil {
		delete(m.workers, l.Worker)
	}
	m.reaperOf(r).remove(r)
	if a := find(m.requests[l.RequestID], l.Attempt); a != nil && a.record == r {
		m.requests.drop(l.RequestID, l.Attempt)
	}
	r.removed = true
	if r.charge != uncharged {
		m.freeing[l.ID] = struct{}{}
	}
	if r.charge == charged {
		freed = append(freed, l.ID)
	}
	return freed
}

// endLocked removes a claimed record and leaves its tombstones.
func (m *Manager) endLocked(freed []protocol.LeaseID, r *record, f fate, ttl, now time.Duration) []protocol.LeaseID {
	m.buryLocked(r.lease.ID, r.lease.RequestID, r.lease.Attempt, f, ttl, now)
	return m.removeLocked(freed, r)
}

// release frees charges; no lock is held. Until it has, their leases are not
// revived, or the ledger could see the new charge before the end of the old one.
func (m *Manager) release(freed []protocol.LeaseID) {
	if len(freed) == 0 {
		return
	}
	for _, id := range freed {
		m.cfg.Ledger.Release(id)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range freed {
		delete(m.freeing, id)
	}
}
