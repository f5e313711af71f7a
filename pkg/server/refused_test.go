package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/publisher"
	"github.com/routerd/routerd/pkg/roster"
)

// Bad events are counted where status shows them, what can be applied is, and the
// router goes on.
func TestRefusedEvents(t *testing.T) {
	s := start(t, nil)
	w := protocol.Worker{ID: "plain"}
	s.join(pool, "other", nil) // makes the pool
	epoch := s.register(pool, w, `{"v":1,"pool":%q,"worker":"plain","block_size":16}`, pool)
	eventually(t, "the worker to be accepted", func() bool {
		row := s.row(pool, w)
		return row != nil && row.Trust == protocol.TrustExact
	})
	event := func(id int, rest string) string {
		return fmt.Sprintf(`{"v":1,"epoch":%d,"events":[{"id":%d,%s}]}`, epoch, id, rest)
	}
	block := func(n int) string { return fmt.Sprintf(`"stored":{"parent":null,"blocks":[[%d,%d]]}`, n, n) }
	many := strings.Repeat("[1,1],", 8192) + "[1,1]"
	want := map[protocol.Refusal]uint64{}
	for _, step := range []struct {
		name, body string
		refused    protocol.Refusal
		n          uint64
		blocks     uint64 // held afterwards
	}{
		{"good", event(1, block(1)), "", 0, 1},
		{"repeated", event(1, block(1)), protocol.RefusedDuplicate, 1, 1},
		{"truncated", event(2, block(2))[:40], protocol.RefusedUndecodable, 1, 1},
		{"not even an object", `17`, protocol.RefusedUndecodable, 1, 1},
		{"nothing", ``, protocol.RefusedUndecodable, 1, 1},
		{"unknown version", strings.Replace(event(2, block(2)), `"v":1`, `"v":9`, 1), protocol.RefusedVersion, 1, 1},
		{"8,193 blocks", event(2, `"stored":{"parent":null,"blocks":[`+many+`]}`), protocol.RefusedTooManyBlocks, 1, 1},
		{"old epoch", strings.Replace(event(2, block(2)), fmt.Sprint(epoch), fmt.Sprint(epoch-1), 1), protocol.RefusedOldEpoch, 1, 1},
		{"own parent", event(2, `"stored":{"parent":5,"blocks":[[5,5]]}`), protocol.RefusedMalformedStore, 1, 1},
		{"repeated hash", event(3, `"stored":{"parent":null,"blocks":[[6,6],[6,7]]}`), protocol.RefusedMalformedStore, 1, 1},
		{"RouterEvent, which has no epoch", `{"event":{"event_id":4,"data":"cleared","dp_rank":0}}`, protocol.RefusedOldEpoch, 1, 1},
		{"out of order", event(5, block(5)), "", 0, 1},
		{"which fills the hole", event(4, block(4)), "", 0, 3},
		{"bad snapshot", fmt.Sprintf(`{"v":1,"epoch":%d,"snapshot":{"id":"a","through":9,"chunk":0,"chunks":1,"blocks":5,"checksum":1},"events":[]}`, epoch), protocol.RefusedSnapshot, 1, 3},
		{"after which it goes on", event(6, block(6)), "", 0, 4},
	} {
		s.publish(pool, w, []byte(step.body))
		if step.refused != "" {
			want[step.refused] += step.n
		}
		row := s.row(pool, w)
		if row.Blocks != step.blocks {
			t.Errorf("%s: %d blocks held, want %d: %+v", step.name, row.Blocks, step.blocks, row)
		}
		for reason, n := range want {
			if row.Refused[reason] < n {
				t.Errorf("%s: refused %v, want %d of %s", step.name, row.Refused, n, reason)
			}
		}
	}
	if row := s.row(pool, w); row.Trust != protocol.TrustPartial {
		t.Errorf("trust is %s, want partial", row.Trust)
	}
	if other := s.row(pool, protocol.Worker{ID: "other"}); other.Trust != protocol.TrustExact || len(other.Refused) > 0 {
		t.Errorf("the other worker: %+v", other)
	}
	s.publish(pool, w, []byte(event(7, `"cleared":{}`)))
	if row := s.row(pool, w); row.Trust != protocol.TrustExact || row.Blocks != 0 || row.LastID != 7 {
		t.Errorf("after a clear: %+v", row)
	}
}

