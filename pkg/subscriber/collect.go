package subscriber

import (
	"github.com/routerd/routerd/pkg/protocol"
)

// maxSnapshotBytes bounds the messages of one snapshot, which wait in memory
// until it is complete: 8 million blocks at 16 bytes each.
const maxSnapshotBytes = 128 << 20

// collector gathers the chunks of one snapshot at a time.
type collector struct {
	header protocol.SnapshotHeader // of the first chunk
	next   int                     // chunk awaited; 0: no set is under way
	first  protocol.StreamSeq      // message of chunk 0
	bytes  int
	events []protocol.Event
	note   note
	bad    bool // a chunk held an event that could not be read
}

// note is state of a publisher's own, kept for it as it came.
type note struct {
	body     []byte
	encoding protocol.Encoding
}

// snapshot is a complete set of chunks.
type snapshot struct {
	protocol.SnapshotHeader
	first  protocol.StreamSeq // message of chunk 0
	bytes  int
	events []protocol.Event // without notes
	note   note
	bad    bool
}

// covers is the stream sequence up to which the snapshot replaces the subject.
func (s *snapshot) covers() protocol.StreamSeq {
	if s.Seq == 0 || s.Seq >= s.first {
		return s.first - 1
	}
	return s.Seq
}

// add takes one chunk. It returns the snapshot that the chunk completes, and
// false for a chunk that makes its set unusable.
func (c *collector) add(seq protocol.StreamSeq, size int, m *protocol.EventMessage) (*snapshot, bool) {
	h := m.Snapshot
	if h.Chunks < 1 || h.Chunks > protocol.MaxChunks || h.Chunk < 0 || h.Chunk >= h.Chunks {
		return nil, false
	}
	known := c.next > 0 && sameSet(&c.header, h)
	switch {
	case known && h.Chunk < c.next:
		return nil, true // a repeat
	case h.Chunk == 0:
		*c = collector{header: *h, first: seq}
	case !known:
		return nil, true // of a set whose beginning was not seen
	case h.Chunk > c.next:
		c.forget()
		return nil, false
	}
	if c.bytes+size > maxSnapshotBytes {
		c.forget()
		return nil, false
	}
	c.next++
	c.bytes += size
	for i := range m.Events {
		switch ev := &m.Events[i]; {
		case ev.Refusal != "":
			c.bad = true
		case ev.Kind == protocol.EventNote:
			c.note = note{body: ev.Note, encoding: m.Encoding}
		case ev.Kind != protocol.EventIgnored:
			c.events = append(c.events, *ev)
		}
	}
	if c.next < h.Chunks {
		return nil, true
	}
	set := &snapshot{
		SnapshotHeader: c.header, first: c.first, bytes: c.bytes,
		events: c.events, note: c.note, bad: c.bad || len(m.Lost) > 0,
	}
	c.forget()
	return set, true
}

func sameSet(a, b *protocol.SnapshotHeader) bool {
	first, later := *a, *b
	later.Chunk = first.Chunk
	return first == later
}

func (c *collector) forget() { *c = collector{} }

// verify checks that a snapshot's events give what its header says.
func (s *snapshot) verify() error {
	if s.bad {
		return protocol.RefusedSnapshot
	}
	blocks, checksum, err := protocol.SummarizeSnapshot(s.events)
	if err != nil || blocks != s.Blocks || checksum != s.Checksum {
		return protocol.RefusedSnapshot
	}
	return nil
}
