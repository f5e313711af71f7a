package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/subscriber"
)

// maxLeftovers bounds the departed ranks that are remembered; the log of further
// ones stays until their pool is used again or deleted.
const maxLeftovers = 1 << 16

// leftoversEvery is how often leftovers are looked at.
const leftoversEvery = time.Second

// leftovers purges the log of workers that were the last of their pool: the pool
// is closed before their grace period is over.
type leftovers struct {
	registered func(pool string, w protocol.Worker) bool
	purge      func(ctx context.Context, pool string, d subscriber.Departed) error
	log        zerolog.Logger

	mu    sync.Mutex // guards what follows
	ranks []leftover
}

type leftover struct {
	pool string
	rank subscriber.Departed
}

// add takes what a closed pool has left.
func (l *leftovers) add(pool string, ranks []subscriber.Departed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range ranks {
		if len(l.ranks) < maxLeftovers {
			l.ranks = append(l.ranks, leftover{pool, d})
		}
	}
}

// run purges what falls due until ctx ends.
func (l *leftovers) run(ctx context.Context) error {
	ticker := time.NewTicker(leftoversEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			for _, d := range l.due(now) {
				l.bury(ctx, d)
			}
		}
	}
}

// due takes out what is due.
func (l *leftovers) due(now time.Time) (due []leftover) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ranks = slices.DeleteFunc(l.ranks, func(d leftover) bool {
		if now.Before(d.rank.Due) {
			return false
		}
		due = append(due, d)
		return true
	})
	return due
}

// bury purges one rank's log, unless the rank has come back: its life goes on
// then, or another pool's router sees to the rest.
func (l *leftovers) bury(ctx context.Context, d leftover) {
	if l.registered(d.pool, d.rank.Worker) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := l.purge(ctx, d.pool, d.rank); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		l.log.Warn().Err(err).Str("pool", d.pool).Stringer("worker", d.rank.Worker).Msg("log of a departed worker not purged")
	}
}
