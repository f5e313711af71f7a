package clock

import (
	"sync"
	"time"
)

// Simulated is a clock that stands still until it is advanced. Periodic calls
// run inside Advance, on the caller's goroutine and in the order of their times,
// so that a simulation is the same each time.
type Simulated struct {
	advancing sync.Mutex // held while Advance runs, and taken by stop to wait for it

	mu     sync.Mutex // guards what follows
	now    time.Time
	timers []*timer // in the order of Every
}

type timer struct {
	period time.Duration
	next   time.Time
	f      func()
}

// NewSimulated starts a clock at a time.
func NewSimulated(start time.Time) *Simulated { return &Simulated{now: start} }

// Now is the simulation's time.
func (s *Simulated) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Every implements Clock.
func (s *Simulated) Every(period time.Duration, f func()) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &timer{period: period, next: s.now.Add(period), f: f}
	s.timers = append(s.timers, t)
	return func() {
		s.advancing.Lock()
		defer s.advancing.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, other := range s.timers {
			if other == t {
				s.timers = append(s.timers[:i], s.timers[i+1:]...)
				break
			}
		}
	}
}

// Advance moves the clock to a time, calling what falls due on the way. A time
// that has passed changes nothing.
func (s *Simulated) Advance(to time.Time) {
	s.advancing.Lock()
	defer s.advancing.Unlock()
	for {
		due := s.nextDue(to)
		if due == nil {
			return
		}
		due.f()
	}
}

// nextDue moves the clock to the first timer due by then and returns it, or to
// the end and returns nil.
func (s *Simulated) nextDue(to time.Time) *timer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first *timer
	for _, t := range s.timers {
		if !t.next.After(to) && (first == nil || t.next.Before(first.next)) {
			first = t
		}
	}
	if first == nil {
		if to.After(s.now) {
			s.now = to
		}
		return nil
	}
	s.now = first.next
	first.next = first.next.Add(first.period)
	return first
}
