package roster

import (
	"maps"
	"slices"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// pool is the state of one pool.
type pool struct {
	blockSize int // 0: nobody is accepted
	accepted  map[protocol.Worker]*member
	refused   map[protocol.Worker]*refusal
	counts    map[protocol.Refusal]uint64
}

func newPool() *pool {
	return &pool{
		accepted: map[protocol.Worker]*member{},
		refused:  map[protocol.Worker]*refusal{},
		counts:   map[protocol.Refusal]uint64{},
	}
}

// member is an accepted registration.
type member struct {
	entry    Entry
	revision uint64        // of the last record read, 0 if of another bucket
	seen     time.Duration // counted time of the last refresh
	began    time.Time     // of this life, as this router saw it
	short    int           // short lives in a row, by puts without epoch
}

// newLife notes how long the life lasted that ends now.
func (m *member) newLife(now time.Time, unnamed bool) {
	if unnamed && now.Sub(m.began) < shortLife {
		m.short++
	} else {
		m.short = 0
	}
	m.began = now
}

// refusal is a refused registration. A rank may have an accepted one beside it
// that has not yet expired.
type refusal struct {
	put      *put
	revision uint64        // of the last record read, 0 if of another bucket
	seen     time.Duration // counted time of the last put
	since    uint64        // age: the life, or the first put where none is used
}

// sizeOnly says whether nothing but the block size is wrong.
func (r *refusal) sizeOnly() bool {
	return r.put.reason == RefusedConflict && r.put.reg.Target() == r.put.worker && r.put.reg.Pool == r.put.pool
}

// revision is that of the newest record read of a rank, 0 if there is none.
func (p *pool) revision(w protocol.Worker) uint64 {
	var newest uint64
	if m := p.accepted[w]; m != nil {
		newest = m.revision
	}
	if r := p.refused[w]; r != nil {
		newest = max(newest, r.revision)
	}
	return newest
}

// epoch is the newest life known of a rank.
func (p *pool) epoch(w protocol.Worker) protocol.Epoch {
	var newest protocol.Epoch
	if m := p.accepted[w]; m != nil {
		newest = m.entry.Epoch
	}
	if r := p.refused[w]; r != nil && r.sizeOnly() {
		newest = max(newest, r.put.epoch)
	}
	return newest
}

// workers are the accepted ranks in order.
func (p *pool) workers() []protocol.Worker {
	return slices.SortedFunc(maps.Keys(p.accepted), protocol.Worker.Compare)
}

// entries are the accepted registrations in order.
func (p *pool) entries() []Entry {
	entries := make([]Entry, 0, len(p.accepted))
	for _, w := range p.workers() {
		entries = append(entries, p.accepted[w].entry)
	}
	return entries
}

// refusals are the refused registrations in order.
func (p *pool) refusals() []Refused {
	refused := make([]Refused, 0, len(p.refused))
	for _, w := range slices.SortedFunc(maps.Keys(p.refused), protocol.Worker.Compare) {
		in := p.refused[w].put
		refused = append(refused, Refused{Worker: w, Registration: in.reg, Reason: in.reason, Message: in.message})
	}
	return refused
}
