package lease

// Stats counts what a manager has and what it did since it was made.
type Stats struct {
	Live       int // leases
	Reserved   int // attempts begun and not yet admitted
	Tombstones int

	Admitted   uint64
	Revived    uint64 // from their string
	Completed  uint64 // by a report
	Superseded uint64 // by a higher attempt, admitted or not
	Reaped     uint64
	WorkerGone uint64

	Duplicates        uint64 // refused: an attempt that is known already
	Malformed         uint64 // refused: a lease that no router gave out, a completion that names nothing
	UnknownWorker     uint64 // refused: a report on an unknown lease of a worker that the ledger does not know
	Late              uint64 // refused: an admission or report of what has ended
	Conflicts         uint64 // refused: another booking of what is booked
	Full              uint64 // refused: at MaxLeases, or too many attempts of a request
	TombstonesDropped uint64 // forgotten before their time, at MaxTombstones
}

// Stats returns the counters as they are now.
func (m *Manager) Stats() Stats {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := m.stats
	s.Live, s.Reserved, s.Tombstones = len(m.leases), m.reserved, m.tombstones.len()
	return s
}
