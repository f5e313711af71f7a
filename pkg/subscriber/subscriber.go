package subscriber

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/routerd/routerd/pkg/protocol"
)

// ErrStopped is returned by WaitApplied once Run has returned.
var ErrStopped = errors.New("subscriber has stopped")

// Subscriber keeps an index at what a pool's log says. Its methods are safe for
// concurrent use; none but Run and WaitApplied blocks.
type Subscriber struct {
	cfg     Config
	rules   *rules
	window  *window
	lanes   []*lane
	ready   chan struct{}
	stopped chan struct{}
	poke    chan struct{} // asks the caretaker to look at the ranks at once
	log     zerolog.Logger

	known    atomic.Uint64 // highest stream sequence heard of
	caughtUp atomic.Bool
	contact  atomic.Bool // the log can be read
	pressed  atomic.Bool // the stream is so full that every tail counts

	stats counters

	roster sync.Mutex // orders SetRank and RemoveRank; taken before mu and any rank's lock

	mu         sync.Mutex         // guards what follows; no rank's lock is taken under it
	position   protocol.StreamSeq // last message read
	epoch      string             // of the stream being read
	ranks      map[protocol.Worker]*rank
	departures map[protocol.Worker]departure
	left       rankCounters // of ranks that are gone
}

// New checks the configuration and makes a subscriber; Run starts it.
func New(cfg Config) (*Subscriber, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure subscriber: %w", err)
	}
	cfg = cfg.withDefaults()
	s := &Subscriber{
		cfg: cfg,
		rules: &rules{
			sink: cfg.Sink, parentNotHeld: cfg.ParentNotHeld, malformedStore: cfg.MalformedStore,
			compaction: cfg.Compaction, repairDelay: cfg.RepairDelay, repairPause: cfg.RepairPause,
		},
		window:     newWindow(cfg.InFlightBytes),
		ready:      make(chan struct{}),
		stopped:    make(chan struct{}),
		poke:       make(chan struct{}, 1),
		log:        cfg.Log.With().Str("component", "subscriber").Str("pool", cfg.Stream.Pool).Logger(),
		ranks:      map[protocol.Worker]*rank{},
		departures: map[protocol.Worker]departure{},
		left:       rankCounters{refused: map[protocol.Refusal]uint64{}},
	}
	for range cfg.Lanes {
		s.lanes = append(s.lanes, newLane(cfg.LaneMessages))
	}
	return s, nil
}

// Run reads the log until ctx ends and returns nil then. It returns early, with a
// *ForeignStreamError, if the pool's stream cannot be its log. It is called once;
// when it returns nothing of the subscriber runs, and the index is left as it is.
func (s *Subscriber) Run(ctx context.Context) error {
	defer close(s.stopped)
	defer s.contact.Store(false)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var group sync.WaitGroup
	for _, lane := range s.lanes {
		group.Go(func() { lane.run(ctx, s.window) })
	}
	care := newCaretaker(s)
	group.Go(func() { care.run(ctx) })
	group.Go(func() { care.watchUsage(ctx) })
	reader := &reader{Subscriber: s}
	var failure error
	group.Go(func() {
		failure = reader.run(ctx)
		cancel(failure)
	})
	group.Wait()
	return failure
}

// Ready is closed once the log has been applied up to its end as of the start.
func (s *Subscriber) Ready() <-chan struct{} { return s.ready }

// CaughtUp says whether the log has been applied up to its end as of the start, or
// as of when it was last found to be another one.
func (s *Subscriber) CaughtUp() bool { return s.caughtUp.Load() }

// SetRank tells of an accepted roster entry, a new one or a refresh. epoch is what
// the roster made of it: the revision of the put that began the life, 0 for a
// publisher that uses none. A rank that comes while the log is being read is
// partial until its subject has been read up to there.
func (s *Subscriber) SetRank(reg *protocol.Registration, epoch protocol.Epoch) {
	w := reg.Target()
	if !reg.Events {
		s.RemoveRank(w)
		return
	}
	s.roster.Lock()
	defer s.roster.Unlock()
	s.mu.Lock()
	delete(s.departures, w)
	r := s.ranks[w]
	if r == nil {
		r = s.newRankLocked(w, epoch)
	}
	s.mu.Unlock()
	r.enroll(reg, epoch, time.Now())
	s.wake()
}

func (s *Subscriber) newRankLocked(w protocol.Worker, epoch protocol.Epoch) *rank {
	r := &rank{
		w: w, subject: s.cfg.Stream.Names.Events(s.cfg.Stream.Pool, w), tick: s.cfg.Tick,
		fold: newFold(s.rules, w, epoch), fed: s.position,
	}
	switch {
	case s.position > 0:
		r.unread, r.holding = 1, true
	case s.caughtUp.Load(): // with an empty log, so that nobody will call it live
		r.fold.live = true
	}
	s.ranks[w] = r
	return r
}

// RemoveRank tells that a roster entry is gone, was refused, or publishes no
// events any more. When it returns the index holds nothing of the rank, and nothing
// of it is applied until SetRank. Its subject is purged after Config.Grace unless
// it has come back by then.
func (s *Subscriber) RemoveRank(w protocol.Worker) {
	s.roster.Lock()
	defer s.roster.Unlock()
	s.mu.Lock()
	r := s.ranks[w]
	if r == nil {
		s.mu.Unlock()
		return
	}
	delete(s.ranks, w)
	s.departures[w] = departure{subject: r.subject, log: s.epoch, through: s.position, due: time.Now().Add(s.cfg.Grace)}
	s.mu.Unlock()
	counted := r.leave()
	s.mu.Lock()
	s.left.merge(&counted)
	s.mu.Unlock()
}

// Applied is the highest stream sequence S such that every message up to S has
// been applied, held or refused. It falls only when the log is found to be another.
func (s *Subscriber) Applied() protocol.StreamSeq { return s.window.mark() }

// Known is the highest stream sequence heard of.
func (s *Subscriber) Known() protocol.StreamSeq { return protocol.StreamSeq(s.known.Load()) }

// WaitApplied returns once Applied has reached seq, with the cause of ctx if that
// ends first, or with ErrStopped.
func (s *Subscriber) WaitApplied(ctx context.Context, seq protocol.StreamSeq) error {
	select {
	case <-s.stopped:
		if s.Applied() >= seq {
			return nil
		}
		return ErrStopped
	default:
	}
	return s.window.wait(ctx, s.stopped, seq)
}

// wake makes the caretaker look at the ranks now rather than at its next tick.
func (s *Subscriber) wake() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

func (s *Subscriber) rank(w protocol.Worker) *rank {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ranks[w]
}

// logEpoch is the epoch of the stream being read.
func (s *Subscriber) logEpoch() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// all lists the ranks in their order.
func (s *Subscriber) all() []*rank {
	s.mu.Lock()
	list := make([]*rank, 0, len(s.ranks))
	for _, r := range s.ranks {
		list = append(list, r)
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b *rank) int { return a.w.Compare(b.w) })
	return list
}
