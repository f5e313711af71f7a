package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/lease"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/router"
	"github.com/routerd/routerd/pkg/scheduler"
	"github.com/routerd/routerd/pkg/scope"
	"github.com/routerd/routerd/pkg/subscriber"
	"github.com/routerd/routerd/pkg/workerquery"
)

// pool is one model's router and all that it stands on.
type pool struct {
	name     string
	scope    *scope.Scope
	log      *subscriber.Subscriber
	logEnded chan struct{} // closed once log is followed no more
	leases   *lease.Manager
	router   *router.Router

	mu      sync.Mutex    // guards what follows
	planned chan struct{} // closed to call a planned closing off; nil: none is planned
	closing bool
}

// keep stops a closing that has been planned; false says that it has begun.
func (p *pool) keep() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.planned != nil {
		close(p.planned)
		p.planned = nil
	}
	return !p.closing
}

// closeAfter plans the closing of an empty pool, in the scope that its own hangs
// under.
func (p *pool) closeAfter(core *scope.Scope, grace time.Duration, closePool func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.planned != nil || p.closing {
		return
	}
	planned := make(chan struct{})
	p.planned = planned
	core.Go(func(ctx context.Context) error {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-planned:
			return nil
		case <-ctx.Done():
			return nil
		}
		p.mu.Lock()
		due := p.planned == planned
		p.closing = p.closing || due
		p.mu.Unlock()
		if due {
			closePool()
		}
		return nil
	})
}

// makePool builds the pool of a first registration and starts it under core. It
// touches the network only once it runs, so that calls are answered at once.
func (s *Server) makePool(core *scope.Scope, reg *protocol.Registration) (*pool, error) {
	routing := s.cfg.routing(reg.Pool)
	sched, err := scheduler.New(scheduler.Config{
		BlockSize: reg.BlockSize, Eagle: reg.Eagle, Policy: routing.Policy, Temperature: routing.Temperature,
		KV: routing.KV, Latency: routing.Latency, Seed: routing.Seed, Clock: s.cfg.Clock,
	})
	if err != nil {
		return nil, fmt.Errorf("make scheduler: %w", err)
	}
	leases, err := lease.New(lease.Config{
		Clock: s.cfg.Clock, Interval: s.cfg.Leases.Interval, QuietInterval: s.cfg.Leases.QuietInterval,
		Tombstone: s.cfg.Leases.Tombstone, Ledger: sched,
	})
	if err != nil {
		return nil, fmt.Errorf("make lease manager: %w", err)
	}
	sched.Observe(leases.Observer())
	index := indexer.NewTrie()
	asker, err := workerquery.New(workerquery.Config{Conn: s.transport.conn, Names: s.names, Pool: reg.Pool})
	if err != nil {
		return nil, fmt.Errorf("make worker query: %w", err)
	}
	log, err := subscriber.New(subscriber.Config{
		JetStream: s.bulk, Publish: s.control, Stream: s.streamConfig(reg.Pool), Router: s.token,
		Sink: index, ParentNotHeld: indexer.ErrParentNotHeld, MalformedStore: indexer.ErrMalformedStore,
		Repairer: asker, Epochs: s.watcher, Log: s.cfg.Logger, Grace: s.cfg.Roster.Grace,
		Registered: func(w protocol.Worker) bool { return s.registered(reg.Pool, w) },
	})
	if err != nil {
		return nil, fmt.Errorf("make subscriber: %w", err)
	}
	p := &pool{
		name: reg.Pool, scope: core.Child(poolScope(reg.Pool)),
		log: log, logEnded: make(chan struct{}), leases: leases,
		router: router.New(router.Config{
			Pool: reg.Pool, Router: s.token, BlockSize: reg.BlockSize, Eagle: reg.Eagle,
			Matcher: index, Log: log, Scheduler: sched, Leases: leases,
		}),
	}
	p.scope.Go(func(ctx context.Context) error { return s.follow(ctx, p) })
	p.scope.Go(leases.Run)
	return p, nil
}

// follow reads the pool's log until ctx ends. A stream that cannot be its log
// leaves the pool routed by load alone; its leases and the other pools go on.
func (s *Server) follow(ctx context.Context, p *pool) error {
	defer close(p.logEnded)
	if err := p.log.Run(ctx); err != nil && ctx.Err() == nil {
		s.log.Error().Err(err).Str("pool", p.name).Msg("log cannot be read: routing by load alone until this router is restarted")
	}
	return nil
}

// purgeDeparted removes the log of a worker that left a pool which is closed.
func (s *Server) purgeDeparted(ctx context.Context, pool string, d subscriber.Departed) error {
	return subscriber.PurgeDeparted(ctx, s.control, s.streamConfig(pool), d)
}

func (s *Server) streamConfig(pool string) subscriber.StreamConfig {
	return subscriber.StreamConfig{
		Names: s.names, Pool: pool, Bytes: int64(s.cfg.Stream.Bytes),
		MaxBytes: int64(s.transport.streamCeiling(s.cfg.Stream)), Replicas: s.cfg.Stream.Replicas,
	}
}

// checkStreams refuses to start beside a stream that has a pool's name and could
// not be its log. It fails for nothing else once the server is to stop.
func (s *Server) checkStreams(stopping context.Context) error {
	ctx, cancel := context.WithTimeout(stopping, startTimeout)
	defer cancel()
	streams := s.control.StreamNames(ctx)
	for name := range streams.Name() {
		pool, ok := s.names.StreamPool(name)
		if !ok {
			continue
		}
		if _, err := subscriber.EnsureStream(ctx, s.control, s.streamConfig(pool)); err != nil && stopping.Err() == nil {
			return err
		}
	}
	if err := streams.Err(); err != nil && stopping.Err() == nil {
		return fmt.Errorf("list streams: %w: JetStream must be enabled on the NATS server, and allowed to this user", err)
	}
	return nil
}
