package subscriber

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/pkg/protocol"
)

// event decides by its id what becomes of an event: applied, dropped as a
// repeat, or held until what is missing before it has come.
func (f *fold) event(it item, at protocol.StreamSeq, again bool) {
	if !again && f.restarts(&it) {
		f.begin(0)
		f.lifeSeq = at
	}
	clears := it.Kind == protocol.EventCleared && it.Refusal == ""
	switch {
	case f.based && it.ID <= f.last:
		f.refuse(protocol.RefusedDuplicate, 1, again)
	case clears:
		f.clear(&it, at)
	case f.based && it.ID == f.last+1:
		f.apply(&it, at)
		f.drain(at)
	case !f.based && it.ID <= 1:
		f.based, f.lifeSeq = true, at
		f.apply(&it, at)
		f.drain(at)
	case !f.based && f.live:
		f.startAt(it.ID - 1)
		f.apply(&it, at)
		f.drain(at)
	default:
		f.hold(it, again)
	}
}

// restarts says whether an event of a publisher without epochs begins a new life:
// its id has fallen back to 0 or 1, and it does not merely repeat the event of
// that id.
func (f *fold) restarts(it *item) bool {
	if f.epoch != 0 || it.ID > 1 {
		return false
	}
	known := f.opening[it.ID]
	switch {
	case f.based && f.last == it.ID:
		return known != 0 && known != contentSum(&it.Event)
	case f.based && f.last > it.ID, f.held.top > it.ID:
		return known == 0 || known != contentSum(&it.Event)
	}
	return false
}

// startAt takes the events of a publisher without epochs as they come: what it
// held before the first one seen is not known.
func (f *fold) startAt(before protocol.EventID) {
	f.based, f.last = true, before
	f.suspect(before, true)
}

// hold keeps an event behind a hole. One that does not fit is left in the log.
func (f *fold) hold(it item, again bool) {
	switch {
	case f.held.has(it.ID):
		f.refuse(protocol.RefusedDuplicate, 1, again)
	case f.held.put(it, maxHeldEvents, maxHeldBlocks):
	case f.dropped == 0 || it.seq < f.dropped:
		f.dropped = it.seq
	}
}

// drain applies the held events that follow the last one without a hole.
func (f *fold) drain(at protocol.StreamSeq) {
	for f.held.len() > 0 {
		it, ok := f.held.take(f.last + 1)
		if !ok {
			// A clear or snapshot may have gone past some of them.
			if f.held.lowest() > f.last {
				return
			}
			f.held.dropThrough(f.last)
			continue
		}
		f.apply(&it, max(at, it.seq))
	}
	f.closed()
}

// closed tidies up once no hole is known any more.
func (f *fold) closed() {
	if !f.gap() {
		f.logRead = false
	}
}

// apply makes an event's change, whose id is the next one.
func (f *fold) apply(it *item, at protocol.StreamSeq) {
	f.last, f.lastSeq = it.ID, max(at, f.lastSeq)
	if f.epoch == 0 && it.ID <= 1 {
		f.opening[it.ID] = contentSum(&it.Event)
	}
	if it.Refusal != "" {
		f.refuse(it.Refusal, 1, false)
		if it.Refusal == protocol.RefusedUndecodable {
			f.suspect(it.ID, true)
		}
		return
	}
	f.counters.events++
	switch it.Kind {
	case protocol.EventStored:
		f.store(it)
	case protocol.EventRemoved:
		f.remove(it.Tier, it.Event.Removed)
	case protocol.EventCleared:
		f.empty()
	case protocol.EventNote:
		f.note = note{body: it.Note, encoding: it.encoding}
	case protocol.EventLost:
		f.suspect(it.ID, false)
	}
}

// clear applies a clear, whatever is missing before it: it is a base of its own.
func (f *fold) clear(it *item, at protocol.StreamSeq) {
	if !f.based {
		f.based, f.lifeSeq = true, at
	}
	f.held.dropThrough(it.ID)
	f.dropped = 0
	f.apply(it, at)
	f.drain(at)
}

// empty makes the rank hold nothing, which leaves nothing to doubt.
func (f *fold) empty() {
	f.sink.Cleared(f.w)
	f.aside.clear()
	f.doubt = doubt{}
	f.contradicted = 0
}

func (f *fold) store(it *item) {
	if len(it.Blocks) == 0 {
		return
	}
	err := f.sink.Stored(f.w, it.Tier, it.Root, it.Parent, it.Blocks)
	switch {
	case err == nil:
		f.counters.stored += uint64(len(it.Blocks))
		f.fetchAside(it.Blocks)
	case errors.Is(err, f.parentNotHeld):
		if !f.aside.put(*it, maxAsideBlocks) {
			f.refuse(protocol.RefusedOrphanDropped, 1, false)
			f.suspect(it.ID, true)
		}
	case errors.Is(err, f.malformedStore):
		f.refuse(protocol.RefusedMalformedStore, 1, false)
	default:
		f.refuse(protocol.RefusedMalformedStore, 1, false)
		f.suspect(it.ID, true)
	}
}

// fetchAside applies the stores that waited for one of these blocks, and those
// that waited for them.
func (f *fold) fetchAside(came []protocol.Block) {
	if f.aside.empty() {
		return
	}
	queue := slices.Clone(came)
	for len(queue) > 0 && !f.aside.empty() {
		parent := queue[0].Sequence
		queue = queue[1:]
		for _, store := range f.aside.take(parent) {
			if f.sink.Stored(f.w, store.Tier, false, store.Parent, store.Blocks) != nil {
				f.refuse(protocol.RefusedMalformedStore, 1, false)
				continue
			}
			f.counters.stored += uint64(len(store.Blocks))
			queue = append(queue, store.Blocks...)
			f.remove(store.Tier, store.removed)
		}
	}
}

func (f *fold) remove(tier protocol.Tier, hashes []protocol.SequenceHash) {
	if len(hashes) == 0 {
		return
	}
	f.counters.removed += uint64(len(hashes))
	f.counters.unknown += uint64(f.sink.Removed(f.w, tier, hashes))
	if !f.aside.empty() {
		f.aside.remove(tier, hashes)
	}
}

// contentSum is a sum of what an event does, never 0.
func contentSum(ev *protocol.Event) uint64 {
	buf := []byte{byte(ev.Kind), byte(ev.Tier)}
	if ev.Root {
		buf = append(buf, 1)
	}
	buf = append(append(buf, ev.Refusal...), 0)
	buf = binary.LittleEndian.AppendUint64(buf, uint64(ev.Parent))
	for _, b := range ev.Blocks {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(b.Sequence))
		buf = binary.LittleEndian.AppendUint64(buf, uint64(b.Hash))
	}
	for _, hash := range ev.Removed {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(hash))
	}
	return xxh3.Hash(append(buf, ev.Note...)) | 1
}
