package subscriber

import (
	"errors"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// What one rank may make its fold remember.
const (
	maxHeldEvents  = 1024
	maxHeldBlocks  = 1 << 18
	maxAsideBlocks = 8192
)

// rules is what all folds of a subscriber share.
type rules struct {
	sink           Sink
	parentNotHeld  error
	malformedStore error
	compaction     Compaction
	repairDelay    time.Duration
	repairPause    time.Duration
}

// fold is the state machine of one rank: fed the messages of its subject in
// stream order it keeps the index at what they say, and knows how far that can be
// relied on. It does no I/O, starts nothing, tells no time (it is told) and is
// not safe for concurrent use.
//
// Messages may be fed again, from any point on: what has been applied is known by
// its event id. So a hole, a late start and a rewind to a snapshot are all mended
// by reading the subject once more from where the state is known.
type fold struct {
	*rules
	w protocol.Worker

	epoch   protocol.Epoch // the life of the state; 0: the publisher uses none
	reached protocol.Epoch // newest that the roster is known to have given out
	live    bool           // read up to the end once: holes are repaired, not waited out

	based   bool               // last is known; without epochs it is not before the first event
	last    protocol.EventID   // last event applied
	lastSeq protocol.StreamSeq // every event up to last is in a message up to this one
	seen    protocol.StreamSeq // newest message fed
	lifeSeq protocol.StreamSeq // without epochs: nothing before this is of the life that goes on

	held    heldEvents
	dropped protocol.StreamSeq // first message with an event that was not kept; 0: none
	logRead bool               // the log has been read again since the hole opened
	aside   aside
	doubt   doubt
	opening [2]uint64 // without epochs: sums of events 0 and 1 as applied, 0 if not known
	note    note

	set          collector
	proof        *proof             // a snapshot to purge by, once its content is checked
	contradicted protocol.StreamSeq // from where to read to adopt the snapshot that contradicts the state; 0: none

	report  report  // the publisher's newest refresh
	newer   newer   // messages ahead of the roster
	history history // checksums of the last moments
	tail    tail    // what compaction would spare a reader

	counters rankCounters
}

// doubt is a reason, other than a hole in the ids, for the state not to be what
// the publisher holds.
type doubt struct {
	present bool
	through protocol.EventID // a snapshot that covers this event ends it
	ask     bool             // the publisher may know better
	asked   time.Time        // when a repair was last given up; zero: never
}

// newer remembers messages of an epoch that the roster has not shown yet. Their
// place is kept when they are refused: an entry that comes later makes them good.
type newer struct {
	epoch  protocol.Epoch     // the highest
	seq    protocol.StreamSeq // first such message; 0: none
	events int                // not yet counted as refused
}

// proof is a complete snapshot whose header agrees with the state at its event.
type proof struct {
	snapshot *snapshot
	purge    protocol.StreamSeq // everything up to this is covered
}

// rankCounters are a rank's own; Stats sums them.
type rankCounters struct {
	refused    map[protocol.Refusal]uint64
	messages   uint64
	events     uint64 // applied
	stored     uint64 // blocks named by stores that were applied
	removed    uint64 // blocks named by removals that were applied
	unknown    uint64 // of those, not held
	adopted    uint64 // snapshots
	mismatched uint64 // snapshots that contradicted an exact state
	repairs    uint64
	accepted   uint64 // repairs that found neither log nor publisher able to help
}

func newFold(r *rules, w protocol.Worker, epoch protocol.Epoch) *fold {
	f := &fold{rules: r, w: w, epoch: epoch, based: epoch != 0}
	f.counters.refused = map[protocol.Refusal]uint64{}
	return f
}

// begin empties the rank for a new life. A life with epochs starts at a known
// state, nothing at event 0; one without starts at its first event.
func (f *fold) begin(epoch protocol.Epoch) {
	f.sink.Cleared(f.w)
	f.epoch, f.based = epoch, epoch != 0
	f.last, f.lastSeq, f.lifeSeq = 0, f.seen, f.seen
	f.held.clear()
	f.dropped, f.logRead = 0, false
	f.aside.clear()
	f.doubt = doubt{}
	f.opening = [2]uint64{}
	f.note = note{}
	f.set.forget()
	f.proof, f.contradicted = nil, 0
	f.report = report{}
	f.history = history{lost: true}
	if f.based {
		f.remember(f.seen)
	}
}

// restart forgets everything that came from a log which is no more.
func (f *fold) restart() {
	refresh := f.report
	f.seen = 0
	f.begin(f.epoch)
	f.live = false
	f.newer = newer{}
	f.history = history{}
	f.tail = tail{}
	f.report = refresh
	f.report.pending = true
}

// message feeds one message of the subject: its stream sequence, its size, and
// what it decoded to, or the Refusal of the whole.
func (f *fold) message(seq protocol.StreamSeq, size int, m *protocol.EventMessage, err error) {
	again := seq <= f.seen
	if !again {
		f.seen = seq
		f.tail.read.messages++
		f.tail.read.bytes += int64(size)
		f.counters.messages++
	}
	if err != nil {
		f.refuseMessage(err, again)
		return
	}
	switch {
	case m.Epoch < f.epoch:
		f.refuse(protocol.RefusedOldEpoch, weight(m), again)
		return
	case m.Epoch > f.epoch && f.epoch != 0 && m.Epoch <= f.reached:
		f.begin(m.Epoch)
	case m.Epoch > f.epoch:
		f.ahead(seq, m, again)
		return
	}
	for why, n := range m.Lost {
		f.refuse(why, n, again)
	}
	before := f.last
	if m.Snapshot != nil {
		f.chunk(seq, size, m, again)
		return
	}
	for i := range m.Events {
		f.event(item{Event: m.Events[i], encoding: m.Encoding, seq: seq}, seq, again)
	}
	if f.based && f.last != before {
		f.remember(seq)
	}
}

// weight is what a message counts for when it is refused whole.
func weight(m *protocol.EventMessage) int {
	if m.Snapshot != nil {
		return 1
	}
	return max(len(m.Events), 1)
}

func (f *fold) refuse(why protocol.Refusal, n int, again bool) {
	if !again && n > 0 {
		f.counters.refused[why] += uint64(n)
	}
}

// refuseMessage counts a message of which nothing can be used. A lost event shows
// as a hole before the next one; a lost snapshot shows nowhere, so the publisher
// is asked for another.
func (f *fold) refuseMessage(err error, again bool) {
	why := protocol.RefusedUndecodable
	errors.As(err, &why)
	f.refuse(why, 1, again)
	if why == protocol.RefusedSnapshot && !again {
		f.suspect(f.last, true)
	}
}

// ahead keeps in mind a message of a life that the roster has not shown yet. It
// is read again once the roster has, and counted as refused if it has not.
func (f *fold) ahead(seq protocol.StreamSeq, m *protocol.EventMessage, again bool) {
	if f.newer.seq == 0 || seq < f.newer.seq {
		f.newer.seq = seq
	}
	f.newer.epoch = max(f.newer.epoch, m.Epoch)
	if !again {
		f.newer.events += weight(m)
	}
}

// resolveAhead says what the roster has given out, and whether that makes good
// what was ahead of it: then the subject is to be read again from there.
func (f *fold) resolveAhead(revision protocol.Epoch) (from protocol.StreamSeq, reread bool) {
	n := f.newer
	if f.epoch != 0 && n.epoch <= revision {
		f.newer = newer{}
		f.reached = max(f.reached, revision)
		return n.seq, n.seq != 0
	}
	f.refuse(protocol.RefusedFutureEpoch, n.events, false)
	f.newer.events = 0
	return 0, false
}

// enroll takes the epoch of a roster entry. It returns from where the subject is
// to be read again, if a new life makes that necessary.
func (f *fold) enroll(epoch protocol.Epoch) (from protocol.StreamSeq, reread bool) {
	switch {
	case epoch == f.epoch:
		return 0, false
	case epoch == 0: // the publisher has stopped using epochs
		f.begin(0)
		f.newer = newer{}
		return 1, true
	case epoch < f.epoch:
		return 0, false // an old entry
	}
	from = f.newer.seq
	f.newer = newer{}
	f.begin(epoch)
	return from, from != 0
}

// remember notes what the rank holds after the message at a stream sequence.
func (f *fold) remember(at protocol.StreamSeq) {
	f.history.push(moment{
		id: f.last, seq: max(at, f.lastSeq), state: f.sink.State(f.w), exact: f.sound(), read: f.tail.read,
	})
}

// suspect makes the state doubtful as of an event.
func (f *fold) suspect(through protocol.EventID, ask bool) {
	f.doubt.present = true
	f.doubt.through = max(f.doubt.through, through)
	f.doubt.ask = f.doubt.ask || ask
}

// gap says whether events are known to be missing behind last.
func (f *fold) gap() bool {
	return f.held.len() > 0 || f.dropped != 0 || f.report.missing > f.last
}

// sound says whether the state at last is what the publisher held then, as far
// as its subject tells, and nothing behind it is missing.
func (f *fold) sound() bool {
	return !f.gap() && !f.doubt.present && f.aside.empty()
}
