package server

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/roster"
	"github.com/routerd/routerd/pkg/scope"
)

// maxPools bounds the pools of one router; workers of further pools are refused.
const maxPools = 4096

// pools makes a pool when its first worker is accepted, and closes it a while
// after the last one has left. It is the roster's Handler.
type pools struct {
	core  *scope.Scope
	grace time.Duration
	make  func(*scope.Scope, *protocol.Registration) (*pool, error)
	left  func(*pool) // takes over what a closed pool leaves undone
	log   zerolog.Logger

	mu     sync.RWMutex // guards what follows
	byName map[string]*pool
	closed bool
}

func (ps *pools) get(name string) *pool {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	return ps.byName[name]
}

// all are the pools in the order of their names.
func (ps *pools) all() []*pool {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	out := make([]*pool, 0, len(ps.byName))
	for _, name := range slices.Sorted(maps.Keys(ps.byName)) {
		out = append(out, ps.byName[name])
	}
	return out
}

// Accepted implements roster.Handler. The roster calls it from one goroutine.
func (ps *pools) Accepted(e roster.Entry) {
	p := ps.get(e.Registration.Pool)
	if p != nil && p.router.BlockSize() != e.Registration.BlockSize {
		ps.close(p) // its last worker left and one of another size set the size anew
		p = nil
	}
	if p == nil || !p.keep() {
		if p = ps.open(e.Registration); p == nil {
			return
		}
	}
	p.log.SetRank(e.Registration, e.Epoch)
	if err := p.router.SetWorker(e.Registration, e.Drain); err != nil {
		ps.log.Warn().Err(err).Str("pool", p.name).Stringer("worker", e.Registration.Target()).Msg("attributes not used")
	}
}

// Left implements roster.Handler.
func (ps *pools) Left(name string, w protocol.Worker) {
	p := ps.get(name)
	if p == nil {
		return
	}
	p.router.RemoveWorker(w)
	p.log.RemoveRank(w)
	if p.router.Workers() == 0 {
		p.closeAfter(ps.core, ps.grace, func() { ps.close(p) })
	}
}

func (ps *pools) open(reg *protocol.Registration) *pool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed {
		return nil
	}
	if len(ps.byName) >= maxPools {
		ps.log.Error().Str("pool", reg.Pool).Int("pools", maxPools).Msg("too many pools: worker not taken")
		return nil
	}
	p, err := ps.make(ps.core, reg)
	if err != nil {
		ps.log.Error().Err(err).Str("pool", reg.Pool).Msg("pool not opened")
		return nil
	}
	ps.byName[reg.Pool] = p
	ps.log.Info().Str("pool", reg.Pool).Int("block_size", reg.BlockSize).Msg("pool opened")
	return p
}

// close ends a pool and waits for it. Another of its name may have taken its
// place. It is not called from the pool's scope.
func (ps *pools) close(p *pool) {
	ps.mu.Lock()
	if ps.byName[p.name] == p {
		delete(ps.byName, p.name)
	}
	ps.mu.Unlock()
	_ = p.scope.Close() // what failed in it has been logged
	ps.left(p)
	ps.log.Info().Str("pool", p.name).Msg("pool closed")
}

// stop ends all pools, and opens no more.
func (ps *pools) stop() {
	ps.mu.Lock()
	ps.closed = true
	ps.mu.Unlock()
	for _, p := range ps.all() {
		ps.close(p)
	}
}
