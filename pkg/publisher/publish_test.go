package publisher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
)

const device = protocol.TierDevice

// store stores a chain of blocks at the start of a prompt.
func (r *running) store(hashes ...protocol.SequenceHash) {
	var blocks []protocol.Block
	for _, h := range hashes {
		blocks = append(blocks, protocol.Block{Sequence: h, Hash: protocol.BlockHash(h) + 1000})
	}
	r.Stored(device, true, 0, blocks)
}

// work makes random calls as an engine would.
func (r *running) work(rng *rand.Rand, calls int) {
	w := workload{rng: rng}
	known := []protocol.SequenceHash{1}
	for range calls {
		tier := protocol.Tier(rng.IntN(protocol.Tiers))
		switch op := rng.IntN(1000); {
		case op < 500:
			root := rng.IntN(3) == 0
			parent := known[rng.IntN(len(known))]
			if root {
				parent = 0
			}
			blocks := w.blocks(parent, 1+rng.IntN(6))
			r.Stored(tier, root, parent, blocks)
			for _, b := range blocks {
				known = append(known, b.Sequence)
			}
		case op < 998:
			var gone []protocol.SequenceHash
			for range 1 + rng.IntN(3) {
				gone = append(gone, known[rng.IntN(len(known))])
			}
			r.Removed(tier, gone)
		default:
			r.Cleared()
		}
	}
}

func TestLogGivesWhatTheRankHolds(t *testing.T) {
	for _, json := range []bool{false, true} {
		for _, copies := range []bool{false, true} {
			t.Run(fmt.Sprintf("json=%v,copies=%v", json, copies), func(t *testing.T) {
				h, rng := newLog(t), random(t)
				cfg := h.config()
				cfg.JSON, cfg.Copies = json, copies
				p := h.start(cfg).isReady()
				for range 10 {
					p.work(rng, 300)
					p.isInLog()
				}
				if _, err := p.Snapshot(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := p.isInLog(); got.snapshots != 2 || got.repeated != 0 {
					t.Errorf("log has %d snapshots and %d repeated events, want 2 and 0", got.snapshots, got.repeated)
				}
			})
		}
	}
}

func TestConcurrentCalls(t *testing.T) {
	h, seed := newLog(t), random(t).Uint64()
	cfg := h.config()
	cfg.FlushInterval, cfg.Copies = time.Millisecond, true
	p := h.start(cfg).isReady()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for range 10 {
				p.work(rng, 50)
				if _, err := p.Flush(t.Context()); err != nil {
					t.Error(err)
				}
				if i == 0 {
					if _, err := p.Snapshot(t.Context()); err != nil {
						t.Error(err)
					}
				}
				_, _, _ = p.State(), p.Stats(), p.LastID()
			}
		})
	}
	group.Wait()
	p.isInLog()
}

func TestWhatIsHeldBeforeRegistrationIsInTheFirstSnapshot(t *testing.T) {
	h := newLog(t)
	p, err := New(h.config())
	h.check(err)
	p.Stored(device, true, 0, []protocol.Block{{Sequence: 1, Hash: 1}, {Sequence: 2, Hash: 2}})
	p.Removed(device, []protocol.SequenceHash{2})
	r := h.run(p).isReady()
	r.store(7, 8)
	got := r.isInLog()
	if m := got.messages[0].message; m.Snapshot == nil || m.Snapshot.Through != 2 || m.Snapshot.Seq != 0 || m.Snapshot.Inexact || m.Snapshot.Blocks != 1 {
		t.Errorf("first message = %+v", m.Snapshot)
	}
	if len(got.messages) != 2 || got.last != 3 {
		t.Errorf("log has %d messages through event %d", len(got.messages), got.last)
	}
}

func TestFlushReturnsTheSequenceOfTheLastEvent(t *testing.T) {
	h := newLog(t)
	p := h.start(h.config()).isReady()
	if seq := p.flush(); seq != 1 {
		t.Errorf("after the first snapshot: sequence %d, want 1", seq)
	}
	// Another publisher's messages lie between.
	for i := range protocol.EventID(5) {
		_, err := h.js.Publish(t.Context(), testNames.Events(testPool, protocol.Worker{ID: "other"}), []byte("{}"))
		h.check(err)
		p.store(protocol.SequenceHash(i) + 1)
		seq := p.flush()
		if want := protocol.StreamSeq(2*i + 3); seq != want || p.LastID() != i+1 {
			t.Errorf("event %d: sequence %d, want %d", p.LastID(), seq, want)
		}
		if again := p.flush(); again != seq {
			t.Errorf("with nothing new: sequence %d, want %d", again, seq)
		}
	}
}

