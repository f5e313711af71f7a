package router_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/router"
	"github.com/routerd/routerd/pkg/scheduler"
)

func TestReply(t *testing.T) {
	s := newSystem(t, nil, "w1", "w2")
	s.index.device[worker("w2")] = 3
	reply := s.route(&protocol.RouteRequest{RequestID: "r", Attempt: 2, Prompt: prompt(18)})
	lease, err := protocol.ParseLease(reply.Lease)
	check(t, err)
	if lease.Worker != worker("w2") || lease.Attempt != 2 || lease.PromptTokens != 18 || lease.CachedTokens != 12 || lease.Blocks != 4 {
		t.Errorf("lease %+v", lease)
	}
	want := &protocol.RouteReply{
		RequestID: "r", Attempt: 2, Lease: reply.Lease, Worker: "w2", Endpoint: "http://w2",
		Overlap: protocol.Overlap{Device: 3}, CachedTokens: 12, PrefillTokens: 6, ISLTokens: 18,
		Cost:  protocol.Cost{Policy: protocol.PolicyKV, PrefillBlocks: 1.5, DecodeBlocks: 4, Multiplier: 1, Total: 5.5},
		Trust: protocol.TrustExact, IndexSeq: 77, Reason: protocol.ReasonLowestCost, Router: "r1", Candidates: []protocol.Candidate{},
	}
	if diff := cmp.Diff(want, reply); diff != "" {
		t.Errorf("reply (-want +got):\n%s", diff)
	}
	if s.leases.Len() != 1 {
		t.Errorf("%d leases", s.leases.Len())
	}
	// An id and an attempt are made where they are missing.
	reply = s.route(&protocol.RouteRequest{Prompt: prompt(5)})
	if reply.RequestID == "" || reply.Attempt != 1 {
		t.Errorf("reply %+v", reply)
	}
}

func TestReasons(t *testing.T) {
	zero, hot := 0.0, 1.0
	rank := uint16(0)
	for _, test := range []struct {
		name    string
		prepare func(*system)
		request protocol.RouteRequest
		want    protocol.Reason
	}{
		{"the least cost", func(s *system) { s.index.device[worker("w1")] = 1 }, protocol.RouteRequest{}, protocol.ReasonLowestCost},
		{"a tie", nil, protocol.RouteRequest{}, protocol.ReasonTie},
		{"sampled", nil, protocol.RouteRequest{Overrides: protocol.Overrides{Temperature: &hot}}, protocol.ReasonSampled},
		{"temperature 0", nil, protocol.RouteRequest{Overrides: protocol.Overrides{Temperature: &zero}}, protocol.ReasonTie},
		{"pinned", nil, protocol.RouteRequest{Pinned: &protocol.Pin{Worker: "w2", Rank: &rank}}, protocol.ReasonPinned},
		{"only one allowed", nil, protocol.RouteRequest{Allowed: &[]string{"w2"}}, protocol.ReasonOnlyEligible},
		{"only one left", nil, protocol.RouteRequest{Excluded: []string{"w1"}}, protocol.ReasonOnlyEligible},
		{"log is behind", func(s *system) { s.log.behind = true; s.index.device[worker("w1")] = 1 }, protocol.RouteRequest{}, protocol.ReasonLoadOnly},
		{"log is behind, pinned", func(s *system) { s.log.behind = true }, protocol.RouteRequest{Pinned: &protocol.Pin{Worker: "w1"}}, protocol.ReasonPinned},
		{"no worker publishes", func(s *system) {
			for _, name := range []string{"w1", "w2"} {
				s.add(name, func(r *protocol.Registration) { r.Events = false })
			}
		}, protocol.RouteRequest{}, protocol.ReasonLoadOnly},
		{"one worker publishes", func(s *system) {
			s.add("w1", func(r *protocol.Registration) { r.Events = false })
		}, protocol.RouteRequest{}, protocol.ReasonTie},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSystem(t, nil, "w1", "w2")
			if test.prepare != nil {
				test.prepare(s)
			}
			test.request.Prompt = prompt(9)
			if reply := s.route(&test.request); reply.Reason != test.want {
				t.Errorf("reason is %s, want %s", reply.Reason, test.want)
			}
		})
	}
}

