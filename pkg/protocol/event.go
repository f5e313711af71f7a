package protocol

// EventKind says what an event does.
type EventKind uint8

// The kinds of event. An Ignored event was readable but has no effect here; it
// still takes its id.
const (
	EventStored EventKind = iota + 1
	EventRemoved
	EventCleared
	EventNote
	EventLost
	EventIgnored
)

// Event is one change of what a rank holds.
type Event struct {
	// ID is 0 in the events of a snapshot, which have none.
	ID   EventID
	Kind EventKind
	Tier Tier // of a store or removal

	// Parent precedes Blocks[0] unless Root, the start of a prompt.
	Root   bool
	Parent SequenceHash
	Blocks []Block // of a store, in path order

	Removed []SequenceHash // of a removal
	Note    []byte         // of a note: the JSON or msgpack value as it came, opaque

	// Refusal is set if the event could not be decoded or is refused, and its
	// id could be read; it changes nothing but counts as seen.
	Refusal Refusal
}

// EventMessage is one message on a rank's event subject.
type EventMessage struct {
	Epoch    Epoch
	Events   []Event
	Snapshot *SnapshotHeader // nil for live events

	// Lost counts events of the message that had no readable id and were skipped.
	Lost map[Refusal]int
	// RouterEvents says that the message held Dynamo RouterEvents.
	RouterEvents bool
	// Encoding of the message, which a note's bytes share.
	Encoding Encoding
}

// BlockCount is the number of blocks and removals that the message names.
func (m *EventMessage) BlockCount() int {
	n := 0
	for i := range m.Events {
		n += len(m.Events[i].Blocks) + len(m.Events[i].Removed)
	}
	return n
}

// SnapshotHeader heads every chunk of a snapshot.
type SnapshotHeader struct {
	ID       string
	Through  EventID   // the last event id it covers
	Seq      StreamSeq // of the message that held that event; 0: all before the first chunk
	Chunk    int       // 0 .. Chunks-1
	Chunks   int       // 1 .. MaxChunks
	Blocks   uint64    // (tier, sequence hash) pairs of the whole set
	Checksum uint64    // of the whole set, see Checksum
	Inexact  bool      // the publisher itself does not vouch for it ("exact": false)
}
