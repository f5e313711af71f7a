package publisher

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

var testBounds = bounds{window: 8, buffered: minBuffered}

func newOutbox(b bounds) *outbox {
	m := newMirror(false)
	return &outbox{mirror: m, bounds: b, limits: newLimits(false, 0), epoch: 7, subject: "events", due: required}
}

// faultyLog takes messages from an outbox and loses some of them, or their
// acknowledgements, or refuses them, or is replaced by an empty one.
type faultyLog struct {
	*testing.T
	out  *outbox
	now  time.Time
	w    workload
	seq  protocol.StreamSeq
	read *replica

	unacked []*flight // taken or lost, not told yet
	seqs    []protocol.StreamSeq
}

// publish takes what the outbox has to say, as far as the window goes.
func (l *faultyLog) publish() {
	for {
		f, wait := l.out.next(l.now)
		if f == nil {
			if wait == noWait {
				l.Fatal("nothing to send, and no wait")
			}
			return
		}
		f.message.Encoding = protocol.EncodingMsgpack
		body := protocol.AppendEventMessage(nil, &f.message, protocol.EncodingMsgpack)
		seq := protocol.StreamSeq(0)
		if l.w.rng.IntN(10) > 0 {
			l.seq++
			seq = l.seq
			l.read.read(seq, body)
		}
		l.unacked = append(l.unacked, f)
		l.seqs = append(l.seqs, seq)
	}
}

// settle tells the outbox what became of the oldest messages.
func (l *faultyLog) settle(n int) {
	for range min(n, len(l.unacked)) {
		f, seq := l.unacked[0], l.seqs[0]
		l.unacked, l.seqs = l.unacked[1:], l.seqs[1:]
		switch {
		case seq != 0 && l.w.rng.IntN(20) > 0:
			l.out.acknowledged(&f.msg, seq)
		case l.w.rng.IntN(2) == 0:
			l.out.failed(&f.msg, jetstream.ErrAsyncPublishTimeout, l.now)
		default:
			l.out.failed(&f.msg, &jetstream.APIError{ErrorCode: 10077}, l.now)
		}
		l.out.suspect = false
	}
}

// change makes one call of an engine's that the mirror takes.
func (l *faultyLog) change() {
	m := l.out.mirror
	if l.w.rng.IntN(3) > 0 {
		blocks := l.w.blocks(0, 1+l.w.rng.IntN(4))
		m.store(device, none, blocks)
		l.out.push(protocol.Event{Kind: protocol.EventStored, Root: true, Blocks: blocks}, l.now)
		return
	}
	h := 1 + protocol.SequenceHash(l.w.rng.IntN(50))
	m.remove(device, h)
	l.out.push(protocol.Event{Kind: protocol.EventRemoved, Removed: []protocol.SequenceHash{h}}, l.now)
}

func (l *faultyLog) replace() {
	l.seq, l.read = 0, newReplica(l.T)
	l.unacked, l.seqs = nil, nil
	l.out.anotherLog()
}

// Whatever is lost on the way there or back, a reader ends with what the rank
// holds.
func TestOutboxAgainstFaults(t *testing.T) {
	for run := range 30 {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			l := &faultyLog{T: t, out: newOutbox(testBounds), now: time.Now(), w: workload{rng: random(t)}, read: newReplica(t)}
			var asked []*waiter
			for range 2000 {
				switch op := l.w.rng.IntN(100); {
				case op < 50:
					l.change()
				case op < 70:
					l.publish()
				case op < 90:
					l.settle(1 + l.w.rng.IntN(8))
				case op < 95:
					l.now = l.now.Add(maxRetryWait)
				case op == 95:
					asked = append(asked, l.out.expectSnapshot())
				case op == 96:
					if w := l.out.expect(); w != nil {
						asked = append(asked, w)
					}
				case op == 97:
					if from := protocol.EventID(l.w.rng.Uint64N(uint64(l.out.last) + 1)); l.out.canRewind(from) {
						asked = append(asked, l.out.rewind(from))
					}
				case op == 98 && l.w.rng.IntN(10) == 0:
					l.replace()
				case op == 99 && l.w.rng.IntN(10) == 0:
					l.out.restate()
				}
			}
			for l.out.expect() != nil || len(l.out.waiters) > 0 {
				l.now = l.now.Add(maxRetryWait)
				l.publish()
				l.settle(8)
			}
			if l.read.state() != l.out.mirror.state || l.read.last != l.out.last {
				t.Errorf("reader has %+v through event %d, want %+v through %d", l.read.state(), l.read.last, l.out.mirror.state, l.out.last)
			}
			for _, w := range asked {
				if got := <-w.done; got.seq == 0 || got.id < w.through {
					t.Errorf("a waiter for event %d was told %+v", w.through, got)
				}
			}
			if l.out.stored.id != l.out.last || l.out.unsent() != 0 {
				t.Errorf("stored %+v, %d unsent, last %d", l.out.stored, l.out.unsent(), l.out.last)
			}
		})
	}
}

