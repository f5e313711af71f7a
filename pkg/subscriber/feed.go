package subscriber

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

// feed is the stretch of reading with one consumer.
type feed struct {
	*reader
	ctx     context.Context // of this stretch: ends the wait for a full lane
	failed  chan error
	drained chan struct{} // the server says that nothing is left

	mu   sync.Mutex // held while a message is handled, so that stop can wait for it
	last uint64     // consumer sequence of the last message
	over bool
}

func (f *feed) fail(err error) {
	select {
	case f.failed <- err:
	default:
	}
}

// stop ends the stretch; no message of it is handled afterwards.
func (f *feed) stop(cancel context.CancelFunc, consuming jetstream.ConsumeContext) {
	cancel()
	consuming.Stop()
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	select {
	case <-consuming.Closed():
	case <-time.After(requestTimeout): // a closed connection may never say so
	}
}

// message handles one message, on the subscription's goroutine.
func (f *feed) message(msg jetstream.Msg) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return
	}
	if err := f.take(msg); err != nil {
		f.over = true
		f.fail(err)
	}
}

func (f *feed) take(msg jetstream.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("read message metadata: %w", err)
	}
	if meta.Sequence.Consumer != f.last+1 {
		return errSkipped
	}
	f.last++
	seq := protocol.StreamSeq(meta.Sequence.Stream)
	f.heard(seq + protocol.StreamSeq(meta.NumPending))
	if err := f.hand(seq, msg); err != nil {
		return err
	}
	if f.toEnd {
		switch {
		case seq >= f.end:
			f.reached()
		case meta.NumPending == 0:
			select {
			case f.drained <- struct{}{}:
			default:
			}
		}
	}
	return nil
}

// checkEnd asks the stream whether anything is left to be read, where what is known
// of it says so and nothing comes: the last messages may have been purged.
func (f *feed) checkEnd(ctx context.Context) error {
	position, behind := f.lag()
	if !behind {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	next, end, err := f.nextMessage(ctx, position+1)
	if err != nil {
		return err
	}
	if !f.mu.TryLock() {
		return nil // a message is being handled after all
	}
	defer f.mu.Unlock()
	if now, _ := f.lagLocked(); now != position || f.over {
		return nil
	}
	if f.toEnd && (next == 0 || next > f.end) {
		f.reached()
	}
	if next == 0 {
		f.known.Store(uint64(end)) // what was heard of beyond it is not there
		f.passOver(end)
	}
	return nil
}

// lag is the reader's position, and whether anything is thought to lie behind it.
func (f *feed) lag() (protocol.StreamSeq, bool) {
	if !f.mu.TryLock() {
		return 0, false
	}
	defer f.mu.Unlock()
	return f.lagLocked()
}

func (f *feed) lagLocked() (protocol.StreamSeq, bool) {
	s := f.Subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position, f.toEnd || f.known.Load() > uint64(s.position)
}

// hand gives a message to its rank's lane, or passes over it if its rank is not in
// the roster. If the stretch ends first it is as if the message had not come.
func (f *feed) hand(seq protocol.StreamSeq, msg jetstream.Msg) error {
	f.stats.read.Add(1)
	f.stats.bytes.Add(uint64(len(msg.Data())))
	w, known := f.workerOf(msg.Subject())
	before, rank := f.advance(seq, w)
	if !known || rank == nil {
		f.stats.skipped.Add(1)
		f.window.pass(seq)
		if known {
			f.stranger(w, msg.Subject(), seq)
		}
		return nil
	}
	number, err := f.window.add(f.ctx, seq, len(msg.Data()))
	if err != nil {
		f.retreat(before)
		return err
	}
	select {
	case laneOf(f.lanes, f.seed, w).queue <- job{rank: rank, number: number, seq: seq, body: msg.Data()}:
		return nil
	case <-f.ctx.Done():
		f.window.withdraw()
		f.retreat(before)
		return f.ctx.Err()
	}
}

// advance moves the reader's position and looks up the rank as of there, in one
// step: a rank that is accepted later has to read this message by itself.
func (f *feed) advance(seq protocol.StreamSeq, w protocol.Worker) (before protocol.StreamSeq, r *rank) {
	s := f.Subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.position = s.position, seq
	return before, s.ranks[w]
}

func (f *feed) retreat(to protocol.StreamSeq) {
	s := f.Subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	s.position = to
}

// workerOf reads the rank of a subject. Those of workers long gone are forgotten
// when there are too many.
func (f *feed) workerOf(subject string) (protocol.Worker, bool) {
	if w, ok := f.subjects[subject]; ok {
		return w, true
	}
	w, err := f.cfg.Stream.Names.ParseEvents(subject)
	if err != nil {
		return protocol.Worker{}, false
	}
	if len(f.subjects) >= maxSubjects {
		clear(f.subjects)
	}
	f.subjects[subject] = w
	return w, true
}
