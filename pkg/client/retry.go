package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// RouteRetry routes a request and has send deliver it to the chosen worker, with
// the wait for its first answer. If send fails the attempt is completed and the
// next one, with a higher number, excludes that worker (a pinned request tries
// the same one again). A routing call whose failure may pass is tried again
// after a wait. After all tries, or when ctx ends, the last error is returned.
//
// The reply returned is that of the attempt which send accepted; its progress
// and completion are the caller's to report.
func (c *Client) RouteRetry(ctx context.Context, pool string, r *protocol.RouteRequest, send func(ctx context.Context, reply *protocol.RouteReply) error) (*protocol.RouteReply, error) {
	q := *r
	q.RequestID, q.Attempt = requestID(r), max(r.Attempt, 1)
	wait := c.cfg.Backoff
	var sendErr error
	for try := 1; ; try++ {
		reply, err := c.Route(ctx, pool, &q)
		switch {
		case err == nil:
			if err = send(ctx, reply); err == nil {
				return reply, nil
			}
			sendErr = fmt.Errorf("send request %s to worker %s: %w", q.RequestID, reply.Target(), err)
			err = errors.Join(sendErr, c.Complete(pool, &protocol.CompleteReport{
				Lease: reply.Lease, RequestID: reply.RequestID, Attempt: reply.Attempt, Error: err.Error(),
			}))
			if q.Pinned == nil {
				q.Excluded = append(slices.Clone(q.Excluded), reply.Worker)
			}
		case try < c.cfg.Tries && mayPass(err):
			if !sleep(ctx, wait) {
				return nil, errors.Join(sendErr, err)
			}
			wait *= 2
		default:
			return nil, errors.Join(sendErr, err)
		}
		if try >= c.cfg.Tries || ctx.Err() != nil {
			return nil, err
		}
		q.Attempt++
	}
}

// mayPass says whether a routing call that failed may succeed later.
func mayPass(err error) bool {
	if failure, ok := errors.AsType[*protocol.Error](err); ok {
		return failure.Retryable
	}
	_, noRouter := errors.AsType[*NoRouterError](err)
	return noRouter || errors.Is(err, context.DeadlineExceeded)
}

// sleep waits; false: ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
