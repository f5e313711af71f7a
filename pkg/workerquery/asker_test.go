package workerquery_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/workerquery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pool = "llama-3-8b"

var worker = protocol.Worker{ID: "w1", Rank: 2}

// newAsker makes an asker whose times suit a test.
func newAsker(t *testing.T, conn *nats.Conn, change func(*workerquery.Config)) *workerquery.Asker {
	t.Helper()
	cfg := workerquery.Config{Conn: conn, Pool: pool, Timeout: 5 * time.Second, Backoff: time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	a, err := workerquery.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// serve answers a rank's queries with what reply returns.
func serve(t *testing.T, conn *nats.Conn, w protocol.Worker, reply func(q *protocol.Query) protocol.QueryReply) {
	t.Helper()
	sub, err := conn.Subscribe(protocol.Names{}.Query(pool, w), func(msg *nats.Msg) {
		q, err := protocol.DecodeQuery(msg.Data)
		if err != nil {
			t.Errorf("query: %v", err)
			return
		}
		body, err := protocol.Marshal(reply(q), protocol.DetectEncoding(msg.Data))
		if err != nil {
			t.Error(err)
		}
		if err := msg.Respond(body); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestConfigFaults(t *testing.T) {
	_, err := workerquery.New(workerquery.Config{Timeout: -1, Limit: -1})
	if err == nil {
		t.Fatal("a configuration with faults was accepted")
	}
	for _, field := range []string{"conn", "pool", "timeout", "limit"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("error %q does not name %s", err, field)
		}
	}
}

func TestAnswers(t *testing.T) {
	conn := natstest.Connect(t, natstest.Start(t))
	a := newAsker(t, conn, nil)
	var asked atomic.Pointer[protocol.Query]
	want := protocol.QueryReply{Version: 1, Kind: protocol.QueryEvents, Through: 15, StreamSeq: 90211}
	serve(t, conn, worker, func(q *protocol.Query) protocol.QueryReply {
		asked.Store(q)
		return want
	})
	got, err := a.Ask(t.Context(), worker, protocol.Query{Epoch: 42, From: 11})
	if err != nil || got != want {
		t.Fatalf("Ask = %+v, %v; want %+v", got, err, want)
	}
	if q := *asked.Load(); q.Epoch != 42 || q.From != 11 {
		t.Errorf("worker was asked %+v", q)
	}
	for _, kind := range []protocol.QueryKind{protocol.QuerySnapshot, protocol.QueryTooNew, protocol.QueryWrongEpoch} {
		want.Kind = kind
		if got, err := a.Ask(t.Context(), worker, protocol.Query{Epoch: 42}); err != nil || got.Kind != kind {
			t.Errorf("Ask = %+v, %v; want kind %s", got, err, kind)
		}
	}
}

func TestErrorsCountAsAttempts(t *testing.T) {
	conn := natstest.Connect(t, natstest.Start(t))
	a := newAsker(t, conn, nil)
	var asked atomic.Int32
	serve(t, conn, worker, func(*protocol.Query) protocol.QueryReply {
		if asked.Add(1) < 3 {
			return protocol.QueryReply{Kind: protocol.QueryError, Message: "log is full"}
		}
		return protocol.QueryReply{Kind: protocol.QuerySnapshot}
	})
	if got, err := a.Ask(t.Context(), worker, protocol.Query{}); err != nil || got.Kind != protocol.QuerySnapshot {
		t.Fatalf("Ask = %+v, %v", got, err)
	}
	if n := asked.Load(); n != 3 {
		t.Errorf("worker was asked %d times, want 3", n)
	}
}

func TestAttemptsEnd(t *testing.T) {
	conn := natstest.Connect(t, natstest.Start(t))
	a := newAsker(t, conn, nil)
	_, err := a.Ask(t.Context(), worker, protocol.Query{})
	if !errors.Is(err, workerquery.ErrNoAnswer) || !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("without a publisher: %v", err)
	}

	var asked atomic.Int32
	serve(t, conn, worker, func(*protocol.Query) protocol.QueryReply {
		asked.Add(1)
		return protocol.QueryReply{Kind: protocol.QueryError, Message: "log is full"}
	})
	_, err = a.Ask(t.Context(), worker, protocol.Query{})
	if !errors.Is(err, workerquery.ErrNoAnswer) || !strings.Contains(err.Error(), "log is full") || !strings.Contains(err.Error(), "w1/2") {
		t.Errorf("from a worker that cannot: %v", err)
	}
	if n := asked.Load(); n != 8 {
		t.Errorf("worker was asked %d times, want 8", n)
	}

	silent := newAsker(t, conn, func(c *workerquery.Config) { c.Timeout, c.Attempts = 10*time.Millisecond, 2 })
	other := protocol.Worker{ID: "silent"}
	sub, err := conn.SubscribeSync(protocol.Names{}.Query(pool, other))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	_, err = silent.Ask(t.Context(), other, protocol.Query{})
	if !errors.Is(err, workerquery.ErrNoAnswer) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("from a silent worker: %v", err)
	}
}

func TestContextEndsAttemptAndBackoff(t *testing.T) {
	conn := natstest.Connect(t, natstest.Start(t))
	ctx, cancel := context.WithCancel(t.Context())
	sub, err := conn.Subscribe(protocol.Names{}.Query(pool, worker), func(*nats.Msg) { cancel() })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	a := newAsker(t, conn, func(c *workerquery.Config) { c.Timeout = time.Hour })
	if _, err := a.Ask(ctx, worker, protocol.Query{}); !errors.Is(err, context.Canceled) {
		t.Errorf("during an attempt: %v", err)
	}

	backoff, end := context.WithCancel(t.Context())
	a = newAsker(t, conn, func(c *workerquery.Config) {
		c.Backoff = time.Hour
		c.Random = func() float64 { end(); return 0 }
	})
	if _, err := a.Ask(backoff, protocol.Worker{ID: "nobody"}, protocol.Query{}); !errors.Is(err, context.Canceled) {
		t.Errorf("during the backoff: %v", err)
	}
}

func TestRequestsAreLimitedAndRanksTakeTurns(t *testing.T) {
	const limit, workers, each = 4, 12, 3
	conn := natstest.Connect(t, natstest.Start(t))
	a := newAsker(t, conn, func(c *workerquery.Config) { c.Limit = limit })
	var group sync.WaitGroup
	queries := make(chan *nats.Msg, workers*each)
	sub, err := conn.ChanSubscribe("kvr."+pool+".query.>", queries)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range workers * each {
		group.Go(func() {
			w := protocol.Worker{ID: "w", Rank: uint16(i % workers)}
			if _, err := a.Ask(t.Context(), w, protocol.Query{From: 1}); err != nil {
				t.Errorf("ask %s: %v", w, err)
			}
		})
	}
	body, err := protocol.Marshal(protocol.QueryReply{Kind: protocol.QueryEvents}, protocol.EncodingMsgpack)
	if err != nil {
		t.Fatal(err)
	}
	// While limit requests are under way no other one comes, and none of them is
	// for the same rank.
	for done := 0; done < workers*each; {
		var held []*nats.Msg
		ranks := make(map[string]bool)
		for len(held) < min(limit, workers*each-done) {
			msg := <-queries
			if ranks[msg.Subject] {
				t.Fatalf("%s is asked twice at a time", msg.Subject)
			}
			ranks[msg.Subject] = true
			held = append(held, msg)
			if len(ranks) == limit || done+len(held) > workers*(each-1) {
				break // ranks that wait for their turn may leave slots free at the end
			}
		}
		if len(queries) > 0 && len(held) == limit {
			t.Fatalf("more than %d requests are under way", limit)
		}
		for _, msg := range held {
			if err := msg.Respond(body); err != nil {
				t.Fatal(err)
			}
		}
		done += len(held)
	}
	group.Wait()
}

func TestHangingWorkerHoldsNobodyUp(t *testing.T) {
	conn := natstest.Connect(t, natstest.Start(t))
	// With one slot, a rank in its backoff must leave it to others.
	inBackoff := make(chan struct{})
	var once sync.Once
	ctx, cancel := context.WithCancel(t.Context())
	a := newAsker(t, conn, func(c *workerquery.Config) {
		c.Limit, c.Backoff = 1, time.Hour
		c.Random = func() float64 { once.Do(func() { close(inBackoff) }); return 0 }
	})
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := a.Ask(ctx, protocol.Worker{ID: "nobody"}, protocol.Query{}); !errors.Is(err, context.Canceled) {
			t.Errorf("hanging worker: %v", err)
		}
	})
	<-inBackoff
	serve(t, conn, worker, func(*protocol.Query) protocol.QueryReply {
		return protocol.QueryReply{Kind: protocol.QuerySnapshot}
	})
	if _, err := a.Ask(t.Context(), worker, protocol.Query{}); err != nil {
		t.Errorf("other worker: %v", err)
	}
	cancel()
	group.Wait()
}
