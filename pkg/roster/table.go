package roster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// Lives shorter than this, this many in a row, are those of a publisher that
// refreshes by repeating its first put.
const (
	shortLife  = 5 * time.Second
	shortLives = 3
)

// table is the roster as the records of the buckets give it. It does no I/O,
// takes the time from its caller, and collects what happened in changes. It is
// not safe for concurrent use.
type table struct {
	contact contact
	born    time.Time // creation of the bucket that was last read
	pools   map[string]*pool
	ranks   int // accepted, of all pools
	drains  drainSet
	stray   map[protocol.Refusal]uint64 // refusals that belong to no pool
	changes []change
}

// change is something to tell: exactly one of its parts is set.
type change struct {
	accepted *Entry
	left     *rank
	refused  *put  // newly listed
	restless *rank // its lives are short
}

// rank names one rank of all pools.
type rank struct {
	pool   string
	worker protocol.Worker
}

// put is a registration that has been read, and what is wrong with it.
type put struct {
	pool     string
	worker   protocol.Worker
	revision uint64
	reg      *protocol.Registration // nil if not decodable
	epoch    protocol.Epoch
	reason   protocol.Refusal
	message  string
}

// life orders registrations by age: the epoch, or the put itself where the
// publisher uses none.
func (p *put) life() uint64 { return cmp.Or(uint64(p.epoch), p.revision) }

func newTable() *table {
	return &table{pools: map[string]*pool{}, drains: drainSet{}, stray: map[protocol.Refusal]uint64{}}
}

// take returns what happened since it was last called.
func (t *table) take() []change {
	changes := t.changes
	t.changes = nil
	return changes
}

// whole applies a read of the whole bucket, made at born. Keys that it lacks are
// left to expire: they may have been lost with the bucket.
func (t *table) whole(now time.Time, born time.Time, ttl time.Duration, records []record) {
	t.contact.regained(now, ttl)
	if !born.Equal(t.born) {
		t.forgetRevisions()
		t.born = born
	}
	puts := make([]*put, 0, len(records))
	for _, r := range records {
		switch r.op {
		case opPut:
			if p := t.read(r); p != nil {
				puts = append(puts, p)
			}
		case opDeleted:
			t.delete(r)
		case opExpired: // while contact was lost
		}
	}
	slices.SortFunc(puts, func(a, b *put) int { return cmp.Compare(a.life(), b.life()) })
	for _, p := range puts {
		t.put(now, p)
	}
}

// forgetRevisions lets the records of another bucket count, whatever their
// revisions.
func (t *table) forgetRevisions() {
	for _, p := range t.pools {
		for _, m := range p.accepted {
			m.revision = 0
		}
		for _, r := range p.refused {
			r.revision = 0
		}
	}
}

// record applies one change of the bucket.
func (t *table) record(now time.Time, r record) {
	t.contact.advance(now)
	switch r.op {
	case opPut:
		if p := t.read(r); p != nil {
			t.put(now, p)
		}
	case opDeleted:
		t.delete(r)
	case opExpired:
		if t.contact.steady() {
			t.delete(r)
		}
	}
}

// lost says that the bucket cannot be followed.
func (t *table) lost(now time.Time) { t.contact.lost(now) }

// tick lets those leave whose last refresh is too long ago.
func (t *table) tick(now time.Time) {
	t.contact.advance(now)
	for name, p := range t.pools {
		var gone []protocol.Worker
		for w, m := range p.accepted {
			if t.contact.expired(m.seen) {
				gone = append(gone, w)
			}
		}
		for w, r := range p.refused {
			if t.contact.expired(r.seen) {
				delete(p.refused, w)
			}
		}
		slices.SortFunc(gone, protocol.Worker.Compare)
		for _, w := range gone {
			t.leave(name, p, w)
		}
		t.promote(name, p)
		t.dropEmpty(name, p)
	}
}

