package subscriber

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/protocol"
)

var testWorker = protocol.Worker{ID: "w"}

// bench drives one fold by hand.
type bench struct {
	t     *testing.T
	f     *fold
	index *indexer.Trie
	seq   protocol.StreamSeq
	log   []logged
	now   time.Time
}

type logged struct {
	seq protocol.StreamSeq
	m   *protocol.EventMessage
}

func newBench(t *testing.T, epoch protocol.Epoch) *bench {
	b := &bench{t: t, index: indexer.NewTrie(), now: time.Unix(1000, 0)}
	b.f = newFold(&rules{
		sink: b.index, parentNotHeld: indexer.ErrParentNotHeld, malformedStore: indexer.ErrMalformedStore,
		repairPause: time.Minute, compaction: Config{}.withDefaults().Compaction,
	}, testWorker, epoch)
	b.f.live = true
	return b
}

// feed stores a message in the log and feeds it.
func (b *bench) feed(m *protocol.EventMessage) {
	b.seq++
	b.log = append(b.log, logged{seq: b.seq, m: m})
	b.f.message(b.seq, 100, m, nil)
}

// at feeds events under an epoch.
func (b *bench) at(epoch protocol.Epoch, events ...protocol.Event) {
	b.feed(&protocol.EventMessage{Epoch: epoch, Events: events})
}

// snapshot feeds a snapshot of root blocks in one message.
func (b *bench) snapshot(epoch protocol.Epoch, h protocol.SnapshotHeader, hashes ...uint64) {
	b.feed(snapshotMessage(epoch, h, hashes...))
}

func snapshotMessage(epoch protocol.Epoch, h protocol.SnapshotHeader, hashes ...uint64) *protocol.EventMessage {
	m := &protocol.EventMessage{Epoch: epoch, Snapshot: &h}
	if len(hashes) > 0 {
		m.Events = []protocol.Event{put(0, hashes...)}
	}
	if h.ID == "" {
		h.ID = "s"
	}
	if h.Chunks == 0 {
		h.Chunks = 1
		h.Blocks, h.Checksum, _ = protocol.SummarizeSnapshot(m.Events)
	}
	m.Snapshot = &h
	return m
}

// reread feeds the log again from a sequence on, as a repair does.
func (b *bench) reread(from protocol.StreamSeq) {
	b.f.rereading()
	for _, l := range b.log {
		if l.seq >= from {
			b.f.message(l.seq, 100, l.m, nil)
		}
	}
}

func put(id protocol.EventID, hashes ...uint64) protocol.Event {
	return protocol.Event{ID: id, Kind: protocol.EventStored, Root: true, Blocks: named(hashes...)}
}

func below(id protocol.EventID, parent uint64, hashes ...uint64) protocol.Event {
	return protocol.Event{ID: id, Kind: protocol.EventStored, Parent: protocol.SequenceHash(parent), Blocks: named(hashes...)}
}

func named(hashes ...uint64) []protocol.Block {
	var blocks []protocol.Block
	for _, h := range hashes {
		blocks = append(blocks, protocol.Block{Sequence: protocol.SequenceHash(h), Hash: protocol.BlockHash(h * 1000)})
	}
	return blocks
}

func drop(id protocol.EventID, hashes ...uint64) protocol.Event {
	ev := protocol.Event{ID: id, Kind: protocol.EventRemoved}
	for _, h := range hashes {
		ev.Removed = append(ev.Removed, protocol.SequenceHash(h))
	}
	return ev
}

func wipe(id protocol.EventID) protocol.Event {
	return protocol.Event{ID: id, Kind: protocol.EventCleared}
}

func lost(id protocol.EventID) protocol.Event {
	return protocol.Event{ID: id, Kind: protocol.EventLost}
}

func broken(id protocol.EventID) protocol.Event {
	return protocol.Event{ID: id, Refusal: protocol.RefusedUndecodable}
}

