package subscriber

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

const (
	maxWaitingMessages = 1024
	maxWaitingBytes    = 8 << 20
)

// rank is one (worker, rank) of the roster: its fold, and what is going on around
// it. While its subject is being read again, what comes in live waits here, so
// that the fold is fed in stream order.
type rank struct {
	w       protocol.Worker
	subject string
	tick    time.Duration

	mu       sync.Mutex // guards what follows, and orders the fold's calls of the index
	fold     *fold
	gone     bool
	endpoint string
	cancel   context.CancelFunc // ends the work under way, nil if there is none
	life     int                // counts restarts of the log: what was begun before one is void

	fed     protocol.StreamSeq // last live message fed or skipped
	unread  protocol.StreamSeq // the subject is to be read from here before anything live; 0: no
	holding bool               // live messages wait
	waiting []delivered
	bytes   int
	passed  protocol.StreamSeq // first live message that did not fit; 0: none

	postponed string    // id of a snapshot that this router's own has given way to
	reported  uint64    // contradicting snapshots that have been logged
	repairAt  time.Time // a hole may be repaired from here on; zero: none seen
	restUntil time.Time // the publisher cannot help before
	compactAt time.Time // a snapshot is to be written; zero: none due
	written   time.Time // when the last one was; until it is read back or late, no other
}

// delivered is a decoded message on its way into the fold.
type delivered struct {
	seq  protocol.StreamSeq
	size int
	m    *protocol.EventMessage
	err  error
}

// deliver feeds a live message, or lets it wait.
func (r *rank) deliver(d delivered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.gone:
	case !r.holding:
		r.fed = d.seq
		r.fold.message(d.seq, d.size, d.m, d.err)
	case r.passed != 0:
	case len(r.waiting) >= maxWaitingMessages || len(r.waiting) > 0 && r.bytes+d.size > maxWaitingBytes:
		r.passed = d.seq
	default:
		r.waiting = append(r.waiting, d)
		r.bytes += d.size
	}
	if r.holding {
		r.fed = max(r.fed, d.seq)
	}
}

// span is a part of the subject to be read again.
type span struct {
	from, through protocol.StreamSeq
	life          int
}

// hold makes live messages wait while the subject is read from a sequence on.
func (r *rank) hold(from protocol.StreamSeq) (span, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return span{}, false
	}
	r.holding = true
	r.unread = 0
	r.fold.rereading()
	return span{from: from, through: r.fed, life: r.life}, true
}

// refeed feeds a message that was read again, false if that is no longer wanted.
func (r *rank) refeed(s span, d delivered) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone || r.life != s.life {
		return false
	}
	r.fold.message(d.seq, d.size, d.m, d.err)
	return true
}

// release feeds what has waited. If more came than could wait it returns the rest
// of the subject to be read; else live messages are fed again, and the rank is
// live if the reader is (caughtUp is asked under the rank's lock).
func (r *rank) release(s span, caughtUp func() bool) (rest span, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone || r.life != s.life {
		return span{}, false
	}
	for _, d := range r.waiting {
		r.fold.message(d.seq, d.size, d.m, d.err)
	}
	passed := r.passed
	r.waiting, r.bytes, r.passed = nil, 0, 0
	if passed != 0 {
		return span{from: passed, through: r.fed, life: r.life}, true
	}
	r.holding = false
	if caughtUp() {
		r.fold.goLive()
	}
	return span{}, false
}

// abandon gives up reading the subject again; it stays to be done.
func (r *rank) abandon(s span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gone && r.life == s.life {
		r.unread = s.from
	}
}

// reset forgets a log that is no more: the new one is read from its start.
func (r *rank) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return
	}
	r.life++
	if r.cancel != nil {
		r.cancel()
	}
	r.fed, r.unread, r.holding = 0, 0, false
	r.waiting, r.bytes, r.passed = nil, 0, 0
	r.repairAt, r.restUntil, r.compactAt, r.written = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	r.fold.restart()
}

// leave makes the rank hold nothing and ends what is going on around it. It returns
// what it has counted.
func (r *rank) leave() rankCounters {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
	if r.cancel != nil {
		r.cancel()
	}
	r.waiting = nil
	r.fold.sink.Drop(r.w)
	return r.fold.counters
}