// read decodes a record and finds what of it is wrong by itself. nil: it belongs
// to no pool.
func (t *table) read(r record) *put {
	pool, worker, err := protocol.ParseWorkerKey(r.key)
	if err != nil {
		t.stray[protocol.RefusedUndecodable]++
		return nil
	}
	p := &put{pool: pool, worker: worker, revision: r.revision}
	reg, err := protocol.DecodeRegistration(r.value)
	if err != nil {
		p.reason, p.message = protocol.RefusedUndecodable, err.Error()
		var named *protocol.Error
		if errors.As(err, &named) {
			p.message = named.Message
		}
		return p
	}
	p.reg, p.epoch = reg, protocol.Epoch(r.revision)
	if reg.Epoch != nil {
		p.epoch = *reg.Epoch
	}
	switch {
	case reg.Pool != pool || reg.Target() != worker:
		p.reason = RefusedConflict
		p.message = fmt.Sprintf("its value names %s %s", reg.Pool, reg.Target())
	case uint64(p.epoch) > r.revision:
		p.reason = protocol.RefusedFutureEpoch
		p.message = fmt.Sprintf("epoch %d is ahead of its own revision %d", p.epoch, r.revision)
	}
	return p
}

// put decides about one registration.
func (t *table) put(now time.Time, in *put) {
	p := t.pool(in.pool)
	if p == nil {
		t.stray[RefusedLimit]++
		return
	}
	defer t.dropEmpty(in.pool, p)
	if in.revision <= p.revision(in.worker) {
		return // read before
	}
	if in.reason != "" {
		t.refuse(p, in)
		return
	}
	if newest := p.epoch(in.worker); in.epoch != 0 && in.epoch < newest {
		p.counts[protocol.RefusedOldEpoch]++
		return
	}
	m := p.accepted[in.worker]
	if p.blockSize != 0 && in.reg.BlockSize != p.blockSize {
		in.reason = RefusedConflict
		in.message = fmt.Sprintf("its block size %d is not its pool's %d", in.reg.BlockSize, p.blockSize)
		if m != nil {
			t.leave(in.pool, p, in.worker)
		}
		t.refuse(p, in)
		t.promote(in.pool, p)
		return
	}
	if m == nil && (t.ranks >= maxRanks || len(p.accepted) >= maxPoolRanks) {
		in.reason, in.message = RefusedLimit, "the router keeps no more registrations"
		t.refuse(p, in)
		return
	}
	t.accept(now, p, in)
}

// pool finds or makes a pool's state; nil: there are too many.
func (t *table) pool(name string) *pool {
	p := t.pools[name]
	if p == nil && len(t.pools) < maxPools {
		p = newPool()
		t.pools[name] = p
	}
	return p
}

func (t *table) dropEmpty(name string, p *pool) {
	if len(p.accepted) == 0 && len(p.refused) == 0 {
		delete(t.pools, name)
	}
}

// accept takes a registration, new or of a rank that is already accepted.
func (t *table) accept(now time.Time, p *pool, in *put) {
	delete(p.refused, in.worker)
	m, restless := p.accepted[in.worker], false
	if m == nil {
		m = &member{began: now}
		p.accepted[in.worker] = m
		p.blockSize = in.reg.BlockSize
		t.ranks++
	} else if in.epoch != m.entry.Epoch {
		m.newLife(now, in.reg.Epoch == nil)
		if m.short >= shortLives {
			p.counts[protocol.RefusedNoEpoch]++
		}
		restless = m.short == shortLives // warned of once
	}
	m.revision, m.seen = in.revision, t.contact.counted
	operator := t.drains.holds(in.pool, in.worker)
	m.entry = Entry{
		Registration: in.reg, Epoch: in.epoch, Revision: in.revision,
		Drain: in.reg.Drain || operator, OperatorDrain: operator,
	}
	if restless {
		t.tell(change{restless: &rank{in.pool, in.worker}})
	}
	t.tellAccepted(m)
}

