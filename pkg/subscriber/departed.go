package subscriber

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

// departure is a rank that has left.
type departure struct {
	subject string
	log     string             // epoch of the stream it was in
	through protocol.StreamSeq // of its messages
	due     time.Time

	// stranger says that its leaving was not seen: messages are there, and nobody
	// in the roster whose they are.
	stranger bool
}

// maxStrangers bounds the ranks that are remembered for messages of theirs alone.
const maxStrangers = 1 << 16

// stranger notes a message of a rank that is not in the roster. One that left while
// no router ran is purged like any other that has departed.
func (s *Subscriber) stranger(w protocol.Worker, subject string, seq protocol.StreamSeq) {
	if s.cfg.Registered == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d, seen := s.departures[w]
	if seen && !d.stranger || !seen && len(s.departures) >= maxStrangers {
		return
	}
	s.departures[w] = departure{subject: subject, log: s.epoch, through: seq, due: time.Now().Add(s.cfg.Grace), stranger: true}
}

// Departed is what the subscriber leaves undone when Run has returned: ranks that
// left and whose subjects have not been purged. PurgeDeparted does it.
func (s *Subscriber) Departed() []Departed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.Compaction.Off {
		return nil
	}
	left := make([]Departed, 0, len(s.departures))
	for w, d := range s.departures {
		if d.through > 0 {
			left = append(left, Departed{Worker: w, Due: d.due, departure: d})
		}
	}
	return left
}

// Departed is a rank that has left a pool that is followed no more.
type Departed struct {
	Worker protocol.Worker
	Due    time.Time // of the purge, unless the rank has come back by then
	departure
}

// PurgeDeparted removes a departed rank's messages from the log, up to the last
// one before it left. It fails if the stream is gone or another one by now.
func PurgeDeparted(ctx context.Context, js jetstream.JetStream, stream StreamConfig, d Departed) error {
	return purgeSubject(ctx, js, stream.name(), d.log, d.subject, d.through)
}

// depart purges the subjects of ranks that have been gone for the grace period. A
// rank that has come back is not among them; a message that came since is not
// touched.
func (c *caretaker) depart(ctx context.Context, now time.Time) {
	if c.cfg.Compaction.Off || !c.contact.Load() {
		return
	}
	due := c.dueDepartures(now)
	if len(due) == 0 {
		return
	}
	c.group.Go(func() {
		for _, d := range due {
			if d.through == 0 {
				continue
			}
			if err := c.purgeSubject(ctx, d.log, d.subject, d.through); err != nil {
				c.log.Warn().Err(err).Msg("cannot purge the subject of a departed worker: another router may, or `nats stream purge` does")
				continue
			}
			c.stats.departures.Add(1)
		}
	})
}

// dueDepartures takes out what is due. A stranger that is registered after all, and
// refused, is looked at again later: it may yet be accepted.
func (c *caretaker) dueDepartures(now time.Time) (due []departure) {
	overdue := map[protocol.Worker]departure{}
	c.mu.Lock()
	for w, d := range c.departures {
		if !now.Before(d.due) {
			overdue[w] = d
		}
	}
	c.mu.Unlock()
	for w, d := range overdue {
		keep := d.stranger && c.cfg.Registered(w)
		c.mu.Lock()
		switch current, waits := c.departures[w]; {
		case !waits || current != d: // it has come back, or been heard of, meanwhile
		case keep:
			d.due = now.Add(c.cfg.Grace)
			c.departures[w] = d
		default:
			delete(c.departures, w)
			due = append(due, d)
		}
		c.mu.Unlock()
	}
	return due
}
