package subscriber_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/subscriber"
)

// A worker that left while no router ran is purged by the next one, unless it is
// registered and only refused.
func TestStrangersArePurged(t *testing.T) {
	srv := natstest.Start(t)
	conn := natstest.Connect(t, srv)
	first := start(t, srv, nil, w1).awaitReady()
	stays, left := newEngine(t, conn, w1, 0), newEngine(t, conn, w2, 0)
	for range 10 {
		stays.store(1)
		left.store(1)
	}
	first.await(stays.seq)
	first.stop()

	var refused atomic.Bool
	refused.Store(true)
	var asked atomic.Int64
	second := start(t, srv, func(c *subscriber.Config) {
		compacting(1 << 20)(c)
		c.Grace = 20 * time.Millisecond
		c.Registered = func(w protocol.Worker) bool {
			if w != w2 {
				t.Errorf("asked for %s, which is accepted", w)
			}
			asked.Add(1)
			return refused.Load()
		}
	}, w1).awaitReady()
	eventually(t, "it is asked for again, having been spared", func() bool { return asked.Load() > 1 })
	if n := stays.usage().Messages; n != 20 {
		t.Fatalf("%d messages are left of 20 while the worker is registered", n)
	}
	refused.Store(false)
	eventually(t, "the stranger's subject is purged", func() bool { return stays.usage().Messages == 10 })
	stays.check(second)
}