func TestRouterEvents(t *testing.T) {
	s := start(t, nil)
	w := protocol.Worker{ID: "dynamo"}
	s.register(pool, w, `{"v":1,"pool":%q,"worker":"dynamo","block_size":16,"epoch":0}`, pool)
	eventually(t, "the worker to be accepted", func() bool { return s.row(pool, w) != nil })
	eventually(t, "the log", func() bool {
		_, err := s.jetStream().Stream(patient(t), names.Stream(pool))
		return err == nil
	})
	stored := func(id, rank int, hash int) string {
		return fmt.Sprintf(`{"worker_id":99,"event":{"event_id":%d,"data":{"stored":{"parent_hash":null,"blocks":[{"block_hash":%d,"tokens_hash":%d}]}},"dp_rank":%d}}`, id, hash, hash, rank)
	}
	s.publish(pool, w, []byte(stored(0, 0, 7)))
	s.publish(pool, w, []byte(`[`+stored(1, 1, 8)+`,`+stored(2, 0, 9)+`]`))
	row := s.row(pool, w)
	if row.Refused[protocol.RefusedOtherRank] != 1 || row.Epoch != 0 {
		t.Errorf("status row %+v, want 1 refused as other_rank", row)
	}
	reply, err := s.client.Overlap(patient(t), pool, &protocol.OverlapRequest{Prompt: protocol.Prompt{BlockHashes: []protocol.BlockHash{7}, ISLTokens: 16}})
	check(t, err)
	if reply.Workers[0].Device != 1 {
		t.Errorf("overlap %+v", reply.Workers)
	}
}

// A worker with another block size than its pool shows as a conflict, and gets no
// request.
func TestBlockSizeConflict(t *testing.T) {
	s := start(t, nil)
	w1 := s.join(pool, "w1", nil)
	odd := protocol.Worker{ID: "odd"}
	s.register(pool, odd, `{"v":1,"pool":%q,"worker":"odd","block_size":32}`, pool)
	s.register(pool, protocol.Worker{ID: "liar"}, `{"v":1,"pool":%q,"worker":"somebody","block_size":16}`, pool)
	s.register(pool, protocol.Worker{ID: "broken"}, `{`)
	for _, name := range []string{"odd", "liar", "broken"} {
		eventually(t, name+" to show", func() bool {
			row := s.row(pool, protocol.Worker{ID: name})
			return row != nil && row.Conflict != "" && row.Trust == protocol.TrustOff
		})
	}
	status, err := s.client.Status(patient(t), pool, 0)
	check(t, err)
	if got := status[0].RosterRefused; got[string(roster.RefusedConflict)] != 2 || got[string(protocol.RefusedUndecodable)] != 1 || len(status[0].Ranks) != 4 {
		t.Errorf("roster_refused %v, ranks %+v", got, status[0].Ranks)
	}
	reply := route(t, s, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: tokens(1, 40)}, Explain: true, QueryOnly: true})
	if reply.Worker != "w1" || reply.Reason != protocol.ReasonOnlyEligible || len(reply.Candidates) != 1 {
		t.Errorf("reply %+v", reply)
	}
	// Its events are not indexed.
	s.publish(pool, odd, []byte(`{"v":1,"epoch":0,"events":[{"id":1,"stored":{"parent":null,"blocks":[[1,1]]}}]}`))
	if row := s.row(pool, odd); row.Blocks != 0 {
		t.Errorf("row %+v", row)
	}

	// When the pool's last worker leaves, the refused one sets its block size anew.
	check(t, w1.leave())
	eventually(t, "the other block size", func() bool {
		status, err := s.Status(pool, &protocol.StatusRequest{})
		row := s.row(pool, odd)
		return err == nil && status.BlockSize == 32 && row != nil && row.Conflict == ""
	})
	again := route(t, s, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: tokens(1, 40)}})
	if again.Worker != "odd" {
		t.Errorf("reply %+v", again)
	}
}

// An operator's drain keeps index and leases, and gives no new request.
func TestDrain(t *testing.T) {
	s := start(t, nil)
	w1 := s.join(pool, "w1", nil)
	s.join(pool, "w2", func(c *publisher.Config) { c.NoEvents = true })
	prompt := tokens(1, 64)
	w1.holds(hashes(prompt))
	request := func() *protocol.RouteReply {
		t.Helper()
		return route(t, s, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: prompt}})
	}
	lease := request()
	if lease.Worker != "w1" {
		t.Fatalf("reply %+v", lease)
	}
	set := func(on bool) {
		t.Helper()
		check(t, roster.SetDrain(patient(t), s.jetStream(), names, pool, "w1", nil, on))
		eventually(t, fmt.Sprintf("drain to be %v", on), func() bool { return s.row(pool, protocol.Worker{ID: "w1"}).Drain == on })
	}
	set(true)
	if got := request(); got.Worker != "w2" || got.ZeroOverlap != protocol.ZeroWorkerOff || got.Trust != protocol.TrustOff {
		t.Errorf("while w1 drains: %+v", got)
	}
	if load := s.load(pool, "w1"); load.ActiveRequests != 1 {
		t.Errorf("load of the drained worker %+v", load)
	}
	if row := s.row(pool, protocol.Worker{ID: "w1"}); row.Blocks != 4 {
		t.Errorf("row of the drained worker %+v", row)
	}
	set(false)
	if got := request(); got.Worker != "w1" {
		t.Errorf("after the drain: %+v", got)
	}
	w1.SetDrain(true) // its own wish
	eventually(t, "the worker's own drain", func() bool { return s.row(pool, protocol.Worker{ID: "w1"}).Drain })
	if got := request(); got.Worker != "w2" {
		t.Errorf("while w1 drains by itself: %+v", got)
	}
}
