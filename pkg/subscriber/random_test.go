package subscriber_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/subscriber"
)

var seedFlag = flag.Uint64("seed", 0, "of the random test; 0 takes one from the clock")

// TestAnyInterleaving publishes, repeats, snapshots, restarts publishers, joins and
// leaves at random while two routers compact, and compares old and fresh readers
// and the model at one sequence.
func TestAnyInterleaving(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (go test -run %s -seed %d)", seed, t.Name(), seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	srv := natstest.Start(t)
	conn := natstest.Connect(t, srv)

	quick := func(c *subscriber.Config) {
		compacting(15 + rng.IntN(20))(c)
		c.Compaction.ChunkBytes = 1024
	}
	old := start(t, srv, quick)
	second := start(t, srv, quick)
	routers := []*router{old, second}
	lives := []*life{
		{engine: newEngine(t, conn, protocol.Worker{ID: "a"}, 5)},
		{engine: newEngine(t, conn, protocol.Worker{ID: "b", Rank: 1}, 0)},
		{engine: newEngine(t, conn, protocol.Worker{ID: "c"}, 7)},
	}
	enroll := func(r *router, l *life) { r.enroll(l.w, l.epoch) }
	for _, r := range routers {
		for _, l := range lives {
			enroll(r, l)
		}
	}
	old.awaitReady()
	second.awaitReady()
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		for range 60 {
			l := lives[rng.IntN(len(lives))]
			switch p := rng.IntN(100); {
			case p < 70:
				l.publish(rng)
			case p < 85:
				l.repeat(rng)
			case p < 92:
				for _, m := range l.snapshot("own", 1+rng.IntN(3)) {
					l.send(m)
				}
			case p < 95:
				l.restart(rng)
				for _, r := range routers {
					enroll(r, l)
				}
			case p < 97:
				second.stop()
				second = start(t, srv, quick)
				routers[1] = second
				for _, l := range lives {
					enroll(second, l)
				}
			default:
				r := routers[rng.IntN(2)]
				r.RemoveRank(l.w)
				enroll(r, l)
			}
		}
		var seq protocol.StreamSeq
		for _, l := range lives {
			l.publish(rng)
			seq = max(seq, l.seq)
		}
		fresh := start(t, srv, nil)
		for _, l := range lives {
			enroll(fresh, l)
		}
		for _, r := range append(routers, fresh) {
			r.awaitReady().await(seq)
			for _, l := range lives {
				// A router that is behind a purge holds the same a little later.
				eventually(t, l.w.String()+" is as the engine", func() bool {
					return r.Trust(l.w) == protocol.TrustExact && r.index.State(l.w) == l.state()
				})
				l.check(r)
			}
		}
		fresh.stop()
		if t.Failed() {
			for _, l := range lives {
				l.dump()
			}
			t.FailNow()
		}
	}
	// Without epochs a router that comes late may take the end of one life for the
	// beginning of the next, until a snapshot tells it otherwise.
	for _, r := range routers {
		for _, l := range lives {
			if n := r.Contradicted(l.w); n > 0 && l.epoch != 0 {
				t.Errorf("%v: %d snapshots contradicted an exact state: %s", l.w, n, r.Describe(l.w))
			}
		}
	}
	t.Logf("%+v", old.Stats())
}

// life is an engine that remembers its last messages, as a publisher does that
// repeats what was not acknowledged.
type life struct {
	*engine
	recent [][]byte
}

func (l *life) publish(rng *rand.Rand) {
	var events []protocol.Event
	for range 1 + rng.IntN(3) {
		switch {
		case len(l.held) > 0 && rng.IntN(40) == 0:
			l.held = nil
			events = append(events, protocol.Event{ID: l.nextID(), Kind: protocol.EventCleared})
		case len(l.held) > 30 && rng.IntN(2) == 0:
			events = append(events, l.evicting(1+rng.IntN(20)))
		default:
			events = append(events, l.storing(1+rng.IntN(6)))
		}
	}
	body := protocol.AppendEventMessage(nil, &protocol.EventMessage{Epoch: l.epoch, Events: events}, protocol.Encoding(rng.IntN(2)))
	l.raw(body)
	l.recent = append(l.recent, body)
	if len(l.recent) > 4 {
		l.recent = l.recent[1:]
	}
}

// repeat publishes the last messages again, from one of them on.
func (l *life) repeat(rng *rand.Rand) {
	if len(l.recent) == 0 {
		return
	}
	for _, body := range l.recent[rng.IntN(len(l.recent)):] {
		l.raw(body)
	}
}

// restart begins a new life that holds nothing.
func (l *life) restart(rng *rand.Rand) {
	l.held, l.id, l.recent = nil, 0, nil
	if l.epoch > 0 {
		l.epoch += protocol.Epoch(1 + rng.IntN(5))
	}
	l.publish(rng)
}