// want is what a fold must have come to.
type want struct {
	last    protocol.EventID
	holds   []uint64
	partial bool
	refused map[protocol.Refusal]uint64
	needs   string // "", log, events, snapshot
	held    int
}

func (b *bench) check(w want) {
	b.t.Helper()
	got := want{last: b.f.last, partial: b.f.partial(b.now), refused: b.f.counters.refused, held: b.f.held.len()}
	for h := range uint64(100) {
		if b.index.Holds(testWorker, protocol.SequenceHash(h)) {
			got.holds = append(got.holds, h)
		}
	}
	switch n := b.f.next(b.now); {
	case n.kind == needLog:
		got.needs = "log"
	case n.kind == needPublisher && n.query.From == 0:
		got.needs = "snapshot"
	case n.kind == needPublisher:
		got.needs = "events"
	}
	got.refused = maps.Clone(got.refused)
	if len(got.refused) == 0 {
		got.refused = nil
	}
	if diff := cmp.Diff(w, got, cmp.AllowUnexported(want{})); diff != "" {
		b.t.Errorf("want -, got +\n%s", diff)
	}
}

type refusals = map[protocol.Refusal]uint64

func TestFoldByRule(t *testing.T) {
	const dup, old = protocol.RefusedDuplicate, protocol.RefusedOldEpoch
	for _, c := range []struct {
		name  string
		epoch protocol.Epoch
		run   func(b *bench)
		want  want
	}{
		{"next is applied", 7, func(b *bench) { b.at(7, put(1, 1, 2)); b.at(7, drop(2, 2), put(3, 5)) },
			want{last: 3, holds: []uint64{1, 5}}},
		{"not above last is dropped", 7, func(b *bench) { b.at(7, put(1, 1), put(2, 2)); b.at(7, put(1, 1), drop(2, 1)) },
			want{last: 2, holds: []uint64{1, 2}, refused: refusals{dup: 2}}},
		{"beyond a hole is held", 7, func(b *bench) { b.at(7, put(1, 1)); b.at(7, put(3, 3), put(5, 5)) },
			want{last: 1, holds: []uint64{1}, partial: true, held: 2, needs: "log"}},
		{"a hole that fills", 7, func(b *bench) { b.at(7, put(1, 1)); b.at(7, put(4, 4), put(3, 3)); b.at(7, put(2, 2)) },
			want{last: 4, holds: []uint64{1, 2, 3, 4}}},
		{"20,18,19,19 then 17", 7, func(b *bench) {
			b.snapshot(7, protocol.SnapshotHeader{Through: 16})
			for _, id := range []protocol.EventID{20, 18, 19, 19} {
				b.at(7, put(id, uint64(id)))
			}
			b.at(7, put(17, 17))
		}, want{last: 20, holds: []uint64{17, 18, 19, 20}, refused: refusals{dup: 1}}},
		{"a hole in the middle of a message", 7, func(b *bench) { b.at(7, put(1, 1), put(3, 3)); b.at(7, put(2, 2), put(3, 9)) },
			want{last: 3, holds: []uint64{1, 2, 3}, refused: refusals{dup: 1}}},
		{"the log is read, then the publisher asked", 7, func(b *bench) { b.at(7, put(1, 1)); b.at(7, put(3, 3)); b.reread(2) },
			want{last: 1, holds: []uint64{1}, partial: true, held: 1, needs: "events"}},
		{"nobody can help", 7, func(b *bench) {
			b.at(7, put(1, 1))
			b.at(7, put(3, 3), put(6, 6))
			b.reread(2)
			b.f.settle(b.now)
		}, want{last: 6, holds: []uint64{1, 3, 6}, partial: true}},
		{"a failed repair is tried again later", 7, func(b *bench) {
			b.at(7, put(2, 2))
			b.reread(1)
			b.f.settle(b.now)
			b.now = b.now.Add(time.Minute)
		}, want{last: 2, holds: []uint64{2}, partial: true, needs: "snapshot"}},

		{"a clear is a base", 7, func(b *bench) { b.at(7, put(1, 1)); b.at(7, put(4, 4), wipe(9), put(11, 11)); b.at(7, put(10, 10)) },
			want{last: 11, holds: []uint64{10, 11}}},
		{"a clear not above last is dropped", 7, func(b *bench) { b.at(7, put(1, 1), put(2, 2)); b.at(7, wipe(2)) },
			want{last: 2, holds: []uint64{1, 2}, refused: refusals{dup: 1}}},
		{"a clear ends doubt", 7, func(b *bench) { b.at(7, broken(1), lost(2)); b.at(7, wipe(3)) },
			want{last: 3, refused: refusals{protocol.RefusedUndecodable: 1}}},
		{"lost", 7, func(b *bench) { b.at(7, put(1, 1), lost(2), put(3, 3)) },
			want{last: 3, holds: []uint64{1, 3}, partial: true}},
		{"lost is not ended by an inexact snapshot", 7, func(b *bench) {
			b.at(7, put(1, 1), lost(2))
			b.snapshot(7, protocol.SnapshotHeader{Through: 2, Inexact: true}, 4)
		}, want{last: 2, holds: []uint64{4}, partial: true}},
		{"lost is ended by an exact one", 7, func(b *bench) {
			b.at(7, put(1, 1), lost(2))
			b.snapshot(7, protocol.SnapshotHeader{Through: 2}, 4)
		}, want{last: 2, holds: []uint64{4}}},
		{"undecodable with an id", 7, func(b *bench) { b.at(7, put(1, 1), broken(2), put(3, 3)) },
			want{last: 3, holds: []uint64{1, 3}, partial: true, needs: "snapshot", refused: refusals{protocol.RefusedUndecodable: 1}}},
		{"a refused event counts as seen", 7, func(b *bench) {
			b.at(7, protocol.Event{ID: 1, Refusal: protocol.RefusedOtherRank}, put(2, 2), protocol.Event{ID: 3, Kind: protocol.EventIgnored})
		}, want{last: 3, holds: []uint64{2}, refused: refusals{protocol.RefusedOtherRank: 1}}},
		{"an event without an id", 7, func(b *bench) {
			b.feed(&protocol.EventMessage{Epoch: 7, Events: []protocol.Event{put(1, 1)}, Lost: map[protocol.Refusal]int{protocol.RefusedUndecodable: 2}})
		}, want{last: 1, holds: []uint64{1}, refused: refusals{protocol.RefusedUndecodable: 2}}},
		{"a message refused whole", 7, func(b *bench) { b.f.message(1, 10, nil, protocol.RefusedVersion); b.seq++; b.at(7, put(1, 1)) },
			want{last: 1, holds: []uint64{1}, refused: refusals{protocol.RefusedVersion: 1}}},

		{"malformed store", 7, func(b *bench) { b.at(7, put(1, 1, 1), put(2, 2)) },
			want{last: 2, holds: []uint64{2}, refused: refusals{protocol.RefusedMalformedStore: 1}}},
		{"a store whose parent comes later", 7, func(b *bench) { b.at(7, below(1, 3, 4), below(2, 2, 3)); b.at(7, put(3, 1, 2)) },
			want{last: 3, holds: []uint64{1, 2, 3, 4}}},
		{"a store whose parent does not come", 7, func(b *bench) { b.at(7, below(1, 3, 4), put(2, 7)) },
			want{last: 2, holds: []uint64{7}, partial: true, needs: "snapshot"}},
		{"is asked for once", 7, func(b *bench) { b.at(7, below(1, 3, 4), put(2, 7)); b.f.settle(b.now); b.at(7, below(3, 4, 9)) },
			want{last: 3, holds: []uint64{7}, partial: true}},
		{"a block removed while aside", 7, func(b *bench) { b.at(7, below(1, 3, 4, 5), drop(2, 5)); b.at(7, put(3, 3)) },
			want{last: 3, holds: []uint64{3, 4}}},
		{"all removed while aside", 7, func(b *bench) { b.at(7, below(1, 3, 4), drop(2, 4)) },
			want{last: 2}},
		{"a snapshot drops what is aside", 7, func(b *bench) {
			b.at(7, below(1, 3, 4))
			b.snapshot(7, protocol.SnapshotHeader{Through: 1}, 8)
			b.at(7, put(2, 3))
		}, want{last: 2, holds: []uint64{3, 8}}},

		{"an older epoch is dropped", 7, func(b *bench) { b.at(7, put(1, 1)); b.at(6, put(2, 2), wipe(3)) },
			want{last: 1, holds: []uint64{1}, refused: refusals{old: 2}}},
		{"so is its snapshot", 7, func(b *bench) { b.at(7, put(1, 1)); b.snapshot(6, protocol.SnapshotHeader{Through: 9}, 9) },
			want{last: 1, holds: []uint64{1}, refused: refusals{old: 1}}},
		{"a newer roster entry empties the rank", 7, func(b *bench) { b.at(7, put(1, 1)); b.f.enroll(8) },
			want{}},
		{"an older one does not", 7, func(b *bench) { b.at(7, put(1, 1)); b.f.enroll(6) },
			want{last: 1, holds: []uint64{1}}},
		{"an epoch ahead of the roster is refused", 7, func(b *bench) { b.at(7, put(1, 1)); b.at(9, put(1, 9)); b.f.resolveAhead(8) },
			want{last: 1, holds: []uint64{1}, refused: refusals{protocol.RefusedFutureEpoch: 1}}},
		{"unless the roster has reached it", 7, func(b *bench) {
			b.at(7, put(1, 1))
			b.at(9, put(1, 9))
			from, _ := b.f.resolveAhead(9)
			b.reread(from)
		}, want{last: 1, holds: []uint64{9}}},
		{"or its entry comes", 7, func(b *bench) {
			b.at(7, put(1, 1))
			b.at(9, put(1, 9))
			from, _ := b.f.enroll(9)
			b.reread(from)
		}, want{last: 1, holds: []uint64{9}}},
		{"no epochs any more", 7, func(b *bench) {
			b.at(0, put(1, 5))
			b.at(7, put(1, 1))
			from, _ := b.f.enroll(0)
			b.reread(from)
			b.f.resolveAhead(100)
		}, want{last: 1, holds: []uint64{5}, refused: refusals{old: 1}}},

		{"without epochs ids may begin at 0", 0, func(b *bench) { b.at(0, put(0, 1), put(1, 2), put(2, 3)) },
			want{last: 2, holds: []uint64{1, 2, 3}}},
		{"or anywhere", 0, func(b *bench) { b.at(0, put(5, 5)); b.at(0, put(6, 6)) },
			want{last: 6, holds: []uint64{5, 6}, partial: true, needs: "snapshot"}},
		{"a restart", 0, func(b *bench) { b.at(0, put(1, 1), put(2, 2), put(3, 3)); b.at(0, put(1, 7), put(2, 8)) },
			want{last: 2, holds: []uint64{7, 8}}},
		{"a restart at 0", 0, func(b *bench) { b.at(0, put(1, 1), put(2, 2)); b.at(0, put(0, 7)) },
			want{holds: []uint64{7}}},
		{"a restart right after event 1", 0, func(b *bench) { b.at(0, put(1, 1)); b.at(0, put(1, 7)); b.at(0, put(1, 7)) },
			want{last: 1, holds: []uint64{7}, refused: refusals{dup: 1}}},
		{"a restart mends what began anywhere", 0, func(b *bench) { b.at(0, put(5, 5)); b.at(0, put(1, 1)) },
			want{last: 1, holds: []uint64{1}}},
		{"a repeat is no restart", 0, func(b *bench) { b.at(0, put(1, 1), put(2, 2)); b.at(0, put(1, 1), put(2, 2)) },
			want{last: 2, holds: []uint64{1, 2}, refused: refusals{dup: 2}}},
		{"a clear mends what began anywhere", 0, func(b *bench) { b.at(0, put(5, 5)); b.at(0, wipe(9)) },
			want{last: 9}},
		{"a snapshot of before the restart", 0, func(b *bench) {
			b.at(0, put(1, 1), put(2, 2))
			b.at(0, put(1, 7))
			b.snapshot(0, protocol.SnapshotHeader{Through: 2, Seq: 1}, 1, 2)
		}, want{last: 1, holds: []uint64{7}}},
		{"of which only snapshots are left", 0, func(b *bench) {
			b.seq = 9
			b.snapshot(0, protocol.SnapshotHeader{Through: 30, Seq: 2}, 1, 2)
			b.at(0, put(5, 5))
			b.snapshot(0, protocol.SnapshotHeader{Through: 4, Seq: 6}, 3, 4)
			b.reread(b.f.next(b.now).from)
		}, want{last: 5, holds: []uint64{3, 4, 5}, refused: refusals{dup: 1}}},
		{"in the other order", 0, func(b *bench) {
			b.seq = 9
			b.snapshot(0, protocol.SnapshotHeader{Through: 4, Seq: 6}, 3, 4)
			b.snapshot(0, protocol.SnapshotHeader{Through: 30, Seq: 2}, 1, 2)
			b.at(0, put(5, 5))
		}, want{last: 5, holds: []uint64{3, 4, 5}}},
		{"before the end of the log a hole waits", 0, func(b *bench) {
			b.f.live = false
			b.at(0, put(5, 5), put(6, 6))
			b.snapshot(0, protocol.SnapshotHeader{Through: 4}, 2)
			b.f.goLive()
		}, want{last: 6, holds: []uint64{2, 5, 6}}},
		{"and is taken as it comes at the end", 0, func(b *bench) {
			b.f.live = false
			b.at(0, put(5, 5), put(6, 6))
			b.f.goLive()
		}, want{last: 6, holds: []uint64{5, 6}, partial: true, needs: "snapshot"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.epoch)
			c.run(b)
			b.check(c.want)
		})
	}
}

