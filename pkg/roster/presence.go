package roster

import (
	"maps"
	"slices"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// presence is who of the routers lives, by the rules that hold for workers. It
// does no I/O and is not safe for concurrent use.
type presence struct {
	contact contact
	born    time.Time
	routers map[string]*sighting
}

// sighting is the last that was heard of a router.
type sighting struct {
	revision uint64
	seen     time.Duration
}

func newPresence() *presence { return &presence{routers: map[string]*sighting{}} }

// whole applies a read of the whole bucket.
func (p *presence) whole(now, born time.Time, ttl time.Duration, records []record) (full bool) {
	p.contact.regained(now, ttl)
	if !born.Equal(p.born) {
		for _, s := range p.routers {
			s.revision = 0
		}
		p.born = born
	}
	for _, r := range records {
		if r.op != opExpired {
			full = p.apply(r) || full
		}
	}
	return full
}

// record applies one change of the bucket.
func (p *presence) record(now time.Time, r record) (full bool) {
	p.contact.advance(now)
	if r.op == opExpired && !p.contact.steady() {
		return false
	}
	return p.apply(r)
}

func (p *presence) apply(r record) (full bool) {
	known := p.routers[r.key]
	switch {
	case known != nil && r.revision <= known.revision:
	case r.op != opPut:
		delete(p.routers, r.key)
	case known != nil:
		known.revision, known.seen = r.revision, p.contact.counted
	case !routerToken(r.key):
	case len(p.routers) >= maxRouters:
		return true
	default:
		p.routers[r.key] = &sighting{r.revision, p.contact.counted}
	}
	return false
}

// tick lets those leave whose last refresh is too long ago.
func (p *presence) tick(now time.Time) {
	p.contact.advance(now)
	maps.DeleteFunc(p.routers, func(_ string, s *sighting) bool { return p.contact.expired(s.seen) })
}

func (p *presence) list() []string { return slices.Sorted(maps.Keys(p.routers)) }

// routerToken says whether a key can be a router's.
func routerToken(key string) bool {
	return protocol.CheckName(key) == nil && protocol.Escape(key) == key
}
