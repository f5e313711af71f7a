package publisher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

// inspectTimeout bounds the question after the stream's identity.
const inspectTimeout = 500 * time.Millisecond

// sendEvents publishes what the outbox says until ctx ends.
func (p *Publisher) sendEvents(ctx context.Context) error {
	s := sender{p: p, encoding: protocol.EncodingMsgpack}
	if p.cfg.JSON {
		s.encoding = protocol.EncodingJSON
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		idle := s.step(ctx)
		if idle == noWait {
			continue
		}
		timer.Reset(idle)
		select {
		case <-p.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// sender is the state of the one goroutine that publishes.
type sender struct {
	p        *Publisher
	encoding protocol.Encoding
	buf      []byte // of the message encoded last, reused
	identity string // of the stream that was found last
}

// step publishes one message, or says how long to wait unless woken.
func (s *sender) step(ctx context.Context) time.Duration {
	p := s.p
	now := time.Now()
	p.mu.Lock()
	if p.out.suspect && !now.Before(p.out.retryAt) {
		p.mu.Unlock()
		return s.inspect(ctx)
	}
	f, idle := p.out.next(now)
	p.mu.Unlock()
	if f == nil {
		return idle
	}
	if !p.cfg.Conn.IsConnected() {
		// It would be kept for the next connection and come late.
		p.failed(p.js, &f.msg, nats.ErrDisconnected)
		return noWait
	}
	f.message.Encoding = s.encoding
	s.buf = protocol.AppendEventMessage(s.buf[:0], &f.message, s.encoding)
	f.message = protocol.EventMessage{}
	f.msg.Data = s.buf
	_, err := p.js.PublishMsgAsync(&f.msg, jetstream.WithRetryAttempts(0))
	f.msg.Data = nil
	if err != nil {
		p.failed(p.js, &f.msg, err)
	}
	return noWait
}

// inspect looks at the stream before the first message and after a failure:
// another one than before, or none, needs a snapshot first.
func (s *sender) inspect(ctx context.Context) time.Duration {
	p := s.p
	identity, err := "", error(nats.ErrDisconnected)
	if p.cfg.Conn.IsConnected() {
		identity, err = s.ask(ctx)
	}
	limits := newLimits(p.cfg.JSON, int(p.cfg.Conn.MaxPayload()))
	if first := s.found(identity, err, limits); first {
		p.tell(err)
	}
	return noWait
}

// found takes note of what an inspection found. It reports whether the log is out
// of reach, and was not before.
func (s *sender) found(identity string, err error, limits limits) (first bool) {
	p, now := s.p, time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.limits = limits
	switch {
	case errors.Is(err, nats.ErrDisconnected):
		return p.out.unavailable(err, now)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		p.out.anotherLog()
		return p.out.unavailable(err, now)
	case err != nil:
		// It cannot be told, perhaps for lack of permission. That nobody answered
		// is then reason enough to start over.
		if errors.Is(p.out.failure, jetstream.ErrNoStreamResponse) {
			p.out.anotherLog()
		}
	default:
		if s.identity != "" && s.identity != identity {
			p.out.anotherLog()
		}
		s.identity = identity
	}
	p.out.suspect = false
	return false
}

// ask is the identity of the pool's stream: its name's present bearer.
func (s *sender) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	stream, err := s.p.js.Stream(ctx, s.p.cfg.Names.Stream(s.p.cfg.Registration.Pool))
	if err != nil {
		return "", err
	}
	info := stream.CachedInfo()
	return fmt.Sprintf("%s %s", info.Config.Metadata["epoch"], info.Created.UTC()), nil
}

// acknowledged is called by the connection when the log has a message.
func (p *Publisher) acknowledged(_ jetstream.JetStream, msg *nats.Msg, ack *jetstream.PubAck) {
	p.mu.Lock()
	news, recovered := p.out.acknowledged(msg, protocol.StreamSeq(ack.Sequence))
	p.mu.Unlock()
	if news {
		p.signal()
	}
	if recovered {
		p.log.Info().Msg("log takes events")
		p.refreshNow()
	}
}

// failed is called when a message could not be published or was not
// acknowledged.
func (p *Publisher) failed(_ jetstream.JetStream, msg *nats.Msg, err error) {
	if errors.Is(err, jetstream.ErrJetStreamPublisherClosed) {
		return // Run has ended
	}
	now := time.Now()
	p.mu.Lock()
	first := p.out.failed(msg, err, now)
	p.mu.Unlock()
	p.signal()
	if first {
		p.tell(err)
	}
}

// tell says once that the log does not take events, to the log and the roster.
func (p *Publisher) tell(err error) {
	select {
	case <-p.ready:
		p.log.Warn().Err(err).Msg("log does not take events, trying again")
	default:
		p.log.Debug().Err(err).Msg("log does not take events yet, trying again")
	}
	p.refreshNow()
}
