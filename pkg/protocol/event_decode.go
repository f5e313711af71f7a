package protocol

import (
	"bytes"
	"encoding/binary"
	"math"
)

// maxCopiedNote bounds a note within a snapshot. A router that writes one may
// have put the note into the other encoding, which takes up to three times as much.
const maxCopiedNote = 4 * MaxNoteBytes

// messageVersion is the version of bodies that carry one.
const messageVersion = 1

// DecodeEventMessage reads a message of a rank's event subject, in either
// encoding: native events, a chunk of a snapshot, or Dynamo RouterEvents. rank is
// that of the subject. The result does not alias body.
//
// An error is a Refusal, and the message is then to be skipped whole:
// RefusedUndecodable if it is no message at all, RefusedVersion,
// RefusedTooManyBlocks, or RefusedSnapshot if a snapshot's header or one of its
// events is wrong. Otherwise each event of a live message that is wrong is there
// with its Refusal, or is counted in Lost if it has no id, and the others are
// good. What was refused may leave a hole in what is known of the rank.
//
// Id 0 is taken from publishers that use no epoch, whose ids may begin there;
// of others it counts as no id.
func DecodeEventMessage(body []byte, rank uint16) (*EventMessage, error) {
	r := newReader(body)
	d := &eventDecoder{r: r, body: body, version: messageVersion}
	d.m.Encoding = r.in.encoding()
	if r.in.kind() == kindList || d.isRouterEvent() {
		d.routerEvents(rank)
	} else {
		d.native()
	}
	if d.version != messageVersion {
		return nil, RefusedVersion
	}
	if r.finish() != nil {
		return nil, RefusedUndecodable
	}
	if d.badSnapshot {
		return nil, RefusedSnapshot
	}
	if d.m.Snapshot == nil && d.blocks > MaxEventBlocks {
		return nil, RefusedTooManyBlocks
	}
	return &d.m, nil
}

// eventDecoder decodes one message.
type eventDecoder struct {
	r    *reader
	body []byte
	m    EventMessage

	version     uint64
	blocks      int   // blocks and removals read
	noID        []int // which of m.Events have no id, in order
	unreadable  int   // events without an id that make no sense
	unknown     int   // events without an id and of no known kind
	badSnapshot bool  // the snapshot's header or an event of it is wrong
	check       storeCheck
}

// native reads a message of the contract's own format.
func (d *eventDecoder) native() {
	var events bool
	d.r.object(func(name []byte) {
		switch string(name) {
		case "v":
			d.readVersion()
		case "epoch":
			d.m.Epoch = Epoch(d.r.id())
		case "snapshot":
			d.m.Snapshot = new(SnapshotHeader)
			d.badSnapshot = !d.r.attempt(func() { *d.m.Snapshot = d.r.snapshotHeader() })
		case "events":
			events = true
			d.m.Events, d.noID = nil, nil
			d.unreadable, d.unknown, d.blocks = 0, 0, 0
			d.r.list(math.MaxInt, func(int) { d.event() })
		}
	})
	switch {
	case d.r.err != nil:
		d.findVersion()
	case !events:
		d.r.failField("events", "is missing")
	case d.m.Snapshot != nil:
		d.settleSnapshot()
	default:
		d.settleLive()
	}
}

// findVersion looks for the version of a message that was not understood: where
// another version puts what is not known, so its faults say nothing.
func (d *eventDecoder) findVersion() {
	r, fault := d.r, d.r.err
	r.rewind(0, 0, 0)
	r.object(func(name []byte) {
		if string(name) == "v" {
			d.readVersion()
		}
	})
	r.err = fault
}

// readVersion reads the version, which is another if it is not even a number.
func (d *eventDecoder) readVersion() {
	var v uint64
	d.r.attempt(func() { v = d.r.uint(0, math.MaxUint64) })
	if d.r.err == nil {
		d.version = v
	}
}

// settleSnapshot gives a snapshot's events the id 0. An event that was not
// understood makes the whole worthless.
func (d *eventDecoder) settleSnapshot() {
	d.badSnapshot = d.badSnapshot || d.unreadable > 0
	for i := range d.m.Events {
		e := &d.m.Events[i]
		e.ID = 0
		d.badSnapshot = d.badSnapshot || e.Refusal != "" || len(e.Note) > maxCopiedNote
	}
}

// settleLive takes out and counts the events that have no id.
func (d *eventDecoder) settleLive() {
	d.lose(RefusedUndecodable, d.unreadable+d.unknown)
	noID, kept := d.noID, d.m.Events[:0]
	for i, e := range d.m.Events {
		lost := e.ID == 0 && d.m.Epoch != 0
		if len(noID) > 0 && noID[0] == i {
			noID, lost = noID[1:], true
		}
		if lost {
			d.lose(RefusedUndecodable, 1)
			continue
		}
		if len(e.Note) > MaxNoteBytes {
			e = Event{ID: e.ID, Refusal: RefusedUndecodable}
		}
		kept = append(kept, e)
	}
	d.m.Events = kept
}

func (d *eventDecoder) lose(why Refusal, n int) {
	if n == 0 {
		return
	}
	if d.m.Lost == nil {
		d.m.Lost = make(map[Refusal]int)
	}
	d.m.Lost[why] += n
}

