package workerquery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/routerd/routerd/pkg/protocol"
)

// ErrNoAnswer is returned when all attempts are used up.
var ErrNoAnswer = errors.New("worker did not answer")

// maxDoublings of the backoff: of the default, to 205 s.
const maxDoublings = 10

// Config is what an Asker is made of. Conn and Pool are required; the zero value
// of all else is the default.
type Config struct {
	Conn  *nats.Conn
	Names protocol.Names
	Pool  string

	Timeout  time.Duration // of one attempt; default 5 s
	Attempts int           // default 8
	Backoff  time.Duration // after the first attempt, doubled after each; default 200 ms
	Limit    int           // requests under way at a time; default 16
	// Random is the jitter of the backoff, in [0, 1), safe for concurrent use.
	// Default rand.Float64 of math/rand/v2.
	Random func() float64
}

// Validate reports everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var faults []error
	if c.Conn == nil {
		faults = append(faults, errors.New("conn: is required"))
	}
	if err := protocol.CheckName(c.Pool); err != nil {
		faults = append(faults, fmt.Errorf("pool: %w", err))
	}
	if c.Timeout < 0 || c.Backoff < 0 {
		faults = append(faults, errors.New("timeout, backoff: must be positive"))
	}
	if c.Attempts < 0 || c.Limit < 0 {
		faults = append(faults, errors.New("attempts, limit: must be positive"))
	}
	return errors.Join(faults...)
}

func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Attempts == 0 {
		c.Attempts = 8
	}
	if c.Backoff == 0 {
		c.Backoff = 200 * time.Millisecond
	}
	if c.Limit == 0 {
		c.Limit = 16
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	return c
}

// Asker asks the workers of one pool. It runs nothing of its own and is safe for
// concurrent use.
type Asker struct {
	cfg   Config
	slots chan struct{} // one per request under way

	mu    sync.Mutex
	turns map[protocol.Worker]*turn // of the ranks that are being asked
}

// turn lets one question at a time through to a rank. It exists while somebody
// has it or waits for it.
type turn struct {
	free  chan struct{} // holds one token while nobody has the turn
	users int           // guarded by Asker.mu
}

// New checks the configuration and makes an asker.
func New(cfg Config) (*Asker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("worker query configuration: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Asker{cfg: cfg, slots: make(chan struct{}, cfg.Limit), turns: make(map[protocol.Worker]*turn)}, nil
}

// Ask asks a rank for what q says, its version filled in, and returns the reply of
// kind events or snapshot, whose answer is in the log then, or of kind too_new or
// wrong_epoch, which no other attempt would change. Questions for one rank take
// turns. It fails with ErrNoAnswer after the last attempt, joined with why that
// failed, and with ctx's error as soon as ctx ends.
func (a *Asker) Ask(ctx context.Context, w protocol.Worker, q protocol.Query) (protocol.QueryReply, error) {
	q.Version = 1
	body, err := protocol.Marshal(&q, protocol.EncodingMsgpack)
	if err != nil {
		return protocol.QueryReply{}, fmt.Errorf("encode query: %w", err)
	}
	leave, err := a.enter(ctx, w)
	if err != nil {
		return protocol.QueryReply{}, fmt.Errorf("ask %s: %w", w, err)
	}
	defer leave()
	var last error
	for attempt := range a.cfg.Attempts {
		if attempt > 0 && !pause(ctx, a.backoff(attempt)) {
			break
		}
		reply, err := a.attempt(ctx, w, body)
		if err == nil {
			return reply, nil
		}
		last = err
	}
	if ctx.Err() != nil {
		return protocol.QueryReply{}, fmt.Errorf("ask %s: %w", w, ctx.Err())
	}
	return protocol.QueryReply{}, fmt.Errorf("ask %s: %w in %d attempts: %w", w, ErrNoAnswer, a.cfg.Attempts, last)
}

// enter waits for the rank's turn.
func (a *Asker) enter(ctx context.Context, w protocol.Worker) (leave func(), err error) {
	a.mu.Lock()
	t := a.turns[w]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		a.turns[w] = t
	}
	t.users++
	a.mu.Unlock()
	forget := func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(a.turns, w)
		}
	}
	select {
	case <-t.free:
		return func() { t.free <- struct{}{}; forget() }, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}

// attempt is one request, once there is a slot for it.
func (a *Asker) attempt(ctx context.Context, w protocol.Worker, body []byte) (reply protocol.QueryReply, err error) {
	select {
	case a.slots <- struct{}{}:
	case <-ctx.Done():
		return reply, ctx.Err()
	}
	defer func() { <-a.slots }()
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	msg, err := a.cfg.Conn.RequestWithContext(ctx, a.cfg.Names.Query(a.cfg.Pool, w), body)
	if err != nil {
		return reply, err
	}
	if err := protocol.Unmarshal(msg.Data, &reply); err != nil {
		return reply, fmt.Errorf("decode reply: %w", err)
	}
	switch reply.Kind {
	case protocol.QueryEvents, protocol.QuerySnapshot, protocol.QueryTooNew, protocol.QueryWrongEpoch:
		return reply, nil
	case protocol.QueryError:
		return reply, fmt.Errorf("worker: %s", reply.Message)
	}
	return reply, fmt.Errorf("reply is of unknown kind %q", reply.Kind)
}

// backoff is the pause before an attempt but the first, give or take a quarter so
// that routers do not ask in step.
func (a *Asker) backoff(attempt int) time.Duration {
	d := a.cfg.Backoff << min(attempt-1, maxDoublings)
	return time.Duration(float64(d) * (0.75 + a.cfg.Random()/2))
}

// pause waits and reports whether ctx is still on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
