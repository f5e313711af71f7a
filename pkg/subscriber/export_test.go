package subscriber

import (
	"fmt"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// MessagesRead is Stats().Messages, without waiting for any rank.
func (s *Subscriber) MessagesRead() uint64 { return s.stats.read.Load() }

// Contradicted counts the snapshots that contradicted a rank's exact state.
func (s *Subscriber) Contradicted(w protocol.Worker) uint64 {
	r := s.rank(w)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fold.counters.mismatched
}

// Describe says what keeps a rank from being exact.
func (s *Subscriber) Describe(w protocol.Worker) string {
	r := s.rank(w)
	if r == nil {
		return "not in the roster"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.fold
	return s.describeReader() + fmt.Sprintf("contact %v, caught up %v, live %v, holding %v, unread %d, busy %v; epoch %d, last %d at %d, seen %d, held %d (%d..%d), dropped %d, log read %v, doubt %+v, aside %d, missing %d, newer %+v; next %+v",
		s.contact.Load(), s.caughtUp.Load(), f.live, r.holding, r.unread, r.cancel != nil, f.epoch, f.last, f.lastSeq, f.seen,
		f.held.len(), f.held.lowest(), f.held.top, f.dropped, f.logRead, f.doubt, f.aside.blocks, f.report.missing, f.newer, f.next(time.Now()))
}

func (s *Subscriber) describeReader() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.window.mu.Lock()
	defer s.window.mu.Unlock()
	return fmt.Sprintf("position %d, applied %d, known %d, in flight %+v from %d; ", s.position, s.window.applied, s.known.Load(), s.window.entries, s.window.first)
}