func TestOutboxWindow(t *testing.T) {
	o, now := newOutbox(testBounds), time.Now()
	take := func() (taken []*flight) {
		for {
			f, _ := o.next(now)
			if f == nil {
				return taken
			}
			taken = append(taken, f)
		}
	}
	push := func() { o.push(protocol.Event{Kind: protocol.EventLost}, now) }
	first := take()
	if len(first) != 1 || first[0].snapshot != 1 {
		t.Fatalf("%d messages before anything was said, want a snapshot", len(first))
	}
	o.acknowledged(&first[0].msg, 1)
	var flying []*flight
	for range 20 {
		push()
		flying = append(flying, take()...)
	}
	if len(flying) != testBounds.window {
		t.Fatalf("%d messages are under way, want %d", len(flying), testBounds.window)
	}
	// After a failure one message goes first, and what was sent is sent again.
	refused := errors.New("refused")
	if !o.failed(&flying[2].msg, refused, now) || o.failed(&flying[3].msg, refused, now) {
		t.Error("one failure is to be told, the first")
	}
	if len(take()) != 0 {
		t.Error("sent again without a wait")
	}
	if n := o.unsent(); n != 20 {
		t.Errorf("%d events unsent, want 20", n)
	}
	now = now.Add(minRetryWait)
	again := take()
	if len(again) != 1 || again[0].first != 1 {
		t.Fatalf("%d messages after a failure, want one with event 1", len(again))
	}
	if news, recovered := o.acknowledged(&flying[0].msg, 2); news || recovered {
		t.Error("an acknowledgement that came too late counts")
	}
	if news, recovered := o.acknowledged(&again[0].msg, 3); news || !recovered {
		t.Errorf("news %v, recovered %v: everything was in one message", news, recovered)
	}
}

func TestOutboxWaitsForCompany(t *testing.T) {
	b := testBounds
	b.interval = maxFlushInterval
	o, now := newOutbox(b), time.Now()
	f, _ := o.next(now)
	o.acknowledged(&f.msg, 1)
	if !o.push(protocol.Event{Kind: protocol.EventLost}, now) {
		t.Error("the first event does not wake the sender")
	}
	if o.push(protocol.Event{Kind: protocol.EventLost}, now) {
		t.Error("the second event wakes the sender")
	}
	if f, wait := o.next(now); f != nil || wait != b.interval {
		t.Errorf("next = %v, %v; want a wait of %v", f, wait, b.interval)
	}
	big := make([]protocol.Block, protocol.MaxEventBlocks)
	if !o.push(protocol.Event{Kind: protocol.EventStored, Blocks: big}, now) {
		t.Error("a full message does not wake the sender")
	}
	if f, _ := o.next(now); f == nil || f.through != 3 {
		t.Errorf("next = %v, want a message with all three", f)
	}
	o.push(protocol.Event{Kind: protocol.EventLost}, now)
	if f, _ := o.next(now); f != nil {
		t.Error("the event after them does not wait")
	}
	if f, _ := o.next(now.Add(b.interval)); f == nil || f.through != 4 {
		t.Errorf("next = %v, want the last event", f)
	}
}

func TestOutboxMessageLargerThanTheServerTakes(t *testing.T) {
	o, now := newOutbox(testBounds), time.Now()
	f, _ := o.next(now)
	o.acknowledged(&f.msg, 1)
	chain := chains(1, 5000)[0]
	o.mirror.store(device, none, chain)
	o.push(protocol.Event{Kind: protocol.EventStored, Root: true, Blocks: chain}, now)
	f, _ = o.next(now)
	o.failed(&f.msg, nats.ErrMaxPayload, now)
	o.limits = newLimits(false, 16<<10) // as after a reconnect to a server that takes less
	now = now.Add(minRetryWait)
	seq, read := protocol.StreamSeq(1), newReplica(t)
	for {
		f, _ := o.next(now)
		if f == nil {
			break
		}
		body := protocol.AppendEventMessage(nil, &f.message, protocol.EncodingMsgpack)
		if len(body) > 16<<10 || f.message.Snapshot == nil {
			t.Fatalf("message of %d bytes, snapshot %+v", len(body), f.message.Snapshot)
		}
		seq++
		read.read(seq, body)
		o.acknowledged(&f.msg, seq)
	}
	if read.state() != o.mirror.state {
		t.Errorf("log gives %+v, want %+v", read.state(), o.mirror.state)
	}
}

func TestSnapshotChunksAreBounded(t *testing.T) {
	l := newLimits(false, 8<<20)
	var events []protocol.Event
	block := make([]protocol.Block, l.longest)
	for range 4000 { // 33 million blocks
		events = append(events, protocol.Event{Kind: protocol.EventStored, Root: true, Blocks: block})
	}
	if n := len(l.split(events)); n > protocol.MaxChunks {
		t.Errorf("%d chunks, at most %d are allowed", n, protocol.MaxChunks)
	}
	if n := len(l.split(nil)); n != 1 {
		t.Errorf("an empty snapshot has %d chunks", n)
	}
}
