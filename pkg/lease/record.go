package lease

import "github.com/routerd/routerd/pkg/protocol"

// charge says what the ledger has of a lease.
type charge uint8

const (
	charged   charge = iota
	charging         // Ledger.Restore is under way; who called it frees the charge if the lease ends meanwhile
	uncharged        // the ledger did not take it
)

// record is one live lease. All but the clock is guarded by the manager's mutex.
type record struct {
	clock    clockWord
	charge   charge
	reported bool // progress was reported: prefill is over
	removed  bool
	lease    protocol.Lease
	links    [2]link
}

// Each record is in two chains: its worker's, and that of the reaper's pass that
// looks at it.
const (
	workerChain = iota
	reaperChain
)

type link struct{ prev, next *record }

// chain is a doubly linked list through records: adding and removing cost O(1)
// and no allocation. A walk that stops half-way leaves its place in cursor,
// which removal moves on. Records are added at the head and walked from there,
// so a walk ends however many come meanwhile.
type chain struct {
	slot         int // of record.links
	head, cursor *record
}

func (c *chain) push(r *record) {
	r.links[c.slot] = link{next: c.head}
	if c.head != nil {
		c.head.links[c.slot].prev = r
	}
	c.head = r
}

func (c *chain) remove(r *record) {
	l := r.links[c.slot]
	r.links[c.slot] = link{}
	if c.cursor == r {
		c.cursor = l.next
	}
	if l.prev != nil {
		l.prev.links[c.slot].next = l.next
	} else {
		c.head = l.next
	}
	if l.next != nil {
		l.next.links[c.slot].prev = l.prev
	}
}
