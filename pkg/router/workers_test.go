package router_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/router"
)

func TestWorkersComeAndGo(t *testing.T) {
	s := newSystem(t, nil, "w1")
	first := s.route(&protocol.RouteRequest{RequestID: "a", Prompt: prompt(9)})
	s.add("w2", func(r *protocol.Registration) { r.Rank = 3; r.Endpoint = "http://elsewhere" })
	if s.Workers() != 2 {
		t.Errorf("%d workers", s.Workers())
	}
	second := s.route(&protocol.RouteRequest{Prompt: prompt(9)})
	if second.Worker != "w2" || second.Rank != 3 || second.Endpoint != "http://elsewhere" {
		t.Errorf("reply %+v", second)
	}
	// A refresh changes nothing, a new endpoint is used at once.
	epoch, checksum := protocol.Epoch(5), uint64(9)
	s.add("w2", func(r *protocol.Registration) {
		r.Rank, r.Endpoint, r.Epoch, r.LastID, r.Checksum = 3, "http://elsewhere", &epoch, 8, &checksum
	})
	s.add("w2", func(r *protocol.Registration) { r.Rank = 3; r.Endpoint = "http://new" })
	if got := s.route(&protocol.RouteRequest{Prompt: prompt(9), Allowed: &[]string{"w2"}}); got.Endpoint != "http://new" {
		t.Errorf("reply %+v", got)
	}

	s.RemoveWorker(worker("w1"))
	if s.Workers() != 1 || s.leases.Len() != 2 {
		t.Errorf("%d workers, %d leases after w1 left with its lease", s.Workers(), s.leases.Len())
	}
	s.Progress(&protocol.ProgressReport{Lease: first.Lease, RequestID: "a"})
	if s.leases.Len() != 2 {
		t.Error("a report revives a lease of a worker that is not there")
	}
	s.add("w1", nil)
	if load := s.load("w1"); load.ActiveRequests != 0 {
		t.Errorf("load of the worker that came back %+v", load)
	}
	s.Progress(&protocol.ProgressReport{Lease: first.Lease, RequestID: "a"})
	if load := s.load("w1"); load.ActiveRequests != 1 || load.ActivePrefillTokens != 0 {
		t.Errorf("after a report: %+v", load)
	}
	s.RemoveWorker(worker("nobody"))
}

func TestDraining(t *testing.T) {
	s := newSystem(t, nil, "w1")
	reply := s.route(&protocol.RouteRequest{Prompt: prompt(9)})
	reg := &protocol.Registration{Pool: "p", Worker: "w1", BlockSize: blockSize, Events: true}
	check(t, s.SetWorker(reg, true)) // the operator's
	if _, err := s.Route(context.Background(), &protocol.RouteRequest{Prompt: prompt(9)}); codeOf(err) != protocol.CodeNoWorkers || !strings.Contains(err.Error(), "draining 1") {
		t.Errorf("error is %v", err)
	}
	if row := s.Ranks(0)[0]; !row.Drain {
		t.Errorf("status row %+v", row)
	}
	if load := s.load("w1"); load.ActiveRequests != 1 {
		t.Errorf("load %+v", load)
	}
	s.Complete(&protocol.CompleteReport{Lease: reply.Lease})
	check(t, s.SetWorker(reg, false))
	s.route(&protocol.RouteRequest{Prompt: prompt(9)})
}

// A worker whose attributes are no rates is set all the same.
func TestBadAttributes(t *testing.T) {
	s := newSystem(t, nil)
	err := s.SetWorker(&protocol.Registration{
		Pool: "p", Worker: "w1", BlockSize: blockSize, Events: true, Attributes: map[string]string{"latency.decode_scale": "fast"},
	}, false)
	if err == nil || !strings.Contains(err.Error(), "decode_scale") {
		t.Errorf("error is %v", err)
	}
	s.route(&protocol.RouteRequest{Prompt: prompt(9)})
}

