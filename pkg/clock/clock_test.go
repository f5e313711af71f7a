package clock

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ Clock = Wall{}
	_ Clock = (*Simulated)(nil)
)

func TestWallEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock Wall
		start := clock.Now()
		var calls []time.Duration
		stop := clock.Every(time.Minute, func() { calls = append(calls, clock.Now().Sub(start)) })
		time.Sleep(3*time.Minute + time.Second)
		stop()
		time.Sleep(time.Hour)
		if want := []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute}; !slices.Equal(calls, want) {
			t.Errorf("called at %v, want %v", calls, want)
		}
		stop() // again: does nothing
	})
}

func TestWallStopWaitsForTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		stop := Wall{}.Every(time.Second, func() {
			time.Sleep(10 * time.Second)
			ended.Store(true)
		})
		time.Sleep(2 * time.Second) // a call is running
		start := time.Now()
		stop()
		if !ended.Load() || time.Since(start) != 9*time.Second {
			t.Errorf("stop returned after %v, ended %t", time.Since(start), ended.Load())
		}
	})
}

// A call that takes longer than the period does not meet the next one.
func TestWallCallsDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, calls atomic.Int32
		stop := Wall{}.Every(time.Second, func() {
			if running.Add(1) != 1 {
				t.Error("two calls at a time")
			}
			calls.Add(1)
			time.Sleep(2500 * time.Millisecond)
			running.Add(-1)
		})
		time.Sleep(10 * time.Second)
		stop()
		if n := calls.Load(); n < 3 || n > 5 {
			t.Errorf("%d calls in 10 s", n)
		}
	})
}

func TestWallStopFromManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := Wall{}.Every(time.Millisecond, func() {})
		var group sync.WaitGroup
		for range 8 {
			group.Go(stop)
		}
		group.Wait()
	})
}

var epoch = time.Unix(1_000_000, 0)

func TestSimulatedStandsStill(t *testing.T) {
	s := NewSimulated(epoch)
	if !s.Now().Equal(epoch) {
		t.Errorf("starts at %v", s.Now())
	}
	s.Advance(epoch.Add(time.Hour))
	if got := s.Now().Sub(epoch); got != time.Hour {
		t.Errorf("advanced to %v", got)
	}
	s.Advance(epoch) // the past changes nothing
	if got := s.Now().Sub(epoch); got != time.Hour {
		t.Errorf("went back to %v", got)
	}
}

// log notes what is called and when.
type log struct {
	clock *Simulated
	lines []string
}

func (l *log) every(name string, period time.Duration) func() {
	return l.clock.Every(period, func() {
		l.lines = append(l.lines, name+" "+l.clock.Now().Sub(epoch).String())
	})
}

func TestSimulatedOrder(t *testing.T) {
	l := &log{clock: NewSimulated(epoch)}
	l.every("a", 3*time.Second)
	l.every("b", 2*time.Second)
	l.every("c", 6*time.Second)
	l.clock.Advance(epoch.Add(6 * time.Second))
	// In the order of their times; at the same time, in the order of Every.
	want := []string{"b 2s", "a 3s", "b 4s", "a 6s", "b 6s", "c 6s"}
	if !slices.Equal(l.lines, want) {
		t.Errorf("called %q, want %q", l.lines, want)
	}
	if got := l.clock.Now().Sub(epoch); got != 6*time.Second {
		t.Errorf("ends at %v", got)
	}
}

// In how many steps a clock is advanced makes no difference.
func TestSimulatedSteps(t *testing.T) {
	run := func(step time.Duration) []string {
		l := &log{clock: NewSimulated(epoch)}
		l.every("a", 700*time.Millisecond)
		l.every("b", time.Second)
		for at := step; at <= 10*time.Second; at += step {
			l.clock.Advance(epoch.Add(at))
		}
		return l.lines
	}
	want := run(10 * time.Second)
	for _, step := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 2500 * time.Millisecond} {
		if got := run(step); !slices.Equal(got, want) {
			t.Errorf("in steps of %v: %q, want %q", step, got, want)
		}
	}
}

func TestSimulatedStop(t *testing.T) {
	l := &log{clock: NewSimulated(epoch)}
	stopA := l.every("a", time.Second)
	stopB := l.every("b", time.Second)
	l.clock.Advance(epoch.Add(time.Second))
	stopA()
	stopA() // again: does nothing
	l.clock.Advance(epoch.Add(2 * time.Second))
	stopB()
	l.clock.Advance(epoch.Add(time.Hour))
	if want := []string{"a 1s", "b 1s", "b 2s"}; !slices.Equal(l.lines, want) {
		t.Errorf("called %q, want %q", l.lines, want)
	}
}

// What is set up within a call counts from then on, within the same Advance.
func TestSimulatedEveryWithinACall(t *testing.T) {
	l := &log{clock: NewSimulated(epoch)}
	var once sync.Once
	l.clock.Every(time.Second, func() { once.Do(func() { l.every("inner", 2*time.Second) }) })
	l.clock.Advance(epoch.Add(5 * time.Second))
	if want := []string{"inner 3s", "inner 5s"}; !slices.Equal(l.lines, want) {
		t.Errorf("called %q, want %q", l.lines, want)
	}
}

// stop waits for an Advance that is running its call; Now does not.
func TestSimulatedStopWaits(t *testing.T) {
	s := NewSimulated(epoch)
	entered, leave := make(chan struct{}), make(chan struct{})
	var left atomic.Bool
	stop := s.Every(time.Second, func() {
		close(entered) // a second call would panic
		<-leave
		left.Store(true)
	})
	var group sync.WaitGroup
	group.Go(func() { s.Advance(epoch.Add(time.Second)) })
	<-entered
	if got := s.Now().Sub(epoch); got != time.Second {
		t.Errorf("it is %v within the call", got)
	}
	group.Go(func() {
		stop()
		if !left.Load() {
			t.Error("stop did not wait for the call")
		}
	})
	close(leave)
	group.Wait()
	s.Advance(epoch.Add(time.Hour))
}

func TestSimulatedConcurrentUse(t *testing.T) {
	s := NewSimulated(epoch)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for j := range 100 {
				stop := s.Every(time.Millisecond, func() {})
				s.Advance(epoch.Add(time.Duration(100*i+j) * time.Millisecond))
				s.Now()
				stop()
			}
		})
	}
	group.Wait()
	if len(s.timers) != 0 {
		t.Errorf("%d timers are left", len(s.timers))
	}
}