func TestFlushDoesNotWaitForCompany(t *testing.T) {
	h := newLog(t)
	cfg := h.config()
	cfg.FlushInterval = maxFlushInterval
	p := h.start(cfg).isReady()
	// What was said between two flushes shares messages.
	for range 20 {
		before := p.flush()
		for i := range protocol.SequenceHash(100) {
			p.store(2*i+1, 2*i+2)
		}
		if after := p.flush(); after > before+20 {
			t.Errorf("100 events took %d messages", after-before)
		}
	}
}

func TestEventsAreSentWithoutFlush(t *testing.T) {
	h := newLog(t)
	for _, interval := range []time.Duration{0, maxFlushInterval} {
		cfg := h.config()
		cfg.FlushInterval = interval
		p := h.start(cfg).isReady()
		for i := range protocol.SequenceHash(5) {
			p.store(i + 1)
			h.until("the event in the log", func() bool { return h.roster().LastID == p.LastID() })
		}
		h.check(p.stop())
	}
}

func TestFlushFails(t *testing.T) {
	h := newHarness(t)
	h.makeBucket(10 * time.Second)
	cfg := h.config()
	cfg.ShutdownTimeout = 10 * time.Millisecond
	p := h.start(cfg)
	p.store(1)
	h.until("a failure", func() bool { return p.Stats().Failure != nil })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := p.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("Flush without a stream: %v", err)
	}
	if s := p.Stats(); s.Unsent != 1 {
		t.Errorf("stats = %+v, want one event unsent", s)
	}
	if err := p.stop(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run = %v, want that it could not publish the event", err)
	}
	if h.roster() != nil {
		t.Error("the entry was not taken back")
	}
}

// checkSizes fails for a message over the bounds.
func checkSizes(t *testing.T, messages []readMessage, maxBytes int) {
	t.Helper()
	for _, m := range messages {
		if m.size > maxBytes {
			t.Errorf("message %d has %d bytes, at most %d are allowed", m.seq, m.size, maxBytes)
		}
		if n := m.message.BlockCount(); m.message.Snapshot == nil && n > protocol.MaxEventBlocks {
			t.Errorf("message %d has %d blocks", m.seq, n)
		}
	}
}

func TestPackingBounds(t *testing.T) {
	for _, json := range []bool{false, true} {
		t.Run(fmt.Sprintf("json=%v", json), func(t *testing.T) {
			h := newLog(t)
			cfg := h.config()
			cfg.JSON = json
			p := h.start(cfg).isReady()
			// Hashes of 20 digits are the longest there are.
			hash := ^protocol.SequenceHash(0)
			var blocks []protocol.Block
			for range 20000 {
				blocks = append(blocks, protocol.Block{Sequence: hash, Hash: protocol.BlockHash(hash)})
				hash--
			}
			p.Stored(device, true, 0, blocks)
			for part := range slices.Chunk(blocks, 50) {
				p.Stored(protocol.TierExternal, true, 0, part)
			}
			for i := range blocks {
				if i%3 == 0 {
					p.Stored(protocol.TierDisk, true, 0, blocks[i:i+1])
				}
			}
			p.flush()
			if _, err := p.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			var gone []protocol.SequenceHash
			for _, b := range blocks {
				gone = append(gone, b.Sequence)
			}
			p.Removed(protocol.TierDisk, gone)
			got := p.isInLog()
			checkSizes(t, got.messages, protocol.MaxPackedMessage)
			if got.snapshots != 2 {
				t.Errorf("%d snapshots, want 2", got.snapshots)
			}
		})
	}
}

