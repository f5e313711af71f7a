package publisher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/routerd/routerd/pkg/protocol"
)

var (
	// ErrSucceeded ends Run when a higher epoch is registered for the same worker
	// and rank: another process has taken this one's place.
	ErrSucceeded = errors.New("a successor is registered")
	// ErrStopped is returned by calls that wait once Run has ended.
	ErrStopped = errors.New("publisher has stopped")
)

// Publisher publishes what one rank of one worker holds. All its methods are
// safe for concurrent use; Run is called once.
type Publisher struct {
	cfg    Config
	target protocol.Worker
	js     jetstream.JetStream
	log    zerolog.Logger

	ready   chan struct{} // closed once registered, with a snapshot in the log
	stopped chan struct{} // closed at the end of Run
	wake    chan struct{} // tells the sender that there is something to do
	refresh chan struct{} // asks for a refresh of the roster entry now

	mu           sync.Mutex // guards what follows
	registration protocol.Registration
	mirror       *mirror
	aside        aside
	out          outbox
	stats        Stats
}

// Stats is what a publisher has seen and done.
type Stats struct {
	Unsent    uint64 // events that wait because the log does not take them
	Failure   error  // why it does not; nil if it does
	Resends   uint64 // times that publishing went back to the last acknowledged event
	Snapshots uint64 // snapshots begun
	Queries   uint64 // queries received

	Malformed uint64 // stores and removals that were ignored: a repeated hash, their own parent, no such tier
	Orphans   uint64 // blocks stored behind a block that was never heard of
	Forgotten uint64 // of those, blocks no longer kept aside because they were too many
}

// New checks the configuration and makes a publisher. It starts nothing.
func New(cfg Config) (*Publisher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("publisher configuration: %w", err)
	}
	cfg = cfg.withDefaults()
	p := &Publisher{
		cfg:          cfg,
		target:       cfg.Registration.Target(),
		registration: cloneRegistration(cfg.Registration),
		log: cfg.Log.With().Str("component", "publisher").Str("pool", cfg.Registration.Pool).
			Str("worker", cfg.Registration.Worker).Uint16("rank", cfg.Registration.Rank).Logger(),
		ready:   make(chan struct{}),
		stopped: make(chan struct{}),
		wake:    make(chan struct{}, 1),
		refresh: make(chan struct{}, 1),
		mirror:  newMirror(cfg.Copies),
	}
	p.out = outbox{
		mirror:  p.mirror,
		limits:  newLimits(cfg.JSON, int(cfg.Conn.MaxPayload())),
		bounds:  bounds{cfg.Window, cfg.MaxBuffered, cfg.FlushInterval},
		subject: cfg.Names.Events(cfg.Registration.Pool, p.target),
		due:     required,
		suspect: true,
	}
	js, err := jetstream.New(cfg.Conn,
		jetstream.WithPublishAsyncTimeout(cfg.AckTimeout),
		jetstream.WithPublishAsyncAckHandler(p.acknowledged),
		jetstream.WithPublishAsyncErrHandler(p.failed))
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	p.js = js
	return p, nil
}

