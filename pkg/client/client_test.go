package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
)

func prompt(tokens int) protocol.Prompt {
	p := protocol.Prompt{TokenIDs: make([]uint32, tokens)}
	for i := range p.TokenIDs {
		p.TokenIDs[i] = uint32(i)
	}
	return p
}

func TestConfigReportsAllFaults(t *testing.T) {
	_, err := New(Config{Timeout: -1, Stall: 2 * time.Hour, Backoff: -1, Tries: 101, Blocks: map[string]Blocks{"p": {}}})
	for _, name := range []string{"connection", "timeout", "stall", "backoff", "tries", `pool "p"`} {
		contains(t, err, name)
	}
}

func TestRoute(t *testing.T) {
	for name, cfg := range map[string]Config{"msgpack": {}, "json": {JSON: true}} {
		t.Run(name, func(t *testing.T) {
			c, f := start(t, cfg)
			asked := &protocol.RouteRequest{
				Prompt: prompt(40), Excluded: []string{"w9"}, PreferredTaints: map[string]float64{"a": 0.5},
				SessionID: "s", Priority: -3,
			}
			before := *asked
			reply, err := c.Route(t.Context(), pool, asked)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, *asked); diff != "" {
				t.Errorf("the caller's request changed: %s", diff)
			}
			q := got[*protocol.RouteRequest](t, f, 1)[0]
			if reply.RequestID == "" || reply.RequestID != q.RequestID || reply.Worker != "w1" || reply.IndexSeq != 1<<63+1 {
				t.Errorf("reply is %+v", reply)
			}
			if q.TimeoutMS < 1 || q.TimeoutMS > DefaultTimeout.Milliseconds() {
				t.Errorf("timeout_ms is %d", q.TimeoutMS)
			}
			q.RequestID, q.Attempt, q.TimeoutMS = "", 0, 0
			if diff := cmp.Diff(&before, q); diff != "" {
				t.Errorf("the request arrived changed: %s", diff)
			}

			// A prompt by hashes, even an empty list of them, stays one.
			_, err = c.Route(t.Context(), pool, &protocol.RouteRequest{
				RequestID: "short", Attempt: 7, TimeoutMS: 1234,
				Prompt: protocol.Prompt{BlockHashes: []protocol.BlockHash{}, ISLTokens: 5},
			})
			if err != nil {
				t.Fatal(err)
			}
			q = got[*protocol.RouteRequest](t, f, 2)[1]
			if !q.ByHash || q.ISLTokens != 5 || q.RequestID != "short" || q.Attempt != 7 || q.TimeoutMS != 1234 {
				t.Errorf("the request arrived as %+v", q)
			}
		})
	}
}

func TestErrorsOfRouters(t *testing.T) {
	c, f := start(t, Config{})
	f.set(func() {
		f.route = func(*protocol.RouteRequest) (any, error) {
			failure := protocol.Errorf(protocol.CodeQueueRejected, "queue is full")
			failure.Details = map[string]any{"limit_kind": "requests"}
			return nil, failure
		}
	})
	_, err := c.Route(t.Context(), pool, &protocol.RouteRequest{Prompt: prompt(1)})
	failure, ok := errors.AsType[*protocol.Error](err)
	if !ok || failure.Code != protocol.CodeQueueRejected || !failure.Retryable || failure.Message != "queue is full" ||
		failure.Details["limit_kind"] != "requests" {
		t.Errorf("error is %#v", err)
	}
	_, err = c.Route(t.Context(), pool, &protocol.RouteRequest{Prompt: prompt(0)})
	if failure, ok := errors.AsType[*protocol.Error](err); !ok || failure.Code != protocol.CodeInvalidRequest {
		t.Errorf("empty prompt: %v", err)
	}
}

