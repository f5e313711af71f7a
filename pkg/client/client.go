package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/routerd/routerd/pkg/protocol"
)

// Defaults of a Config.
const (
	DefaultTimeout = 5 * time.Second
	DefaultStall   = 200 * time.Millisecond
	DefaultTries   = 3
	DefaultBackoff = 100 * time.Millisecond
)

const (
	maxTries    = 100
	maxDuration = time.Hour
)

// Config says how to reach the routers. The zero value of each field but Conn is usable.
type Config struct {
	// Conn is an open connection to NATS. Required.
	Conn *nats.Conn
	// Names has the routers' prefix; zero: protocol.DefaultPrefix.
	Names protocol.Names
	// Timeout bounds a call whose context has no deadline. Default 5 s, at most 1 h.
	Timeout time.Duration
	// Stall is how long Status waits for another router after the last answer.
	// Default 200 ms, at most 1 h.
	Stall time.Duration
	// JSON writes bodies as JSON; default msgpack, which is smaller and faster.
	JSON bool
	// Blocks has the blocks of pools where they are known beforehand. Others are asked for.
	Blocks map[string]Blocks
	// Tries is how often RouteRetry tries, 1 to 100. Default 3.
	Tries int
	// Backoff is RouteRetry's wait before its second try, doubled with each
	// further one. Default 100 ms, at most 1 h.
	Backoff time.Duration
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Stall = cmp.Or(c.Stall, DefaultStall)
	c.Tries = cmp.Or(c.Tries, DefaultTries)
	c.Backoff = cmp.Or(c.Backoff, DefaultBackoff)
	return c
}

// Validate reports every field that is out of bounds.
func (c Config) Validate() error {
	c = c.withDefaults()
	var faults []error
	if c.Conn == nil {
		faults = append(faults, errors.New("connection is missing"))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"timeout", c.Timeout}, {"stall", c.Stall}, {"backoff", c.Backoff}} {
		if d.value < 0 || d.value > maxDuration {
			faults = append(faults, fmt.Errorf("%s is %v, must be at most %v", d.name, d.value, maxDuration))
		}
	}
	if c.Tries < 1 || c.Tries > maxTries {
		faults = append(faults, fmt.Errorf("tries is %d, must be 1 to %d", c.Tries, maxTries))
	}
	for pool, b := range c.Blocks {
		if b.Size < 1 || b.Size > maxBlockSize {
			faults = append(faults, fmt.Errorf("block size of pool %q is %d, must be 1 to %d", pool, b.Size, maxBlockSize))
		}
	}
	return errors.Join(faults...)
}

// Client calls the routers of any pool. It is safe for concurrent use.
type Client struct {
	cfg      Config
	encoding protocol.Encoding

	mu      sync.Mutex        // guards what follows
	learned map[string]Blocks // at most maxLearned pools
}

// New makes a client. It sends nothing.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	c := &Client{cfg: cfg.withDefaults(), encoding: protocol.EncodingMsgpack, learned: map[string]Blocks{}}
	if cfg.JSON {
		c.encoding = protocol.EncodingJSON
	}
	return c, nil
}

// Route asks where to send a request and, unless it is query_only, has it
// admitted there. It gives the request an id if it has none. The router is told
// to give up when ctx or the timeout ends, unless the request has a timeout of
// its own. If no reply arrives the attempt is withdrawn: what tries the request
// again then must raise the attempt.
func (c *Client) Route(ctx context.Context, pool string, r *protocol.RouteRequest) (*protocol.RouteReply, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	q := *r
	q.RequestID = requestID(r)
	q.ByHash = q.ByHash || q.BlockHashes != nil
	if deadline, _ := ctx.Deadline(); q.TimeoutMS == 0 {
		q.TimeoutMS = max(time.Until(deadline).Milliseconds(), 1)
	}
	reply := new(protocol.RouteReply)
	err := c.callWithPrompt(ctx, pool, protocol.VerbRoute, &q.Prompt, reply, func() ([]byte, error) {
		return protocol.EncodeRouteRequest(&q, c.encoding)
	})
	if err != nil {
		if ctx.Err() != nil && !q.QueryOnly {
			err = errors.Join(err, c.Complete(pool, &protocol.CompleteReport{
				RequestID: q.RequestID, Attempt: q.Attempt, Error: "the caller gave up",
			}))
		}
		return nil, err
	}
	return reply, nil
}

func requestID(r *protocol.RouteRequest) string {
	if r.RequestID != "" {
		return r.RequestID
	}
	return uuid.NewString()
}

// Overlap asks what every worker of a pool holds of a prompt. A long answer
// comes in pages, which are joined; they need not be of one instant.
func (c *Client) Overlap(ctx context.Context, pool string, r *protocol.OverlapRequest) (*protocol.OverlapReply, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	q := *r
	q.ByHash = q.ByHash || q.BlockHashes != nil
	var whole *protocol.OverlapReply
	for {
		page := new(protocol.OverlapReply)
		err := c.callWithPrompt(ctx, pool, protocol.VerbOverlap, &q.Prompt, page, func() ([]byte, error) {
			return protocol.EncodeOverlapRequest(&q, c.encoding)
		})
		if err != nil {
			return nil, err
		}
		if whole == nil {
			whole = page
		} else {
			whole.Workers = append(whole.Workers, page.Workers...)
			whole.More = page.More
		}
		if !page.More {
			return whole, nil
		}
		if len(page.Workers) == 0 {
			return nil, errors.New("read overlap: a page says that there is more and has nothing")
		}
		last := page.Workers[len(page.Workers)-1]
		next := &protocol.After{Worker: last.Worker, Rank: last.Rank}
		if q.After != nil && next.Target().Compare(q.After.Target()) <= 0 {
			return nil, fmt.Errorf("read overlap: the page after %s ends with %s", q.After.Target(), next.Target())
		}
		q.After = next
	}
}

// Loads asks what the workers of a pool are charged with, as one router has it.
func (c *Client) Loads(ctx context.Context, pool string) (*protocol.LoadsReply, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	reply := new(protocol.LoadsReply)
	if err := c.call(ctx, c.cfg.Names.Call(pool, protocol.VerbLoads), nil, reply); err != nil {
		return nil, err
	}
	return reply, nil
}
