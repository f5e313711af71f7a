package publisher

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

// outbox decides what is published next: it is the order of one rank's events
// from the engine's call to the log's acknowledgement, without any I/O. Messages
// leave in order and up to a window of them is under way; whatever goes wrong,
// everything after the last acknowledged event is sent again, in order
// (go-back-N), which readers drop as duplicates where it had arrived.
//
// A snapshot is sent first of all, and again when the log has become another one
// or more events wait than may be kept. Such a snapshot covers all events before
// it, so none is kept while one is due. A snapshot that a router asks for follows
// the events that wait.
//
// An outbox is not safe for concurrent use: the publisher's mutex guards it.
type outbox struct {
	mirror  *mirror
	limits  limits
	bounds  bounds
	epoch   protocol.Epoch
	subject string

	last  protocol.EventID // last id given out
	sent  protocol.EventID // last id in a message under way or acknowledged
	base  protocol.EventID // every event up to it is acknowledged
	ring  ring
	note  []byte // the last note
	holed bool   // the engine's events were lost: snapshots are not exact

	packed []protocol.Event // of the message packed last, reused

	flights []*flight // messages under way, in order
	flying  int       // their bytes
	topSeq  protocol.StreamSeq
	stored  position // newest event known to be in the log

	due       needed       // the snapshot to begin next
	job       *snapshotJob // the snapshot under way, until it is acknowledged
	snapshots uint64       // begun
	settled   bool         // the snapshot that the events here follow is in the log

	waiting   time.Time        // when the oldest event that waits has waited long enough
	ready     int              // weight of the events that wait
	hurry     protocol.EventID // events up to it do not wait for company
	waiters   []*waiter
	failure   error // why the log did not take the last message; nil once it took one
	suspect   bool  // the log may have become another one
	retryAt   time.Time
	retryWait time.Duration
	resends   uint64
}

// bounds limits what the outbox keeps; see Config.
type bounds struct {
	window   int           // messages under way
	buffered int           // weight of events kept
	interval time.Duration // that an event waits for company
}

// position is an event in the log.
type position struct {
	id       protocol.EventID
	seq      protocol.StreamSeq
	checksum uint64
}

// needed says how urgent a snapshot is.
type needed uint8

const (
	notNeeded needed = iota
	asked            // after the events that wait
	required         // before anything else; no event is kept until it has begun
)

// snapshotJob is a snapshot on its way, chunk by chunk.
type snapshotJob struct {
	need   needed
	header protocol.SnapshotHeader
	chunks [][]protocol.Event
	number uint64
}

// flight is one message under way.
type flight struct {
	msg      nats.Msg
	message  protocol.EventMessage
	first    protocol.EventID // 0 in a snapshot
	through  protocol.EventID // 0 in all but the last chunk of a snapshot
	checksum uint64           // of what the rank held after it
	snapshot uint64           // number of the snapshot that it completes, or 0
	size     int
	seq      protocol.StreamSeq // 0 until it is acknowledged
}

// waiter is told the stream sequence once events, or a snapshot, are in the log.
type waiter struct {
	through  protocol.EventID
	snapshot uint64 // lowest number that will do; 0: events
	done     chan position
}

const (
	recentWeight   = 16384   // of acknowledged events kept for routers that ask
	maxFlying      = 4 << 20 // bytes under way
	minRetryWait   = 100 * time.Millisecond
	maxRetryWait   = time.Second
	noWait         = time.Duration(0)
	untilSignalled = time.Hour
)

// push takes one event and gives it the next id. It reports whether the sender
// has something to do that it did not have before.
func (o *outbox) push(e protocol.Event, now time.Time) (news bool) {
	o.last++
	if o.due == required {
		return false // it covers this event too
	}
	e.ID = o.last
	o.ring.push(e, o.mirror.state.Checksum)
	o.trim()
	if o.ring.weight > o.bounds.buffered {
		o.restate()
		return true
	}
	first, before := o.sent == o.last-1, o.ready
	if first {
		o.waiting, before = now.Add(o.bounds.interval), 0
	}
	o.ready = before + weightOf(&e)
	return first || before < protocol.MaxEventBlocks && o.ready >= protocol.MaxEventBlocks
}

// restate makes a snapshot of everything the next thing that is sent.
func (o *outbox) restate() {
	o.due, o.settled = required, false
	o.ring.clear()
	o.sent, o.ready = o.last, 0
}

// trim forgets acknowledged events beyond what is kept for routers that ask.
func (o *outbox) trim() {
	for o.ring.weight > recentWeight && o.ring.count > 0 && o.ring.first <= o.base {
		o.ring.pop()
	}
}

