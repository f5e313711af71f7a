package router_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/routerd/routerd/pkg/lease"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/router"
	"github.com/routerd/routerd/pkg/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const blockSize = 4

// index is who holds how many leading blocks of any prompt.
type index struct {
	mu     sync.Mutex
	device map[protocol.Worker]int
	state  map[protocol.Worker]protocol.HeldState
	asked  int
}

func (x *index) Match(dst []protocol.Match, prompt []protocol.BlockHash) []protocol.Match {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked++
	for w, n := range x.device {
		if n = min(n, len(prompt)); n > 0 {
			dst = append(dst, protocol.Match{Worker: w, Overlap: protocol.Overlap{Device: n}})
		}
	}
	return dst
}

func (x *index) State(w protocol.Worker) protocol.HeldState {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s, ok := x.state[w]; ok {
		return s
	}
	return protocol.HeldState{Blocks: uint64(x.device[w])}
}

// log is a log whose position and trust are as told.
type log struct {
	mu     sync.Mutex
	trust  map[protocol.Worker]protocol.Trust
	behind bool
	rows   []protocol.RankStatus
}

func (l *log) Trust(w protocol.Worker) protocol.Trust {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t, ok := l.trust[w]; ok {
		return t
	}
	return protocol.TrustExact
}
func (l *log) Applied() protocol.StreamSeq { return 77 }
func (l *log) CaughtUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.behind
}
func (l *log) Ranks(protocol.StreamSeq) []protocol.RankStatus { return l.rows }

// system is a router with a scheduler and leases of its own.
type system struct {
	testing.TB
	*router.Router
	index     *index
	log       *log
	scheduler *scheduler.Scheduler
	leases    *lease.Manager
}

func newSystem(t testing.TB, change func(*scheduler.Config, *router.Config), workers ...string) *system {
	t.Helper()
	s := &system{
		TB: t, log: &log{trust: map[protocol.Worker]protocol.Trust{}},
		index: &index{device: map[protocol.Worker]int{}, state: map[protocol.Worker]protocol.HeldState{}},
	}
	sc := scheduler.Config{BlockSize: blockSize, Policy: protocol.PolicyKV, Seed: 1}
	rc := router.Config{Pool: "p", Router: "r1", BlockSize: blockSize, Matcher: s.index, Log: s.log}
	if change != nil {
		change(&sc, &rc)
	}
	var err error
	s.scheduler, err = scheduler.New(sc)
	check(t, err)
	s.leases, err = lease.New(lease.Config{Ledger: s.scheduler})
	check(t, err)
	s.scheduler.Observe(s.leases.Observer())
	rc.Scheduler, rc.Leases = s.scheduler, s.leases
	s.Router = router.New(rc)
	for _, name := range workers {
		s.add(name, nil)
	}
	return s
}

// add accepts a worker's registration.
func (s *system) add(name string, change func(*protocol.Registration)) {
	s.Helper()
	reg := &protocol.Registration{Pool: "p", Worker: name, BlockSize: blockSize, Endpoint: "http://" + name, Events: true}
	if change != nil {
		change(reg)
	}
	check(s, s.SetWorker(reg, reg.Drain))
}

func (s *system) route(r *protocol.RouteRequest) *protocol.RouteReply {
	s.Helper()
	reply, err := s.Route(context.Background(), r)
	check(s, err)
	return reply
}

func (s *system) load(name string) protocol.WorkerLoad {
	s.Helper()
	for _, row := range s.Loads().Workers {
		if row.Worker == name {
			return row
		}
	}
	s.Fatalf("no load of %s", name)
	panic("unreachable")
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func codeOf(err error) protocol.Code {
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return e.Code
	}
	return ""
}

func worker(name string) protocol.Worker { return protocol.Worker{ID: name} }

// prompt is a request of n tokens.
func prompt(n int) protocol.Prompt {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	return protocol.Prompt{TokenIDs: tokens}
}
