package subscriber

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

const (
	requestTimeout    = time.Second      // of one call of the JetStream API
	idleCheck         = time.Second      // after which a silent log is asked whether its end has been reached
	inactiveThreshold = 45 * time.Second // after which the server drops an unread consumer
	minRetry          = 50 * time.Millisecond
	maxSubjects       = 1 << 16 // subjects whose worker is remembered
)

var (
	errReconnected = errors.New("connection to NATS was lost or came back")
	errSkipped     = errors.New("messages of the log were skipped")
	errEnded       = errors.New("consumer of the log has ended")
)

// reader follows the log with a plain pull consumer that acknowledges nothing. Any
// doubt about the consumer ends it and another is made from the last message on.
type reader struct {
	*Subscriber // of which it alone sets position and epoch
	seed        maphash.Seed
	subjects    map[string]protocol.Worker

	end     protocol.StreamSeq // of the log as of the start
	toEnd   bool               // it has not been read up to there yet
	waiting context.CancelFunc // ends the wait for the target to be applied
	group   sync.WaitGroup
}

// run reads until ctx ends, and fails only if the first look at the stream shows
// that it cannot be the log.
func (r *reader) run(ctx context.Context) error {
	r.seed = maphash.MakeSeed()
	r.subjects = map[string]protocol.Worker{}
	defer r.group.Wait()
	for {
		err := r.read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var foreign *ForeignStreamError
		if errors.As(err, &foreign) && r.epoch == "" {
			return err
		}
		if r.contact.Load() {
			r.log.Info().Err(err).Msg("reopening the log")
		} else {
			r.log.Warn().Err(err).Msg("cannot read the log")
		}
		r.stats.reopened.Add(1)
		if !pause(ctx, minRetry+rand.N(max(r.cfg.Retry-minRetry, 1))) {
			return nil
		}
	}
}

// read makes a consumer and passes on what it brings, until something is wrong
// with it.
func (r *reader) read(ctx context.Context) error {
	opened := false
	defer func() {
		if !opened {
			r.contact.Store(false)
		}
	}()
	conn := r.cfg.JetStream.Conn()
	status := conn.StatusChanged(nats.RECONNECTING, nats.CONNECTED, nats.CLOSED)
	defer conn.RemoveStatusListener(status)

	consumer, err := r.open(ctx)
	if err != nil {
		return err
	}
	opened = true
	r.contact.Store(true)
	defer discard(ctx, consumer, r.cfg.JetStream, r.cfg.Stream.name())

	feed := &feed{reader: r, failed: make(chan error, 1), drained: make(chan struct{}, 1)}
	var cancel context.CancelFunc
	feed.ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	consuming, err := consumer.Consume(feed.message,
		jetstream.PullMaxMessagesWithBytesLimit(r.cfg.Window, r.cfg.WindowBytes),
		jetstream.PullExpiry(max(8*r.cfg.Heartbeat, 5*time.Second)),
		jetstream.PullHeartbeat(r.cfg.Heartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { feed.fail(err) }))
	if err != nil {
		return fmt.Errorf("consume the log: %w", err)
	}
	defer feed.stop(cancel, consuming)

	err = r.watch(ctx, feed, status, consuming.Closed())
	if !conn.IsConnected() {
		r.contact.Store(false)
	}
	return err
}

// watch waits until a stretch of reading is to be ended. While nothing comes it
// checks against the stream whether that is because its end has been reached.
func (r *reader) watch(ctx context.Context, f *feed, status <-chan nats.Status, closed <-chan struct{}) error {
	ticker := time.NewTicker(idleCheck)
	defer ticker.Stop()
	before := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-f.failed:
			return err
		case <-status:
			return errReconnected
		case <-closed:
			return errEnded
		case <-f.drained:
			before = r.stats.read.Load()
		case <-ticker.C:
		}
		if read := r.stats.read.Load(); read != before {
			before = read
			continue
		}
		if err := f.checkEnd(ctx); err != nil {
			return err
		}
	}
}