func (r *reader) snapshotHeader() SnapshotHeader {
	h := SnapshotHeader{Chunks: 1}
	var blocks, checksum, through bool
	r.object(func(name []byte) {
		switch string(name) {
		case "id":
			h.ID = r.text(MaxTextBytes)
		case "through":
			h.Through, through = EventID(r.id()), true
		case "seq":
			h.Seq = StreamSeq(r.id())
		case "chunk":
			h.Chunk = int(r.uint(0, MaxChunks-1))
		case "chunks":
			h.Chunks = int(r.uint(1, MaxChunks))
		case "blocks":
			h.Blocks, blocks = r.id(), true
		case "checksum":
			h.Checksum, checksum = r.id(), true
		case "exact":
			h.Inexact = !r.bool()
		}
	})
	switch {
	case h.ID == "":
		r.failField("id", "must not be empty")
	case !through:
		r.failField("through", "is missing")
	case !blocks:
		r.failField("blocks", "is missing")
	case !checksum:
		r.failField("checksum", "is missing")
	case h.Chunk >= h.Chunks:
		r.failField("chunk", "must be below chunks")
	}
	return h
}

// event reads one event of the list. If it is wrong its id is all that is kept.
func (d *eventDecoder) event() {
	var e Event
	var hasID bool
	start := d.r.in.offset()
	if !d.r.attempt(func() { e, hasID = d.readEvent() }) {
		if d.r.err != nil {
			return
		}
		d.r.in.seek(start)
		e = Event{Refusal: RefusedUndecodable}
		e.ID, hasID = d.readEventID()
	}
	switch { // what has no id and no effect is not kept, as next to no bytes make a long list of it
	case hasID:
	case e.Refusal == RefusedUndecodable:
		d.unreadable++
		return
	case e.Kind == EventIgnored:
		d.unknown++
		return
	default:
		d.noID = append(d.noID, len(d.m.Events))
	}
	d.m.Events = append(d.m.Events, e)
}

// readEventID finds the id of an event that is otherwise not understood.
func (d *eventDecoder) readEventID() (id EventID, ok bool) {
	r := d.r
	r.attempt(func() {
		r.object(func(name []byte) {
			if string(name) == "id" {
				ok = r.attempt(func() { id = EventID(r.id()) })
			}
		})
	})
	return id, ok
}

func (d *eventDecoder) readEvent() (e Event, hasID bool) {
	r := d.r
	r.members(func(name []byte) {
		kind := EventIgnored
		switch string(name) {
		case "id":
			if !r.isNull() {
				e.ID, hasID = EventID(r.id()), true
			}
			return
		case "stored":
			kind = EventStored
			d.stored(&e)
		case "removed":
			kind = EventRemoved
			d.removed(&e)
		case "cleared":
			kind = EventCleared
			r.object(func([]byte) {})
		case "note":
			kind = EventNote
			e.Note = bytes.Clone(r.raw(d.body))
		case "lost":
			kind = EventLost
			r.object(func([]byte) {})
		default:
			return
		}
		if e.Kind != 0 && e.Kind != kind {
			r.fail("is a second kind of change in one event")
		}
		e.Kind = kind
	})
	if e.Kind == 0 {
		e.Kind = EventIgnored
	}
	return e, hasID
}

func (d *eventDecoder) stored(e *Event) {
	r := d.r
	e.Tier, e.Root, e.Parent, e.Blocks = TierDevice, true, 0, nil
	var given bool
	var seq, local []byte
	r.object(func(name []byte) {
		switch string(name) {
		case "parent":
			e.Root, e.Parent = false, SequenceHash(r.id())
		case "tier":
			e.Tier = r.tier()
		case "blocks":
			e.Blocks, given = r.blocks(), true
		case "seq":
			seq = r.packed(8, math.MaxInt)
		case "local":
			local = r.packed(8, math.MaxInt)
		}
	})
	switch {
	case r.err != nil:
		return
	case given == (seq != nil || local != nil):
		r.failField("blocks", "must be given, or else seq and local")
		return
	case len(seq) != len(local):
		r.failField("local", "must be as long as seq")
		return
	case !given:
		e.Blocks = unpackBlocks(seq, local)
	}
	d.checkStore(e)
}

func unpackBlocks(seq, local []byte) []Block {
	blocks := make([]Block, len(seq)/8)
	for i := range blocks {
		blocks[i] = Block{
			Sequence: SequenceHash(binary.LittleEndian.Uint64(seq[8*i:])),
			Hash:     BlockHash(binary.LittleEndian.Uint64(local[8*i:])),
		}
	}
	return blocks
}

// checkStore counts the blocks of a store and refuses one that contains its
// parent or a sequence hash twice.
func (d *eventDecoder) checkStore(e *Event) {
	d.blocks += len(e.Blocks)
	if d.check.malformed(e) {
		e.Refusal, e.Blocks = RefusedMalformedStore, nil
	}
}

func (d *eventDecoder) removed(e *Event) {
	r := d.r
	e.Tier, e.Removed = TierDevice, nil
	var given bool
	r.object(func(name []byte) {
		switch string(name) {
		case "tier":
			e.Tier = r.tier()
		case "blocks":
			e.Removed, given = hashes[SequenceHash](r, math.MaxInt), true
		}
	})
	if !given {
		r.failField("blocks", "is missing")
	}
	d.blocks += len(e.Removed)
}

// tier reads the name of a tier.
func (r *reader) tier() Tier {
	s := r.text(MaxTextBytes)
	t, ok := ParseTier(s)
	if r.err == nil && !ok {
		r.fail("must be device, host, disk or external")
	}
	return t
}
