package publisher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/routerd/routerd/pkg/protocol"
)

// Stored says that the engine now holds blocks, in path order, on a tier: behind
// the block parent, or at the start of a prompt if root. It does not wait for the
// network and keeps no reference to blocks. A store that repeats a sequence hash
// or contains its own parent is ignored and counted.
func (p *Publisher) Stored(tier protocol.Tier, root bool, parent protocol.SequenceHash, blocks []protocol.Block) {
	blocks = slices.Clone(blocks)
	p.change(func(now time.Time) bool { return p.storedLocked(now, tier, root, parent, blocks) })
}

// Removed says that the engine dropped blocks, or one copy of each, from a tier.
// It does not wait for the network and keeps no reference to hashes.
func (p *Publisher) Removed(tier protocol.Tier, hashes []protocol.SequenceHash) {
	p.change(func(now time.Time) bool { return p.removedLocked(now, tier, hashes) })
}

// Cleared says that the engine dropped everything on all tiers. What may have
// been lost before it (see Lost) no longer matters. It does not wait for the
// network.
func (p *Publisher) Cleared() {
	p.change(func(now time.Time) bool {
		p.mirror.clear()
		p.aside.clear()
		p.out.holed = false
		return p.out.push(protocol.Event{Kind: protocol.EventCleared}, now)
	})
}

// Lost says that something of the engine's was missed. Routers do not rely on
// what they know of the rank until it is cleared. It does not wait for the
// network.
func (p *Publisher) Lost() {
	p.change(func(now time.Time) bool {
		p.out.holed = true
		return p.out.push(protocol.Event{Kind: protocol.EventLost}, now)
	})
}

// Note puts a value of the caller's own into the log, to be found there after a
// restart: one JSON value if the publisher writes JSON, else one msgpack value, at
// most 64 KiB. Routers skip it, but keep the last one in their snapshots. It
// does not wait for the network.
func (p *Publisher) Note(value []byte) error {
	if err := p.checkNote(value); err != nil {
		return fmt.Errorf("note of %d bytes: %w", len(value), err)
	}
	value = slices.Clone(value)
	p.change(func(now time.Time) bool {
		p.out.note = value
		return p.out.push(protocol.Event{Kind: protocol.EventNote, Note: value}, now)
	})
	return nil
}

func (p *Publisher) checkNote(value []byte) error {
	if len(value) > protocol.MaxNoteBytes {
		return fmt.Errorf("at most %d are allowed", protocol.MaxNoteBytes)
	}
	if p.cfg.JSON {
		if !json.Valid(value) {
			return errors.New("is not one JSON value")
		}
		return nil
	}
	rest := bytes.NewReader(value)
	if err := msgpack.NewDecoder(rest).Skip(); err != nil || rest.Len() > 0 {
		return errors.New("is not one msgpack value")
	}
	return nil
}

// change runs one of the calls above under the mutex and wakes the sender if that
// gave it something to do.
func (p *Publisher) change(apply func(now time.Time) (news bool)) {
	if p.cfg.NoEvents {
		return
	}
	now := time.Now()
	p.mu.Lock()
	news := apply(now)
	p.mu.Unlock()
	if news {
		p.signal()
	}
}

// storedLocked applies a store to the mirror and puts it into the outbox, which
// keeps blocks.
func (p *Publisher) storedLocked(now time.Time, tier protocol.Tier, root bool, parent protocol.SequenceHash, blocks []protocol.Block) (news bool) {
	if len(blocks) == 0 {
		return false
	}
	if tier >= protocol.Tiers || !p.mirror.wellFormed(root, parent, blocks) {
		p.stats.Malformed++
		return false
	}
	if root {
		return p.placeLocked(now, tier, true, parent, blocks)
	}
	at, known := p.mirror.find(parent)
	switch {
	case !known:
		p.stats.Orphans += uint64(len(blocks))
		p.stats.Forgotten += uint64(p.aside.keep(tier, parent, blocks))
		return p.pushStore(now, false, tier, false, parent, blocks)
	case p.mirror.held(at):
		return p.placeLocked(now, tier, false, parent, blocks)
	}
	return p.placeBehindHole(now, tier, at, blocks)
}

// placeLocked stores blocks behind a held parent, and then what was kept aside
// because one of them was missing.
func (p *Publisher) placeLocked(now time.Time, tier protocol.Tier, root bool, parent protocol.SequenceHash, blocks []protocol.Block) bool {
	news := p.pushStore(now, true, tier, root, parent, blocks)
	for _, b := range blocks {
		for _, o := range p.aside.take(b.Sequence) {
			news = p.storedLocked(now, o.tier, false, o.parent, o.blocks) || news
		}
	}
	return news
}

// placeBehindHole stores blocks behind the node at, which is known but not held:
// the missing blocks before them are stored with them and taken back.
func (p *Publisher) placeBehindHole(now time.Time, tier protocol.Tier, at int32, blocks []protocol.Block) bool {
	root, parent, missing := p.mirror.missingBefore(at)
	whole := append(slices.Clone(missing), blocks...)
	if !p.mirror.wellFormed(root, parent, whole) {
		p.stats.Malformed++
		return false
	}
	news := p.placeLocked(now, tier, root, parent, whole)
	gone := make([]protocol.SequenceHash, len(missing))
	for i, b := range missing {
		gone[i] = b.Sequence
	}
	return p.removedLocked(now, tier, gone) || news
}

// pushStore puts a store into the outbox in parts that an event may hold, each
// after it was applied to the mirror if it has a place there.
func (p *Publisher) pushStore(now time.Time, placed bool, tier protocol.Tier, root bool, parent protocol.SequenceHash, blocks []protocol.Block) (news bool) {
	for part := range slices.Chunk(blocks, p.out.limits.longest) {
		if placed {
			at := none
			if !root {
				at, _ = p.mirror.find(parent)
			}
			p.mirror.store(tier, at, part)
		}
		e := protocol.Event{Kind: protocol.EventStored, Tier: tier, Root: root, Parent: parent, Blocks: part}
		news = p.out.push(e, now) || news
		root, parent = false, part[len(part)-1].Sequence
	}
	return news
}

// removedLocked applies a removal to the mirror and puts what no copy is left of,
// and what was not known, into the outbox.
func (p *Publisher) removedLocked(now time.Time, tier protocol.Tier, hashes []protocol.SequenceHash) (news bool) {
	if tier >= protocol.Tiers {
		p.stats.Malformed++
		return false
	}
	for part := range slices.Chunk(hashes, p.out.limits.longest) {
		gone := make([]protocol.SequenceHash, 0, len(part))
		for _, h := range part {
			result := p.mirror.remove(tier, h)
			if result == removedUnknown {
				result = p.aside.remove(tier, h)
			}
			if result != removedCopy {
				gone = append(gone, h)
			}
		}
		if len(gone) > 0 {
			news = p.out.push(protocol.Event{Kind: protocol.EventRemoved, Tier: tier, Removed: gone}, now) || news
		}
	}
	return news
}
