package publisher

import "github.com/routerd/routerd/pkg/protocol"

// limits is how large messages and events may be. Sizes are upper bounds of what
// the encoding makes of them, so that a message is never encoded in vain.
type limits struct {
	json    bool
	message int // bytes of a message
	payload int // bytes that the server takes in a message
	longest int // blocks in one event
}

const (
	messageBytes = 512 // around the events of a message
	eventBytes   = 128 // around the blocks of an event
	wholeBlock   = 16  // bytes of a block in packed msgpack
	removedBlock = 8
	textBlock    = 45 // bytes of a block in JSON: two numbers of 20 digits, brackets, commas
	textRemoved  = 21

	defaultPayload = 1 << 20 // of a server that did not say
)

// newLimits derives the limits from the encoding and the server's max payload,
// in bytes (0: not known).
func newLimits(json bool, payload int) limits {
	if payload <= 0 {
		payload = defaultPayload
	}
	l := limits{json: json, payload: payload, message: min(protocol.MaxPackedMessage, payload)}
	block := wholeBlock
	if json {
		block = textBlock
	}
	l.longest = max(1, min(protocol.MaxEventBlocks, (l.message-messageBytes-eventBytes)/block))
	return l
}

// size bounds the bytes of an event.
func (l *limits) size(e *protocol.Event) int {
	if l.json {
		return eventBytes + textBlock*len(e.Blocks) + textRemoved*len(e.Removed) + len(e.Note)
	}
	return eventBytes + wholeBlock*len(e.Blocks) + removedBlock*len(e.Removed) + len(e.Note)
}

// split puts a snapshot's events into chunks, at least one. A chunk is as large
// as a message, or larger if there would be more than a snapshot may have.
func (l *limits) split(events []protocol.Event) [][]protocol.Event {
	total := 0
	for i := range events {
		total += l.size(&events[i])
	}
	// Each chunk but the last is filled to within one event, so at least half.
	bound := min(l.payload, max(l.message, 2*total/protocol.MaxChunks+messageBytes))
	chunks := make([][]protocol.Event, 0, total/bound+1)
	first, size := 0, messageBytes
	for i := range events {
		n := l.size(&events[i])
		if i > first && size+n > bound {
			chunks = append(chunks, events[first:i])
			first, size = i, messageBytes
		}
		size += n
	}
	return append(chunks, events[first:])
}
