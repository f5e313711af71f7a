package mocker

import "github.com/routerd/routerd/pkg/protocol"

// eventLog collects the KV events of one step in their order. Neighbouring
// removals, and neighbouring blocks of one path, become one event of at most
// MaxEventBlocks blocks. Its memory is used again by the next step: events hold
// places in two arenas until take cuts them out.
type eventLog struct {
	entries []entry
	blocks  []protocol.Block
	hashes  []protocol.SequenceHash
	events  []protocol.Event
}

// entry is an event whose blocks or hashes begin at from and end where the next
// entry of its kind begins.
type entry struct {
	kind   protocol.EventKind
	root   bool
	parent protocol.SequenceHash
	from   int
	to     int
}

func (l *eventLog) reset() {
	l.entries, l.blocks, l.hashes = l.entries[:0], l.blocks[:0], l.hashes[:0]
}

// stored adds a block below parent, or at the start of a prompt if root.
func (l *eventLog) stored(root bool, parent protocol.SequenceHash, b protocol.Block) {
	l.blocks = append(l.blocks, b)
	if e := l.last(protocol.EventStored); e != nil && !root && l.blocks[e.to-1].Sequence == parent {
		e.to++
		return
	}
	to := len(l.blocks)
	l.entries = append(l.entries, entry{kind: protocol.EventStored, root: root, parent: parent, from: to - 1, to: to})
}

// removed adds the removal of a block.
func (l *eventLog) removed(seq protocol.SequenceHash) {
	l.hashes = append(l.hashes, seq)
	if e := l.last(protocol.EventRemoved); e != nil {
		e.to++
		return
	}
	to := len(l.hashes)
	l.entries = append(l.entries, entry{kind: protocol.EventRemoved, from: to - 1, to: to})
}

// last is the last entry if it is of a kind and has room for one more.
func (l *eventLog) last(kind protocol.EventKind) *entry {
	if len(l.entries) == 0 {
		return nil
	}
	e := &l.entries[len(l.entries)-1]
	if e.kind != kind || e.to-e.from >= protocol.MaxEventBlocks {
		return nil
	}
	return e
}

// take gives the events collected; they are valid until the next reset.
func (l *eventLog) take() []protocol.Event {
	l.events = l.events[:0]
	for _, e := range l.entries {
		event := protocol.Event{Kind: e.kind, Tier: protocol.TierDevice}
		if e.kind == protocol.EventStored {
			event.Root, event.Parent = e.root, e.parent
			event.Blocks = l.blocks[e.from:e.to:e.to]
		} else {
			event.Removed = l.hashes[e.from:e.to:e.to]
		}
		l.events = append(l.events, event)
	}
	return l.events
}
