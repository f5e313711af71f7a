package server_test

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/publisher"
	"github.com/routerd/routerd/pkg/server"
)

// Two routers on one NATS server: both know everything, share the calls, and each
// goes on without the other.
func TestTwoRouters(t *testing.T) {
	one := start(t, listening)
	w1 := one.join(pool, "w1", nil)
	prompt := tokens(1, 64)
	w1.holds(hashes(prompt))
	two := start(t, func(c *server.Config) { c.NATS = one.ClientURL() })

	both := []string{one.Token(), two.Token()}
	slices.Sort(both)
	for _, s := range []*system{one, two} {
		eventually(t, "the routers to know each other", func() bool {
			status, err := s.Status(pool, &protocol.StatusRequest{})
			return err == nil && slices.Equal(status.Routers, both)
		})
	}
	replies, err := one.client.Status(patient(t), pool, 0)
	check(t, err)
	if len(replies) != 2 || replies[0].Router != both[0] || replies[1].Router != both[1] {
		t.Fatalf("status of %d routers: %+v", len(replies), replies)
	}
	for _, reply := range replies {
		if row := reply.Ranks[0]; row.Trust != protocol.TrustExact || *row.Checksum != w1.State().Checksum || row.LastID != w1.LastID() {
			t.Errorf("router %s: row %+v, want checksum %d", reply.Router, row, w1.State().Checksum)
		}
	}

	// Calls are shared, a report reaches both.
	answered := map[string]int{}
	for i := range 64 {
		reply := route(t, two, &protocol.RouteRequest{RequestID: fmt.Sprint("r", i), Prompt: protocol.Prompt{TokenIDs: prompt}})
		answered[reply.Router]++
		check(t, two.client.ReportComplete(patient(t), pool, &protocol.CompleteReport{Lease: reply.Lease, RequestID: reply.RequestID}))
	}
	if len(answered) != 2 {
		t.Errorf("64 calls were answered by %v", answered)
	}
	for _, s := range []*system{one, two} {
		eventually(t, "all leases to end", func() bool {
			loads, err := s.Loads(pool)
			return err == nil && loads.Workers[0].ActiveRequests == 0
		})
	}
	// One is addressed by name, over the other's connection.
	msg := one.call(names.Call(pool, protocol.VerbLoads)+"."+two.Token(), nil)
	var loads protocol.LoadsReply
	check(t, protocol.Unmarshal(msg.Data, &loads))
	if loads.Router != two.Token() {
		t.Errorf("answered by %s, want %s", loads.Router, two.Token())
	}

	check(t, two.stop())
	eventually(t, "the router that stopped to be gone", func() bool {
		status, err := one.Status(pool, &protocol.StatusRequest{})
		return err == nil && slices.Equal(status.Routers, []string{one.Token()})
	})
	w1.holds(hashes(tokens(2, 64)))
	if reply := route(t, one, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: tokens(2, 64)}}); reply.Overlap.Device != 4 {
		t.Errorf("after the other stopped: %+v", reply)
	}
}

// A router that learns of a lease from a report alone charges it again.
func TestLeaseOutlivesItsRouter(t *testing.T) {
	one := start(t, listening)
	one.join(pool, "w1", nil)
	two := start(t, func(c *server.Config) { c.NATS = one.ClientURL() })
	prompt := tokens(1, 64)
	request := &protocol.RouteRequest{RequestID: "r", Prompt: protocol.Prompt{TokenIDs: prompt}}
	reply, err := two.Route(patient(t), pool, request)
	check(t, err)
	check(t, two.stop())
	report := &protocol.ProgressReport{Lease: reply.Lease, RequestID: "r", OutputTokens: 1}
	check(t, one.client.ReportProgress(patient(t), pool, report))
	want := protocol.WorkerLoad{Worker: "w1", ActiveDecodeBlocks: 4, ActiveRequests: 1}
	if got := one.load(pool, "w1"); got != want {
		t.Errorf("load %+v, want %+v", got, want)
	}
	check(t, one.client.ReportComplete(patient(t), pool, &protocol.CompleteReport{Lease: reply.Lease, RequestID: "r"}))
	check(t, one.client.ReportProgress(patient(t), pool, report))
	if got := one.load(pool, "w1"); got != (protocol.WorkerLoad{Worker: "w1"}) {
		t.Errorf("load after completion %+v", got)
	}
}