func TestCopies(t *testing.T) {
	h := newLog(t)
	cfg := h.config()
	cfg.Copies = true
	p := h.start(cfg).isReady()
	p.store(1, 2)
	p.store(1, 2)
	p.Stored(protocol.TierHost, true, 0, []protocol.Block{{Sequence: 1, Hash: 1001}})
	p.Removed(device, []protocol.SequenceHash{2, 1}) // a copy each is left
	if id := p.LastID(); id != 3 {
		t.Errorf("last id %d: the removal of a copy took an event", id)
	}
	p.Removed(device, []protocol.SequenceHash{2, 1, 1, 9})
	got := p.isInLog()
	last := got.messages[len(got.messages)-1].message.Events
	if e := last[len(last)-1]; e.Kind != protocol.EventRemoved || !slices.Equal(e.Removed, []protocol.SequenceHash{2, 1, 1, 9}) {
		t.Errorf("last event = %+v, want the last copies' removal and what is not known", e)
	}
	if s := p.State(); s.Blocks != 1 {
		t.Errorf("%d blocks are held, want the one on host", s.Blocks)
	}
	p.store(5)
	p.store(5)
	p.Cleared()
	p.store(5)
	p.Removed(device, []protocol.SequenceHash{5})
	if got := p.isInLog(); got.state().Blocks != 0 {
		t.Errorf("%d blocks are held after a clear and a removal", got.state().Blocks)
	}
}

func TestHoles(t *testing.T) {
	h := newLog(t)
	p := h.start(h.config()).isReady()
	p.store(1, 2, 3)
	p.Removed(device, []protocol.SequenceHash{1, 2})
	p.Stored(protocol.TierHost, false, 2, []protocol.Block{{Sequence: 4, Hash: 1004}})
	got := p.isInLog()
	var want protocol.SequenceHash
	for _, content := range []protocol.BlockHash{1001, 1002, 1004} {
		want = protocol.NextSequenceHash(want, content)
	}
	if got.places[4].path != want || !got.held(4) || got.held(2) {
		t.Errorf("block 4 is not behind the hole that blocks 1 and 2 left: %+v", got.places)
	}
	p.Removed(device, []protocol.SequenceHash{3})
	p.Removed(protocol.TierHost, []protocol.SequenceHash{4})
	if got := p.isInLog(); got.state().Blocks != 0 {
		t.Errorf("%d blocks are left", got.state().Blocks)
	}
}

func TestOrphansComeBackWithTheirParent(t *testing.T) {
	h := newLog(t)
	p := h.start(h.config()).isReady()
	p.Stored(device, false, 2, []protocol.Block{{Sequence: 3, Hash: 1003}, {Sequence: 4, Hash: 1004}, {Sequence: 5, Hash: 1005}})
	p.Stored(device, false, 5, []protocol.Block{{Sequence: 6, Hash: 1006}})
	if s := p.State(); s.Blocks != 0 {
		t.Errorf("%d blocks are held, those without a place", s.Blocks)
	}
	p.Removed(device, []protocol.SequenceHash{4})
	// A snapshot makes routers drop what they had kept aside.
	if _, err := p.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.store(1, 2)
	got := p.isInLog()
	if got.state().Blocks != 3 || !got.held(3) {
		t.Errorf("%d blocks are held, want 1, 2 and 3", got.state().Blocks)
	}
	p.store(1, 2, 3, 4)
	if got := p.isInLog(); got.state().Blocks != 6 {
		t.Errorf("%d blocks are held, want 1 to 6", got.state().Blocks)
	}
	if s := p.Stats(); s.Orphans != 4 || s.Forgotten != 0 {
		t.Errorf("stats = %+v", s)
	}
}

func TestMalformedCallsAreCounted(t *testing.T) {
	h := newLog(t)
	p := h.start(h.config()).isReady()
	p.store(1, 2, 1)
	p.Stored(device, false, 2, []protocol.Block{{Sequence: 2}})
	p.Stored(protocol.Tiers, true, 0, []protocol.Block{{Sequence: 2}})
	p.Removed(protocol.Tiers, []protocol.SequenceHash{1})
	p.Stored(device, true, 0, nil)
	p.Removed(device, nil)
	if s := p.Stats(); s.Malformed != 4 || p.LastID() != 0 {
		t.Errorf("stats = %+v, last id %d", s, p.LastID())
	}
}