func TestFoldSnapshots(t *testing.T) {
	header := func(through protocol.EventID, seq protocol.StreamSeq) protocol.SnapshotHeader {
		return protocol.SnapshotHeader{Through: through, Seq: seq}
	}
	for _, c := range []struct {
		name  string
		run   func(b *bench)
		want  want
		proof protocol.StreamSeq // what may be purged
	}{
		{"ahead of the state is adopted", func(b *bench) { b.at(7, put(1, 1)); b.snapshot(7, header(5, 0), 3, 4); b.at(7, put(6, 6)) },
			want{last: 6, holds: []uint64{3, 4, 6}}, 0},
		{"at the state is a proof", func(b *bench) { b.at(7, put(1, 1), put(2, 2)); b.snapshot(7, header(2, 0), 1, 2) },
			want{last: 2, holds: []uint64{1, 2}}, 1},
		{"behind the state is one too", func(b *bench) {
			b.at(7, put(1, 1))
			b.at(7, put(2, 2))
			b.at(7, put(3, 3))
			b.snapshot(7, header(2, 2), 1, 2)
		}, want{last: 3, holds: []uint64{1, 2, 3}}, 2},
		{"covers no more than was read by then", func(b *bench) {
			b.at(7, put(1, 1))
			b.at(7, put(2, 2))
			b.snapshot(7, header(1, 2), 1)
		}, want{last: 2, holds: []uint64{1, 2}}, 1},
		{"of an unknown moment is skipped", func(b *bench) { b.at(7, put(1, 1), put(2, 2)); b.snapshot(7, header(1, 1), 9) },
			want{last: 2, holds: []uint64{1, 2}}, 0},
		{"that contradicts", func(b *bench) { b.at(7, put(1, 1)); b.snapshot(7, header(1, 0), 2) },
			want{last: 1, holds: []uint64{1}, partial: true, needs: "snapshot"}, 0},
		{"that contradicts is adopted if nobody knows better", func(b *bench) {
			b.at(7, put(1, 1))
			b.snapshot(7, header(1, 0), 2)
			b.at(7, put(2, 5))
			b.f.settle(b.now)
			for b.f.next(b.now).kind == needLog {
				b.reread(b.f.next(b.now).from)
			}
		}, want{last: 2, holds: []uint64{2, 5}}, 0},
		{"whose sums are wrong", func(b *bench) {
			b.at(7, put(1, 1))
			b.snapshot(7, protocol.SnapshotHeader{Through: 4, Chunks: 1, Blocks: 1, Checksum: 1}, 2)
		}, want{last: 1, holds: []uint64{1}, partial: true, needs: "snapshot", refused: refusals{protocol.RefusedSnapshot: 1}}, 0},
		{"that cannot be read", func(b *bench) { b.at(7, put(1, 1)); b.f.message(2, 10, nil, protocol.RefusedSnapshot) },
			want{last: 1, holds: []uint64{1}, partial: true, needs: "snapshot", refused: refusals{protocol.RefusedSnapshot: 1}}, 0},
		{"of a newer life begins it", func(b *bench) {
			b.at(7, put(1, 1))
			b.f.reached = 9
			b.snapshot(9, header(3, 0), 4)
		}, want{last: 3, holds: []uint64{4}}, 0},
		{"empty and covering 7", func(b *bench) { b.at(7, put(1, 1)); b.snapshot(7, header(7, 0)) },
			want{last: 7}, 0},
		{"ends a doubt it covers and rewinds", func(b *bench) {
			b.at(7, put(1, 1), broken(2))
			b.at(7, put(3, 3))
			b.snapshot(7, header(2, 1), 1, 2)
		}, want{last: 2, holds: []uint64{1, 2}, partial: true, needs: "log", refused: refusals{protocol.RefusedUndecodable: 1}}, 0},
		{"then the log gives the rest", func(b *bench) {
			b.at(7, put(1, 1), broken(2))
			b.at(7, put(3, 3))
			b.snapshot(7, header(2, 1), 1, 2)
			b.reread(b.f.next(b.now).from)
		}, want{last: 3, holds: []uint64{1, 2, 3}, refused: refusals{protocol.RefusedUndecodable: 1}}, 0},
		{"does not end a doubt behind it", func(b *bench) {
			b.at(7, put(1, 1))
			b.at(7, broken(2))
			b.snapshot(7, header(1, 1), 1)
		}, want{last: 2, holds: []uint64{1}, partial: true, needs: "snapshot", refused: refusals{protocol.RefusedUndecodable: 1}}, 1},
		{"behind a hole keeps what is good", func(b *bench) {
			b.at(7, put(1, 1))
			b.at(7, put(2, 2))
			b.at(7, put(5, 5))
			b.snapshot(7, header(1, 1), 1)
		}, want{last: 2, holds: []uint64{1, 2}, partial: true, held: 1, needs: "log"}, 1},
		{"beyond a hole closes it", func(b *bench) { b.at(7, put(1, 1)); b.at(7, put(5, 5)); b.snapshot(7, header(4, 0), 4) },
			want{last: 5, holds: []uint64{4, 5}}, 0},
		{"in chunks, with events between", func(b *bench) {
			set := chunked(7, header(2, 0), []uint64{1}, []uint64{2}, []uint64{8})
			b.at(7, lost(1), put(2, 1))
			b.feed(set[0])
			b.at(7, put(3, 3))
			b.feed(set[1])
			b.feed(set[0]) // a repeat
			b.feed(set[2])
			b.reread(b.f.next(b.now).from)
		}, want{last: 3, holds: []uint64{1, 2, 3, 8}}, 0},
		{"half of one counts for nothing", func(b *bench) {
			set := chunked(7, header(9, 0), []uint64{1}, []uint64{2})
			b.at(7, put(1, 5))
			b.feed(set[0])
		}, want{last: 1, holds: []uint64{5}}, 0},
		{"a half one is forgotten when another begins", func(b *bench) {
			one := chunked(7, header(9, 0), []uint64{1}, []uint64{2})
			two := chunked(7, header(9, 0), []uint64{3}, []uint64{4})
			two[0].Snapshot.ID, two[1].Snapshot.ID = "t", "t"
			for _, m := range []*protocol.EventMessage{one[0], two[0], one[1], two[1]} {
				b.feed(m)
			}
		}, want{last: 9, holds: []uint64{3, 4}}, 0},
		{"a chunk is missing", func(b *bench) {
			set := chunked(7, header(9, 0), []uint64{1}, []uint64{2}, []uint64{3})
			b.feed(set[0])
			b.feed(set[2])
			b.feed(set[1])
		}, want{refused: refusals{protocol.RefusedSnapshot: 1}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, 7)
			c.run(b)
			b.check(c.want)
			var purge protocol.StreamSeq
			if b.f.proof != nil {
				purge = b.f.proof.purge
			}
			if purge != c.proof {
				t.Errorf("may be purged up to %d, want %d", purge, c.proof)
			}
		})
	}
}

