package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/client"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/publisher"
	"github.com/routerd/routerd/pkg/server"
)

func TestMain(m *testing.M) { natstest.VerifyMain(m) }

const (
	pool      = "llama 3/8b"
	blockSize = 16
	patience  = 30 * time.Second // of whatever a test waits for
)

var names protocol.Names

// eventually polls until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}

func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %v for: %s", patience, what)
		panic("unreachable")
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// system is a server that runs, and a connection to it.
type system struct {
	testing.TB
	*server.Server
	conn   *nats.Conn
	client *client.Client
	cancel context.CancelFunc
	ended  chan struct{} // closed once Run has returned
	err    error         // what it returned
}

// testConfig is a server with a store of its own and no listener.
func testConfig(t testing.TB) server.Config {
	cfg := server.DefaultConfig()
	cfg.Listen, cfg.Admin, cfg.Store = "none", "none", filepath.Join(t.TempDir(), "store")
	cfg.Routing.Policy, cfg.Routing.Seed = protocol.PolicyKV, 1
	cfg.Roster.PoolGrace = 50 * time.Millisecond
	return cfg
}

// listening lets other processes connect.
func listening(c *server.Config) { c.Listen = "127.0.0.1:0" }

// run runs a server until the test ends, or stop is called, and does not wait for
// it to be ready.
func run(t testing.TB, cfg server.Config) *system {
	t.Helper()
	srv, err := server.New(cfg)
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	s := &system{TB: t, Server: srv, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = srv.Run(ctx)
	}()
	t.Cleanup(func() { _ = s.stop() })
	return s
}

// stop shuts the server down and returns what Run returned.
func (s *system) stop() error {
	s.cancel()
	return s.end()
}

// end waits for Run to return.
func (s *system) end() error {
	select {
	case <-s.ended:
		return s.err
	case <-time.After(patience):
		return fmt.Errorf("server has not stopped within %v", patience)
	}
}

// start runs a server as run does and waits until it is ready.
func start(t testing.TB, change func(*server.Config)) *system {
	t.Helper()
	cfg := testConfig(t)
	if change != nil {
		change(&cfg)
	}
	s := run(t, cfg)
	s.awaitReady()
	return s
}

func (s *system) awaitReady() {
	s.Helper()
	select {
	case <-s.Ready():
	case <-s.ended:
		s.Fatalf("server has ended: %v", s.err)
	case <-time.After(patience):
		s.Fatalf("server is not ready within %v", patience)
	}
	var err error
	s.conn, err = s.Connect()
	check(s, err)
	s.Cleanup(s.conn.Close)
	s.client, err = client.New(client.Config{Conn: s.conn, Names: s.Names(), Timeout: patience})
	check(s, err)
}

// worker is a publisher that runs.
type worker struct {
	testing.TB
	*publisher.Publisher
	system *system
	leave  func() error // takes the registration back and returns what Run returned
}

// join registers a worker of a pool and waits until the router has it.
func (s *system) join(poolName, name string, change func(*publisher.Config)) *worker {
	s.Helper()
	cfg := publisher.Config{
		Conn: s.conn, Names: s.Names(),
		Registration: protocol.Registration{
			Pool: poolName, Worker: name, BlockSize: blockSize, Endpoint: "http://" + name + ":8000",
			TotalKVBlocks: 1000, MaxNumBatchedTokens: 8192,
		},
	}
	if change != nil {
		change(&cfg)
	}
	p, err := publisher.New(cfg)
	check(s, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	w := &worker{TB: s.TB, Publisher: p, system: s}
	w.leave = sync.OnceValue(func() error {
		cancel()
		return await(s, name+" to leave", ended)
	})
	s.Cleanup(func() { _ = w.leave() })
	await(s, name+" to register", p.Ready())
	want := protocol.TrustExact
	if cfg.NoEvents {
		want = protocol.TrustOff
	}
	target := cfg.Registration.Target()
	eventually(s, fmt.Sprintf("trust %s in %s", want, name), func() bool {
		row := s.row(poolName, target)
		return row != nil && row.Trust == want
	})
	return w
}

// row is a rank's row of the server's status, nil if there is none.
func (s *system) row(poolName string, w protocol.Worker) *protocol.RankStatus {
	reply, err := s.Status(poolName, &protocol.StatusRequest{})
	if err != nil {
		return nil
	}
	for i := range reply.Ranks {
		if reply.Ranks[i].Target() == w {
			return &reply.Ranks[i]
		}
	}
	return nil
}

// holds has a worker store the blocks of a prompt, and waits until the index has
// them.
func (w *worker) holds(prompt []protocol.BlockHash) {
	w.Helper()
	blocks := make([]protocol.Block, len(prompt))
	for i, seq := range protocol.SequenceHashes(nil, prompt) {
		blocks[i] = protocol.Block{Sequence: seq, Hash: prompt[i]}
	}
	w.Stored(protocol.TierDevice, true, 0, blocks)
	w.flush()
}

// flush waits until the index has all that the worker has published.
func (w *worker) flush() {
	w.Helper()
	seq, err := w.Flush(patient(w))
	check(w, err)
	check(w, w.system.WaitApplied(patient(w), w.Registration().Pool, seq))
}

// tokens makes a prompt of n tokens; each seed makes another.
func tokens(seed, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(seed<<16 + i)
	}
	return out
}