// enroll takes in a roster entry.
func (r *rank) enroll(reg *protocol.Registration, epoch protocol.Epoch, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endpoint = reg.Endpoint
	if from, reread := r.fold.enroll(epoch); reread {
		r.readFromLocked(from)
	}
	if epoch == r.fold.epoch {
		r.fold.heed(reg, now)
	}
}

// readFromLocked asks for the subject to be read again, and makes what is live wait
// for it.
func (r *rank) readFromLocked(from protocol.StreamSeq) {
	if r.holding {
		// A reading is under way, of what came before; this follows it.
		if r.passed == 0 {
			r.passed = from
		}
		r.passed = min(r.passed, from)
		return
	}
	if r.unread == 0 || from < r.unread {
		r.unread = from
	}
	r.holding = true
}

// resolve says what the roster bucket has given out.
func (r *rank) resolve(revision protocol.Epoch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fold.newer.events == 0 {
		return
	}
	if from, reread := r.fold.resolveAhead(revision); reread {
		r.readFromLocked(from)
	}
}

// goLive is called once the reader has caught up with the log.
func (r *rank) goLive() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gone && !r.holding {
		r.fold.goLive()
	}
}

// begin starts work on the rank under ctx, if none is under way and the rank is
// there. done must be called at its end.
func (r *rank) begin(ctx context.Context) (work context.Context, done func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone || r.cancel != nil {
		return nil, nil, false
	}
	work, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	return work, func() {
		cancel()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cancel = nil
	}, true
}

// wants is what a rank needs done.
type wants struct {
	reread  protocol.StreamSeq // read the subject from here, before anything live
	repair  bool
	compact bool
	proof   *proof
	ahead   bool // messages are ahead of the roster
	wrong   bool // a snapshot has contradicted the state
}

// look compares the rank with what it should be, and says what to do about it.
func (r *rank) look(now time.Time, applied protocol.StreamSeq, quiet, pressed bool) wants {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return wants{}
	}
	f := r.fold
	w := wants{reread: r.unread, ahead: f.newer.events > 0, proof: f.proof, wrong: f.counters.mismatched > r.reported}
	f.proof, r.reported = nil, f.counters.mismatched
	if r.unread != 0 || r.holding {
		return w
	}
	f.checkReport(now, applied, quiet)
	switch needs := f.next(now); {
	case needs.kind == needNothing:
		r.repairAt = time.Time{}
	case r.repairAt.IsZero():
		r.repairAt = now.Add(f.repairDelay)
	default:
		w.repair = !now.Before(r.repairAt) && !now.Before(r.restUntil)
	}
	w.compact = r.dueLocked(now, pressed)
	return w
}

// dueLocked says whether this router should write a snapshot of the rank now.
// The first time it looks so, it waits: another router may be doing it.
func (r *rank) dueLocked(now time.Time, pressed bool) bool {
	f := r.fold
	c := &f.compaction
	tail := f.tail.length()
	long := tail.messages > c.Messages || pressed && tail.messages > 0
	if !long && tail.bytes > c.Bytes {
		size := max(f.tail.snapshot, 16*int64(f.sink.State(r.w).Blocks))
		long = tail.bytes > 2*size
	}
	if !long || !f.based || !f.live || !f.sound() || c.Off {
		r.compactAt = time.Time{}
		return false
	}
	switch {
	case !r.written.IsZero() && now.Sub(r.written) < c.Timeout:
		return false
	case f.set.next > 0 && f.set.header.ID != r.postponed:
		r.postponed = f.set.header.ID
		r.compactAt = now.Add(c.Jitter + r.tick)
		return false
	case r.compactAt.IsZero():
		r.compactAt = now.Add(rand.N(c.Jitter))
		return false
	}
	return !now.Before(r.compactAt)
}

// next is the rank's next repair step.
func (r *rank) next(now time.Time) need {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone || r.holding {
		return need{}
	}
	return r.fold.next(now)
}

// settle ends a repair that nobody could help.
func (r *rank) settle(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gone && !r.holding {
		r.fold.settle(now)
	}
}

// rest keeps repair from starting anew at once.
func (r *rank) rest(until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restUntil = until
}

func (r *rank) countRepair() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fold.counters.repairs++
}

// refuseProof is the end of a snapshot whose content was not what its header said.
func (r *rank) refuseProof() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.gone {
		r.fold.refuseSnapshot()
	}
}
