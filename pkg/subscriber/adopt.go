package subscriber

import (
	"github.com/routerd/routerd/pkg/protocol"
)

// chunk feeds one message of a snapshot.
func (f *fold) chunk(seq protocol.StreamSeq, size int, m *protocol.EventMessage, again bool) {
	set, ok := f.set.add(seq, size, m)
	if !ok {
		f.refuse(protocol.RefusedSnapshot, 1, again)
	}
	if set != nil {
		f.snapshot(set, seq, again)
	}
}

// snapshot decides what becomes of a complete one: adopted where the state is
// behind it or cannot be relied on, else compared with what was held at its event.
func (f *fold) snapshot(s *snapshot, at protocol.StreamSeq, again bool) {
	if f.ofEarlierLife(s) {
		return
	}
	// A reader that begins with this snapshot does not know what events 0 and 1
	// were. Whoever read them forgets, so that both treat a repeat alike.
	f.opening = [2]uint64{}
	if f.adopts(s) {
		f.adopt(s, at)
	} else {
		f.compare(s, again)
	}
}

// ofEarlierLife says whether a publisher without epochs may have restarted since
// the state that a snapshot is of: the restart or a later base has been seen, or
// shows in that a higher id lies further back in the log than the last one.
func (f *fold) ofEarlierLife(s *snapshot) bool {
	if f.epoch != 0 || !f.based {
		return false
	}
	return s.covers() < f.lifeSeq || s.Through > f.last && s.covers() < f.lastSeq
}

// ofLaterLife says whether a publisher without epochs has restarted before the
// state that a snapshot is of, in messages that were purged: a lower id lies
// further on in the log.
func (f *fold) ofLaterLife(s *snapshot) bool {
	return f.epoch == 0 && f.based && s.Through < f.last && s.covers() > f.lastSeq
}

// adopts says whether a snapshot knows better than the state.
func (f *fold) adopts(s *snapshot) bool {
	if !f.based || s.Through > f.last || f.ofLaterLife(s) {
		return true
	}
	if !f.doubt.present && f.aside.empty() {
		return false // behind a hole the state is good up to last
	}
	return s.Through >= max(f.doubt.through, f.aside.top)
}

// adopt makes the state that of a snapshot. The events after it are applied from
// those held, or from the log.
func (f *fold) adopt(s *snapshot, at protocol.StreamSeq) {
	if s.verify() != nil {
		f.refuseSnapshot()
		return
	}
	if f.sink.Replace(f.w, s.events) != nil {
		f.refuseSnapshot() // the rank now holds nothing
		return
	}
	f.counters.adopted++
	if f.based && s.Through < f.last {
		f.dropped, f.logRead = s.covers()+1, false
	}
	f.based, f.last, f.lastSeq, f.lifeSeq = true, s.Through, s.covers(), s.covers()
	f.aside.clear()
	f.doubt = doubt{}
	f.contradicted, f.proof = 0, nil
	if s.Inexact {
		f.suspect(s.Through, false)
	}
	if s.note.body != nil {
		f.note = s.note
	}
	f.history = history{lost: true}
	f.tail.compacted(f.tail.read, s)
	f.held.dropThrough(f.last)
	if f.epoch == 0 && s.Seq != 0 {
		f.held.dropUpTo(s.covers()) // of an earlier life, whatever their ids
	}
	f.drain(f.lastSeq)
	f.remember(at)
}

// compare checks a snapshot against what was held at its event. If it agrees it is
// kept as a proof that all before may be purged, once its content is checked.
func (f *fold) compare(s *snapshot, again bool) {
	then, known := f.momentOf(s.Through)
	if !known || again {
		return
	}
	if then.state != (protocol.HeldState{Blocks: s.Blocks, Checksum: s.Checksum}) {
		if s.verify() != nil {
			f.refuseSnapshot()
			return
		}
		f.counters.mismatched++
		f.contradicted = min(s.covers()+1, s.first)
		f.suspect(s.Through, true)
		return
	}
	f.tail.compacted(then.read, s)
	f.proof = &proof{snapshot: s, purge: min(s.covers(), then.seq)}
	if s.Inexact {
		f.proof = nil // it proves no more than its publisher vouches for
		f.suspect(s.Through, false)
	}
}

// momentOf is what the rank held when an event was the last one applied.
func (f *fold) momentOf(id protocol.EventID) (moment, bool) {
	if id == f.last && f.sound() {
		return moment{id: id, seq: f.lastSeq, state: f.sink.State(f.w), exact: true, read: f.tail.read}, true
	}
	return f.history.find(id)
}

// refuseSnapshot drops a snapshot whose content is not what its header says. Its
// publisher wanted to say something, so the rank is in doubt.
func (f *fold) refuseSnapshot() {
	f.refuse(protocol.RefusedSnapshot, 1, false)
	f.suspect(f.last, true)
}

// tail is what has been read of a subject, and where its last snapshot left it.
type tail struct {
	read     traffic
	base     traffic // part of read that the last complete snapshot covers, or is
	snapshot int64   // bytes of that snapshot
}

// compacted notes a complete snapshot of what had been read by then.
func (t *tail) compacted(covered traffic, s *snapshot) {
	covered.messages += s.Chunks
	covered.bytes += int64(s.bytes)
	t.base = covered
	if covered.bytes > t.read.bytes || covered.messages > t.read.messages {
		t.base = t.read
	}
	t.snapshot = int64(s.bytes)
}

// length is what a reader has to read behind the snapshot.
func (t *tail) length() traffic { return t.read.minus(t.base) }
