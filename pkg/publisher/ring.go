package publisher

import "github.com/routerd/routerd/pkg/protocol"

// ring keeps consecutive events: those that the log has not acknowledged, and
// before them some that it has, for routers that ask. An event's place is its id
// modulo the ring's length, which is a power of two and grows as needed; the
// outbox bounds it by weight.
type ring struct {
	places []ringEntry
	first  protocol.EventID // oldest kept; meaningless while the ring is empty
	count  int
	weight int // of all events kept
}

type ringEntry struct {
	event    protocol.Event
	checksum uint64 // of what the rank held after the event
}

// weightOf is what an event counts against the bounds of memory: one for itself
// and one for each 16 bytes that it carries.
func weightOf(e *protocol.Event) int {
	return 1 + len(e.Blocks) + (len(e.Removed)+1)/2 + len(e.Note)/16
}

// at is the entry of an event that the ring holds.
func (r *ring) at(id protocol.EventID) *ringEntry {
	return &r.places[uint64(id)&uint64(len(r.places)-1)]
}

// holds says whether the ring has an event.
func (r *ring) holds(id protocol.EventID) bool {
	return r.count > 0 && id >= r.first && id-r.first < protocol.EventID(r.count)
}

// push adds the event after the last one.
func (r *ring) push(e protocol.Event, checksum uint64) {
	if r.count == 0 {
		r.first = e.ID
	}
	if r.count == len(r.places) {
		r.grow()
	}
	r.count++
	r.weight += weightOf(&e)
	*r.at(e.ID) = ringEntry{e, checksum}
}

// pop forgets the oldest event.
func (r *ring) pop() {
	oldest := r.at(r.first)
	r.weight -= weightOf(&oldest.event)
	*oldest = ringEntry{}
	r.first++
	r.count--
}

// clear forgets all events and gives their memory back.
func (r *ring) clear() { *r = ring{} }

func (r *ring) grow() {
	old := *r
	r.places = make([]ringEntry, max(64, 2*len(old.places)))
	for i := range old.count {
		id := old.first + protocol.EventID(i)
		*r.at(id) = *old.at(id)
	}
}
