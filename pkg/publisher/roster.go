package publisher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

const (
	rosterTimeout = 2 * time.Second       // of one try to read or write the roster
	refreshAtMost = 50 * time.Millisecond // between refreshes that are asked for
)

// membership is the worker's entry in the roster. Every put after the first, and
// the delete, is conditional on the publisher's own last put. Only one goroutine
// uses it at a time.
type membership struct {
	p        *Publisher
	key      string
	bucket   jetstream.KeyValue // nil until it was found
	revision uint64             // of the last put
	epoch    protocol.Epoch
}

// register begins a life. It tries until it succeeds or ctx ends.
func (p *Publisher) register(ctx context.Context) (*membership, error) {
	m := &membership{p: p, key: protocol.WorkerKey(p.cfg.Registration.Pool, p.target)}
	for pause, told := minRetryWait, false; ; pause = min(2*pause, maxRetryWait) {
		err := m.begin(ctx)
		if err == nil {
			break
		}
		if !told && !errors.Is(err, jetstream.ErrBucketNotFound) {
			p.log.Warn().Err(err).Msg("cannot register yet, trying again")
			told = true
		}
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			pause = minRetryWait // routers make it any moment
		}
		if !wait(ctx, pause) {
			return nil, ctx.Err()
		}
	}
	p.mu.Lock()
	p.out.epoch = m.epoch
	p.mu.Unlock()
	p.log.Info().Uint64("epoch", uint64(m.epoch)).Msg("registered")
	return m, nil
}

// begin puts the first entry of a life, whose revision is the epoch. It is
// conditional on what it finds there, so that a try that was taken for lost and
// arrives late cannot pass for a successor.
func (m *membership) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rosterTimeout)
	defer cancel()
	if err := m.bind(ctx); err != nil {
		return err
	}
	value, err := m.value()
	if err != nil {
		return err
	}
	entry, err := m.bucket.Get(ctx, m.key)
	switch {
	case err == nil:
		m.revision, err = m.bucket.Update(ctx, m.key, value, entry.Revision())
	case errors.Is(err, jetstream.ErrKeyNotFound):
		m.revision, err = m.bucket.Create(ctx, m.key, value)
	}
	if err != nil {
		return fmt.Errorf("put %s: %w", m.key, err)
	}
	m.epoch = protocol.Epoch(m.revision)
	return nil
}

// bind finds the bucket.
func (m *membership) bind(ctx context.Context) error {
	if m.bucket != nil {
		return nil
	}
	name := m.p.cfg.Names.WorkersBucket()
	bucket, err := m.p.js.KeyValue(ctx, name)
	if err != nil {
		return fmt.Errorf("open bucket %s, which routers make: %w", name, err)
	}
	m.bucket = bucket
	return nil
}

// value is the entry as of now.
func (m *membership) value() ([]byte, error) {
	p := m.p
	p.mu.Lock()
	r := cloneRegistration(p.registration)
	stored, unsent := p.out.stored, p.out.unsent()
	p.mu.Unlock()
	r.Epoch, r.LastID, r.StreamSeq, r.Checksum, r.Unsent = nil, 0, 0, nil, unsent
	if m.epoch > 0 {
		r.Epoch = &m.epoch
	}
	if stored.seq > 0 {
		r.LastID, r.StreamSeq, r.Checksum = stored.id, stored.seq, &stored.checksum
	}
	body, err := protocol.Marshal(&r, protocol.EncodingJSON)
	if err != nil {
		return nil, fmt.Errorf("encode registration: %w", err)
	}
	return body, nil
}

// keep refreshes the entry until ctx ends or a successor is registered.
func (m *membership) keep(ctx context.Context) error {
	p := m.p
	timer := time.NewTimer(p.cfg.RefreshInterval)
	defer timer.Stop()
	var reported Stats
	told := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-p.refresh:
		}
		err := m.refresh(ctx)
		next := p.cfg.RefreshInterval
		switch {
		case errors.Is(err, ErrSucceeded):
			return err
		case err == nil:
			told = false
		case ctx.Err() == nil:
			next = min(next, maxRetryWait)
			if !told {
				p.log.Warn().Err(err).Msg("cannot refresh the registration, trying again")
				told = true
			}
		}
		reported = p.reportFaults(reported)
		if !wait(ctx, min(next, refreshAtMost)) {
			return nil
		}
		timer.Reset(next)
	}
}

// reportFaults logs what the engine's calls had wrong since the last report.
func (p *Publisher) reportFaults(last Stats) Stats {
	s := p.Stats()
	if s.Malformed > last.Malformed || s.Orphans > last.Orphans || s.Forgotten > last.Forgotten {
		p.log.Warn().Uint64("malformed", s.Malformed-last.Malformed).Uint64("orphans", s.Orphans-last.Orphans).
			Uint64("forgotten", s.Forgotten-last.Forgotten).Msg("engine's events do not fit together")
	}
	return s
}

// refresh puts the entry again. If that is refused it finds out why, and
// continues the life if it may.
func (m *membership) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rosterTimeout)
	defer cancel()
	for {
		value, err := m.value()
		if err != nil {
			return err
		}
		revision, err := m.bucket.Update(ctx, m.key, value, m.revision)
		if err == nil {
			m.revision = revision
			return nil
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return fmt.Errorf("refresh %s: %w", m.key, err)
		}
		found, err := m.lookUp(ctx)
		if err != nil {
			return err
		}
		if found {
			continue // it was our own put, whose answer was lost, or a predecessor's
		}
		revision, err = m.bucket.Create(ctx, m.key, value)
		if err == nil {
			m.revision = revision
			m.p.log.Warn().Msg("registration had expired, continued it")
			return nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return fmt.Errorf("create %s again: %w", m.key, err)
		}
	}
}

// lookUp reads the entry and takes its revision for that of the last put, unless
// it is a successor's. It reports whether there is one.
func (m *membership) lookUp(ctx context.Context) (found bool, err error) {
	entry, err := m.bucket.Get(ctx, m.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", m.key, err)
	}
	epoch := protocol.Epoch(entry.Revision()) // a put without one begins a life
	if r, err := protocol.DecodeRegistration(entry.Value()); err == nil && r.Epoch != nil {
		epoch = *r.Epoch
	}
	if epoch > m.epoch {
		return true, fmt.Errorf("%w: %s has epoch %d, this publisher %d", ErrSucceeded, m.key, epoch, m.epoch)
	}
	m.revision = entry.Revision()
	return true, nil
}

// leave deletes the entry, unless it is a successor's by now.
func (m *membership) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.p.cfg.ShutdownTimeout)
	defer cancel()
	for {
		err := m.bucket.Delete(ctx, m.key, jetstream.LastRevision(m.revision))
		if err == nil {
			m.p.log.Info().Uint64("epoch", uint64(m.epoch)).Msg("registration taken back")
			return nil
		}
		if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			found, err := m.lookUp(ctx)
			if !found && err == nil || errors.Is(err, ErrSucceeded) {
				return nil
			}
			if found && err == nil {
				continue
			}
		}
		if !wait(ctx, minRetryWait) {
			return fmt.Errorf("take registration %s back, it will expire: %w", m.key, err)
		}
	}
}