// A failure may be in the body, in the headers, or in both.
func TestReadError(t *testing.T) {
	header := func(number, text string) nats.Header {
		h := nats.Header{}
		h.Set(protocol.HeaderErrorCode, number)
		h.Set(protocol.HeaderError, text)
		return h
	}
	body := func(code protocol.Code, text string, enc protocol.Encoding) []byte {
		data, err := protocol.Marshal(protocol.ErrorReply{Error: protocol.Errorf(code, "%s", text)}, enc)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, c := range map[string]struct {
		msg  nats.Msg
		want *protocol.Error
	}{
		"both":      {nats.Msg{Header: header("503", "x"), Data: body(protocol.CodeShuttingDown, "bye", protocol.EncodingJSON)}, protocol.Errorf(protocol.CodeShuttingDown, "bye")},
		"body":      {nats.Msg{Data: body(protocol.CodeInternal, "bad", protocol.EncodingMsgpack)}, protocol.Errorf(protocol.CodeInternal, "bad")},
		"spaced":    {nats.Msg{Data: []byte("{\n  \"error\": {\"code\":\"no_workers\",\"message\":\"none\",\"retryable\":true}}")}, protocol.Errorf(protocol.CodeNoWorkers, "none")},
		"headers":   {nats.Msg{Header: header("529", "busy")}, protocol.Errorf(protocol.CodeOverloaded, "busy")},
		"no text":   {nats.Msg{Header: header("404", "")}, protocol.Errorf(protocol.CodeUnknownPool, "the call failed with code 404")},
		"foreign":   {nats.Msg{Header: header("teapot", "tea"), Data: []byte("tea")}, protocol.Errorf(protocol.CodeInternal, "tea")},
		"none":      {nats.Msg{Data: []byte(`{"ok":true}`)}, nil},
		"misleads":  {nats.Msg{Data: []byte(`{"request_id":"error","error":null}`)}, nil},
		"no body":   {nats.Msg{}, nil},
		"text only": {nats.Msg{Header: header("400", "field"), Data: []byte(`{"error":{"code":"invalid_request"}}`)}, &protocol.Error{Code: protocol.CodeInvalidRequest, Message: "field"}},
	} {
		if diff := cmp.Diff(c.want, readError(&c.msg), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestNoRouter(t *testing.T) {
	conn := natstest.Connect(t, natstest.Start(t))
	names, err := protocol.NewNames("other")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Conn: conn, Names: names})
	if err != nil {
		t.Fatal(err)
	}
	check := func(subject string, err error) {
		t.Helper()
		if failure, ok := errors.AsType[*NoRouterError](err); !ok || failure.Subject != subject || !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("error is %#v", err)
		}
		contains(t, err, "no router answers on "+subject+": start one with `routerd serve`, or check --nats and --prefix")
	}
	_, err = c.Route(t.Context(), "p", &protocol.RouteRequest{Prompt: prompt(1)})
	check("other.p.route", err)
	_, err = c.Status(t.Context(), "p", 0)
	check("other.p.status", err)
	err = c.ReportProgress(t.Context(), "p", &protocol.ProgressReport{Lease: "x"})
	check("other.p.lease.progress", err)
	if err := c.Progress("p", &protocol.ProgressReport{Lease: "x"}); err != nil {
		t.Errorf("a report that nobody hears: %v", err)
	}
}

// A caller that gives up leaves no charge behind, wherever its request is.
func TestGivingUpWithdraws(t *testing.T) {
	c, f := start(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	f.set(func() {
		f.route = func(*protocol.RouteRequest) (any, error) {
			cancel()
			return nil, nil
		}
	})
	_, err := c.Route(ctx, pool, &protocol.RouteRequest{RequestID: "r", Attempt: 2, Prompt: prompt(1)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	r := got[*protocol.CompleteReport](t, f, 1)[0]
	if r.RequestID != "r" || r.Attempt != 2 || r.Lease != "" {
		t.Errorf("withdrawn with %+v", r)
	}

	brief, end := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer end()
	_, err = c.Route(brief, pool, &protocol.RouteRequest{QueryOnly: true, Prompt: prompt(1)})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	contains(t, err, "no answer in time")
	if err := c.ReportComplete(t.Context(), pool, &protocol.CompleteReport{Lease: "last"}); err != nil {
		t.Fatal(err)
	}
	if all := got[*protocol.CompleteReport](t, f, 2); len(all) != 2 {
		t.Errorf("a query was withdrawn: %+v", all[1])
	}
}

func TestOverlapAndLoads(t *testing.T) {
	c, f := start(t, Config{})
	f.set(func() { f.ranks, f.page = ranks(23), 5 })
	reply, err := c.Overlap(t.Context(), pool, &protocol.OverlapRequest{Prompt: prompt(40)})
	if err != nil {
		t.Fatal(err)
	}
	if len(reply.Workers) != 23 || reply.More || reply.BlockSize != 16 || reply.Workers[22].Device != 3 {
		t.Errorf("%d workers, more %v: %+v", len(reply.Workers), reply.More, reply)
	}
	for i, row := range ranks(23) {
		if w := reply.Workers[i]; w.Worker != row.Worker || w.Rank != row.Rank {
			t.Errorf("row %d is %s/%d", i, w.Worker, w.Rank)
		}
	}
	loads, err := c.Loads(t.Context(), pool)
	if err != nil || len(loads.Workers) != 1 || loads.Workers[0].ActiveRequests != 2 {
		t.Errorf("loads %+v, %v", loads, err)
	}
	if _, err := c.Loads(t.Context(), "nobody's"); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("loads of no pool: %v", err)
	}
}

func TestStatusOfAllRouters(t *testing.T) {
	srv := natstest.Start(t)
	first := listen(t, natstest.Connect(t, srv), "r1")
	second := listen(t, natstest.Connect(t, srv), "r0")
	listen(t, natstest.Connect(t, srv), "r2") // knows no worker
	c, err := New(Config{Conn: natstest.Connect(t, srv)})
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range []*fakeRouter{first, second} {
		f.set(func() { f.ranks, f.page = ranks(10+i), 3 })
	}
	replies, err := c.Status(t.Context(), pool, 77)
	if err != nil {
		t.Fatal(err)
	}
	if len(replies) != 2 || replies[0].Router != "r0" || replies[1].Router != "r1" {
		t.Fatalf("%d replies", len(replies))
	}
	for i, n := range []int{11, 10} {
		if diff := cmp.Diff(ranks(n), replies[i].Ranks, cmpopts.EquateEmpty()); diff != "" || replies[i].More {
			t.Errorf("%s: more %v, %s", replies[i].Router, replies[i].More, diff)
		}
	}
	for _, q := range got[*protocol.StatusRequest](t, first, 4) {
		if q.At != 77 {
			t.Errorf("asked as of %d", q.At)
		}
	}

	for _, f := range []*fakeRouter{first, second} {
		f.set(func() { f.ranks = nil })
	}
	_, err = c.Status(t.Context(), pool, 0)
	if failure, ok := errors.AsType[*protocol.Error](err); !ok || failure.Code != protocol.CodeUnknownPool {
		t.Errorf("status of an unknown pool: %v", err)
	}
}

func TestReports(t *testing.T) {
	c, f := start(t, Config{})
	cached := 80
	progress := &protocol.ProgressReport{Lease: "l", RequestID: "r", Attempt: 2, OutputTokens: 17, ElapsedMS: 1.5}
	complete := &protocol.CompleteReport{Lease: "l", RequestID: "r", Attempt: 2, CachedTokens: &cached, Error: strings.Repeat("ä", 200)}
	for _, err := range []error{
		c.Progress(pool, progress), c.ReportProgress(t.Context(), pool, progress),
		c.Complete(pool, complete), c.ReportComplete(t.Context(), pool, complete),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	for _, r := range got[*protocol.ProgressReport](t, f, 2) {
		if diff := cmp.Diff(progress, r); diff != "" {
			t.Error(diff)
		}
	}
	if len(complete.Error) != 400 {
		t.Error("the caller's report changed")
	}
	for _, r := range got[*protocol.CompleteReport](t, f, 2) {
		if r.Error != strings.Repeat("ä", 128) || *r.CachedTokens != 80 {
			t.Errorf("arrived as %+v", r)
		}
	}
	err := c.ReportProgress(t.Context(), pool, &protocol.ProgressReport{})
	if failure, ok := errors.AsType[*protocol.Error](err); !ok || failure.Code != protocol.CodeInvalidRequest {
		t.Errorf("a malformed report: %v", err)
	}
}

func TestRouteRetry(t *testing.T) {
	c, f := start(t, Config{Backoff: time.Millisecond})
	workers := []string{"w1", "w2", "w3"}
	f.set(func() {
		f.route = func(q *protocol.RouteRequest) (any, error) {
			if q.Attempt == 1 {
				return nil, protocol.Errorf(protocol.CodeShuttingDown, "ask another router")
			}
			for _, w := range workers {
				if !slices.Contains(q.Excluded, w) {
					return &protocol.RouteReply{RequestID: q.RequestID, Attempt: q.Attempt, Worker: w, Lease: "on " + w}, nil
				}
			}
			return nil, protocol.Errorf(protocol.CodeNoWorkers, "none is left")
		}
	})
	refused := errors.New("connection refused")
	sent := 0
	reply, err := c.RouteRetry(t.Context(), pool, &protocol.RouteRequest{Prompt: prompt(1)}, func(_ context.Context, reply *protocol.RouteReply) error {
		if sent++; sent == 1 {
			return refused
		}
		return nil
	})
	if err != nil || reply.Worker != "w2" || reply.Attempt != 3 {
		t.Fatalf("%+v, %v", reply, err)
	}
	done := got[*protocol.CompleteReport](t, f, 1)[0]
	if done.Lease != "on w1" || done.Attempt != 2 || !strings.Contains(done.Error, "connection refused") || done.RequestID != reply.RequestID {
		t.Errorf("the failed attempt was completed with %+v", done)
	}

	// All tries fail; the last error says what the worker said.
	_, err = c.RouteRetry(t.Context(), pool, &protocol.RouteRequest{Attempt: 2, Prompt: prompt(1)}, func(context.Context, *protocol.RouteReply) error {
		return refused
	})
	if !errors.Is(err, refused) {
		t.Errorf("error is %v", err)
	}
	if n := len(got[*protocol.CompleteReport](t, f, 4)); n != 4 {
		t.Errorf("%d attempts were completed", n)
	}

	// No worker is left: both errors are told.
	workers = workers[:1]
	_, err = c.RouteRetry(t.Context(), pool, &protocol.RouteRequest{Attempt: 2, Prompt: prompt(1)}, func(context.Context, *protocol.RouteReply) error {
		return refused
	})
	if failure, ok := errors.AsType[*protocol.Error](err); !errors.Is(err, refused) || !ok || failure.Code != protocol.CodeNoWorkers {
		t.Errorf("error is %v", err)
	}

	// What cannot pass is not tried again.
	before := len(got[*protocol.RouteRequest](t, f, 1))
	_, err = c.RouteRetry(t.Context(), pool, &protocol.RouteRequest{}, nil)
	if failure, ok := errors.AsType[*protocol.Error](err); !ok || failure.Code != protocol.CodeInvalidRequest {
		t.Errorf("error is %v", err)
	}
	if n := len(got[*protocol.RouteRequest](t, f, 1)); n != before {
		t.Errorf("%d further calls", n-before)
	}
}
