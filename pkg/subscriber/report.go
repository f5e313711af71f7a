package subscriber

import (
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

const (
	// unsentGrace is how long events may wait at the publisher unnoticed.
	unsentGrace = time.Second
	// reportGrace is how long after a refresh a reader without lag must have seen
	// every message that the refresh says is stored.
	reportGrace = time.Second
)

// report is what the publisher last said of itself in its roster entry.
type report struct {
	lastID   protocol.EventID
	seq      protocol.StreamSeq // of the message that holds event lastID
	checksum *uint64            // of what it held then
	at       time.Time
	pending  bool // not yet compared with the state

	missing     protocol.EventID // the log ends before this event of the publisher
	unsentSince time.Time        // zero: nothing waits
}

// heed takes in a roster entry of the life that the state is of.
func (f *fold) heed(reg *protocol.Registration, now time.Time) {
	r := &f.report
	r.lastID, r.seq, r.checksum, r.at = reg.LastID, reg.StreamSeq, reg.Checksum, now
	r.pending = true
	switch {
	case reg.Unsent == 0:
		r.unsentSince = time.Time{}
	case r.unsentSince.IsZero():
		r.unsentSince = now
	}
}

// checkReport compares the state with the publisher's report, so that a lost tail
// or a diverged index is noticed even while the publisher is idle. applied is the
// watermark of the log. quiet says that the reader has no lag: then a message that
// was stored a while ago and has not been seen is not in this log.
func (f *fold) checkReport(now time.Time, applied protocol.StreamSeq, quiet bool) {
	r := &f.report
	if !r.pending || !f.live || !f.sound() {
		return
	}
	if applied < r.seq && (!quiet || now.Sub(r.at) < reportGrace) {
		return
	}
	r.pending = false
	if !f.based {
		return
	}
	if r.lastID > f.last {
		r.missing = r.lastID
		return
	}
	then, known := f.history.at(r.seq)
	if f.lastSeq <= r.seq && f.lastSeq != 0 {
		then, known = moment{id: f.last}, true
	}
	if known && r.seq != 0 && then.id > r.lastID {
		f.suspect(f.last, true)
		return
	}
	if r.checksum == nil {
		return
	}
	if then, known := f.momentOf(r.lastID); known && then.state.Checksum != *r.checksum {
		f.suspect(f.last, true)
	}
}

// partial says whether a hole is known, so that overlaps may be missed.
func (f *fold) partial(now time.Time) bool {
	unsent := f.report.unsentSince
	return !f.live || !f.sound() || !unsent.IsZero() && now.Sub(unsent) >= unsentGrace
}

// goLive ends the time in which a hole may still be filled by what follows.
func (f *fold) goLive() {
	if f.live {
		return
	}
	f.live = true
	if !f.based && f.held.len() > 0 {
		f.startAt(f.held.lowest() - 1)
		f.drain(f.seen)
		f.remember(f.seen)
	}
}

// need is the next step of a rank's repair.
type need struct {
	kind  needKind
	from  protocol.StreamSeq // read the log from here
	query protocol.Query     // or ask the publisher
}

type needKind uint8

const (
	needNothing needKind = iota
	needLog
	needPublisher
)

// next is the cheapest step that may mend the state.
func (f *fold) next(now time.Time) need {
	hole := f.held.len() > 0 || f.report.missing > f.last
	from := f.lastSeq + 1
	if f.dropped != 0 {
		from = min(from, f.dropped)
	}
	switch {
	case !f.live:
	case f.doubt.present && f.doubt.ask && (f.doubt.asked.IsZero() || now.Sub(f.doubt.asked) >= f.repairPause),
		!f.aside.empty() && !f.aside.asked:
		return need{kind: needPublisher, query: protocol.Query{Version: 1, Epoch: f.epoch}}
	case hole && f.logRead:
		return need{kind: needPublisher, query: protocol.Query{Version: 1, Epoch: f.epoch, From: f.last + 1}}
	case hole, f.dropped != 0:
		return need{kind: needLog, from: from}
	}
	return need{}
}

// rereading says that the log is about to be read again from where next said.
func (f *fold) rereading() {
	f.dropped, f.logRead = 0, true
}

// settle ends a repair that nobody could help: what can be applied is, and the
// rank stays partial until a snapshot or a clear.
func (f *fold) settle(now time.Time) {
	f.counters.accepted++
	before := f.last
	for f.held.len() > 0 {
		f.last = max(f.last, f.held.lowest()-1)
		f.suspect(f.last, true)
		f.drain(f.lastSeq)
	}
	if f.report.missing > f.last {
		f.suspect(f.report.missing, true)
	}
	f.report.missing = 0
	if f.contradicted != 0 {
		f.dropped, f.contradicted = f.contradicted, 0
	}
	f.aside.asked = true
	f.doubt.asked = now
	f.closed()
	if f.last != before {
		f.remember(f.seen)
	}
}