// chunked is a snapshot of root blocks in one message per list.
func chunked(epoch protocol.Epoch, h protocol.SnapshotHeader, lists ...[]uint64) []*protocol.EventMessage {
	whole := snapshotMessage(epoch, h, slices.Concat(lists...)...).Snapshot
	var set []*protocol.EventMessage
	for i, hashes := range lists {
		part := *whole
		part.Chunk, part.Chunks = i, len(lists)
		m := snapshotMessage(epoch, part, hashes...)
		set = append(set, m)
	}
	return set
}

func TestFoldBounds(t *testing.T) {
	t.Run("events beyond a hole", func(t *testing.T) {
		b := newBench(t, 7)
		for id := range protocol.EventID(1500) {
			b.at(7, drop(id+18, 1))
		}
		if b.f.held.len() != maxHeldEvents || b.f.dropped != maxHeldEvents+1 {
			t.Fatalf("%d held, dropped from %d", b.f.held.len(), b.f.dropped)
		}
		b.reread(b.f.next(b.now).from)
		if n := b.f.next(b.now); n.kind != needPublisher || n.query.From != 1 {
			t.Fatalf("needs %+v, want events from 1", n)
		}
		for id := range protocol.EventID(17) {
			b.at(7, put(id+1, uint64(id+1)))
		}
		if n := b.f.next(b.now); n.kind != needLog || n.from != maxHeldEvents+1 {
			t.Fatalf("needs %+v, want the log from %d", n, maxHeldEvents+1)
		}
		b.reread(b.f.next(b.now).from)
		if !b.f.sound() || b.f.last != 1517 {
			t.Fatalf("last %d, sound %v", b.f.last, b.f.sound())
		}
	})
	t.Run("blocks aside", func(t *testing.T) {
		b := newBench(t, 7)
		hashes := make([]uint64, 5000)
		for i := range hashes {
			hashes[i] = uint64(1000 + i)
		}
		b.at(7, below(1, 50, hashes...))
		for i := range hashes {
			hashes[i] += 10000
		}
		b.at(7, below(2, 51, hashes...))
		b.check(want{last: 2, partial: true, needs: "snapshot", refused: refusals{protocol.RefusedOrphanDropped: 1}})
	})
	t.Run("history", func(t *testing.T) {
		b := newBench(t, 7)
		for id := range protocol.EventID(200) {
			b.at(7, put(id+1, uint64(id+1)))
		}
		if _, ok := b.f.history.find(200 - historyLength + 1); !ok {
			t.Error("the oldest moment kept is not found")
		}
		if _, ok := b.f.history.at(100); ok {
			t.Error("a moment that fell out is known")
		}
		if m, ok := b.f.history.at(150); !ok || m.id != 150 {
			t.Errorf("at 150: %+v %v", m, ok)
		}
	})
}

