package subscriber_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/subscriber"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	pool     = "llama 3/8b"
	patience = 20 * time.Second
)

var w1, w2 = protocol.Worker{ID: "w1"}, protocol.Worker{ID: "w2", Rank: 3}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for !holds() {
		if !pauseFor(ctx, 2*time.Millisecond) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// pauseFor waits between two looks at a condition, false if ctx has ended.
func pauseFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// router is a subscriber on an index of its own.
type router struct {
	t     testing.TB
	index *indexer.Trie
	*subscriber.Subscriber
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	conn   *nats.Conn
	once   sync.Once
}

// prepare is a configuration that reacts quickly and does not compact.
func prepare(js jetstream.JetStream, index *indexer.Trie) subscriber.Config {
	cfg := subscriber.Config{
		JetStream: js, Stream: subscriber.StreamConfig{Pool: pool}, Router: "r1",
		Sink: index, ParentNotHeld: indexer.ErrParentNotHeld, MalformedStore: indexer.ErrMalformedStore,
		Lanes: 2, Tick: 5 * time.Millisecond, RepairDelay: time.Millisecond, RepairPause: time.Hour,
		Heartbeat: 500 * time.Millisecond, Retry: 60 * time.Millisecond,
	}
	cfg.Compaction.Off = true
	if os.Getenv("SUBSCRIBER_TEST_LOG") != "" {
		cfg.Log = zerolog.New(os.Stderr)
	}
	return cfg
}

// start runs a subscriber until the test ends. Ranks given are in its roster from
// the beginning, without epochs unless changed says otherwise.
func start(t testing.TB, srv *server.Server, change func(*subscriber.Config), ranks ...protocol.Worker) *router {
	t.Helper()
	r := &router{t: t, index: indexer.NewTrie(), done: make(chan struct{}), conn: natstest.Connect(t, srv)}
	js, err := jetstream.New(r.conn)
	if err != nil {
		t.Fatal(err)
	}
	cfg := prepare(js, r.index)
	if change != nil {
		change(&cfg)
	}
	if r.Subscriber, err = subscriber.New(cfg); err != nil {
		t.Fatal(err)
	}
	for _, w := range ranks {
		r.enroll(w, 0)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() {
		defer close(r.done)
		r.err = r.Run(ctx)
	}()
	t.Cleanup(r.stop)
	return r
}

func (r *router) stop() {
	r.once.Do(func() {
		r.cancel()
		select {
		case <-r.done:
		case <-time.After(patience):
			r.t.Errorf("Run has not returned within %v", patience)
		}
		r.conn.Close()
	})
}

func (r *router) enroll(w protocol.Worker, epoch protocol.Epoch) { r.SetRank(entry(w), epoch) }

func entry(w protocol.Worker) *protocol.Registration {
	return &protocol.Registration{Version: 1, Pool: pool, Worker: w.ID, Rank: w.Rank, BlockSize: 16, Events: true}
}

func (r *router) awaitReady() *router {
	r.t.Helper()
	select {
	case <-r.Ready():
	case <-r.done:
		r.t.Fatalf("Run has returned: %v", r.err)
	case <-time.After(patience):
		r.t.Fatalf("not ready within %v", patience)
	}
	return r
}

func (r *router) await(seq protocol.StreamSeq) *router {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.WaitApplied(ctx, seq); err != nil {
		r.t.Fatalf("wait for %d, at %d: %v", seq, r.Applied(), err)
	}
	return r
}

func (r *router) awaitTrust(w protocol.Worker, want protocol.Trust) *router {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for r.Trust(w) != want {
		if !pauseFor(ctx, 2*time.Millisecond) {
			r.t.Fatalf("trust in %v is %s, not %s, within %v: %s", w, r.Trust(w), want, patience, r.Describe(w))
		}
	}
	return r
}

func (r *router) row(w protocol.Worker) protocol.RankStatus {
	r.t.Helper()
	row, ok := r.Rank(w)
	if !ok {
		r.t.Fatalf("no rank %v", w)
	}
	return row
}

// sameAs checks that two routers hold the same of a rank.
func (r *router) sameAs(other *router, w protocol.Worker) {
	r.t.Helper()
	if mine, theirs := r.index.State(w), other.index.State(w); mine != theirs {
		r.t.Errorf("%v: holds %+v, the other router %+v", w, mine, theirs)
	}
	mine, theirs := r.row(w), other.row(w)
	if mine.LastID != theirs.LastID || mine.Trust != theirs.Trust {
		r.t.Errorf("%v: last id %d, %s; the other router %d, %s", w, mine.LastID, mine.Trust, theirs.LastID, theirs.Trust)
	}
}

// engine publishes one rank's events and keeps what it holds: the plain model.
type engine struct {
	t       testing.TB
	js      jetstream.JetStream
	w       protocol.Worker
	subject string
	epoch   protocol.Epoch
	id      protocol.EventID
	seq     protocol.StreamSeq // of the last message
	next    uint64             // block to store next
	held    []protocol.Block   // roots, one tier
}

func newEngine(t testing.TB, conn *nats.Conn, w protocol.Worker, epoch protocol.Epoch) *engine {
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return &engine{t: t, js: js, w: w, epoch: epoch, subject: protocol.Names{}.Events(pool, w), next: 1 + uint64(epoch)<<32}
}

// raw publishes a body as it is and returns its stream sequence.
func (e *engine) raw(body []byte) protocol.StreamSeq {
	e.t.Helper()
	e.seq = e.publish(body)
	return e.seq
}

// publish is raw without touching the engine, for use beside it.
func (e *engine) publish(body []byte) protocol.StreamSeq {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var ack *jetstream.PubAck
	var err error
	for {
		ack, err = e.js.Publish(ctx, e.subject, body)
		if err == nil || !mayPass(err) || !pauseFor(ctx, 5*time.Millisecond) {
			break
		}
	}
	if err != nil {
		e.t.Errorf("publish: %v", err)
		return 0
	}
	return protocol.StreamSeq(ack.Sequence)
}

// answer publishes what a query is answered with, while the engine goes on.
func (e *engine) answer(messages ...*protocol.EventMessage) (seq protocol.StreamSeq) {
	for _, m := range messages {
		m.Epoch = e.epoch
		seq = e.publish(protocol.AppendEventMessage(nil, m, protocol.EncodingMsgpack))
	}
	return seq
}

// mayPass says whether the same publish may succeed later: the server is away, or
// the stream is full.
func mayPass(err error) bool {
	var api *jetstream.APIError
	const maximumBytes = 10077
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrTimeout) ||
		errors.As(err, &api) && api.ErrorCode == maximumBytes
}

func (e *engine) json(format string, args ...any) protocol.StreamSeq {
	e.t.Helper()
	return e.raw(fmt.Appendf(nil, format, args...))
}

func (e *engine) send(m *protocol.EventMessage) protocol.StreamSeq {
	e.t.Helper()
	m.Epoch = e.epoch
	return e.raw(protocol.AppendEventMessage(nil, m, protocol.EncodingMsgpack))
}

func (e *engine) nextID() protocol.EventID { e.id++; return e.id }

// blocks makes n new blocks.
func (e *engine) blocks(n int) []protocol.Block {
	made := make([]protocol.Block, n)
	for i := range made {
		made[i] = protocol.Block{Sequence: protocol.SequenceHash(e.next), Hash: protocol.BlockHash(e.next * 7919)}
		e.next++
	}
	return made
}

func stored(id protocol.EventID, blocks ...protocol.Block) protocol.Event {
	return protocol.Event{ID: id, Kind: protocol.EventStored, Root: true, Blocks: blocks}
}

func removed(id protocol.EventID, hashes ...protocol.SequenceHash) protocol.Event {
	return protocol.Event{ID: id, Kind: protocol.EventRemoved, Removed: hashes}
}

// store publishes one store of n new blocks under the next id.
func (e *engine) store(n int) protocol.StreamSeq {
	e.t.Helper()
	return e.send(&protocol.EventMessage{Events: []protocol.Event{e.storing(n)}})
}

func (e *engine) storing(n int) protocol.Event {
	made := e.blocks(n)
	e.held = append(e.held, made...)
	return stored(e.nextID(), made...)
}

// evicting removes the n oldest blocks.
func (e *engine) evicting(n int) protocol.Event {
	var hashes []protocol.SequenceHash
	for _, b := range e.held[:n] {
		hashes = append(hashes, b.Sequence)
	}
	e.held = e.held[n:]
	return removed(e.nextID(), hashes...)
}

// state is what the engine holds.
func (e *engine) state() protocol.HeldState {
	s := protocol.HeldState{Blocks: uint64(len(e.held))}
	for _, b := range e.held {
		s.Checksum += protocol.EntryChecksum(b, protocol.TierDevice)
	}
	return s
}

// snapshot is the messages that say what the engine holds, in n chunks.
func (e *engine) snapshot(id string, n int) []*protocol.EventMessage {
	state := e.state()
	var out []*protocol.EventMessage
	for chunk := range n {
		m := &protocol.EventMessage{Snapshot: &protocol.SnapshotHeader{
			ID: id, Through: e.id, Chunk: chunk, Chunks: n, Blocks: state.Blocks, Checksum: state.Checksum,
		}}
		part := e.held[chunk*len(e.held)/n : (chunk+1)*len(e.held)/n]
		if len(part) > 0 {
			m.Events = []protocol.Event{stored(0, part...)}
		}
		out = append(out, m)
	}
	return out
}

// check compares an index with the engine.
func (e *engine) check(r *router) {
	e.t.Helper()
	if got := r.index.State(e.w); got != e.state() {
		e.t.Errorf("%v: index holds %+v, engine %+v; %+v; %s; %+v", e.w, got, e.state(), r.row(e.w), r.Describe(e.w), r.Stats())
	}
}

// dump logs what is left on the subject.
func (e *engine) dump() {
	stream, err := e.js.Stream(context.Background(), protocol.Names{}.Stream(pool))
	if err != nil {
		e.t.Fatal(err)
	}
	for seq := uint64(1); ; seq++ {
		msg, err := stream.GetMsg(context.Background(), seq, jetstream.WithGetMsgSubject(e.subject))
		if err != nil {
			return
		}
		seq = msg.Sequence
		m, err := protocol.DecodeEventMessage(msg.Data, e.w.Rank)
		switch {
		case err != nil:
			e.t.Logf("%v %d: %v", e.w, seq, err)
		case m.Snapshot != nil:
			e.t.Logf("%v %d: epoch %d, snapshot %+v", e.w, seq, m.Epoch, *m.Snapshot)
		default:
			for i := range m.Events {
				e.t.Logf("%v %d: epoch %d, event %d, kind %d, %d stored, %d removed", e.w, seq, m.Epoch, m.Events[i].ID, m.Events[i].Kind, len(m.Events[i].Blocks), len(m.Events[i].Removed))
			}
		}
	}
}
