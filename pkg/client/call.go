package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/routerd/routerd/pkg/protocol"
)

// NoRouterError says that nothing listens on a call's subject. errors.Is finds
// nats.ErrNoResponders in it.
type NoRouterError struct{ Subject string }

func (e *NoRouterError) Error() string {
	return fmt.Sprintf("no router answers on %s: start one with `routerd serve`, or check --nats and --prefix", e.Subject)
}

// Unwrap is what NATS said.
func (e *NoRouterError) Unwrap() error { return nats.ErrNoResponders }

// bounded gives a call a deadline.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.cfg.Timeout)
}

// call sends a body to a subject and reads the reply.
func (c *Client) call(ctx context.Context, subject string, body []byte, reply any) error {
	msg, err := c.cfg.Conn.RequestWithContext(ctx, subject, body)
	if err != nil {
		return callError(subject, err)
	}
	return readReply(msg, reply)
}

// callError says what a call that got no reply means.
func callError(subject string, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return &NoRouterError{subject}
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("call %s: no answer in time: %w", subject, err)
	}
	return fmt.Errorf("call %s: %w", subject, err)
}

// readReply reads a reply, or the *protocol.Error that it is instead.
func readReply(msg *nats.Msg, reply any) error {
	if failure := readError(msg); failure != nil {
		return failure
	}
	if err := protocol.Unmarshal(msg.Data, reply); err != nil {
		return fmt.Errorf("read reply on %s: %w", msg.Subject, err)
	}
	return nil
}

// readError finds a failure in a reply's body or its headers, nil if there is none.
func readError(msg *nats.Msg) *protocol.Error {
	number, text := msg.Header.Get(protocol.HeaderErrorCode), msg.Header.Get(protocol.HeaderError)
	// A failure's body has nothing but `error`, so the name is at its beginning;
	// looking for it spares reading every reply twice.
	const beginning = 32
	if number != "" || bytes.Contains(msg.Data[:min(len(msg.Data), beginning)], []byte("error")) {
		var body protocol.ErrorReply
		if protocol.Unmarshal(msg.Data, &body) == nil && body.Error != nil {
			body.Error.Message = cmp.Or(body.Error.Message, text)
			return body.Error
		}
	}
	if number == "" {
		return nil
	}
	return protocol.Errorf(codeOf(number), "%s", cmp.Or(text, "the call failed with code "+number))
}

// codeOf is the most general code of a number in an error's header.
func codeOf(number string) protocol.Code {
	n, err := strconv.Atoi(number)
	if err != nil {
		return protocol.CodeInternal
	}
	for _, code := range []protocol.Code{
		protocol.CodeInvalidRequest, protocol.CodeUnknownPool, protocol.CodeDuplicateRequest,
		protocol.CodeOverloaded, protocol.CodeNotReady,
	} {
		if code.Number() == n {
			return code
		}
	}
	return protocol.CodeInternal
}