// A server started again on the same store has the same index before it is ready.
func TestRestartKeepsTheIndex(t *testing.T) {
	cfg := testConfig(t)
	s := run(t, cfg)
	s.awaitReady()
	w := map[string]*worker{}
	for i, name := range []string{"w1", "w2", "w3"} {
		// What a worker leaves behind when it and its router are killed.
		w[name] = s.join(pool, name, func(c *publisher.Config) { c.Abandon = true })
		for round := range 10 * (i + 1) {
			w[name].holds(hashes(tokens(i*100+round, 64)))
		}
		if i == 2 {
			w[name].Cleared()
			w[name].flush()
		}
	}
	for _, worker := range w {
		check(t, worker.leave())
	}
	check(t, s.stop())

	again := run(t, cfg)
	again.awaitReady()
	status, err := again.Status(pool, &protocol.StatusRequest{})
	check(t, err)
	if len(status.Ranks) != 3 {
		t.Fatalf("after the restart: %+v", status)
	}
	for _, row := range status.Ranks {
		before := w[row.Worker]
		if state := before.State(); row.Blocks != state.Blocks || *row.Checksum != state.Checksum || row.LastID != before.LastID() || row.Trust != protocol.TrustExact {
			t.Errorf("%s: row %+v, want %+v at event %d", row.Worker, row, state, before.LastID())
		}
	}
	reply := route(t, again, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: tokens(101, 64)}})
	if reply.Worker != "w2" || reply.Overlap.Device != 4 || reply.Reason != protocol.ReasonLowestCost {
		t.Errorf("reply %+v", reply)
	}
}

// Requests are routed while the log of a pool is away, by load alone.
func TestLogIsAway(t *testing.T) {
	s := start(t, nil)
	w1 := s.join(pool, "w1", nil)
	w1.holds(hashes(tokens(1, 64)))
	js := s.jetStream()
	check(t, js.DeleteStream(patient(t), names.Stream(pool)))
	reply := route(t, s, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: tokens(1, 64)}})
	if reply.Worker != "w1" {
		t.Errorf("reply %+v", reply)
	}
	// The router makes the stream again, and the worker says what it holds.
	w1.holds(hashes(tokens(2, 64)))
	eventually(t, "index and worker to agree again", func() bool {
		row := s.row(pool, protocol.Worker{ID: "w1"})
		return row.Trust == protocol.TrustExact && row.Blocks == 8 && *row.Checksum == w1.State().Checksum
	})
	_, err := js.Stream(patient(t), names.Stream(pool))
	check(t, err)
}

// A message that the log has lost is made good by the worker, for every router.
func TestHoleIsRepaired(t *testing.T) {
	one := start(t, listening)
	w1 := one.join(pool, "w1", nil)
	for i := range 3 {
		w1.holds(hashes(tokens(i, 64)))
	}
	stream, err := one.jetStream().Stream(patient(t), names.Stream(pool))
	check(t, err)
	last, err := w1.Flush(patient(t))
	check(t, err)
	check(t, stream.DeleteMsg(patient(t), uint64(last)-1))

	for range 2 {
		two := start(t, func(c *server.Config) { c.NATS = one.ClientURL() })
		w := protocol.Worker{ID: "w1"}
		eventually(t, "the hole to be repaired", func() bool {
			row := two.row(pool, w)
			return row != nil && row.Trust == protocol.TrustExact && row.LastID == 3
		})
		if row := two.row(pool, w); row.Blocks != 12 || *row.Checksum != w1.State().Checksum {
			t.Errorf("row %+v, want %+v", row, w1.State())
		}
		check(t, two.stop())
	}
	if queries := w1.Stats().Queries; queries != 1 {
		t.Errorf("the worker was asked %d times: its answer is in the log", queries)
	}
	if row := one.row(pool, protocol.Worker{ID: "w1"}); row.Trust != protocol.TrustExact || row.Blocks != 12 {
		t.Errorf("the router that had everything: %+v", row)
	}
}