// open compares the stream with the one read so far and makes a consumer of what
// follows.
func (r *reader) open(ctx context.Context) (jetstream.Consumer, error) {
	call, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	info, err := EnsureStream(call, r.cfg.JetStream, r.cfg.Stream)
	if err != nil {
		return nil, err
	}
	epoch, end := info.Config.Metadata[epochKey], protocol.StreamSeq(info.State.LastSeq)
	switch {
	case r.epoch == "":
		r.awaitEnd(ctx, end)
	case epoch != r.epoch, end < r.position:
		// Another log, or its tail was lost and its numbers may be used again.
		r.log.Error().Str("stream_epoch", epoch).Uint64("last_seq", uint64(end)).Uint64("position", uint64(r.position)).
			Msg("the log is not the one read so far: reading it from its start")
		if err := r.startOver(ctx); err != nil {
			return nil, err
		}
		r.awaitEnd(ctx, end)
	}
	r.mu.Lock()
	r.epoch = epoch
	r.mu.Unlock()
	r.heard(end)
	consumer, err := r.cfg.JetStream.CreateConsumer(call, r.cfg.Stream.name(), jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       uint64(r.position) + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: inactiveThreshold,
	})
	if err != nil {
		return nil, fmt.Errorf("create consumer of the log: %w", err)
	}
	if r.toEnd {
		next, _, err := r.nextMessage(call, r.position+1)
		if err != nil {
			return nil, err
		}
		if next == 0 || next > r.end {
			r.reached()
		}
	}
	return consumer, nil
}

// startOver forgets what was read: ranks hold nothing until this log says so.
func (r *reader) startOver(ctx context.Context) error {
	r.waiting()
	r.group.Wait() // nobody calls the old end reached from here on
	r.caughtUp.Store(false)
	if err := r.window.drain(ctx); err != nil {
		return err
	}
	r.window.restart()
	r.known.Store(0)
	r.mu.Lock()
	r.position = 0
	r.mu.Unlock()
	for _, rank := range r.all() {
		rank.reset()
	}
	r.stats.logsLost.Add(1)
	return nil
}

// heard notes a stream sequence that exists.
func (r *reader) heard(seq protocol.StreamSeq) {
	for known := r.known.Load(); uint64(seq) > known; known = r.known.Load() {
		if r.known.CompareAndSwap(known, uint64(seq)) {
			return
		}
	}
}

// awaitEnd makes the subscriber caught up once the log has been applied up to seq,
// and then up to its end as of that time: what was purged on the way there is covered
// by a snapshot that may lie behind seq.
func (r *reader) awaitEnd(ctx context.Context, seq protocol.StreamSeq) {
	if r.waiting != nil {
		r.waiting()
	}
	ctx, r.waiting = context.WithCancel(ctx)
	r.end, r.toEnd = seq, true
	r.group.Go(func() {
		if r.window.wait(ctx, nil, seq) != nil {
			return
		}
		for {
			usage, err := r.lookAtEnd(ctx)
			if err == nil {
				r.heard(usage.LastSeq)
				seq = usage.LastSeq
				break
			}
			if !pause(ctx, r.cfg.Retry) {
				return
			}
		}
		if r.window.wait(ctx, nil, seq) == nil && ctx.Err() == nil {
			r.becomeLive()
		}
	})
}

func (r *reader) lookAtEnd(ctx context.Context) (Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return StreamUsage(ctx, r.cfg.JetStream, r.cfg.Stream.Names, r.cfg.Stream.Pool)
}

// reached says that no message up to the awaited end is left to be read, though the
// last of them may have been purged and were never seen.
func (r *reader) reached() {
	r.toEnd = false
	r.passOver(r.end)
}

// passOver says that no message up to seq is left to be read.
func (r *reader) passOver(seq protocol.StreamSeq) {
	r.mu.Lock()
	r.position = max(r.position, seq)
	r.mu.Unlock()
	r.window.pass(seq)
}

// nextMessage is the sequence of the first message that is there from seq on, 0 if
// there is none, and the stream's last sequence before that was asked. The count of pending messages that a consumer gives is not exact
// right after messages were stored, so it decides nothing.
func (r *reader) nextMessage(ctx context.Context, seq protocol.StreamSeq) (next, end protocol.StreamSeq, err error) {
	name := r.cfg.Stream.name()
	stream, err := r.cfg.JetStream.Stream(ctx, name)
	if err != nil {
		return 0, 0, fmt.Errorf("inspect stream %s: %w", name, err)
	}
	end = protocol.StreamSeq(stream.CachedInfo().State.LastSeq)
	msg, err := stream.GetMsg(ctx, uint64(seq), jetstream.WithGetMsgSubject(r.cfg.Stream.Names.PoolEvents(r.cfg.Stream.Pool)))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return 0, end, nil
	case err != nil:
		return 0, 0, fmt.Errorf("find the message from %d on: %w", seq, err)
	}
	return protocol.StreamSeq(msg.Sequence), end, nil
}

// discard removes a consumer that is no longer needed, if the server can be
// reached; else the server drops it by itself.
func discard(ctx context.Context, consumer jetstream.Consumer, js jetstream.JetStream, stream string) {
	if !js.Conn().IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	_ = js.DeleteConsumer(ctx, stream, consumer.CachedInfo().Name)
}

// pause waits, false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
