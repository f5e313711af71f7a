package subscriber

import (
	"github.com/routerd/routerd/pkg/protocol"
)

// historyLength is how many of a rank's states are remembered by their sums.
const historyLength = 64

// moment is what a rank held after one message.
type moment struct {
	id    protocol.EventID   // last event applied
	seq   protocol.StreamSeq // of the message after which this was so
	state protocol.HeldState
	exact bool
	read  traffic // of the subject, up to this message
}

// traffic counts the messages of a subject.
type traffic struct {
	messages int
	bytes    int64
}

func (t traffic) minus(o traffic) traffic {
	return traffic{t.messages - o.messages, t.bytes - o.bytes}
}

// history is a ring of a rank's last moments, oldest first in stream order, and
// one more that is pinned: the moment of the snapshot this router wrote, which
// may come back after the ring has turned.
type history struct {
	ring   [historyLength]moment
	next   int // ring[next-1 mod length] is the newest
	count  int
	lost   bool // older ones have fallen out
	pinned moment
}

func (h *history) push(m moment) {
	h.lost = h.lost || h.count == historyLength
	h.ring[h.next] = m
	h.next = (h.next + 1) % historyLength
	h.count = min(h.count+1, historyLength)
}

// back is the i-th newest moment, 0 the newest.
func (h *history) back(i int) *moment {
	return &h.ring[(h.next-1-i+2*historyLength)%historyLength]
}

// find returns the newest exact moment at which id was the last event applied.
func (h *history) find(id protocol.EventID) (moment, bool) {
	for i := range h.count {
		if m := h.back(i); m.id == id && m.exact {
			return *m, true
		}
	}
	return h.pinned, h.pinned.exact && h.pinned.id == id
}

// at returns the moment in force when stream sequence seq had been applied. A
// rank that had applied nothing by then held nothing; false if that is not known.
func (h *history) at(seq protocol.StreamSeq) (moment, bool) {
	for i := range h.count {
		if m := h.back(i); m.seq <= seq {
			return *m, true
		}
	}
	return moment{exact: true}, !h.lost
}
