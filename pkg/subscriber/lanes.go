package subscriber

import (
	"context"
	"hash/maphash"

	"github.com/routerd/routerd/pkg/protocol"
)

// lane decodes and applies the messages of some of the ranks, in order. A full
// lane stops the reader; the log keeps the rest.
type lane struct {
	queue chan job
}

// job is one message for a lane.
type job struct {
	rank   *rank
	number uint64 // in the window
	seq    protocol.StreamSeq
	body   []byte
}

func newLane(capacity int) *lane { return &lane{queue: make(chan job, capacity)} }

// run works until ctx ends. What is queued then is left: it is still in the log.
func (l *lane) run(ctx context.Context, w *window) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-l.queue:
			j.rank.deliver(decode(j.rank.w, j.seq, j.body))
			w.finish(j.number)
		}
	}
}

func decode(w protocol.Worker, seq protocol.StreamSeq, body []byte) delivered {
	m, err := protocol.DecodeEventMessage(body, w.Rank)
	return delivered{seq: seq, size: len(body), m: m, err: err}
}

// laneOf picks the lane of a rank, always the same one.
func laneOf(lanes []*lane, seed maphash.Seed, w protocol.Worker) *lane {
	return lanes[maphash.Comparable(seed, w)%uint64(len(lanes))]
}
