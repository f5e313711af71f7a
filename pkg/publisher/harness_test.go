package publisher

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
)

func TestMain(m *testing.M) { natstest.VerifyMain(m) }

const testPool = "llama-3-8b"

var testNames protocol.Names

// harness is a NATS server with what routers make on it.
type harness struct {
	testing.TB
	srv  *server.Server
	conn *nats.Conn
	js   jetstream.JetStream
}

// newHarness starts a server without bucket and stream.
func newHarness(t testing.TB) *harness {
	t.Helper()
	h := &harness{TB: t, srv: natstest.Start(t)}
	h.connect()
	return h
}

// newLog starts a server with bucket and stream.
func newLog(t testing.TB) *harness {
	t.Helper()
	h := newHarness(t)
	h.makeBucket(10 * time.Second)
	h.makeStream(64 << 20)
	return h
}

func (h *harness) connect() {
	h.Helper()
	h.conn = h.newConn()
	js, err := jetstream.New(h.conn)
	h.check(err)
	h.js = js
}

// newConn opens a connection that does not print what becomes of it.
func (h *harness) newConn() *nats.Conn {
	h.Helper()
	return natstest.Connect(h, h.srv, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
}

func (h *harness) check(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *harness) makeBucket(ttl time.Duration) {
	h.Helper()
	_, err := h.js.CreateKeyValue(context.Background(), jetstream.KeyValueConfig{
		Bucket: testNames.WorkersBucket(), History: 1, TTL: ttl, LimitMarkerTTL: ttl, Storage: jetstream.FileStorage,
	})
	h.check(err)
}

func (h *harness) streamConfig(maxBytes int64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: testNames.Stream(testPool), Subjects: []string{testNames.PoolEvents(testPool)},
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		MaxBytes: maxBytes, AllowDirect: true, Duplicates: 100 * time.Millisecond,
		Metadata: map[string]string{"epoch": nats.NewInbox()},
	}
}

func (h *harness) makeStream(maxBytes int64) {
	h.Helper()
	_, err := h.js.CreateStream(context.Background(), h.streamConfig(maxBytes))
	h.check(err)
}

// roster reads the worker's roster entry, nil if there is none.
func (h *harness) roster() *protocol.Registration {
	h.Helper()
	r, _ := h.rosterAt()
	return r
}

func (h *harness) rosterAt() (*protocol.Registration, uint64) {
	h.Helper()
	bucket, err := h.js.KeyValue(context.Background(), testNames.WorkersBucket())
	h.check(err)
	entry, err := bucket.Get(context.Background(), protocol.WorkerKey(testPool, testWorker))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0
	}
	h.check(err)
	r, err := protocol.DecodeRegistration(entry.Value())
	h.check(err)
	return r, entry.Revision()
}

// replica reads the log from the start as a new router does.
func (h *harness) replica() *replica {
	h.Helper()
	stream, err := h.js.Stream(context.Background(), testNames.Stream(testPool))
	h.check(err)
	info := stream.CachedInfo()
	r := newReplica(h.TB)
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		msg, err := stream.GetMsg(context.Background(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		h.check(err)
		if msg.Subject != testNames.Events(testPool, testWorker) {
			continue
		}
		r.read(protocol.StreamSeq(seq), msg.Data)
	}
	return r
}

var testWorker = protocol.Worker{ID: "w.1", Rank: 3}

// config is a configuration for the harness's worker with times for a test.
func (h *harness) config() Config {
	return Config{
		Conn: h.conn,
		Registration: protocol.Registration{
			Pool: testPool, Worker: testWorker.ID, Rank: testWorker.Rank, BlockSize: 16, Endpoint: "http://10.0.0.7:8000",
		},
		RefreshInterval: 50 * time.Millisecond,
		AckTimeout:      time.Second,
	}
}

// running is a publisher that runs until the test ends or stop is called.
type running struct {
	*Publisher
	h      *harness
	cancel context.CancelFunc
	ended  chan error
}

func (h *harness) start(cfg Config) *running {
	h.Helper()
	p, err := New(cfg)
	h.check(err)
	return h.run(p)
}

func (h *harness) run(p *Publisher) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Publisher: p, h: h, cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- p.Run(ctx) }()
	h.Cleanup(func() {
		cancel()
		<-p.stopped
	})
	return r
}

// isReady waits for Ready.
func (r *running) isReady() *running {
	r.h.Helper()
	select {
	case <-r.Ready():
	case err := <-r.ended:
		r.h.Fatalf("publisher ended: %v", err)
	case <-time.After(20 * time.Second):
		r.h.Fatalf("publisher is not ready: %+v", r.Stats())
	}
	return r
}

// stop ends the publisher and returns what Run returned.
func (r *running) stop() error {
	r.cancel()
	return r.end()
}

// end waits for the end of Run.
func (r *running) end() error {
	r.h.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(20 * time.Second):
		r.h.Fatal("Run does not end")
		return nil
	}
}

// flush waits until everything is in the log.
func (r *running) flush() protocol.StreamSeq {
	r.h.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	seq, err := r.Flush(ctx)
	r.h.check(err)
	return seq
}