func TestFoldReport(t *testing.T) {
	sum := func(v uint64) *uint64 { return &v }
	state := func(b *bench) *uint64 { return sum(b.index.State(testWorker).Checksum) }
	for _, c := range []struct {
		name    string
		report  func(b *bench) protocol.Registration
		applied protocol.StreamSeq
		quiet   bool
		partial bool
		needs   string
	}{
		{"agrees", func(b *bench) protocol.Registration {
			return protocol.Registration{LastID: 3, StreamSeq: 3, Checksum: state(b)}
		}, 3, false, false, ""},
		{"lags", func(b *bench) protocol.Registration { return protocol.Registration{LastID: 2, StreamSeq: 2} }, 3, false, false, ""},
		{"is ahead of the reader", func(b *bench) protocol.Registration { return protocol.Registration{LastID: 9, StreamSeq: 9} }, 3, false, false, ""},
		{"lost tail", func(b *bench) protocol.Registration { return protocol.Registration{LastID: 4, StreamSeq: 4} }, 4, false, true, "log"},
		{"another log", func(b *bench) protocol.Registration { return protocol.Registration{LastID: 9, StreamSeq: 900} }, 3, true, true, "log"},
		{"id below what was applied by then", func(b *bench) protocol.Registration { return protocol.Registration{LastID: 2, StreamSeq: 3} }, 3, false, true, "snapshot"},
		{"other checksum", func(b *bench) protocol.Registration {
			return protocol.Registration{LastID: 3, StreamSeq: 3, Checksum: sum(1)}
		}, 3, false, true, "snapshot"},
		{"other checksum before", func(b *bench) protocol.Registration {
			return protocol.Registration{LastID: 2, StreamSeq: 2, Checksum: state(b)}
		}, 3, false, true, "snapshot"},
		{"unsent", func(b *bench) protocol.Registration {
			return protocol.Registration{LastID: 3, StreamSeq: 3, Unsent: 4}
		}, 3, false, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, 7)
			for id := range protocol.EventID(3) {
				b.at(7, put(id+1, uint64(id+1)))
			}
			reg := c.report(b)
			b.f.heed(&reg, b.now)
			b.now = b.now.Add(2 * time.Second)
			b.f.checkReport(b.now, c.applied, c.quiet)
			b.check(want{last: 3, holds: []uint64{1, 2, 3}, partial: c.partial, needs: c.needs})
		})
	}
}