// hashes are the block hashes of a prompt.
func hashes(prompt []uint32) []protocol.BlockHash {
	return protocol.BlockHashes(nil, prompt, protocol.HashOptions{BlockSize: blockSize})
}

// call sends a request as it is and returns the reply.
func (s *system) call(subject string, body []byte) *nats.Msg {
	s.Helper()
	msg, err := s.conn.RequestWithContext(patient(s), subject, body)
	if err != nil {
		s.Fatalf("call %s: %v", subject, err)
	}
	return msg
}

// failure reads an error reply, and checks that its parts agree.
func failure(t testing.TB, msg *nats.Msg) *protocol.Error {
	t.Helper()
	var body protocol.ErrorReply
	if err := protocol.Unmarshal(msg.Data, &body); err != nil || body.Error == nil {
		t.Fatalf("reply %q: want an error, %v", msg.Data, err)
	}
	e := body.Error
	if got, want := msg.Header.Get(protocol.HeaderErrorCode), fmt.Sprint(e.Code.Number()); got != want {
		t.Errorf("header has code %q, want %q of %s", got, want, e.Code)
	}
	if msg.Header.Get(protocol.HeaderError) == "" || e.Message == "" {
		t.Errorf("header %q and message %q must not be empty", msg.Header.Get(protocol.HeaderError), e.Message)
	}
	if e.Retryable != e.Code.Retryable() {
		t.Errorf("%s: retryable is %v", e.Code, e.Retryable)
	}
	return e
}

// codeOf is the code of a call's error, "" if it is none of the wire's.
func codeOf(err error) protocol.Code {
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return e.Code
	}
	return ""
}

// jetStream is the API on a system's connection.
func (s *system) jetStream() jetstream.JetStream {
	s.Helper()
	js, err := jetstream.New(s.conn)
	check(s, err)
	return js
}

// publish puts a message as it is on a rank's event subject, and waits until the
// router has dealt with it.
func (s *system) publish(poolName string, w protocol.Worker, body []byte) protocol.StreamSeq {
	s.Helper()
	ack, err := s.jetStream().Publish(patient(s), names.Events(poolName, w), body)
	check(s, err)
	seq := protocol.StreamSeq(ack.Sequence)
	check(s, s.WaitApplied(patient(s), poolName, seq))
	return seq
}

// register puts a registration into the roster as it is, and returns its revision.
func (s *system) register(poolName string, w protocol.Worker, format string, args ...any) uint64 {
	s.Helper()
	bucket, err := s.jetStream().KeyValue(patient(s), names.WorkersBucket())
	check(s, err)
	revision, err := bucket.Put(patient(s), protocol.WorkerKey(poolName, w), fmt.Appendf(nil, format, args...))
	check(s, err)
	return revision
}

func route(t testing.TB, s *system, r *protocol.RouteRequest) *protocol.RouteReply {
	t.Helper()
	reply, err := s.client.Route(patient(t), pool, r)
	check(t, err)
	return reply
}

// load is a worker's row of the loads call.
func (s *system) load(poolName, name string) protocol.WorkerLoad {
	s.Helper()
	reply, err := s.client.Loads(patient(s), poolName)
	check(s, err)
	for _, row := range reply.Workers {
		if row.Worker == name {
			return row
		}
	}
	s.Fatalf("loads of %q have no worker %s: %+v", poolName, name, reply)
	panic("unreachable")
}

func isJSON(body []byte) bool { return bytes.HasPrefix(body, []byte("{")) }
