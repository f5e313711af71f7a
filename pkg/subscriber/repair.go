package subscriber

import (
	"context"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

const (
	// repairSteps bounds one repair: a few readings of the log, as many questions.
	repairSteps = 8
	// repairAsks bounds how often one repair asks the publisher anew because its
	// answer did not mend the state.
	repairAsks = 3
	// answerTimeout is how long an answer may take from the log to the rank.
	answerTimeout = 10 * time.Second
	// publisherRest is how long a publisher that could not help is left alone.
	publisherRest = time.Second
)

// repair mends a rank's state, cheapest source first: what the log holds; what the
// publisher puts into the log when asked; failing both, what can be applied is, and
// the rank stays partial. ctx is the rank's own, so that a worker which leaves ends
// its repair at once.
func (c *caretaker) repair(ctx context.Context, r *rank) {
	if !take(ctx, c.repairs) {
		return
	}
	defer func() { <-c.repairs }()
	r.countRepair()
	asks := 0
	for range repairSteps {
		switch step := r.next(time.Now()); step.kind {
		case needNothing:
			return
		case needLog:
			if !c.readSubject(ctx, r, step.from) {
				return
			}
		case needPublisher:
			asks++
			if asks > repairAsks {
				r.settle(time.Now())
				continue
			}
			switch c.ask(ctx, r, step.query) {
			case answerTaken:
			case answerNone:
				r.settle(time.Now())
			case answerNotNow:
				r.rest(time.Now().Add(publisherRest))
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
	r.settle(time.Now())
}

type answer uint8

const (
	answerTaken  answer = iota // it has been applied
	answerNone                 // there was none
	answerNotNow               // the publisher has nothing for this question
)

// ask asks the publisher and waits until its answer, which comes through the log,
// has been applied here.
func (c *caretaker) ask(ctx context.Context, r *rank, q protocol.Query) answer {
	if c.cfg.Repairer == nil {
		return answerNone
	}
	reply, err := c.cfg.Repairer.Ask(ctx, r.w, q)
	if err != nil {
		if ctx.Err() == nil {
			c.log.Warn().Err(err).Stringer("worker", r.w).Uint64("from", uint64(q.From)).
				Msg("worker did not mend its events: the rank stays partial until its next snapshot")
		}
		return answerNone
	}
	switch reply.Kind {
	case protocol.QueryEvents, protocol.QuerySnapshot:
	case protocol.QueryTooNew, protocol.QueryWrongEpoch:
		return answerNotNow
	default:
		return answerNone
	}
	wait, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if c.WaitApplied(wait, reply.StreamSeq) != nil {
		return answerNotNow
	}
	return answerTaken
}