// refuse lists a registration with its reason. What was accepted under the key
// stays until it expires.
func (t *table) refuse(p *pool, in *put) {
	p.counts[in.reason]++
	known := p.refused[in.worker]
	if known == nil && len(p.refused) >= maxRefused {
		return
	}
	r := &refusal{put: in, seen: t.contact.counted, since: in.life()}
	if known != nil && known.put.epoch == in.epoch {
		r.since = min(known.since, r.since)
	}
	r.revision = in.revision
	p.refused[in.worker] = r
	if known == nil || known.put.reason != in.reason {
		t.tell(change{refused: in})
	}
}

// delete ends the key's registration, accepted or refused, if the record is
// newer.
func (t *table) delete(r record) {
	name, worker, err := protocol.ParseWorkerKey(r.key)
	if err != nil {
		return
	}
	p := t.pools[name]
	if p == nil || r.revision <= p.revision(worker) {
		return
	}
	delete(p.refused, worker)
	if p.accepted[worker] != nil {
		t.leave(name, p, worker)
		t.promote(name, p)
	}
	t.dropEmpty(name, p)
}

func (t *table) leave(name string, p *pool, w protocol.Worker) {
	delete(p.accepted, w)
	t.ranks--
	t.tell(change{left: &rank{name, w}})
	if len(p.accepted) == 0 {
		p.blockSize = 0
	}
}

// promote lets the oldest refused registration set the block size of a pool that
// has none any more, and accepts all of that size.
func (t *table) promote(name string, p *pool) {
	if p.blockSize != 0 {
		return
	}
	waiting := make([]*refusal, 0, len(p.refused))
	for _, r := range p.refused {
		if r.sizeOnly() {
			waiting = append(waiting, r)
		}
	}
	slices.SortFunc(waiting, func(a, b *refusal) int {
		return cmp.Or(cmp.Compare(a.since, b.since), a.put.worker.Compare(b.put.worker))
	})
	for _, r := range waiting {
		fits := p.blockSize == 0 || r.put.reg.BlockSize == p.blockSize
		if fits && t.ranks < maxRanks && len(p.accepted) < maxPoolRanks {
			seen := r.seen
			t.accept(t.contact.until, p, r.put)
			p.accepted[r.put.worker].seen = seen // a promotion is no refresh
		}
	}
}

// setDrain applies a record of the drains' bucket.
func (t *table) setDrain(r record) (full bool) {
	key, err := parseDrain(r.key)
	if err != nil {
		return false
	}
	if r.op != opPut {
		delete(t.drains, key)
	} else if len(t.drains) < maxDrains {
		t.drains[key] = struct{}{}
	} else {
		_, known := t.drains[key]
		return !known
	}
	if p := t.pools[key.pool]; p != nil {
		t.applyDrains(key.pool, p, func(w protocol.Worker) bool { return w.ID == key.worker })
	}
	return false
}

// setDrains applies a read of the whole drains' bucket, which replaces what was
// known.
func (t *table) setDrains(records []record) (full bool) {
	t.drains = drainSet{}
	for _, r := range records {
		if key, err := parseDrain(r.key); err == nil && r.op == opPut {
			if len(t.drains) >= maxDrains {
				full = true
				break
			}
			t.drains[key] = struct{}{}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.pools)) {
		t.applyDrains(name, t.pools[name], func(protocol.Worker) bool { return true })
	}
	return full
}

// applyDrains tells of the ranks of a pool whose drain by the operator is another
// now.
func (t *table) applyDrains(name string, p *pool, affects func(protocol.Worker) bool) {
	var changed []protocol.Worker
	for w, m := range p.accepted {
		if affects(w) && t.drains.holds(name, w) != m.entry.OperatorDrain {
			changed = append(changed, w)
		}
	}
	slices.SortFunc(changed, protocol.Worker.Compare)
	for _, w := range changed {
		m := p.accepted[w]
		m.entry.OperatorDrain = !m.entry.OperatorDrain
		m.entry.Drain = m.entry.OperatorDrain || m.entry.Registration.Drain
		t.tellAccepted(m)
	}
}

func (t *table) tellAccepted(m *member) {
	entry := m.entry
	t.tell(change{accepted: &entry})
}

func (t *table) tell(c change) { t.changes = append(t.changes, c) }
