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

// tryReadSpan reads with a consumer of its own, filtered to the subject.
func (c *caretaker) tryReadSpan(ctx context.Context, r *rank, part span) error {
	if part.from > part.through {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 12*rereadTimeout)
	defer cancel()
	consumer, err := c.cfg.JetStream.CreateConsumer(ctx, c.cfg.Stream.name(), jetstream.ConsumerConfig{
		FilterSubject:     r.subject,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       max(uint64(part.from), 1),
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: inactiveThreshold,
	})
	if err != nil {
		return fmt.Errorf("create consumer of %s: %w", r.subject, err)
	}
	defer discard(ctx, consumer, c.cfg.JetStream, c.cfg.Stream.name())

	feed := func(seq protocol.StreamSeq, body []byte) (bool, error) {
		if seq > part.through {
			return false, nil
		}
		if !r.refeed(part, decode(r.w, seq, body)) {
			return false, errSuperseded
		}
		return seq < part.through, nil
	}
	var last uint64 // consumer sequence
	pending := consumer.CachedInfo().NumPending
	for pending > 0 {
		before := last
		if last, pending, err = fetch(ctx, consumer, pending, last, feed); err != nil {
			return fmt.Errorf("read %s again: %w", r.subject, err)
		}
		if last == before && pending > 0 {
			// What was pending has been purged meanwhile, or the server is slow.
			info, err := consumer.Info(ctx)
			if err != nil {
				return fmt.Errorf("inspect consumer of %s: %w", r.subject, err)
			}
			pending = info.NumPending
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
	return last, pending, batch.Error()
}
