package scope

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// untilDone is a function that runs until its context ends.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestCancelTouchesNeitherParentNorSiblings(t *testing.T) {
	root := New(t.Context(), "core")
	a, b := root.Child("pool a"), root.Child("pool b")
	below := a.Child("subscriber")
	for _, s := range []*Scope{root, a, b, below} {
		if !s.Go(untilDone) {
			t.Fatalf("%s refused a function", s.Name())
		}
	}
	cause := errors.New("pool is empty")
	a.Cancel(cause)
	a.Cancel(errors.New("too late"))
	<-below.Context().Done()
	for _, s := range []*Scope{a, below} {
		if s.Cause() != cause {
			t.Errorf("%s: cause %v, want %v", s.Name(), s.Cause(), cause)
		}
	}
	for _, s := range []*Scope{root, b} {
		if s.Cause() != nil {
			t.Errorf("%s was cancelled: %v", s.Name(), s.Cause())
		}
	}
	if err := a.Close(); err != nil {
		t.Errorf("close of a cancelled scope: %v", err)
	}
	if root.Cause() != nil || b.Cause() != nil {
		t.Error("closing a child ended its parent or its sibling")
	}
	if err := root.Close(); err != nil {
		t.Error(err)
	}
	if !errors.Is(b.Cause(), ErrClosed) {
		t.Errorf("cause of a closed scope is %v", b.Cause())
	}
}

func TestFailureEndsOnlyItsOwnScope(t *testing.T) {
	root := New(t.Context(), "core")
	defer root.Close()
	child := root.Child("pool a")
	failure := errors.New("log is gone")
	child.Go(untilDone)
	child.Go(func(context.Context) error { return failure })
	<-child.Context().Done()
	if child.Cause() != failure {
		t.Errorf("cause %v, want %v", child.Cause(), failure)
	}
	if root.Cause() != nil {
		t.Errorf("a failing child cancelled its parent: %v", root.Cause())
	}
	for range 2 {
		if err := child.Close(); err != failure {
			t.Errorf("close returns %v, want %v", err, failure)
		}
	}
}

func TestFailureWhileClosingIsReported(t *testing.T) {
	s := New(t.Context(), "core")
	failure := errors.New("last flush failed")
	s.Go(func(ctx context.Context) error {
		<-ctx.Done()
		return failure
	})
	s.Go(func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if err := s.Close(); err != failure {
		t.Errorf("close returns %v, want %v", err, failure)
	}
	if s.Cause() != ErrClosed {
		t.Errorf("cause is %v", s.Cause())
	}
}

func TestCloseEndsChildrenBeforeItself(t *testing.T) {
	root := New(t.Context(), "core")
	child := root.Child("pool")
	below := child.Child("repair")
	var order []string
	var mu sync.Mutex
	note := func(s *Scope, above ...*Scope) func(context.Context) error {
		return func(ctx context.Context) error {
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			order = append(order, s.Name())
			for _, a := range above {
				if a.Cause() != nil {
					t.Errorf("%s had ended before %s", a.Name(), s.Name())
				}
			}
			return nil
		}
	}
	root.Go(note(root))
	child.Go(note(child, root))
	below.Go(note(below, child, root))
	if err := root.Close(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"repair", "pool", "core"}, order); diff != "" {
		t.Error(diff)
	}
}

func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(t.Context(), "core")
		child := s.Child("pool")
		var returned atomic.Int32
		slow := func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Hour) // virtual
			returned.Add(1)
			return nil
		}
		s.Go(slow)
		child.Go(slow)
		child.Go(slow)
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if n := returned.Load(); n != 3 {
					t.Errorf("closed with %d of 3 functions returned", n)
				}
			})
		}
		synctest.Wait()
		if s.Go(untilDone) {
			t.Error("a closing scope runs functions")
		}
		group.Wait()
	})
}