// next is the message to publish now, or nil and how long to wait unless
// something happens before.
func (o *outbox) next(now time.Time) (*flight, time.Duration) {
	if wait := o.retryAt.Sub(now); wait > 0 {
		return nil, wait
	}
	window := o.bounds.window
	if o.failure != nil {
		window = 1
	}
	if len(o.flights) >= window || o.flying >= maxFlying {
		return nil, untilSignalled
	}
	if o.job == nil && (o.due == required || o.due == asked && o.sent == o.last) {
		o.beginSnapshot()
	}
	switch {
	case o.job != nil && o.job.header.Chunk < o.job.header.Chunks:
		return o.fly(o.nextChunk()), noWait
	case o.sent == o.last || !o.settled: // events wait for the snapshot that they need
		return nil, untilSignalled
	}
	if wait := o.waiting.Sub(now); wait > 0 && o.sent >= o.hurry && o.ready < protocol.MaxEventBlocks && o.due == notNeeded {
		return nil, wait
	}
	return o.fly(o.pack()), noWait
}

func (o *outbox) fly(f *flight) *flight {
	f.msg.Subject = o.subject
	f.message.Epoch = o.epoch
	o.flights = append(o.flights, f)
	o.flying += f.size
	return f
}

// pack puts the next events into one message: one at least, then as many as fit.
func (o *outbox) pack() *flight {
	f := &flight{first: o.sent + 1, size: messageBytes}
	f.message.Events = o.packed[:0]
	blocks := 0
	for o.sent < o.last {
		entry := o.ring.at(o.sent + 1)
		e := &entry.event
		n, size := len(e.Blocks)+len(e.Removed), o.limits.size(e)
		if o.sent >= f.first && (blocks+n > protocol.MaxEventBlocks || f.size+size > o.limits.message) {
			break
		}
		f.message.Events = append(f.message.Events, *e)
		f.checksum = entry.checksum
		blocks += n
		f.size += size
		o.ready = max(0, o.ready-weightOf(e))
		o.sent++
	}
	f.through = o.sent
	o.packed = f.message.Events
	return f
}

// beginSnapshot makes a snapshot of what the rank holds now.
func (o *outbox) beginSnapshot() {
	events := o.mirror.snapshot(o.limits.longest)
	if o.note != nil {
		events = append(events, protocol.Event{Kind: protocol.EventNote, Note: o.note})
	}
	o.snapshots++
	chunks := o.limits.split(events)
	o.job = &snapshotJob{
		need:   o.due,
		number: o.snapshots,
		chunks: chunks,
		header: protocol.SnapshotHeader{
			ID:      fmt.Sprintf("%x.%x", uint64(o.epoch), o.snapshots),
			Through: o.last, Chunks: len(chunks), Inexact: o.holed,
			Blocks: o.mirror.state.Blocks, Checksum: o.mirror.state.Checksum,
		},
	}
	o.sent, o.ready, o.due = o.last, 0, notNeeded
}

func (o *outbox) nextChunk() *flight {
	header := o.job.header // as it is now: each chunk counts on
	f := &flight{size: messageBytes, message: protocol.EventMessage{Snapshot: &header}}
	f.message.Events = o.job.chunks[header.Chunk]
	for i := range f.message.Events {
		f.size += o.limits.size(&f.message.Events[i])
	}
	o.job.chunks[header.Chunk] = nil
	o.job.header.Chunk++
	if o.job.header.Chunk == header.Chunks {
		f.through, f.checksum, f.snapshot = header.Through, header.Checksum, o.job.number
	}
	return f
}

// acknowledged notes that the log has a message. It reports whether the sender
// may have something to do, and whether this ends a failure.
func (o *outbox) acknowledged(msg *nats.Msg, seq protocol.StreamSeq) (news, recovered bool) {
	f := o.flight(msg)
	if f == nil {
		return false, false
	}
	f.seq = seq
	for len(o.flights) > 0 && o.flights[0].seq != 0 {
		f, o.flights[0] = o.flights[0], nil
		o.flights = o.flights[1:]
		o.flying -= f.size
		recovered = recovered || o.failure != nil
		o.failure, o.retryWait = nil, 0
		if f.seq <= o.topSeq {
			// Sequences of one log only grow.
			o.anotherLog()
			o.topSeq = f.seq
			return true, recovered
		}
		o.topSeq = f.seq
		o.land(f)
	}
	o.trim()
	o.wakeWaiters()
	return o.job != nil || o.due != notNeeded || o.sent < o.last, recovered
}

