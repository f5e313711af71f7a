package subscriber

import (
	"maps"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// Trust says how far the index can be relied on for a rank. A rank that is not
// known here is off.
func (s *Subscriber) Trust(w protocol.Worker) protocol.Trust {
	r := s.rank(w)
	if r == nil {
		return protocol.TrustOff
	}
	return r.trust(time.Now(), s.contact.Load())
}

// Rank is a rank's row of the status call, false if it is not in the roster.
func (s *Subscriber) Rank(w protocol.Worker) (protocol.RankStatus, bool) {
	r := s.rank(w)
	if r == nil {
		return protocol.RankStatus{}, false
	}
	return r.status(time.Now(), s.contact.Load(), nil), true
}

// Ranks is the rows of all ranks, ordered by worker and rank. With at above 0 their
// last id and checksum are those when that stream sequence had been applied; the
// checksum is left out where that is not known.
func (s *Subscriber) Ranks(at protocol.StreamSeq) []protocol.RankStatus {
	now, contact := time.Now(), s.contact.Load()
	var moment *protocol.StreamSeq
	known := true
	if at > 0 {
		moment, known = &at, at <= s.Applied()
	}
	ranks := s.all()
	rows := make([]protocol.RankStatus, 0, len(ranks))
	for _, r := range ranks {
		row := r.status(now, contact, moment)
		if !known {
			row.Checksum = nil
		}
		rows = append(rows, row)
	}
	return rows
}

func (r *rank) trust(now time.Time, contact bool) protocol.Trust {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trustLocked(now, contact)
}

func (r *rank) trustLocked(now time.Time, contact bool) protocol.Trust {
	switch {
	case !contact:
		return protocol.TrustStale
	case r.holding || r.fold.partial(now):
		return protocol.TrustPartial
	}
	return protocol.TrustExact
}

func (r *rank) status(now time.Time, contact bool, at *protocol.StreamSeq) protocol.RankStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.fold
	state := f.sink.State(r.w)
	row := protocol.RankStatus{
		Worker: r.w.ID, Rank: r.w.Rank, Endpoint: r.endpoint, Trust: r.trustLocked(now, contact), Events: true,
		Epoch: f.epoch, LastID: f.last, StreamSeq: f.lastSeq, Blocks: state.Blocks, Checksum: &state.Checksum,
		Repairs: f.counters.repairs, Refused: maps.Clone(f.counters.refused),
	}
	if at == nil {
		return row
	}
	then, known := f.history.at(*at)
	if !known || r.holding {
		row.Checksum = nil
		return row
	}
	row.LastID, row.StreamSeq, row.Blocks, row.Checksum = then.id, then.seq, then.state.Blocks, &then.state.Checksum
	return row
}

// addTo adds the rank to the subscriber's counts.
func (r *rank) addTo(o *Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Ranks++
	if r.trustLocked(time.Now(), true) == protocol.TrustPartial {
		o.Partial++
	}
	o.add(&r.fold.counters)
}
