package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/routerd/routerd/pkg/protocol"
)

// Progress tells all routers of a pool that a request is alive. It does not wait
// for an answer; an error is the connection's.
func (c *Client) Progress(pool string, r *protocol.ProgressReport) error {
	return c.publish(pool, protocol.VerbProgress, r)
}

// Complete tells all routers of a pool that a request has ended. It does not
// wait for an answer; an error is the connection's.
func (c *Client) Complete(pool string, r *protocol.CompleteReport) error {
	return c.publish(pool, protocol.VerbComplete, cut(r))
}

// ReportProgress is Progress and waits until a router has answered.
func (c *Client) ReportProgress(ctx context.Context, pool string, r *protocol.ProgressReport) error {
	return c.report(ctx, pool, protocol.VerbProgress, r)
}

// ReportComplete is Complete and waits until a router has answered.
func (c *Client) ReportComplete(ctx context.Context, pool string, r *protocol.CompleteReport) error {
	return c.report(ctx, pool, protocol.VerbComplete, cut(r))
}

// cut shortens a report's error text to what the wire allows.
func cut(r *protocol.CompleteReport) *protocol.CompleteReport {
	if len(r.Error) <= protocol.MaxTextBytes {
		return r
	}
	short := *r
	short.Error = strings.ToValidUTF8(r.Error[:protocol.MaxTextBytes], "")
	return &short
}

func (c *Client) publish(pool, verb string, report any) error {
	subject := c.cfg.Names.Lease(pool, verb)
	body, err := protocol.Marshal(report, c.encoding)
	if err == nil {
		err = c.cfg.Conn.Publish(subject, body)
	}
	if err != nil {
		return fmt.Errorf("report on %s: %w", subject, err)
	}
	return nil
}

func (c *Client) report(ctx context.Context, pool, verb string, report any) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	subject := c.cfg.Names.Lease(pool, verb)
	body, err := protocol.Marshal(report, c.encoding)
	if err != nil {
		return fmt.Errorf("report on %s: %w", subject, err)
	}
	var reply struct {
		OK bool `json:"ok"`
	}
	if err := c.call(ctx, subject, body, &reply); err != nil {
		return err
	}
	if !reply.OK {
		return errors.New("report on " + subject + ": the router's answer says neither that it is well nor what is wrong")
	}
	return nil
}
