package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/routerd/routerd/pkg/protocol"
)

// queueGroup is the group in which the routers of a prefix share calls.
const queueGroup = "routerd"

// Bounds of the calls that have arrived and wait for a worker of this process, or
// are being answered; one beyond them is answered with overloaded.
const (
	maxWaiting      = 4096
	maxWaitingBytes = 64 << 20
)

// intake takes calls and lease reports from NATS. Its subscriptions cover every
// pool, so that a call for a pool that nobody serves gets an answer too.
type intake struct {
	conn    *nats.Conn
	names   protocol.Names
	token   string
	api     *Server
	metrics *metrics
	log     zerolog.Logger

	// reporting is held while a report is applied: of the two copies that a router
	// gets, the one that is answered must not overtake the other.
	reporting sync.Mutex

	waiting  chan call
	accepted atomic.Int64   // calls from their arrival until their reply is sent
	bytes    atomic.Int64   // of their bodies
	closing  sync.WaitGroup // subscriptions that are not closed yet
	workers  sync.WaitGroup
	drained  sync.WaitGroup // what close has begun
	subs     []subscription
}

type subscription struct {
	*nats.Subscription
	closed func() // says that its last message has been handled; more than once does no harm
}

// call is one request that has arrived.
type call struct {
	msg     *nats.Msg
	verb    string
	pool    string
	arrived time.Time
}

// open subscribes, and starts the workers; ctx ends what they do.
func (in *intake) open(ctx context.Context) error {
	in.waiting = make(chan call, maxWaiting)
	for range max(4, 2*runtime.GOMAXPROCS(0)) {
		in.workers.Go(func() {
			for c := range in.waiting {
				in.answer(ctx, c)
				in.finish(c.msg)
			}
		})
	}
	for _, verb := range []string{protocol.VerbRoute, protocol.VerbOverlap, protocol.VerbLoads, protocol.VerbStatus} {
		group := queueGroup
		if verb == protocol.VerbStatus {
			group = "" // every router answers
		}
		err := errors.Join(
			in.subscribe(in.names.EveryPool(verb), group, in.enqueue(verb)),
			in.subscribe(in.names.EveryPool(verb+"."+in.token), "", in.enqueue(verb)))
		if err != nil {
			return err
		}
	}
	// Every router applies a report; the one that the queue group picks answers.
	for _, verb := range []string{protocol.VerbProgress, protocol.VerbComplete} {
		err := errors.Join(
			in.subscribe(in.names.EveryPool("lease."+verb), "", func(msg *nats.Msg) { in.report(verb, msg) }),
			in.subscribe(in.names.EveryPool("lease."+verb), queueGroup, func(msg *nats.Msg) {
				if msg.Reply != "" {
					in.reply(msg, okReply, in.report(verb, msg))
				}
			}))
		if err != nil {
			return err
		}
	}
	return in.conn.Flush()
}

var okReply = map[string]bool{"ok": true}

func (in *intake) subscribe(subject, group string, handle nats.MsgHandler) error {
	guarded := func(msg *nats.Msg) {
		defer in.survive(msg)
		handle(msg)
	}
	sub, err := in.conn.QueueSubscribe(subject, group, guarded)
	if err != nil {
		return fmt.Errorf("subscribe %s: %w", subject, err)
	}
	in.closing.Add(1)
	closed := sync.OnceFunc(in.closing.Done)
	sub.SetClosedHandler(func(string) { closed() })
	in.subs = append(in.subs, subscription{sub, closed})
	return nil
}

func (in *intake) enqueue(verb string) nats.MsgHandler {
	return func(msg *nats.Msg) {
		pool, err := in.names.ParsePool(msg.Subject)
		if err != nil {
			in.reply(msg, nil, protocol.Errorf(protocol.CodeInvalidName, "pool: %v", err))
			return
		}
		if !in.accept(call{msg, verb, pool, time.Now()}) {
			in.metrics.overflow.Inc()
			in.reply(msg, nil, protocol.Errorf(protocol.CodeOverloaded,
				"too many calls are waiting for this router (%d, %d bytes): try again, or start another router", in.accepted.Load(), in.bytes.Load()))
		}
	}
}

// accept lets a call wait for a worker, if there is room.
func (in *intake) accept(c call) bool {
	in.accepted.Add(1)
	if in.bytes.Add(int64(len(c.msg.Data))) <= maxWaitingBytes {
		select {
		case in.waiting <- c:
			return true
		default:
		}
	}
	in.finish(c.msg)
	return false
}

func (in *intake) finish(msg *nats.Msg) {
	in.bytes.Add(-int64(len(msg.Data)))
	in.accepted.Add(-1)
}

// answer handles one call and sends its reply.
func (in *intake) answer(ctx context.Context, c call) {
	defer in.survive(c.msg)
	body, err := in.handle(ctx, c)
	if errors.Is(err, context.DeadlineExceeded) {
		in.metrics.called(c.verb, "timeout", time.Since(c.arrived))
		return // the caller gave up, as it had said it would
	}
	in.metrics.called(c.verb, result(err), time.Since(c.arrived))
	sent := in.reply(c.msg, body, err)
	if reply, ok := body.(*protocol.RouteReply); ok && err == nil && !sent && reply.Lease != "" {
		in.api.withdraw(c.pool, reply)
	}
}