func TestZeroOverlap(t *testing.T) {
	for _, test := range []struct {
		name    string
		tokens  int
		prepare func(*system)
		want    protocol.ZeroOverlap
	}{
		{"held", 9, func(s *system) { s.index.device[worker("w1")] = 1 }, ""},
		{"short", 3, func(s *system) { s.log.behind = true }, protocol.ZeroShorterThanBlock},
		{"off", 9, func(s *system) {
			s.log.behind = true
			s.add("w1", func(r *protocol.Registration) { r.Events = false })
		}, protocol.ZeroWorkerOff},
		{"behind", 9, func(s *system) { s.log.behind = true; s.index.device[worker("w1")] = 1 }, protocol.ZeroIndexBehind},
		{"partial and empty", 9, func(s *system) { s.log.trust[worker("w1")] = protocol.TrustPartial }, protocol.ZeroIndexBehind},
		{"stale and empty", 9, func(s *system) { s.log.trust[worker("w1")] = protocol.TrustStale }, protocol.ZeroIndexBehind},
		{"empty", 9, nil, protocol.ZeroNonePublished},
		{"other blocks", 9, func(s *system) { s.index.state[worker("w1")] = protocol.HeldState{Blocks: 1} }, protocol.ZeroNoPrefix},
		{"partial with other blocks", 9, func(s *system) {
			s.log.trust[worker("w1")] = protocol.TrustPartial
			s.index.state[worker("w1")] = protocol.HeldState{Blocks: 1}
		}, protocol.ZeroNoPrefix},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSystem(t, nil, "w1")
			if test.prepare != nil {
				test.prepare(s)
			}
			reply := s.route(&protocol.RouteRequest{Prompt: prompt(test.tokens)})
			if reply.ZeroOverlap != test.want {
				t.Errorf("zero_overlap is %q, want %q", reply.ZeroOverlap, test.want)
			}
			if (reply.Overlap == protocol.Overlap{}) != (test.want != "") {
				t.Errorf("overlap %+v with zero_overlap %q", reply.Overlap, reply.ZeroOverlap)
			}
		})
	}
}

// The reply says how far the chosen worker's part of the index can be relied on.
func TestTrust(t *testing.T) {
	s := newSystem(t, nil, "w1")
	for _, trust := range []protocol.Trust{protocol.TrustExact, protocol.TrustPartial, protocol.TrustStale} {
		s.log.trust[worker("w1")] = trust
		if reply := s.route(&protocol.RouteRequest{Prompt: prompt(9)}); reply.Trust != trust {
			t.Errorf("trust is %s, want %s", reply.Trust, trust)
		}
	}
	s.add("w1", func(r *protocol.Registration) { r.Events = false })
	if reply := s.route(&protocol.RouteRequest{Prompt: prompt(9)}); reply.Trust != protocol.TrustOff {
		t.Errorf("trust is %s, want off", reply.Trust)
	}
}

