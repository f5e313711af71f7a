package subscriber

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

const (
	rereadBatch   = 64
	rereadTimeout = 5 * time.Second
	maxBackoff    = 5 * time.Second
)

var errSuperseded = errors.New("reading is no longer wanted")

// readSubject feeds a rank its subject again from a sequence on, while what comes
// in live waits, and what did not fit while waiting after that. It tries until it
// has succeeded or ctx, the rank's own, ends.
func (c *caretaker) readSubject(ctx context.Context, r *rank, from protocol.StreamSeq) bool {
	if !take(ctx, c.rereads) {
		return false
	}
	defer func() { <-c.rereads }()
	part, ok := r.hold(from)
	for ok {
		c.stats.rereads.Add(1)
		if !c.readSpan(ctx, r, part) {
			r.abandon(part)
			return false
		}
		part, ok = r.release(part, c.caughtUp.Load)
	}
	return true
}

// readSpan reads one part of a subject, again after each failure.
func (c *caretaker) readSpan(ctx context.Context, r *rank, part span) bool {
	backoff := 100 * time.Millisecond
	for {
		err := c.tryReadSpan(ctx, r, part)
		if err == nil {
			return true
		}
		if ctx.Err() != nil || errors.Is(err, errSuperseded) {
			return false
		}
		c.log.Warn().Err(err).Stringer("worker", r.w).Msg("cannot read a subject again")
		if !pause(ctx, backoff) {
			return false
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// tryReadSpan reads in bulk, then asks for the next message until there is none: the
// server's count of pending messages is not exact right after they were stored.
func (c *caretaker) tryReadSpan(ctx context.Context, r *rank, part span) error {
	ctx, cancel := context.WithTimeout(ctx, 12*rereadTimeout)
	defer cancel()
	stream, err := c.cfg.JetStream.Stream(ctx, c.cfg.Stream.name())
	if err != nil {
		return fmt.Errorf("inspect stream %s: %w", c.cfg.Stream.name(), err)
	}
	next := max(part.from, 1)
	feed := func(seq protocol.StreamSeq, body []byte) (bool, error) {
		if seq > part.through {
			next = seq
			return false, nil
		}
		if !r.refeed(part, decode(r.w, seq, body)) {
			return false, errSuperseded
		}
		next = seq + 1
		return true, nil
	}
	for next <= part.through {
		if err := c.readBulk(ctx, stream, r.subject, next, feed); err != nil {
			return err
		}
		if next > part.through {
			return nil
		}
		msg, err := stream.GetMsg(ctx, uint64(next), jetstream.WithGetMsgSubject(r.subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read message %d of %s: %w", next, r.subject, err)
		}
		if _, err := feed(protocol.StreamSeq(msg.Sequence), msg.Data); err != nil {
			return err
		}
	}
	return nil
}

// readBulk reads with a consumer of its own, filtered to the subject, what the
// server says is pending.
func (c *caretaker) readBulk(ctx context.Context, stream jetstream.Stream, subject string, from protocol.StreamSeq,
	feed func(protocol.StreamSeq, []byte) (more bool, err error)) error {
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject:     subject,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       uint64(from),
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: inactiveThreshold,
	})
	if err != nil {
		return fmt.Errorf("create consumer of %s: %w", subject, err)
	}
	defer discard(ctx, consumer, c.cfg.JetStream, c.cfg.Stream.name())

	var last uint64 // consumer sequence
	pending := consumer.CachedInfo().NumPending
	for pending > 0 {
		before := last
		if last, pending, err = fetch(ctx, consumer, pending, last, feed); err != nil {
			return fmt.Errorf("read %s again: %w", subject, err)
		}
		if last == before {
			return nil // what was pending has been purged meanwhile
		}
	}
	return nil
}

// fetch feeds the next messages of a consumer until feed is satisfied. It returns
// the last consumer sequence and how many messages are left to be read.
func fetch(ctx context.Context, consumer jetstream.Consumer, pending, last uint64,
	feed func(protocol.StreamSeq, []byte) (more bool, err error)) (uint64, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, rereadTimeout)
	defer cancel()
	batch, err := consumer.Fetch(int(min(pending, rereadBatch)), jetstream.FetchContext(ctx))
	if err != nil {
		return last, pending, err
	}
	for msg := range batch.Messages() {
		meta, err := msg.Metadata()
		if err != nil {
			return last, pending, fmt.Errorf("read message metadata: %w", err)
		}
		if meta.Sequence.Consumer != last+1 {
			return last, pending, errSkipped
		}
		last, pending = last+1, meta.NumPending
		if more, err := feed(protocol.StreamSeq(meta.Sequence.Stream), msg.Data()); err != nil || !more {
			return last, 0, err
		}
	}
	if err := batch.Error(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return last, pending, err
	}
	return last, pending, nil
}