func TestNoteIsKept(t *testing.T) {
	b := newBench(t, 7)
	b.feed(&protocol.EventMessage{Epoch: 7, Encoding: protocol.EncodingJSON, Events: []protocol.Event{
		{ID: 1, Kind: protocol.EventNote, Note: []byte(`{"a":1}`)},
		{ID: 2, Kind: protocol.EventNote, Note: []byte(`{"a":18446744073709551615}`)},
	}})
	s := &sketch{epoch: 7, note: b.f.note, header: protocol.SnapshotHeader{ID: "s", Through: 2}}
	fresh := newBench(t, 7)
	for body, err := range s.chunks(1000) {
		if err != nil {
			t.Fatal(err)
		}
		m, err := protocol.DecodeEventMessage(body, 0)
		if err != nil {
			t.Fatal(err)
		}
		fresh.feed(m)
	}
	if fresh.f.last != 2 || fresh.f.note.body == nil {
		t.Fatalf("last %d, note %q", fresh.f.last, fresh.f.note.body)
	}
	again := protocol.AppendEventMessage(nil, &protocol.EventMessage{
		Epoch: 7, Encoding: fresh.f.note.encoding, Events: []protocol.Event{{ID: 1, Kind: protocol.EventNote, Note: fresh.f.note.body}},
	}, protocol.EncodingJSON)
	if got := string(again); got != `{"v":1,"epoch":7,"events":[{"id":1,"note":{"a":18446744073709551615}}]}` {
		t.Errorf("note came back as %s", got)
	}
}