// Run registers the worker and publishes until ctx ends. It waits for as long as
// NATS, the roster bucket or the stream are not there. When ctx ends it publishes
// what waits, takes the registration back, and returns nil, or an error that says
// what of this could not be done in time. It returns ErrSucceeded if a successor
// is registered. When it returns, nothing of it runs.
func (p *Publisher) Run(ctx context.Context) error {
	defer close(p.stopped)
	defer p.js.CleanupPublisher()
	member, err := p.register(ctx)
	if err != nil {
		return nil // ctx ended before there was anything to take back
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, work := errgroup.WithContext(work)
	group.Go(func() error { return member.keep(work) })
	if p.cfg.NoEvents {
		close(p.ready)
	} else {
		group.Go(func() error { return p.sendEvents(work) })
		group.Go(func() error { return p.answerQueries(work) })
		group.Go(func() error { return p.becomeReady(work) })
	}
	var flushed error
	select {
	case <-work.Done(): // a part of it has failed
	case <-ctx.Done():
		flushed = p.flushFinally(work)
	}
	stop()
	if err := group.Wait(); err != nil {
		return err
	}
	if p.cfg.Abandon {
		return nil
	}
	return errors.Join(flushed, member.leave(context.WithoutCancel(ctx)))
}

// becomeReady closes Ready once the first snapshot is in the log.
func (p *Publisher) becomeReady(ctx context.Context) error {
	if _, err := p.Flush(ctx); err == nil {
		close(p.ready)
	}
	return nil
}

func (p *Publisher) flushFinally(ctx context.Context) error {
	p.mu.Lock()
	nothing := p.out.last == 0 // and then an empty snapshot is no loss
	p.mu.Unlock()
	if nothing || p.cfg.Abandon || p.cfg.NoEvents {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.ShutdownTimeout)
	defer cancel()
	_, err := p.Flush(ctx)
	return err
}

// Ready is closed once the worker is registered and the log has its first
// snapshot.
func (p *Publisher) Ready() <-chan struct{} { return p.ready }

// Flush waits until every event of the calls that returned before it is in the
// log, and returns the stream sequence of the message with the last of them. They
// do not wait for the flush interval. It fails with ctx's error, or ErrStopped.
func (p *Publisher) Flush(ctx context.Context) (protocol.StreamSeq, error) {
	if p.cfg.NoEvents {
		return 0, nil
	}
	p.mu.Lock()
	w, stored := p.out.expect(), p.out.stored
	p.mu.Unlock()
	if w == nil {
		return stored.seq, nil
	}
	p.signal()
	stored, err := p.await(ctx, w)
	if err != nil {
		return 0, fmt.Errorf("flush events: %w", err)
	}
	return stored.seq, nil
}

// await waits for a waiter, and forgets it if ctx ends before.
func (p *Publisher) await(ctx context.Context, w *waiter) (position, error) {
	select {
	case stored := <-w.done:
		return stored, nil
	case <-p.stopped:
		return position{}, ErrStopped
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.forget(w)
	if p.out.failure != nil {
		return position{}, fmt.Errorf("%w; the log does not take events: %w", ctx.Err(), p.out.failure)
	}
	return position{}, ctx.Err()
}

// signal wakes the sender.
func (p *Publisher) signal() {
	select {
	case p.wake <- struct{}{}:
	default: // it has been told
	}
}

// refreshNow asks for a refresh of the roster entry without waiting for the next.
func (p *Publisher) refreshNow() {
	select {
	case p.refresh <- struct{}{}:
	default: // it has been asked
	}
}

// State sums up what the rank holds after all calls so far.
func (p *Publisher) State() protocol.HeldState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mirror.state
}

// Epoch is the epoch that the worker is registered under, 0 before it is.
func (p *Publisher) Epoch() protocol.Epoch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.epoch
}

// LastID is the id of the last event of all calls so far.
func (p *Publisher) LastID() protocol.EventID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.last
}

// Stats is what the publisher has seen and done so far.
func (p *Publisher) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Unsent, s.Failure = p.out.unsent(), p.out.failure
	s.Resends, s.Snapshots = p.out.resends, p.out.snapshots
	return s
}

// Snapshot publishes a snapshot of what the rank holds, behind the events that
// wait, and returns the stream sequence of its last message.
func (p *Publisher) Snapshot(ctx context.Context) (protocol.StreamSeq, error) {
	if p.cfg.NoEvents {
		return 0, nil
	}
	p.mu.Lock()
	w := p.out.expectSnapshot()
	p.mu.Unlock()
	p.signal()
	stored, err := p.await(ctx, w)
	if err != nil {
		return 0, fmt.Errorf("publish snapshot: %w", err)
	}
	return stored.seq, nil
}

// Registration is a copy of the registration as it was last set.
func (p *Publisher) Registration() protocol.Registration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cloneRegistration(p.registration)
}

// UpdateRegistration replaces the registration, for taints, attributes, endpoint
// and capacities that change in a worker's life, and has it written to the
// roster, without waiting for that. Pool, worker, rank, block size and EAGLE
// cannot change; the fields that Config fills in are kept.
func (p *Publisher) UpdateRegistration(r protocol.Registration) error {
	was := p.cfg.Registration
	if r.Pool != was.Pool || r.Target() != p.target || r.BlockSize != was.BlockSize || r.Eagle != was.Eagle {
		return fmt.Errorf("update registration of %s: pool, worker, rank, block_size and eagle cannot change; run another publisher", p.target)
	}
	if len(r.Taints) > protocol.MaxTaints {
		return fmt.Errorf("update registration of %s: %d taints, at most %d are allowed", p.target, len(r.Taints), protocol.MaxTaints)
	}
	r = cloneRegistration(r)
	r.Version, r.Events = was.Version, was.Events
	p.mu.Lock()
	p.registration = r
	p.mu.Unlock()
	p.refreshNow()
	return nil
}

// SetDrain makes the worker ineligible for new requests, or eligible again, as
// soon as the roster takes it; it does not wait for that. Its leases and its
// blocks stay.
func (p *Publisher) SetDrain(drain bool) {
	p.mu.Lock()
	p.registration.Drain = drain
	p.mu.Unlock()
	p.refreshNow()
}

func cloneRegistration(r protocol.Registration) protocol.Registration {
	r.Taints = slices.Clone(r.Taints)
	r.Attributes = maps.Clone(r.Attributes)
	return r
}

// wait sleeps for d and reports whether ctx is still on.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