func (in *intake) handle(ctx context.Context, c call) (any, error) {
	switch c.verb {
	case protocol.VerbRoute:
		request, err := protocol.DecodeRouteRequest(c.msg.Data)
		if err != nil {
			return nil, err
		}
		if request.TimeoutMS > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, c.arrived.Add(time.Duration(request.TimeoutMS)*time.Millisecond))
			defer cancel()
		}
		reply, err := in.api.Route(ctx, c.pool, request)
		if err != nil {
			return nil, err
		}
		return reply, nil
	case protocol.VerbOverlap:
		request, err := protocol.DecodeOverlapRequest(c.msg.Data)
		if err != nil {
			return nil, err
		}
		return in.api.Overlap(c.pool, request)
	case protocol.VerbLoads:
		return in.api.Loads(c.pool)
	default:
		request, err := protocol.DecodeStatusRequest(c.msg.Data)
		if err != nil {
			return nil, err
		}
		return in.api.Status(c.pool, request)
	}
}

// report applies a lease report.
func (in *intake) report(verb string, msg *nats.Msg) error {
	pool, err := in.names.ParsePool(msg.Subject)
	if err != nil {
		return protocol.Errorf(protocol.CodeInvalidName, "pool: %v", err)
	}
	if verb == protocol.VerbProgress {
		report, err := protocol.DecodeProgress(msg.Data)
		if err != nil {
			in.metrics.malformedReports.Inc()
			return err
		}
		in.reporting.Lock()
		defer in.reporting.Unlock()
		return in.api.Progress(pool, report)
	}
	report, err := protocol.DecodeComplete(msg.Data)
	if err != nil {
		in.metrics.malformedReports.Inc()
		return err
	}
	in.reporting.Lock()
	defer in.reporting.Unlock()
	return in.api.Complete(pool, report)
}

// reply sends a body or an error in the encoding of the request, and says
// whether it could be sent.
func (in *intake) reply(msg *nats.Msg, body any, err error) bool {
	if msg.Reply == "" {
		return true
	}
	answer := nats.NewMsg(msg.Reply)
	if err != nil {
		failure := asError(err)
		answer.Header.Set(protocol.HeaderErrorCode, fmt.Sprint(failure.Code.Number()))
		answer.Header.Set(protocol.HeaderError, headerText(failure.Message))
		body = &protocol.ErrorReply{Error: failure}
	}
	data, failed := protocol.Marshal(body, protocol.DetectEncoding(msg.Data))
	if failed == nil {
		answer.Data = data
		failed = in.conn.PublishMsg(answer)
	}
	if failed == nil {
		return true
	}
	in.log.Warn().Err(failed).Str("subject", msg.Subject).Msg("reply not sent")
	if err == nil && errors.Is(failed, nats.ErrMaxPayload) {
		in.reply(msg, nil, protocol.Errorf(protocol.CodeInternal,
			"the reply has %d bytes, the NATS server takes %d: raise its max_payload", len(data), in.conn.MaxPayload()))
	}
	return false
}

// survive turns a panic into an internal error: no request may stop a router.
func (in *intake) survive(msg *nats.Msg) {
	if fault := recover(); fault != nil {
		in.log.Error().Interface("panic", fault).Bytes("stack", debug.Stack()).Str("subject", msg.Subject).Msg("call failed")
		in.reply(msg, nil, protocol.Errorf(protocol.CodeInternal, "the router failed on this call; its log has the place"))
	}
}

// close takes no further call and waits, until ctx ends, for those accepted.
func (in *intake) close(ctx context.Context) error {
	for _, sub := range in.subs {
		if err := sub.Drain(); err != nil {
			sub.closed() // the connection is gone and took the subscription with it
		}
	}
	drained := make(chan struct{})
	in.drained.Go(func() {
		defer close(drained)
		in.closing.Wait()
		close(in.waiting)
		in.workers.Wait()
	})
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d calls were not answered within the drain timeout", in.accepted.Load())
	}
}

// wait returns once nothing of the intake runs; ctx of open must have ended.
func (in *intake) wait() { in.drained.Wait() }

// asError is any failure as a wire error.
func asError(err error) *protocol.Error {
	if failure, ok := errors.AsType[*protocol.Error](err); ok {
		return failure
	}
	if errors.Is(err, context.Canceled) {
		return protocol.Errorf(protocol.CodeShuttingDown, "this router is shutting down: try again")
	}
	return protocol.Errorf(protocol.CodeInternal, "%v", err)
}

// headerText is a message that fits one header line.
func headerText(s string) string {
	text := []byte(s)
	for i, c := range text {
		if c < ' ' || c == 0x7f {
			text[i] = ' '
		}
	}
	return string(text)
}
