package subscriber

import (
	"math"

	"github.com/routerd/routerd/pkg/protocol"
)

// item is an event on its way into a fold.
type item struct {
	protocol.Event
	encoding protocol.Encoding  // of a note's bytes
	seq      protocol.StreamSeq // of the message that held it
}

// heldEvents are the events behind a hole, by id. They are bounded in number and
// in blocks; what does not fit is left in the log, to be read again from there.
type heldEvents struct {
	items  map[protocol.EventID]item
	blocks int
	top    protocol.EventID // highest id put since it was last empty
	low    protocol.EventID // no id below this is held
}

func (h *heldEvents) len() int { return len(h.items) }

func (h *heldEvents) has(id protocol.EventID) bool {
	_, ok := h.items[id]
	return ok
}

// put keeps an event, false if there is no room.
func (h *heldEvents) put(it item, maxEvents, maxBlocks int) bool {
	n := len(it.Blocks) + len(it.Removed)
	if len(h.items) >= maxEvents || len(h.items) > 0 && h.blocks+n > maxBlocks {
		return false
	}
	if h.items == nil {
		h.items = map[protocol.EventID]item{}
	}
	if len(h.items) == 0 || it.ID < h.low {
		h.low = it.ID
	}
	h.items[it.ID] = it
	h.blocks += n
	h.top = max(h.top, it.ID)
	return true
}

// take removes and returns the event of an id.
func (h *heldEvents) take(id protocol.EventID) (item, bool) {
	it, ok := h.items[id]
	if !ok {
		return item{}, false
	}
	delete(h.items, id)
	h.blocks -= len(it.Blocks) + len(it.Removed)
	if len(h.items) == 0 {
		*h = heldEvents{}
	}
	return it, true
}

// lowest is the lowest id held, 0 if none.
func (h *heldEvents) lowest() protocol.EventID {
	if len(h.items) == 0 {
		return 0
	}
	if !h.has(h.low) {
		// Ids may lie far apart: look through what is held rather than count up.
		h.low = math.MaxUint64
		for id := range h.items {
			h.low = min(h.low, id)
		}
	}
	return h.low
}

// dropThrough forgets the events up to an id.
func (h *heldEvents) dropThrough(id protocol.EventID) {
	for held := range h.items {
		if held <= id {
			h.take(held)
		}
	}
}

// dropUpTo forgets the events of messages up to a stream sequence.
func (h *heldEvents) dropUpTo(seq protocol.StreamSeq) {
	for id, it := range h.items {
		if it.seq <= seq {
			h.take(id)
		}
	}
}

func (h *heldEvents) clear() { *h = heldEvents{} }