func TestNotesAndLosses(t *testing.T) {
	for _, tt := range []struct {
		json       bool
		first, two []byte
		bad        []byte
	}{
		{true, []byte(`{"copies":[1,2]}`), []byte(`"second"`), []byte(`{"copies":`)},
		{false, []byte{0x81, 0xa1, 'c', 0x92, 1, 2}, []byte{0xa1, 's'}, []byte{0xa2, 's'}},
	} {
		h := newLog(t)
		cfg := h.config()
		cfg.JSON = tt.json
		p := h.start(cfg).isReady()
		h.check(p.Note(tt.first))
		h.check(p.Note(tt.two))
		for _, bad := range [][]byte{tt.bad, append(slices.Clone(tt.two), tt.two...), nil, make([]byte, protocol.MaxNoteBytes+1)} {
			if err := p.Note(bad); err == nil {
				t.Errorf("note %.20q was accepted", bad)
			}
		}
		p.Lost()
		if got := p.isInLog(); !got.holed || !slices.Equal(got.note, tt.two) {
			t.Errorf("holed %v, note %q", got.holed, got.note)
		}
		seq, err := p.Snapshot(t.Context())
		h.check(err)
		stream, err := h.js.Stream(t.Context(), testNames.Stream(testPool))
		h.check(err)
		h.check(stream.Purge(t.Context(), jetstream.WithPurgeSequence(uint64(seq))))
		if got := p.isInLog(); !got.holed || !slices.Equal(got.note, tt.two) {
			t.Errorf("from the snapshot: holed %v, note %q, want %q", got.holed, got.note, tt.two)
		}
		p.Cleared()
		if _, err := p.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := p.isInLog(); got.holed || !slices.Equal(got.note, tt.two) {
			t.Errorf("after a clear: holed %v, note %q", got.holed, got.note)
		}
		h.check(p.stop())
	}
}

func TestSnapshotInManyChunks(t *testing.T) {
	h := newLog(t)
	p := h.start(h.config()).isReady()
	for _, chain := range chains(1000, 64) {
		p.Stored(device, true, 0, chain)
	}
	p.Removed(device, []protocol.SequenceHash{chains(1, 1)[0][0].Sequence})
	if _, err := p.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := p.isInLog()
	checkSizes(t, got.messages, protocol.MaxPackedMessage)
	last := got.messages[len(got.messages)-1].message.Snapshot
	if last == nil || last.Chunks < 4 || last.Blocks != 63999 {
		t.Errorf("last message = %+v, want the end of a snapshot of 63,999 blocks", last)
	}
}

// One operation is an event of 32 blocks stored and one of 32 removed; the log
// has all of them at the end.
func BenchmarkPublish(b *testing.B) {
	h := newLog(b)
	cfg := h.config()
	cfg.FlushInterval = maxFlushInterval
	p := h.start(cfg).isReady()
	all := chains(4096, 32)
	hashes := make([][]protocol.SequenceHash, len(all))
	for i, chain := range all {
		for _, block := range chain {
			hashes[i] = append(hashes[i], block.Sequence)
		}
		slices.Reverse(hashes[i])
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		p.Stored(device, true, 0, all[n%4096])
		if n >= 2048 {
			p.Removed(device, hashes[(n-2048)%4096])
		}
		if n%256 == 255 {
			p.flush() // as a log that keeps up
			if n%65536 == 65535 {
				b.StopTimer()
				stream, err := h.js.Stream(context.Background(), testNames.Stream(testPool))
				h.check(err)
				h.check(stream.Purge(context.Background()))
				b.StartTimer()
			}
		}
	}
	p.flush()
	b.ReportMetric(float64(64*b.N)/b.Elapsed().Seconds(), "blocks/s")
}

// One operation is what a replay does before a decision: some events of each of
// eight publishers, flushed at once.
func BenchmarkFlush(b *testing.B) {
	for _, bench := range []struct {
		name       string
		publishers int
		shared     bool
		opts       func(h *harness) []nats.Option
	}{
		{"1", 1, true, nil},
		{"8", 8, false, nil},
		{"8,shared", 8, true, nil},
		{"8,shared,in-process", 8, true, func(h *harness) []nats.Option { return []nats.Option{nats.InProcessServer(h.srv)} }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			h := newLog(b)
			connect := func() *nats.Conn {
				var opts []nats.Option
				if bench.opts != nil {
					opts = bench.opts(h)
				}
				return natstest.Connect(b, h.srv, opts...)
			}
			shared := connect()
			var all []*running
			for i := range bench.publishers {
				cfg := h.config()
				cfg.Conn = shared
				if !bench.shared {
					cfg.Conn = connect()
				}
				cfg.RefreshInterval = 3 * time.Second
				cfg.FlushInterval = maxFlushInterval
				cfg.Registration.Rank = uint16(i)
				all = append(all, h.start(cfg).isReady())
			}
			var hash protocol.SequenceHash
			b.ResetTimer()
			for range b.N {
				var group sync.WaitGroup
				for _, p := range all {
					hash++
					p.store(hash)
					p.Removed(device, []protocol.SequenceHash{hash})
					group.Go(func() { p.flush() })
				}
				group.Wait()
			}
		})
	}
}
