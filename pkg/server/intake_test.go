package server

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
)

// newIntake is an intake without a server behind it, so that every call fails.
func newIntake(t *testing.T) (*intake, *nats.Conn) {
	t.Helper()
	srv := natstest.Start(t)
	in := &intake{
		conn: natstest.Connect(t, srv), token: "r1", log: zerolog.Nop(),
		metrics: newMetrics(&Server{pools: &pools{}}),
	}
	return in, natstest.Connect(t, srv)
}

func readFailure(t *testing.T, msg *nats.Msg) *protocol.Error {
	t.Helper()
	var body protocol.ErrorReply
	if err := protocol.Unmarshal(msg.Data, &body); err != nil || body.Error == nil {
		t.Fatalf("reply %q, want an error; %v", msg.Data, err)
	}
	return body.Error
}

// A call that makes the router panic is answered, and so is the next.
func TestCallsSurvivePanics(t *testing.T) {
	in, caller := newIntake(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := in.open(ctx); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		for _, call := range []struct{ subject, body string }{
			{"kvr.p.route", `{"token_ids":[1]}`}, {"kvr.p.loads", ""}, {"kvr.p.status.r1", ""}, {"kvr.p.lease.complete", `{"lease":"x"}`},
		} {
			msg, err := caller.Request(call.subject, []byte(call.body), 10*time.Second)
			if err != nil {
				t.Fatalf("%s: %v", call.subject, err)
			}
			if e := readFailure(t, msg); e.Code != protocol.CodeInternal || e.Retryable {
				t.Errorf("%s: %v, want internal", call.subject, e)
			}
		}
	}
	if err := in.close(ctx); err != nil {
		t.Error(err)
	}
	cancel()
	in.wait()
}

// Calls beyond those that can wait are refused at once, and those that wait when
// the drain ends are counted.
func TestTooManyCalls(t *testing.T) {
	in, caller := newIntake(t)
	in.waiting = make(chan call, maxWaiting) // without workers
	replies, err := caller.SubscribeSync("replies")
	if err != nil {
		t.Fatal(err)
	}
	if err := caller.Flush(); err != nil {
		t.Fatal(err)
	}
	enqueue := in.enqueue(protocol.VerbRoute)
	for i := range maxWaiting + 3 {
		enqueue(&nats.Msg{Subject: fmt.Sprintf("kvr.p%d.route", i), Reply: "replies", Data: []byte("{}")})
	}
	for range 3 {
		msg, err := replies.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if e := readFailure(t, msg); e.Code != protocol.CodeOverloaded || msg.Header.Get(protocol.HeaderErrorCode) != "529" {
			t.Errorf("error is %v, headers %v, want overloaded", e, msg.Header)
		}
	}

	core, end := context.WithCancel(context.Background())
	in.workers.Go(func() { <-core.Done() }) // a worker that is stuck
	drain, cancel := context.WithCancel(core)
	cancel()
	err = in.close(drain)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(maxWaiting)) {
		t.Errorf("drain ends with %v, want one that counts %d calls", err, maxWaiting)
	}
	end()
	in.wait()
}

// The calls that wait are bounded in bytes too.
func TestTooManyBytes(t *testing.T) {
	in, _ := newIntake(t)
	in.waiting = make(chan call, maxWaiting) // without workers
	large := &nats.Msg{Subject: "kvr.p.route", Data: make([]byte, 1<<20)}
	taken := 0
	for in.accept(call{msg: large}) {
		taken++
	}
	if taken != maxWaitingBytes>>20 || in.accepted.Load() != int64(taken) {
		t.Errorf("%d calls of 1 MiB are taken, %d counted", taken, in.accepted.Load())
	}
	in.finish((<-in.waiting).msg)
	if !in.accept(call{msg: large}) || in.accept(call{msg: large}) {
		t.Error("the room that one call gives back is not that of one call")
	}
}

// A reply that the NATS server would not take becomes an error.
func TestReplyTooLarge(t *testing.T) {
	in, caller := newIntake(t)
	replies, err := caller.SubscribeSync("replies")
	if err != nil {
		t.Fatal(err)
	}
	if err := caller.Flush(); err != nil {
		t.Fatal(err)
	}
	body := map[string]string{"text": strings.Repeat("x", int(in.conn.MaxPayload()))}
	if in.reply(&nats.Msg{Subject: "kvr.p.status", Reply: "replies", Data: []byte("{}")}, body, nil) {
		t.Error("the reply is said to be sent")
	}
	msg, err := replies.NextMsg(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if e := readFailure(t, msg); e.Code != protocol.CodeInternal || !strings.Contains(e.Message, "max_payload") {
		t.Errorf("error is %v", e)
	}
}

// A connection that is closed early, by whom ever, does not upset the shutdown.
func TestCloseAfterTheConnection(t *testing.T) {
	in, _ := newIntake(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := in.open(ctx); err != nil {
		t.Fatal(err)
	}
	in.conn.Close()
	if err := in.close(ctx); err != nil {
		t.Error(err)
	}
	cancel()
	in.wait()
}

func TestErrorsOfTheWire(t *testing.T) {
	for _, test := range []struct {
		err  error
		want protocol.Code
	}{
		{fmt.Errorf("route: %w", protocol.Errorf(protocol.CodeNoWorkers, "none")), protocol.CodeNoWorkers},
		{fmt.Errorf("schedule: %w", context.Canceled), protocol.CodeShuttingDown},
		{fmt.Errorf("something else"), protocol.CodeInternal},
	} {
		if got := asError(test.err); got.Code != test.want {
			t.Errorf("%v becomes %v, want %s", test.err, got, test.want)
		}
	}
	if got := headerText("a\r\nb\x00c\x7fd é"); got != "a  b c d é" {
		t.Errorf("header is %q", got)
	}
}

// A router that shuts down is not ready, and says why.
func TestUnready(t *testing.T) {
	s := &Server{}
	for phase, want := range map[protocol.Phase]string{
		protocol.PhaseStarting: "reading the roster of workers", protocol.PhaseRunning: "",
		protocol.PhaseDraining: "shutting down", protocol.PhaseStopping: "shutting down",
	} {
		s.phase.Store(phase)
		if got := s.unready(); got != want {
			t.Errorf("%s: %q, want %q", phase, got, want)
		}
	}
}
