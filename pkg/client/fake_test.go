package client

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pool = "llama 3" // its subject needs escaping

// fakeRouter answers the calls of one pool by the wire contract, from what its
// fields say.
type fakeRouter struct {
	t     *testing.T
	conn  *nats.Conn
	token string
	names protocol.Names

	mu       sync.Mutex // guards what follows
	blocks   Blocks
	route    func(q *protocol.RouteRequest) (any, error) // nil reply: stay silent
	ranks    []protocol.RankStatus
	page     int // rows of a page, 0: all
	received []any
}

// listen starts a router on a connection of its own.
func listen(t *testing.T, conn *nats.Conn, token string) *fakeRouter {
	t.Helper()
	f := &fakeRouter{t: t, conn: conn, token: token, blocks: Blocks{Size: 16}}
	on := func(subject, group string, handle func(*nats.Msg) (any, error)) {
		_, err := conn.QueueSubscribe(subject, group, func(msg *nats.Msg) { f.answer(msg, handle) })
		if err != nil {
			t.Fatal(err)
		}
	}
	on(f.names.Call(pool, protocol.VerbRoute), "q", f.onRoute)
	on(f.names.Call(pool, protocol.VerbOverlap), "q", f.onOverlap)
	on(f.names.Call(pool, protocol.VerbLoads), "q", f.onLoads)
	on(f.names.Call(pool, protocol.VerbStatus), "", f.onStatus)
	on(f.names.Call(pool, protocol.VerbStatus)+"."+token, "", f.onStatus)
	on(f.names.Lease(pool, protocol.VerbProgress), "", f.onProgress)
	on(f.names.Lease(pool, protocol.VerbComplete), "", f.onComplete)
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fakeRouter) answer(msg *nats.Msg, handle func(*nats.Msg) (any, error)) {
	reply, err := handle(msg)
	if msg.Reply == "" || reply == nil && err == nil {
		return
	}
	out := nats.NewMsg(msg.Reply)
	if err != nil {
		failure := err.(*protocol.Error)
		out.Header.Set(protocol.HeaderErrorCode, fmt.Sprint(failure.Code.Number()))
		out.Header.Set(protocol.HeaderError, failure.Message)
		reply = protocol.ErrorReply{Error: failure}
	}
	if out.Data, err = protocol.Marshal(reply, protocol.DetectEncoding(msg.Data)); err == nil {
		err = f.conn.PublishMsg(out)
	}
	if err != nil {
		f.t.Error(err)
	}
}

func (f *fakeRouter) note(v any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.received = append(f.received, v)
}

// set changes what the router says from now on.
func (f *fakeRouter) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeRouter) checkPrompt(p *protocol.Prompt) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return p.Check(f.blocks.Size, f.blocks.Eagle)
}

func (f *fakeRouter) onRoute(msg *nats.Msg) (any, error) {
	q, err := protocol.DecodeRouteRequest(msg.Data)
	if err != nil {
		return nil, err
	}
	f.note(q)
	if err := f.checkPrompt(&q.Prompt); err != nil {
		return nil, err
	}
	f.mu.Lock()
	route := f.route
	f.mu.Unlock()
	if route != nil {
		return route(q)
	}
	return &protocol.RouteReply{
		RequestID: q.RequestID, Attempt: q.Attempt, Lease: "lease", Worker: "w1", Endpoint: "http://w1",
		ISLTokens: q.Tokens(), IndexSeq: 1<<63 + 1, Router: f.token, Candidates: []protocol.Candidate{},
	}, nil
}

func (f *fakeRouter) onOverlap(msg *nats.Msg) (any, error) {
	q, err := protocol.DecodeOverlapRequest(msg.Data)
	if err != nil {
		return nil, err
	}
	f.note(q)
	if err := f.checkPrompt(&q.Prompt); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	reply := &protocol.OverlapReply{BlockSize: f.blocks.Size, Blocks: len(q.BlockHashes)}
	rows, more := f.pageLocked(q.After)
	reply.More = more
	for _, row := range rows {
		reply.Workers = append(reply.Workers, protocol.WorkerOverlap{
			Worker: row.Worker, Rank: row.Rank, Overlap: protocol.Overlap{Device: 3},
		})
	}
	return reply, nil
}

func (f *fakeRouter) pageLocked(after *protocol.After) (rows []protocol.RankStatus, more bool) {
	rows = f.ranks
	if after != nil {
		rows = rows[1+slices.IndexFunc(rows, func(r protocol.RankStatus) bool { return r.Target() == after.Target() }):]
	}
	if f.page > 0 && len(rows) > f.page {
		return rows[:f.page], true
	}
	return rows, false
}

func (f *fakeRouter) onLoads(*nats.Msg) (any, error) {
	return &protocol.LoadsReply{Pool: pool, Router: f.token, Workers: []protocol.WorkerLoad{{Worker: "w1", ActiveRequests: 2}}}, nil
}

func (f *fakeRouter) onStatus(msg *nats.Msg) (any, error) {
	q, err := protocol.DecodeStatusRequest(msg.Data)
	if err != nil {
		return nil, err
	}
	f.note(q)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ranks == nil {
		return nil, protocol.Errorf(protocol.CodeUnknownPool, "no worker")
	}
	rows, more := f.pageLocked(q.After)
	return &protocol.StatusReply{Pool: pool, Router: f.token, BlockSize: f.blocks.Size, Ranks: rows, More: more}, nil
}

func (f *fakeRouter) onProgress(msg *nats.Msg) (any, error) {
	r, err := protocol.DecodeProgress(msg.Data)
	if err != nil {
		return nil, err
	}
	f.note(r)
	return map[string]bool{"ok": true}, nil
}

func (f *fakeRouter) onComplete(msg *nats.Msg) (any, error) {
	r, err := protocol.DecodeComplete(msg.Data)
	if err != nil {
		return nil, err
	}
	f.note(r)
	return map[string]bool{"ok": true}, nil
}

// got waits until the router has received n bodies of a type and returns them.
func got[T any](t *testing.T, f *fakeRouter, n int) []T {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		var all []T
		f.mu.Lock()
		for _, v := range f.received {
			if body, ok := v.(T); ok {
				all = append(all, body)
			}
		}
		f.mu.Unlock()
		if len(all) >= n {
			return all
		}
		if time.Now().After(deadline) {
			t.Fatalf("received %d bodies, want %d", len(all), n)
		}
		if err := f.conn.Flush(); err != nil {
			t.Fatal(err)
		}
	}
}

// start makes a server, a router on it and a client of it.
func start(t *testing.T, cfg Config) (*Client, *fakeRouter) {
	t.Helper()
	srv := natstest.Start(t)
	f := listen(t, natstest.Connect(t, srv), "r1")
	cfg.Conn = natstest.Connect(t, srv)
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, f
}

func ranks(n int) []protocol.RankStatus {
	rows := make([]protocol.RankStatus, n)
	for i := range rows {
		rows[i] = protocol.RankStatus{Worker: fmt.Sprintf("w%03d", i/2), Rank: uint16(i % 2), Trust: protocol.TrustExact}
	}
	return rows
}

func contains(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v does not say %q", err, want)
	}
}