// land takes note of what a message that is in the log held.
func (o *outbox) land(f *flight) {
	if f.through == 0 && f.snapshot == 0 {
		return // there is more of this snapshot to come
	}
	switch {
	case f.snapshot > 0:
		o.job = nil
		o.settled = o.due != required
		o.base = max(o.base, f.through)
	case f.first <= o.base+1:
		o.base = max(o.base, f.through)
	}
	o.sent = max(o.sent, o.base)
	if f.through >= o.stored.id {
		o.stored = position{f.through, f.seq, f.checksum}
	}
	for _, w := range o.waiters {
		if w.snapshot > 0 && f.snapshot >= w.snapshot {
			w.finish(position{f.through, f.seq, f.checksum})
		}
	}
}

func (o *outbox) flight(msg *nats.Msg) *flight {
	for _, f := range o.flights {
		if &f.msg == msg {
			return f
		}
	}
	return nil
}

// anotherLog forgets what the log was known to hold.
func (o *outbox) anotherLog() {
	o.abandonFlights()
	o.stored, o.topSeq, o.suspect = position{}, 0, false
	o.restate()
}

// failed goes back to the last acknowledged event because a message was not
// taken. It reports whether this is the first failure after a success.
func (o *outbox) failed(msg *nats.Msg, err error, now time.Time) (first bool) {
	if o.flight(msg) == nil {
		return false // an earlier failure dealt with it
	}
	first = o.failure == nil
	o.resends++
	var refused *jetstream.APIError
	o.suspect = o.suspect || !errors.As(err, &refused)
	o.retryWait = min(max(2*o.retryWait, minRetryWait), maxRetryWait)
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		o.retryWait = minRetryWait
	}
	o.goBack(err, now.Add(o.retryWait))
	if errors.Is(err, nats.ErrMaxPayload) {
		o.restate() // in pieces that fit
	}
	return first
}

// unavailable notes that the log was found to be out of reach. It reports whether
// this is news.
func (o *outbox) unavailable(err error, now time.Time) (first bool) {
	first, o.suspect = o.failure == nil, true
	o.goBack(err, now.Add(minRetryWait))
	return first
}

func (o *outbox) goBack(err error, retryAt time.Time) {
	o.failure, o.retryAt = err, retryAt
	o.abandonFlights()
	if o.due == required {
		o.restate()
		return
	}
	o.sent, o.hurry = o.base, o.last
}

// abandonFlights expects no more acknowledgements. A snapshot that was under way
// is needed anew.
func (o *outbox) abandonFlights() {
	o.flights, o.flying = nil, 0
	if o.job != nil {
		o.due, o.job = max(o.due, o.job.need), nil
	}
}

// unsent counts the events that wait because the log does not take them.
func (o *outbox) unsent() uint64 {
	if o.failure == nil {
		return 0
	}
	return uint64(o.last - o.stored.id)
}

// expect registers a waiter for all events so far, which then do not wait for
// company, or nil if the log has them.
func (o *outbox) expect() *waiter {
	if o.settled && o.base >= o.last {
		return nil
	}
	o.hurry = o.last
	w := &waiter{through: o.last, done: make(chan position, 1)}
	o.waiters = append(o.waiters, w)
	return w
}

// expectSnapshot asks for a snapshot and registers a waiter for it.
func (o *outbox) expectSnapshot() *waiter {
	o.due = max(o.due, asked)
	w := &waiter{snapshot: o.snapshots + 1, done: make(chan position, 1)}
	o.waiters = append(o.waiters, w)
	return w
}

// canRewind says whether the events from an id on can be sent again.
func (o *outbox) canRewind(from protocol.EventID) bool {
	return o.due != required && o.ring.holds(from)
}

// rewind sends the events from an id on again and registers a waiter for the last
// of them.
func (o *outbox) rewind(from protocol.EventID) *waiter {
	o.base, o.sent = min(o.base, from-1), min(o.sent, from-1)
	return o.expect()
}

func (o *outbox) forget(w *waiter) {
	for i, other := range o.waiters {
		if other == w {
			o.waiters = append(o.waiters[:i], o.waiters[i+1:]...)
			return
		}
	}
}

// wakeWaiters tells those whose events are in the log and forgets those that
// were told.
func (o *outbox) wakeWaiters() {
	kept := o.waiters[:0]
	for _, w := range o.waiters {
		if w.snapshot == 0 && o.settled && o.base >= w.through {
			w.finish(o.stored)
		}
		if len(w.done) == 0 {
			kept = append(kept, w)
		}
	}
	clear(o.waiters[len(kept):])
	o.waiters = kept
}

func (w *waiter) finish(p position) {
	select {
	case w.done <- p:
	default: // told before
	}
}