func TestQueryAdmitsNothing(t *testing.T) {
	s := newSystem(t, nil, "w1")
	for range 3 { // the same id, again and again
		reply := s.route(&protocol.RouteRequest{RequestID: "r", Prompt: prompt(9), QueryOnly: true})
		if reply.Lease != "" || reply.RequestID != "r" {
			t.Errorf("reply %+v", reply)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Route(ended, &protocol.RouteRequest{RequestID: "r", Prompt: prompt(9), QueryOnly: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if s.leases.Len() != 0 || s.load("w1") != (protocol.WorkerLoad{Worker: "w1"}) {
		t.Errorf("%d leases, load %+v", s.leases.Len(), s.load("w1"))
	}
	s.route(&protocol.RouteRequest{RequestID: "r", Prompt: prompt(9)})
}

// lateCancel ends its context when the router asks for the index, before or after
// the choice.
type lateCancel struct {
	*index
	cancel context.CancelFunc
}

func (x lateCancel) Match(dst []protocol.Match, prompt []protocol.BlockHash) []protocol.Match {
	x.cancel()
	return x.index.Match(dst, prompt)
}

// A caller that gives up leaves no charge and no reservation.
func TestCallerGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := newSystem(t, func(_ *scheduler.Config, c *router.Config) {
		c.Matcher = lateCancel{c.Matcher.(*index), cancel}
	}, "w1")
	_, err := s.Route(ctx, &protocol.RouteRequest{RequestID: "r", Prompt: prompt(9)})
	if !errors.Is(err, context.Canceled) || codeOf(err) != "" {
		t.Errorf("error is %v, want the context's", err)
	}
	if s.leases.Len() != 0 || s.load("w1") != (protocol.WorkerLoad{Worker: "w1"}) {
		t.Errorf("%d leases, load %+v", s.leases.Len(), s.load("w1"))
	}
	s.route(&protocol.RouteRequest{RequestID: "r", Prompt: prompt(9)}) // the attempt is free

	reply := s.route(&protocol.RouteRequest{RequestID: "lost", Prompt: prompt(9)})
	s.Withdraw(reply.RequestID, reply.Attempt)
	if s.load("w1").ActiveRequests != 1 {
		t.Errorf("a withdrawn request is charged: %+v", s.load("w1"))
	}
	s.Progress(&protocol.ProgressReport{Lease: reply.Lease, RequestID: "lost"})
	if s.load("w1").ActiveRequests != 1 {
		t.Errorf("a withdrawn request is revived: %+v", s.load("w1"))
	}
}

func TestAttempts(t *testing.T) {
	s := newSystem(t, nil, "w1")
	ask := func(attempt uint32) error {
		_, err := s.Route(context.Background(), &protocol.RouteRequest{RequestID: "r", Attempt: attempt, Prompt: prompt(9)})
		return err
	}
	check(t, ask(2))
	for _, lower := range []uint32{2, 1, 0} {
		if err := ask(lower); codeOf(err) != protocol.CodeDuplicateRequest {
			t.Errorf("attempt %d: %v, want duplicate_request", lower, err)
		}
	}
	check(t, ask(3)) // ends attempt 2, of which nothing was heard
	if load := s.load("w1"); load.ActiveRequests != 1 {
		t.Errorf("load %+v", load)
	}
	s.Complete(&protocol.CompleteReport{RequestID: "r", Attempt: 3})
	if load := s.load("w1"); load != (protocol.WorkerLoad{Worker: "w1"}) {
		t.Errorf("load after completion %+v", load)
	}
	if err := ask(3); codeOf(err) != protocol.CodeDuplicateRequest {
		t.Errorf("a completed attempt: %v, want duplicate_request", err)
	}
}

// A request that no worker can take reserves nothing.
func TestFailureReservesNothing(t *testing.T) {
	s := newSystem(t, nil)
	for range 2 {
		_, err := s.Route(context.Background(), &protocol.RouteRequest{RequestID: "r", Prompt: prompt(9)})
		if codeOf(err) != protocol.CodeNoWorkers {
			t.Errorf("error is %v, want no_workers", err)
		}
	}
	s.add("w1", nil)
	s.route(&protocol.RouteRequest{RequestID: "r", Prompt: prompt(9)})
	for _, p := range []protocol.Prompt{
		{ByHash: true, BlockHashes: []protocol.BlockHash{1}, ISLTokens: 3},
		{ByHash: true, BlockHashes: []protocol.BlockHash{1}, ISLTokens: 8},
	} {
		if _, err := s.Route(context.Background(), &protocol.RouteRequest{Prompt: p}); codeOf(err) != protocol.CodeInvalidRequest {
			t.Errorf("%+v: %v, want invalid_request", p, err)
		}
		if _, err := s.Overlap(&protocol.OverlapRequest{Prompt: p}); codeOf(err) != protocol.CodeInvalidRequest {
			t.Errorf("overlap of %+v: %v, want invalid_request", p, err)
		}
	}
	if s.leases.Len() != 1 {
		t.Errorf("%d leases", s.leases.Len())
	}
}

func TestCandidates(t *testing.T) {
	s := newSystem(t, nil, "w1", "w2", "w3")
	s.add("w4", func(r *protocol.Registration) { r.Drain = true })
	s.add("w3", func(r *protocol.Registration) { r.Events = false })
	s.log.trust[worker("w2")] = protocol.TrustPartial
	s.index.device[worker("w2")] = 2
	reply := s.route(&protocol.RouteRequest{Prompt: prompt(8), Explain: true, QueryOnly: true, Excluded: []string{"w1"}})
	cost := func(prefill, total float64) *protocol.Cost {
		return &protocol.Cost{Policy: protocol.PolicyKV, PrefillBlocks: prefill, DecodeBlocks: 2, Multiplier: 1, Total: total}
	}
	want := []protocol.Candidate{
		{Worker: "w1", Trust: protocol.TrustExact, Why: "excluded"},
		{Worker: "w2", Trust: protocol.TrustPartial, Overlap: protocol.Overlap{Device: 2}, CachedTokens: 8, Cost: cost(0, 2), Eligible: true},
		{Worker: "w3", Trust: protocol.TrustOff, Cost: cost(2, 4), Eligible: true},
		{Worker: "w4", Trust: protocol.TrustExact, Why: "draining"},
	}
	if diff := cmp.Diff(want, reply.Candidates); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
	if reply.Worker != "w2" || reply.More {
		t.Errorf("reply %+v", reply)
	}
}

// A prompt is hashed with its adapter and salt, and with EAGLE's window.
func TestPromptsAreHashed(t *testing.T) {
	for _, eagle := range []bool{false, true} {
		s := newSystem(t, func(sc *scheduler.Config, rc *router.Config) { sc.Eagle, rc.Eagle = eagle, eagle }, "w1")
		for tokens, blocks := range map[int]int{3: 0, 4: 1, 5: 1, 8: 2, 9: 2} {
			if eagle {
				blocks = (tokens - 1) / blockSize
			}
			reply, err := s.Overlap(&protocol.OverlapRequest{Prompt: prompt(tokens)})
			check(t, err)
			if reply.Blocks != blocks || reply.BlockSize != blockSize || reply.IndexSeq != 77 {
				t.Errorf("eagle %v, %d tokens: %+v, want %d blocks", eagle, tokens, reply, blocks)
			}
			byHash := protocol.Prompt{ByHash: true, BlockHashes: make([]protocol.BlockHash, blocks), ISLTokens: tokens}
			_, err = s.Overlap(&protocol.OverlapRequest{Prompt: byHash})
			check(t, err)
		}
	}
}

// Many callers at once: every admission is charged once, and freed once.
func TestManyCallers(t *testing.T) {
	s := newSystem(t, nil, "w1", "w2", "w3")
	s.index.device[worker("w1")] = 1
	var group sync.WaitGroup
	for caller := range 8 {
		group.Go(func() {
			for i := range 200 {
				id := fmt.Sprintf("%d-%d", caller, i)
				reply, err := s.Route(context.Background(), &protocol.RouteRequest{RequestID: id, Prompt: prompt(5 + i%20), Explain: i%7 == 0})
				if err != nil {
					t.Error(err)
					return
				}
				s.Progress(&protocol.ProgressReport{Lease: reply.Lease, RequestID: id})
				if i%10 == 0 {
					s.RemoveWorker(worker("w3"))
					s.add("w3", nil)
				}
				s.Complete(&protocol.CompleteReport{Lease: reply.Lease, RequestID: id})
			}
		})
	}
	group.Wait()
	for _, row := range s.Loads().Workers {
		if row.ActiveRequests != 0 || row.ActiveDecodeBlocks != 0 || row.ActivePrefillTokens != 0 {
			t.Errorf("at the end: %+v", row)
		}
	}
	if s.leases.Len() != 0 {
		t.Errorf("%d leases at the end", s.leases.Len())
	}
}
