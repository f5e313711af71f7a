package roster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// updateQueue is how many updates wait for the watcher; a full queue stops the
// readers, and the buckets keep the rest.
const updateQueue = 256

// Watcher follows the three buckets of the roster. All methods are safe for
// concurrent use.
type Watcher struct {
	cfg     Config
	listing *listing
	ready   chan struct{} // closed once the workers are known
	drained chan struct{} // closed once the drains are known
	seen    atomic.Uint64 // highest revision read of the workers' bucket

	mu       sync.RWMutex // guards what follows
	table    *table
	presence *presence
}

// New checks the configuration.
func New(cfg Config) (*Watcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure roster: %w", err)
	}
	cfg = cfg.withDefaults()
	cfg.Log = cfg.Log.With().Str("component", "roster").Logger()
	return &Watcher{
		cfg: cfg, listing: newListing(cfg), ready: make(chan struct{}), drained: make(chan struct{}),
		table: newTable(), presence: newPresence(),
	}, nil
}

// Ready is closed once the drains and then the workers have been read whole and
// the Handler has heard of all of them.
func (w *Watcher) Ready() <-chan struct{} { return w.ready }

// Run makes the buckets if need be, follows them, calls the Handler and lists
// this router, until ctx ends; then it returns nil. It is called once. It does
// not take this router's listing back: see Withdraw.
func (w *Watcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates := make(chan update, updateQueue)
	names, ttl, replicas := w.cfg.Names, w.cfg.TTL, w.cfg.Replicas
	workers := w.reader(fromWorkers, workersSpec(names, ttl, replicas), updates)
	routers := w.reader(fromRouters, routersSpec(names, ttl, replicas), updates)
	drains := w.reader(fromDrains, drainsSpec(names, replicas), updates)

	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() { drains.run(ctx) })
	group.Go(func() { routers.run(ctx) })
	group.Go(func() {
		select { // no drained worker is announced as free
		case <-w.drained:
			workers.run(ctx)
		case <-ctx.Done():
		}
	})
	group.Go(func() { w.listing.run(ctx, w.ready) })
	w.resolve(ctx, updates)
	return nil
}

func (w *Watcher) reader(from source, s spec, updates chan<- update) *reader {
	seed := uint64(time.Now().UnixNano())
	return &reader{
		js: w.cfg.JetStream, spec: s, source: from, updates: updates, log: w.cfg.Log,
		random: rand.New(rand.NewPCG(seed, uint64(from))),
	}
}

// resolve applies the updates one by one and lets time pass.
func (w *Watcher) resolve(ctx context.Context, updates <-chan update) {
	ticker := time.NewTicker(min(max(w.cfg.TTL/20, 50*time.Millisecond), minStall/2))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.tick(time.Now())
		case u := <-updates:
			w.apply(time.Now(), u)
		}
	}
}

func (w *Watcher) tick(now time.Time) {
	w.mu.Lock()
	w.table.tick(now)
	w.presence.tick(now)
	changes := w.table.take()
	w.mu.Unlock()
	w.tell(changes)
}

func (w *Watcher) apply(now time.Time, u update) {
	w.mu.Lock()
	full := false
	switch u.source {
	case fromWorkers:
		w.applyWorkers(now, u)
	case fromRouters:
		full = w.applyRouters(now, u)
	case fromDrains:
		full = w.applyDrains(u)
	}
	changes := w.table.take()
	w.mu.Unlock()
	w.tell(changes)
	if full {
		w.cfg.Log.Warn().Str("key", u.one.key).Msg("roster bucket holds more keys than a router keeps")
	}
	if u.kind == kindWhole && u.source == fromDrains {
		closeOnce(w.drained)
	}
	if u.kind == kindWhole && u.source == fromWorkers {
		closeOnce(w.ready)
	}
}

func (w *Watcher) applyWorkers(now time.Time, u update) {
	switch u.kind {
	case kindLost:
		w.table.lost(now)
	case kindWhole:
		for _, r := range u.all {
			w.seen.Store(max(w.seen.Load(), r.revision))
		}
		w.table.whole(now, u.born, u.ttl, u.all)
	case kindChange:
		w.seen.Store(max(w.seen.Load(), u.one.revision))
		w.table.record(now, u.one)
	}
}

func (w *Watcher) applyRouters(now time.Time, u update) (full bool) {
	switch u.kind {
	case kindLost:
		w.presence.contact.lost(now)
	case kindWhole:
		return w.presence.whole(now, u.born, u.ttl, u.all)
	case kindChange:
		return w.presence.record(now, u.one)
	}
	return false
}

func (w *Watcher) applyDrains(u update) (full bool) {
	switch u.kind {
	case kindLost: // drains do not expire
	case kindWhole:
		return w.table.setDrains(u.all)
	case kindChange:
		return w.table.setDrain(u.one)
	}
	return false
}

// closeOnce closes a channel that only the caller's goroutine closes.
func closeOnce(done chan struct{}) {
	select {
	case <-done:
	default:
		close(done)
	}
}

// tell passes changes on to the Handler and the log.
func (w *Watcher) tell(changes []change) {
	for _, c := range changes {
		switch {
		case c.refused != nil:
			w.cfg.Log.Warn().Str("pool", c.refused.pool).Str("worker", c.refused.worker.ID).Uint16("rank", c.refused.worker.Rank).
				Str("reason", string(c.refused.reason)).Str("detail", c.refused.message).Msg("registration is refused")
		case c.restless != nil:
			w.cfg.Log.Warn().Str("pool", c.restless.pool).Str("worker", c.restless.worker.ID).Uint16("rank", c.restless.worker.Rank).
				Msg("worker refreshes without its epoch, and loses its index with each: repeat the epoch of the first put")
		case w.cfg.Handler == nil:
		case c.accepted != nil:
			w.cfg.Handler.Accepted(*c.accepted)
		case c.left != nil:
			w.cfg.Handler.Left(c.left.pool, c.left.worker)
		}
	}
}

// Withdraw takes this router's listing back, for good. It blocks until the
// server has it, for at most 2 s.
func (w *Watcher) Withdraw(ctx context.Context) error { return w.listing.withdraw(ctx) }
