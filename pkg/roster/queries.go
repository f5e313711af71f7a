package roster

import "slices"

// Pools lists the pools that have an accepted registration, in order.
func (w *Watcher) Pools() []string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	names := make([]string, 0, len(w.table.pools))
	for name, p := range w.table.pools {
		if len(p.accepted) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Entries lists a pool's accepted registrations by worker and rank.
func (w *Watcher) Entries(pool string) []Entry {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if p := w.table.pools[pool]; p != nil {
		return p.entries()
	}
	return nil
}

// BlockSize is the accepted block size of a pool in tokens, false if it has no
// accepted registration.
func (w *Watcher) BlockSize(pool string) (int, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if p := w.table.pools[pool]; p != nil && p.blockSize != 0 {
		return p.blockSize, true
	}
	return 0, false
}

// Refused lists a pool's refused registrations by worker and rank. A rank may
// have an accepted one as well, until that expires.
func (w *Watcher) Refused(pool string) []Refused {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if p := w.table.pools[pool]; p != nil {
		return p.refusals()
	}
	return nil
}

// RosterRefused counts a pool's refused registrations by reason, every refresh
// once. Pool "" has those that belong to none.
func (w *Watcher) RosterRefused(pool string) map[string]uint64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	counts := w.table.stray
	if pool != "" {
		counts = nil
		if p := w.table.pools[pool]; p != nil {
			counts = p.counts
		}
	}
	out := make(map[string]uint64, len(counts))
	for reason, n := range counts {
		out[string(reason)] = n
	}
	return out
}

// Routers lists the routers that live, this one included once it is listed, in
// order.
func (w *Watcher) Routers() []string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.presence.list()
}