func TestNothingStartsInAnEndedScope(t *testing.T) {
	refuses := func(t *testing.T, s *Scope) {
		t.Helper()
		if s.Go(func(context.Context) error { t.Error("ran"); return nil }) {
			t.Error("Go was accepted")
		}
		child := s.Child("late")
		if child.Go(untilDone) {
			t.Error("a child runs functions")
		}
		if child.Cause() == nil || child.Context().Err() == nil {
			t.Error("a child of an ended scope has not ended")
		}
		if err := child.Close(); err != nil {
			t.Error(err)
		}
	}
	closed := New(t.Context(), "closed")
	closed.Close()
	closed.Close()
	refuses(t, closed)

	cancelled := New(t.Context(), "cancelled")
	cancelled.Cancel(nil)
	if !errors.Is(cancelled.Cause(), context.Canceled) {
		t.Errorf("cause %v", cancelled.Cause())
	}
	refuses(t, cancelled)
	cancelled.Close()

	ctx, cancel := context.WithCancel(t.Context())
	outside := New(ctx, "outside")
	cancel()
	refuses(t, outside)
	outside.Close()
}

func TestRows(t *testing.T) {
	root := New(t.Context(), "core")
	a := root.Child("pool a")
	b := root.Child("pool b")
	leases := a.Child("leases")
	root.Go(untilDone)
	leases.Go(untilDone)
	leases.Go(untilDone)
	want := []Row{
		{"core", "", 1}, {"pool a", "core", 0}, {"leases", "pool a", 2}, {"pool b", "core", 0},
	}
	if diff := cmp.Diff(want, root.Rows()); diff != "" {
		t.Error(diff)
	}
	a.Close()
	want = []Row{{"core", "", 1}, {"pool b", "core", 0}}
	if diff := cmp.Diff(want, root.Rows()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Row{{"pool b", "", 0}}, b.Rows()); diff != "" {
		t.Error(diff)
	}
	root.Close()
	if diff := cmp.Diff([]Row{{"core", "", 0}}, root.Rows()); diff != "" {
		t.Error(diff)
	}
}

func TestAThousandCyclesLeaveNothing(t *testing.T) {
	root := New(t.Context(), "core")
	defer root.Close()
	cycle := func() {
		pool := root.Child("pool")
		repair := pool.Child("repair")
		for _, s := range []*Scope{pool, repair, repair} {
			if !s.Go(untilDone) {
				t.Fatal("refused")
			}
		}
		pool.Close()
	}
	goroutines := runtime.NumGoroutine()
	for range 1000 {
		cycle()
	}
	if n := len(root.children); n != 0 {
		t.Errorf("the parent remembers %d closed children", n)
	}
	// A goroutine is counted for a moment after the last thing it does.
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
	}
	if grown := testing.AllocsPerRun(100, cycle); grown > 60 {
		t.Errorf("a cycle makes %.0f allocations", grown)
	}
}

// TestCancelAtRandom builds trees and ends their scopes in random ways and
// orders, from several goroutines at once. Whatever happens, nothing runs in a
// scope once its Close has returned, and the root lives until it is closed.
func TestCancelAtRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range 200 {
		random := rand.New(rand.NewPCG(seed, uint64(round)))
		root := New(t.Context(), "root")
		scopes := []*Scope{root}
		running := map[*Scope]*atomic.Int32{root: new(atomic.Int32)}
		for range 1 + random.IntN(12) {
			s := scopes[random.IntN(len(scopes))].Child("child")
			scopes = append(scopes, s)
			running[s] = new(atomic.Int32)
		}
		var group sync.WaitGroup
		for range 3 {
			local := rand.New(rand.NewPCG(random.Uint64(), 1))
			group.Go(func() {
				for range 30 {
					s := scopes[local.IntN(len(scopes))]
					endRandomly(t, local, s, root, running[s])
				}
			})
		}
		group.Wait()
		if root.Cause() != nil {
			t.Fatalf("round %d: the root ended: %v", round, root.Cause())
		}
		root.Close()
		for s, n := range running {
			if n.Load() != 0 || s.Cause() == nil {
				t.Fatalf("round %d: %d functions run after the root closed, cause %v", round, n.Load(), s.Cause())
			}
		}
	}
}

func endRandomly(t *testing.T, random *rand.Rand, s, root *Scope, running *atomic.Int32) {
	switch n := random.IntN(10); {
	case n < 6:
		fails := n == 0 && s != root
		s.Go(func(ctx context.Context) error {
			running.Add(1)
			defer running.Add(-1)
			if fails {
				return errors.New("failed")
			}
			return untilDone(ctx)
		})
	case n == 6:
		root.Rows()
	case s == root:
	case n < 9:
		s.Cancel(errors.New("cancelled"))
	default:
		_ = s.Close()
		if running.Load() != 0 {
			t.Error("a function runs in a closed scope")
		}
	}
}
