package subscriber

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

const (
	// snapshotEvent is the most blocks of one event of a snapshot: chunks are cut
	// between events.
	snapshotEvent = 4096
	// blockBytes is what a block takes in a packed store.
	blockBytes = 16
	// chunkOverhead is room for what surrounds the events in a chunk.
	chunkOverhead = 1024
)

// sketch is a snapshot about to be written.
type sketch struct {
	epoch  protocol.Epoch
	header protocol.SnapshotHeader
	events []protocol.Event
	note   note
}

// sketch takes down what the rank holds, false if that is not known well enough.
func (r *rank) sketch(now time.Time) (*sketch, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.fold
	if r.gone || r.holding || !f.live || !f.based || !f.sound() {
		return nil, false
	}
	r.written, r.compactAt = now, time.Time{}
	state := f.sink.State(r.w)
	f.history.pinned = moment{id: f.last, seq: f.lastSeq, state: state, exact: true, read: f.tail.read}
	return &sketch{
		epoch: f.epoch,
		header: protocol.SnapshotHeader{
			Through: f.last, Seq: f.lastSeq, Blocks: state.Blocks, Checksum: state.Checksum,
		},
		events: f.sink.Snapshot(r.w, snapshotEvent),
		note:   f.note,
	}, true
}

// retry lets a snapshot be written again before the last one is late.
func (r *rank) retry(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written, r.compactAt = time.Time{}, at
}

// writeSnapshot publishes what a rank holds to its subject. It replaces nothing;
// when it is read back and found right, what it covers is purged.
func (c *caretaker) writeSnapshot(ctx context.Context, r *rank) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Compaction.Timeout)
	defer cancel()
	s, ok := r.sketch(time.Now())
	if !ok {
		return
	}
	s.header.ID = c.cfg.Router + "-" + rand.Text()[:10]
	for chunk, err := range s.chunks(c.chunkBytes()) {
		if err == nil {
			_, err = c.cfg.Publish.PublishMsg(ctx, &nats.Msg{Subject: r.subject, Data: chunk},
				jetstream.WithExpectStream(c.cfg.Stream.name()), jetstream.WithRetryAttempts(0))
		}
		if err != nil {
			c.stats.makeFailed.Add(1)
			c.log.Warn().Err(err).Stringer("worker", r.w).Msg("cannot write a snapshot: its subject is compacted later")
			r.retry(time.Now().Add(maxBackoff))
			return
		}
	}
	c.stats.made.Add(1)
}

// chunkBytes is how large the events of one chunk may be.
func (c *caretaker) chunkBytes() int {
	size := c.cfg.Compaction.ChunkBytes
	if limit := int(c.cfg.Publish.Conn().MaxPayload()); limit > 2*chunkOverhead {
		size = min(size, limit-chunkOverhead)
	}
	return size
}

// chunks encodes a snapshot as messages of about size bytes, more if they would be
// too many otherwise.
func (s *sketch) chunks(size int) func(yield func([]byte, error) bool) {
	return func(yield func([]byte, error) bool) {
		if s.note.body != nil {
			s.events = append(s.events, protocol.Event{Kind: protocol.EventNote, Note: s.note.body})
		}
		parts := split(s.events, max(size, 1))
		if len(parts) > protocol.MaxChunks {
			yield(nil, fmt.Errorf("snapshot of %d blocks takes %d messages of %d bytes, %d are allowed: raise the server's max payload",
				s.header.Blocks, len(parts), size, protocol.MaxChunks))
			return
		}
		var buf []byte
		for i, part := range parts {
			h := s.header
			h.Chunk, h.Chunks = i, len(parts)
			m := protocol.EventMessage{Epoch: s.epoch, Snapshot: &h, Events: part, Encoding: s.note.encoding}
			buf = protocol.AppendEventMessage(buf[:0], &m, protocol.EncodingMsgpack)
			if !yield(buf, nil) {
				return
			}
		}
	}
}

// split cuts events into runs of about size bytes; there is at least one, which may
// be empty.
func split(events []protocol.Event, size int) [][]protocol.Event {
	var parts [][]protocol.Event
	begin, bytes := 0, 0
	for i := range events {
		e := &events[i]
		n := 64 + blockBytes*len(e.Blocks) + 8*len(e.Removed) + 2*len(e.Note)
		if i > begin && bytes+n > size {
			parts = append(parts, events[begin:i])
			begin, bytes = i, 0
		}
		bytes += n
	}
	return append(parts, events[begin:])
}

// purge takes the proofs one by one: a snapshot whose content is what its header
// says, and whose header agrees with the state, covers all before it.
func (c *caretaker) purge(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-c.purging:
			if p.proof.snapshot.verify() != nil {
				p.rank.refuseProof()
				continue
			}
			c.stats.proven.Add(1)
			p.rank.read(p.proof)
			if p.proof.purge == 0 {
				continue
			}
			if err := c.purgeSubject(ctx, p.log, p.rank.subject, p.proof.purge); err != nil {
				c.log.Warn().Err(err).Stringer("worker", p.rank.w).Msg("cannot purge what a snapshot covers: the next one will")
				continue
			}
			c.stats.purges.Add(1)
		}
	}
}

// read notes that a snapshot has been read back and is right.
func (r *rank) read(p *proof) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written, r.compactAt = time.Time{}, time.Time{}
}

// purgeSubject removes a subject's messages up to a sequence.
func (c *caretaker) purgeSubject(ctx context.Context, log, subject string, through protocol.StreamSeq) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Compaction.Timeout)
	defer cancel()
	return purgeSubject(ctx, c.cfg.Publish, c.cfg.Stream.name(), log, subject, through)
}

// purgeSubject removes a subject's messages up to a sequence, if the stream is
// still the one that was read: in another the sequence means other messages.
func purgeSubject(ctx context.Context, js jetstream.JetStream, name, log, subject string, through protocol.StreamSeq) error {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("inspect stream %s: %w", name, err)
	}
	if info := stream.CachedInfo(); info.Config.Metadata[epochKey] != log || info.State.LastSeq < uint64(through) {
		return fmt.Errorf("purge %s up to %d: the log is another one by now", subject, through)
	}
	err = stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(uint64(through)+1))
	if err != nil {
		return fmt.Errorf("purge %s up to %d: %w", subject, through, err)
	}
	return nil
}