func TestRanks(t *testing.T) {
	s := newSystem(t, nil, "w3", "w1")
	s.add("w2", func(r *protocol.Registration) { r.Events = false })
	checksum := uint64(5)
	s.log.rows = []protocol.RankStatus{
		{Worker: "w1", Trust: protocol.TrustExact, LastID: 4, Checksum: &checksum, Refused: map[protocol.Refusal]uint64{protocol.RefusedVersion: 1}},
		{Worker: "w9", Trust: protocol.TrustExact},
	}
	want := []protocol.RankStatus{
		{Worker: "w1", Endpoint: "http://w1", Trust: protocol.TrustExact, Events: true, LastID: 4, Checksum: &checksum, Refused: map[protocol.Refusal]uint64{protocol.RefusedVersion: 1}},
		{Worker: "w2", Endpoint: "http://w2", Trust: protocol.TrustOff, Refused: map[protocol.Refusal]uint64{}},
		{Worker: "w3", Endpoint: "http://w3", Trust: protocol.TrustPartial, Events: true, Refused: map[protocol.Refusal]uint64{}},
	}
	if diff := cmp.Diff(want, s.Ranks(0)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if got := s.Loads(); got.Pool != "p" || got.Router != "r1" || len(got.Workers) != 3 || got.Queues == nil {
		t.Errorf("loads %+v", got)
	}
}

// A reply of many rows comes in pages that fit a message, whatever the names.
func TestPages(t *testing.T) {
	const workers = 4000
	for _, name := range []string{"w%05d", strings.Repeat("\x01<&\"\u2028é", 12) + "-%05d"} {
		s := newSystem(t, nil)
		var statuses []protocol.RankStatus
		for i := range workers {
			s.add(fmt.Sprintf(name, i), nil)
			statuses = append(statuses, protocol.RankStatus{Worker: fmt.Sprintf(name, i), Endpoint: strings.Repeat("\x02", 256), Conflict: strings.Repeat("\u2028", 80)})
		}
		size := func(v any) {
			t.Helper()
			for _, enc := range []protocol.Encoding{protocol.EncodingJSON, protocol.EncodingMsgpack} {
				body, err := protocol.Marshal(v, enc)
				check(t, err)
				if len(body) > protocol.MaxReplyBytes {
					t.Errorf("%T has %d bytes, at most %d are allowed", v, len(body), protocol.MaxReplyBytes)
				}
			}
		}
		seen := map[string]bool{}
		request := &protocol.OverlapRequest{Prompt: prompt(9)}
		for pages := 1; ; pages++ {
			reply, err := s.Overlap(request)
			check(t, err)
			size(reply)
			for _, row := range reply.Workers {
				seen[row.Worker] = true
			}
			if !reply.More {
				if pages == 1 || len(seen) != workers {
					t.Errorf("%d workers in %d pages", len(seen), pages)
				}
				break
			}
			request.After = &protocol.After{Worker: reply.Workers[len(reply.Workers)-1].Worker}
		}

		rows := 0
		var after *protocol.After
		for more := true; more; {
			var page []protocol.RankStatus
			page, more = router.PageRanks(statuses, after)
			size(page)
			rows += len(page)
			after = &protocol.After{Worker: page[len(page)-1].Worker}
		}
		if rows != workers {
			t.Errorf("status pages have %d rows", rows)
		}

		reply := s.route(&protocol.RouteRequest{Prompt: prompt(9), Explain: true, QueryOnly: true})
		size(reply)
		if !reply.More || len(reply.Candidates) == 0 || reply.Candidates[0].Worker != fmt.Sprintf(name, 0) {
			t.Errorf("%d candidates, more %v", len(reply.Candidates), reply.More)
		}
	}
}

// A page after a worker that has left goes on where it would have been.
func TestPageAfterNobody(t *testing.T) {
	s := newSystem(t, nil, "a", "c")
	for after, want := range map[string]int{"": 2, "a": 1, "b": 1, "c": 0, "d": 0} {
		request := &protocol.OverlapRequest{Prompt: prompt(9)}
		rows := []protocol.RankStatus{{Worker: "a"}, {Worker: "c"}}
		if after != "" {
			request.After = &protocol.After{Worker: after}
		}
		reply, err := s.Overlap(request)
		check(t, err)
		page, more := router.PageRanks(rows, request.After)
		if len(reply.Workers) != want || reply.More || len(page) != want || more {
			t.Errorf("after %q: %d rows of overlap, %d of status, want %d", after, len(reply.Workers), len(page), want)
		}
	}
}