// isInLog checks that a new replica holds what the publisher says it holds.
func (r *running) isInLog() *replica {
	r.h.Helper()
	r.flush()
	got := r.h.replica()
	if got.epoch != r.Epoch() || got.last != r.LastID() {
		r.h.Errorf("log is at epoch %d, event %d, the publisher at %d, %d", got.epoch, got.last, r.Epoch(), r.LastID())
	}
	if got.state() != r.State() {
		r.h.Errorf("log gives %+v, the publisher holds %+v", got.state(), r.State())
	}
	return got
}

// until waits for a condition.
func (h *harness) until(what string, condition func() bool) {
	h.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			h.Fatalf("waited in vain for: %s", what)
		}
	}
}

// replica applies a rank's messages by the rules of the wire contract. It fails
// the test at a snapshot that does not sum up, and where a snapshot contradicts
// what was read before.
type replica struct {
	testing.TB
	*model
	epoch protocol.Epoch
	last  protocol.EventID
	based bool                                // by a snapshot
	early map[protocol.EventID]protocol.Event // behind a gap

	chunks    []protocol.Event // of the snapshot being read
	chunk     protocol.SnapshotHeader
	messages  []readMessage
	repeated  int // events
	snapshots int
	note      []byte
	holed     bool
}

type readMessage struct {
	seq     protocol.StreamSeq
	size    int
	message *protocol.EventMessage
}

func newReplica(t testing.TB) *replica {
	return &replica{TB: t, model: newModel(false), early: make(map[protocol.EventID]protocol.Event)}
}

func (r *replica) read(seq protocol.StreamSeq, body []byte) {
	r.Helper()
	m, err := protocol.DecodeEventMessage(body, testWorker.Rank)
	if err != nil {
		r.Fatalf("message %d: %v", seq, err)
	}
	r.messages = append(r.messages, readMessage{seq, len(body), m})
	if m.Epoch > r.epoch {
		r.epoch, r.last, r.based, r.model = m.Epoch, 0, false, newModel(false)
		clear(r.early)
		if m.Snapshot == nil {
			r.Errorf("message %d begins epoch %d without a snapshot", seq, m.Epoch)
		}
	}
	if m.Snapshot != nil {
		r.readChunk(seq, m)
		return
	}
	for i := range m.Events {
		r.readEvent(seq, &m.Events[i])
	}
}

func (r *replica) readEvent(seq protocol.StreamSeq, e *protocol.Event) {
	r.Helper()
	if e.Refusal != "" {
		r.Fatalf("message %d, event %d: %s", seq, e.ID, e.Refusal)
	}
	if e.ID <= r.last {
		r.repeated++
		return
	}
	if e.ID != r.last+1 && e.Kind != protocol.EventCleared {
		// A later message was taken and an earlier one was not; it comes again.
		r.early[e.ID] = *e
		return
	}
	r.last = e.ID
	r.applyEvent(e)
	r.readEarly(seq)
}

// readEarly applies what the last event or snapshot has made place for.
func (r *replica) readEarly(seq protocol.StreamSeq) {
	for id := range r.early {
		if id <= r.last {
			delete(r.early, id)
		}
	}
	if e, ok := r.early[r.last+1]; ok {
		delete(r.early, e.ID)
		r.readEvent(seq, &e)
	}
}

func (r *replica) applyEvent(e *protocol.Event) {
	switch e.Kind {
	case protocol.EventStored:
		r.store(e.Tier, e.Root, e.Parent, e.Blocks)
	case protocol.EventRemoved:
		for _, h := range e.Removed {
			r.remove(e.Tier, h)
		}
	case protocol.EventCleared:
		r.model, r.holed = newModel(false), false
	case protocol.EventNote:
		r.note = e.Note
	case protocol.EventLost:
		r.holed = true
	}
}

func (r *replica) readChunk(seq protocol.StreamSeq, m *protocol.EventMessage) {
	r.Helper()
	s := *m.Snapshot
	if s.Chunk == 0 {
		r.chunks, r.chunk = nil, s
	}
	if s.ID != r.chunk.ID || s.Chunk != r.chunk.Chunk {
		return // of a set whose beginning was given up
	}
	r.chunk.Chunk++
	r.chunks = append(r.chunks, m.Events...)
	if r.chunk.Chunk < s.Chunks {
		return
	}
	r.snapshots++
	blocks, checksum, err := protocol.SummarizeSnapshot(r.chunks)
	if err != nil || blocks != s.Blocks || checksum != s.Checksum {
		r.Fatalf("message %d: snapshot sums up to %d, %d, %v and says %d, %d", seq, blocks, checksum, err, s.Blocks, s.Checksum)
	}
	if r.based && s.Through == r.last && r.state() != (protocol.HeldState{Blocks: blocks, Checksum: checksum}) {
		r.Errorf("message %d: snapshot through %d says %d blocks, the events before it gave %+v", seq, s.Through, blocks, r.state())
	}
	if r.based && s.Through <= r.last {
		return
	}
	r.last, r.based, r.holed, r.model = s.Through, true, s.Inexact, newModel(false)
	r.apply(r.TB, r.chunks)
	defer r.readEarly(seq)
	for _, e := range r.chunks {
		if e.Kind == protocol.EventNote {
			r.note = e.Note
		}
	}
}
