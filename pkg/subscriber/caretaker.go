package subscriber

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// epochAskEvery is how often the roster bucket is asked whether it has reached an
// epoch that an event carries.
const epochAskEvery = time.Second

// caretaker looks at every rank once a tick, compares it with what it should be and
// starts what is due: readings of a subject, repairs, snapshots, purges. It
// reconciles rather than reacts, so that nothing depends on a signal not lost.
type caretaker struct {
	*Subscriber
	group   sync.WaitGroup // of everything it starts
	repairs chan struct{}  // a token for each repair that may run
	rereads chan struct{}  // and for each reading of a subject

	snapshotting atomic.Bool // one snapshot is written at a time
	asking       atomic.Bool
	askedAt      time.Time
	purging      chan purge
}

// purge is a part of a subject that is covered by a snapshot which agrees with the
// state, if its content does.
type purge struct {
	rank  *rank
	proof *proof
	log   string // epoch of the stream that the proof is of
}

func newCaretaker(s *Subscriber) *caretaker {
	return &caretaker{
		Subscriber: s,
		repairs:    make(chan struct{}, s.cfg.Repairs),
		rereads:    make(chan struct{}, s.cfg.Rereads),
		purging:    make(chan purge, s.cfg.Compaction.purgeBacklog),
	}
}

// run looks after the ranks until ctx ends, and waits for what it has started.
func (c *caretaker) run(ctx context.Context) {
	defer c.group.Wait()
	c.group.Go(func() { c.purge(ctx) })
	ticker := time.NewTicker(c.cfg.Tick)
	defer ticker.Stop()
	for {
		c.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-c.poke:
		}
	}
}

func (c *caretaker) round(ctx context.Context) {
	now, applied, pressed := time.Now(), c.Applied(), c.pressed.Load()
	contact, ahead := c.contact.Load(), false
	quiet := contact && applied >= c.Known()
	for _, r := range c.all() {
		w := r.look(now, applied, quiet, pressed)
		ahead = ahead || w.ahead
		switch {
		case w.reread != 0:
			c.start(ctx, r, func(ctx context.Context) { c.readSubject(ctx, r, w.reread) })
		case w.repair && c.caughtUp.Load() && contact:
			c.start(ctx, r, func(ctx context.Context) { c.repair(ctx, r) })
		case w.compact && contact && c.snapshotting.CompareAndSwap(false, true):
			c.group.Go(func() {
				defer c.snapshotting.Store(false)
				c.writeSnapshot(ctx, r)
			})
		}
		if w.wrong {
			c.log.Error().Stringer("worker", r.w).Msg("a snapshot contradicts the index: asking the worker for another")
		}
		if w.proof != nil && !c.cfg.Compaction.Off {
			select {
			case c.purging <- purge{rank: r, proof: w.proof, log: c.logEpoch()}:
			default: // the next snapshot of the rank proves as much
			}
		}
	}
	if ahead {
		c.askEpochs(ctx, now)
	}
	c.depart(ctx, now)
}

// start runs work on a rank, under the rank's own context, unless some is under way.
func (c *caretaker) start(ctx context.Context, r *rank, work func(context.Context)) {
	ctx, done, ok := r.begin(ctx)
	if !ok {
		return
	}
	c.group.Go(func() {
		defer c.wake() // there may be a next step
		defer done()
		work(ctx)
	})
}

// askEpochs settles what is ahead of the roster by what its bucket has given out.
func (c *caretaker) askEpochs(ctx context.Context, now time.Time) {
	if c.cfg.Epochs == nil {
		for _, r := range c.all() {
			r.resolve(0)
		}
		return
	}
	if now.Sub(c.askedAt) < epochAskEvery || !c.asking.CompareAndSwap(false, true) {
		return
	}
	c.askedAt = now
	c.group.Go(func() {
		defer c.asking.Store(false)
		call, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		revision, err := c.cfg.Epochs.LastRevision(call)
		if err != nil {
			c.log.Warn().Err(err).Msg("cannot read the roster's last revision")
			return
		}
		for _, r := range c.all() {
			r.resolve(revision)
		}
		c.wake()
	})
}

// take waits for one of the tokens, false if ctx ends first.
func take(ctx context.Context, tokens chan struct{}) bool {
	select {
	case tokens <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// becomeLive ends the time in which holes are waited out.
func (s *Subscriber) becomeLive() {
	s.caughtUp.Store(true)
	for _, r := range s.all() {
		r.goLive()
	}
	select {
	case <-s.ready:
	default:
		close(s.ready)
	}
	s.wake()
}
