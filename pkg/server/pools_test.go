package server_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/server"
)

// A pool that has lost its last worker is known for a while, then forgotten.
func TestPoolEnds(t *testing.T) {
	s := start(t, func(c *server.Config) { c.Roster.PoolGrace = time.Second })
	request := &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: tokens(1, 20)}}
	if _, err := s.client.Route(patient(t), pool, request); codeOf(err) != protocol.CodeUnknownPool {
		t.Errorf("before the first worker: %v, want unknown_pool", err)
	}
	w1 := s.join(pool, "w1", nil)
	route(t, s, request)
	check(t, w1.leave())
	var seen []protocol.Code
	eventually(t, "the pool to be forgotten", func() bool {
		_, err := s.client.Route(patient(t), pool, request)
		code := codeOf(err)
		if err != nil && (len(seen) == 0 || seen[len(seen)-1] != code) {
			seen = append(seen, code)
		}
		return code == protocol.CodeUnknownPool
	})
	if len(seen) != 2 || seen[0] != protocol.CodeNoWorkers {
		t.Errorf("errors %v, want no_workers before unknown_pool", seen)
	}
}

// A worker that comes back in time finds the pool as it was.
func TestPoolIsKept(t *testing.T) {
	s := start(t, func(c *server.Config) { c.Roster.PoolGrace = time.Hour })
	w1 := s.join(pool, "w1", nil)
	reply := route(t, s, &protocol.RouteRequest{RequestID: "r", Prompt: protocol.Prompt{TokenIDs: tokens(1, 20)}})
	check(t, w1.leave())
	eventually(t, "the worker to be gone", func() bool { return s.row(pool, protocol.Worker{ID: "w1"}) == nil })
	s.join(pool, "w1", nil)
	if load := s.load(pool, "w1"); load.ActiveRequests != 0 {
		t.Errorf("load of the new life %+v", load)
	}
	check(t, s.client.ReportProgress(patient(t), pool, &protocol.ProgressReport{Lease: reply.Lease, RequestID: "r"}))
	if load := s.load(pool, "w1"); load.ActiveRequests != 1 {
		t.Errorf("a request that still runs: load %+v", load)
	}
	_, err := s.client.Route(patient(t), pool, &protocol.RouteRequest{RequestID: "r", Prompt: protocol.Prompt{TokenIDs: tokens(1, 20)}})
	if codeOf(err) != protocol.CodeDuplicateRequest {
		t.Errorf("the same attempt again: %v, want duplicate_request", err)
	}
}

// The log of a departed worker is purged once its grace period is over, also if its
// pool has long been closed by then, and not if it has come back.
func TestDepartedWorkersArePurged(t *testing.T) {
	s := start(t, func(c *server.Config) { c.Roster.Grace = 2 * time.Second })
	stays, leaves := "pool of one that returns", "pool of one that leaves"
	for _, name := range []string{stays, leaves} {
		w := s.join(name, "w1", nil)
		seq, err := w.Flush(patient(t))
		check(t, err)
		check(t, s.WaitApplied(patient(t), name, seq))
		check(t, w.leave())
		eventually(t, "the pool to be forgotten", func() bool {
			_, err := s.client.Loads(patient(t), name)
			return codeOf(err) == protocol.CodeUnknownPool
		})
	}
	s.join(stays, "w1", nil)
	messages := func(name string) uint64 {
		stream, err := s.jetStream().Stream(patient(t), s.Names().Stream(name))
		check(t, err)
		return stream.CachedInfo().State.Msgs
	}
	if n := messages(leaves); n == 0 {
		t.Error("the log is purged before the grace period is over")
	}
	eventually(t, "the log of the departed worker to be purged", func() bool { return messages(leaves) == 0 })
	if n := messages(stays); n == 0 {
		t.Error("the log of a worker that has come back is purged")
	}
}

// Pools that come and go leave nothing behind.
func TestPoolCycles(t *testing.T) {
	const cycles = 20
	s := start(t, func(c *server.Config) { c.Roster.PoolGrace = time.Millisecond })
	cycle := func(i int) {
		name := fmt.Sprintf("pool-%d", i%4)
		w := s.join(name, "w1", nil)
		w.holds(hashes(tokens(i, 64)))
		_, err := s.client.Route(patient(t), name, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: tokens(i, 64)}})
		check(t, err)
		check(t, w.leave())
		eventually(t, name+" to close", func() bool {
			_, err := s.Loads(name)
			return codeOf(err) == protocol.CodeUnknownPool
		})
	}
	subscriptions := func() int { return s.Conn().NumSubscriptions() }
	var goroutines, subs int
	for i := range cycles + 4 {
		if i == 4 { // each pool has been there once
			subs = subscriptions()
			goroutines = settled(t, runtime.NumGoroutine)
		}
		cycle(i)
	}
	if got := settled(t, subscriptions); got > subs {
		t.Errorf("%d subscriptions after %d cycles, %d before", got, cycles, subs)
	}
	eventually(t, fmt.Sprintf("no more than %d goroutines", goroutines), func() bool { return runtime.NumGoroutine() <= goroutines+2 })
}

// settled is a count once it has not changed for a while.
func settled(t *testing.T, count func() int) int {
	t.Helper()
	last, same := count(), 0
	eventually(t, "a count to settle", func() bool {
		now := count()
		if now != last {
			last, same = now, 0
		}
		same++
		return same > 20
	})
	return last
}

// A stream that bears a pool's name and cannot be its log stops the start; where
// it comes later its pool alone is routed without it.
func TestForeignStream(t *testing.T) {
	s := start(t, listening)
	makeForeignStream(t, s)
	w := protocol.Worker{ID: "w1"}
	s.register(pool, w, `{"v":1,"pool":%q,"worker":"w1","block_size":16}`, pool)
	eventually(t, "the worker", func() bool { return s.row(pool, w) != nil })
	s.join("another", "w1", nil)
	reply := route(t, s, &protocol.RouteRequest{RequestID: "r", Prompt: protocol.Prompt{TokenIDs: tokens(1, 64)}})
	if reply.Worker != "w1" || reply.Trust != protocol.TrustStale || reply.ZeroOverlap != protocol.ZeroIndexBehind {
		t.Errorf("reply %+v", reply)
	}

	cfg := testConfig(t)
	cfg.NATS = s.ClientURL()
	err := run(t, cfg).end()
	oneLine(t, err, names.Stream(pool))
}
