package protocol

import "math"

// isRouterEvent tells a single RouterEvent from a native message.
func (d *eventDecoder) isRouterEvent() bool {
	r := d.r
	var router, native bool
	c, ok := r.open(kindObject)
	for ok && !native && r.next(&c) {
		var name []byte
		if name, ok = r.in.key(); !ok {
			break
		}
		switch string(name) {
		case "v", "events", "snapshot":
			native = true
		case "event":
			router = true
		}
		r.skip()
	}
	r.rewind(0, 0, 0)
	return router && !native
}

// routerEvents reads a RouterEvent or a list of them.
func (d *eventDecoder) routerEvents(rank uint16) {
	d.m.RouterEvents = true
	if d.r.in.kind() == kindList {
		d.r.list(math.MaxInt, func(int) { d.routerEvent(rank) })
	} else {
		d.routerEvent(rank)
	}
}

// routerEventHead is what says whether a RouterEvent concerns us.
type routerEventHead struct {
	id        EventID
	hasID     bool
	rank      uint64
	hasRank   bool
	elsewhere bool // it speaks of what a cache owner, not the worker, holds
}

// routerEvent reads one RouterEvent of NVIDIA Dynamo: named fields, in JSON or
// msgpack. One of another rank has no part in the order of ids here, so it is
// counted as if it had no id.
func (d *eventDecoder) routerEvent(rank uint16) {
	var e Event
	var head routerEventHead
	start := d.r.in.offset()
	good := d.r.attempt(func() { d.readRouterEvent(&e, &head) })
	if !good {
		if d.r.err != nil {
			return
		}
		d.r.in.seek(start)
		head = d.readRouterEventHead()
		e = Event{Refusal: RefusedRouterEvent}
	}
	e.ID = head.id
	switch {
	case head.hasRank && head.rank != uint64(rank):
		d.lose(RefusedOtherRank, 1)
		return
	case !head.hasID:
		d.lose(RefusedRouterEvent, 1)
		return
	case head.elsewhere:
		e = Event{ID: head.id, Kind: EventIgnored}
	}
	d.m.Events = append(d.m.Events, e)
}

// readRouterEventHead reads what can be read of a RouterEvent that is wrong.
func (d *eventDecoder) readRouterEventHead() (head routerEventHead) {
	r := d.r
	r.attempt(func() {
		r.members(func(name []byte) {
			switch string(name) {
			case "residency_domain":
				head.elsewhere = r.elsewhere()
			case "event":
				r.attempt(func() {
					r.object(func(name []byte) { r.attempt(func() { r.routerEventField(name, &head) }) })
				})
			}
		})
	})
	return head
}

// routerEventField reads a field of the event within a RouterEvent, its data excepted.
func (r *reader) routerEventField(name []byte, head *routerEventHead) {
	switch string(name) {
	case "event_id":
		id := EventID(r.id())
		head.id, head.hasID = id, r.err == nil
	case "dp_rank":
		rank := r.uint(0, math.MaxUint32)
		head.rank, head.hasRank = rank, r.err == nil
	default:
		r.skip()
	}
}

// elsewhere reads a residency domain: any but the worker's own, even one that is
// null or not known, is not ours.
func (r *reader) elsewhere() bool {
	if r.err == nil && r.in.kind() != kindText {
		r.skip()
		return true
	}
	return r.text(math.MaxInt) != "worker"
}

func (d *eventDecoder) readRouterEvent(e *Event, head *routerEventHead) {
	r := d.r
	var tier Tier
	var event, data bool
	r.members(func(name []byte) {
		switch string(name) {
		case "storage_tier":
			tier = r.routerTier()
		case "residency_domain":
			head.elsewhere = r.elsewhere()
		case "event":
			event = true
			r.object(func(name []byte) {
				if string(name) == "data" {
					data = true
					d.routerEventData(e)
					return
				}
				r.routerEventField(name, head)
			})
		}
	})
	if !event || !data {
		r.failField("event", "must be there, with data")
	}
	e.Tier = tier
	if e.Kind == EventCleared {
		e.Tier = TierDevice
	}
}

// routerTier reads a tier as Dynamo names it.
func (r *reader) routerTier() Tier {
	s := r.text(MaxTextBytes)
	if s == "host_pinned" {
		return TierHost
	}
	t, ok := ParseTier(s)
	if r.err == nil && (!ok || s == "" || t == TierHost) {
		r.fail("must be device, host_pinned, disk or external")
	}
	return t
}

// routerEventData reads the change itself, one of three.
func (d *eventDecoder) routerEventData(e *Event) {
	r := d.r
	*e = Event{}
	if r.in.kind() == kindText {
		if r.text(MaxTextBytes) != "cleared" {
			r.fail("must be stored, removed or cleared")
		}
		e.Kind = EventCleared
		return
	}
	fields := 0
	r.members(func(name []byte) {
		fields++
		switch string(name) {
		case "stored":
			e.Kind = EventStored
			d.routerStored(e)
		case "removed":
			e.Kind = EventRemoved
			d.routerRemoved(e)
		case "cleared":
			e.Kind = EventCleared
		}
	})
	if fields != 1 || e.Kind == 0 {
		r.fail("must be stored, removed or cleared")
	}
}

func (d *eventDecoder) routerStored(e *Event) {
	r := d.r
	e.Root = true
	var given bool
	r.object(func(name []byte) {
		switch string(name) {
		case "parent_hash":
			e.Root, e.Parent = false, SequenceHash(r.id())
		case "blocks":
			e.Blocks, given = r.routerBlocks(), true
		}
	})
	if !given {
		r.failField("blocks", "is missing")
	}
	if r.err == nil {
		d.checkStore(e)
	}
}

func (r *reader) routerBlocks() []Block {
	var blocks []Block
	r.list(math.MaxInt, func(int) {
		var b Block
		var block, tokens bool
		r.object(func(name []byte) {
			switch string(name) {
			case "block_hash":
				b.Sequence, block = SequenceHash(r.id()), true
			case "tokens_hash":
				b.Hash, tokens = BlockHash(r.id()), true
			}
		})
		if !block || !tokens {
			r.fail("must have block_hash and tokens_hash")
		}
		blocks = append(blocks, b)
	})
	return blocks
}

func (d *eventDecoder) routerRemoved(e *Event) {
	r := d.r
	var given bool
	r.object(func(name []byte) {
		if string(name) == "block_hashes" {
			e.Removed, given = hashes[SequenceHash](r, math.MaxInt), true
		}
	})
	if !given {
		r.failField("block_hashes", "is missing")
	}
	d.blocks += len(e.Removed)
}
