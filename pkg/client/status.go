package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/routerd/routerd/pkg/protocol"
)

const (
	maxRouters = 4096 // answers that Status takes
	maxPages   = 4096 // of one router's answer
)

// Status asks every router of a pool what it knows, and waits until all routers
// that the answers list have answered, or no further one does. Where at is not 0, ranks are reported as of that stream sequence.
// The answers are in the order of their router and whole: long ones come in
// pages, which are joined. One whose router fell silent in between is cut, which
// its More says. A router's error counts only if there is no answer at all.
func (c *Client) Status(ctx context.Context, pool string, at protocol.StreamSeq) ([]*protocol.StatusReply, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	subject := c.cfg.Names.Call(pool, protocol.VerbStatus)
	body, err := protocol.Marshal(protocol.StatusRequest{At: at}, c.encoding)
	if err != nil {
		return nil, err
	}
	byRouter := map[string]*protocol.StatusReply{}
	var failure error
	listed := map[string]bool{}
	err = c.gather(ctx, subject, body, func(msg *nats.Msg) (more bool) {
		reply := new(protocol.StatusReply)
		if err := readReply(msg, reply); err != nil {
			failure = err
			return true
		}
		byRouter[reply.Router] = reply
		for _, router := range reply.Routers {
			listed[router] = true
		}
		return len(listed) == 0 || len(byRouter) < len(listed)
	})
	if err = cmp.Or(failure, err); err != nil && len(byRouter) == 0 {
		return nil, err
	}
	replies := make([]*protocol.StatusReply, 0, len(byRouter))
	for _, reply := range byRouter {
		c.addPages(ctx, reply, at)
		replies = append(replies, reply)
	}
	slices.SortFunc(replies, func(a, b *protocol.StatusReply) int { return cmp.Compare(a.Router, b.Router) })
	return replies, nil
}

// gather sends a request to all that listen and takes their answers, until take
// wants no more, none came for the stall time, or ctx ends. It fails if none came
// at all.
func (c *Client) gather(ctx context.Context, subject string, body []byte, take func(*nats.Msg) (more bool)) error {
	inbox := c.cfg.Conn.NewInbox()
	sub, err := c.cfg.Conn.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("call %s: %w", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails if the connection is closed, and then it is done
	if err := c.cfg.Conn.PublishRequest(subject, inbox, body); err != nil {
		return fmt.Errorf("call %s: %w", subject, err)
	}
	msg, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		return callError(subject, err)
	}
	for n := 1; ; n++ {
		if !take(msg) || n >= maxRouters {
			return nil
		}
		waiting, cancel := context.WithTimeout(ctx, c.cfg.Stall)
		msg, err = sub.NextMsgWithContext(waiting)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return nil // what came is the answer
		}
		if err != nil {
			return callError(subject, err)
		}
	}
}

// addPages asks a router for the rest of its answer.
func (c *Client) addPages(ctx context.Context, reply *protocol.StatusReply, at protocol.StreamSeq) {
	subject := c.cfg.Names.Call(reply.Pool, protocol.VerbStatus) + "." + reply.Router
	for range maxPages {
		if !reply.More || len(reply.Ranks) == 0 {
			return
		}
		last := reply.Ranks[len(reply.Ranks)-1].Target()
		body, err := protocol.Marshal(protocol.StatusRequest{
			After: &protocol.After{Worker: last.ID, Rank: last.Rank}, At: at,
		}, c.encoding)
		if err != nil {
			return
		}
		page := new(protocol.StatusReply)
		if c.call(ctx, subject, body, page) != nil {
			return
		}
		if len(page.Ranks) > 0 && page.Ranks[0].Target().Compare(last) <= 0 {
			return // it does not go on; asking again would not end
		}
		reply.Ranks = append(reply.Ranks, page.Ranks...)
		reply.More = page.More && len(page.Ranks) > 0
	}
}