// onCluster is a server on a NATS server of its own process.
func onCluster(t *testing.T, url string) *system {
	t.Helper()
	return start(t, func(c *server.Config) { c.NATS = url })
}

// Of two routers one stops while calls come in: none of them fails.
func TestStopUnderCalls(t *testing.T) {
	nats := natstest.Start(t)
	stays, stops := onCluster(t, nats.ClientURL()), onCluster(t, nats.ClientURL())
	stays.join(pool, "w1", nil)
	eventually(t, "the other router to have the worker", func() bool { return stops.row(pool, protocol.Worker{ID: "w1"}) != nil })

	var group sync.WaitGroup
	var byStopping, done atomic.Int64
	begun, stopped := make(chan struct{}), make(chan struct{})
	for caller := range 4 {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stopped:
					return
				default:
				}
				reply, err := stays.client.Route(patient(t), pool, &protocol.RouteRequest{
					RequestID: fmt.Sprint(caller, "-", i), Prompt: protocol.Prompt{TokenIDs: tokens(i, 40)},
				})
				if err != nil {
					t.Errorf("call %d of caller %d: %v", i, caller, err)
					return
				}
				if reply.Router == stops.Token() {
					byStopping.Add(1)
				}
				if done.Add(1) == 100 {
					close(begun)
				}
			}
		})
	}
	await(t, "calls to be answered", begun)
	check(t, stops.stop())
	close(stopped)
	group.Wait()
	if byStopping.Load() == 0 {
		t.Error("the router that stopped has answered no call")
	}
}

// While NATS is away requests are routed with what is known, marked as stale; when
// it is back everything goes on.
func TestNATSIsAway(t *testing.T) {
	dir := t.TempDir()
	nats := natstest.StartIn(t, dir, -1)
	port := nats.Addr().(*net.TCPAddr).Port
	s := onCluster(t, nats.ClientURL())
	w1 := s.join(pool, "w1", nil)
	prompt := tokens(1, 64)
	w1.holds(hashes(prompt))
	natstest.Stop(nats)

	w := protocol.Worker{ID: "w1"}
	eventually(t, "the loss to be noticed", func() bool { return s.row(pool, w).Trust == protocol.TrustStale })
	reply, err := s.Route(patient(t), pool, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: prompt}})
	check(t, err)
	if reply.Overlap.Device != 4 || reply.Trust != protocol.TrustStale {
		t.Errorf("reply %+v", reply)
	}
	more := hashes(tokens(2, 64))
	blocks := make([]protocol.Block, len(more))
	for i, seq := range protocol.SequenceHashes(nil, more) {
		blocks[i] = protocol.Block{Sequence: seq, Hash: more[i]}
	}
	w1.Stored(protocol.TierDevice, true, 0, blocks) // meanwhile

	natstest.StartIn(t, dir, port)
	w1.flush()
	eventually(t, "the rank to be exact again", func() bool {
		row := s.row(pool, w)
		return row.Trust == protocol.TrustExact && row.Blocks == 8 && *row.Checksum == w1.State().Checksum
	})
	eventually(t, "calls to be answered", func() bool {
		reply, err = s.client.Route(patient(t), pool, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: tokens(2, 64)}})
		return err == nil
	})
	if reply.Overlap.Device != 4 || reply.Trust != protocol.TrustExact {
		t.Errorf("reply %+v", reply)
	}
	check(t, w1.leave())
	check(t, s.stop())
}
