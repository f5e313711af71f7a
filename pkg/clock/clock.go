// Package clock is time as the router's own timers see it: the machine's, or a
// simulation's. Lease expiry, load decay and learnt rates take their time from a
// Clock; what times the network (heartbeats, timeouts, the roster's time to
// live) stays on the machine's.
package clock

import (
	"sync"
	"time"
)

// Clock tells the time and calls functions periodically. It is safe for
// concurrent use.
type Clock interface {
	Now() time.Time
	// Every calls f once per period, never twice at a time, until stop is
	// called. stop waits for a call that is running, so f must not call it.
	Every(period time.Duration, f func()) (stop func())
}

// Wall is the machine's clock.
type Wall struct{}

// Now is time.Now.
func (Wall) Now() time.Time { return time.Now() }

// Every implements Clock with a ticker and a goroutine that ends with stop.
func (Wall) Every(period time.Duration, f func()) func() {
	var group sync.WaitGroup
	done := make(chan struct{})
	group.Go(func() {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			select { // a tick that waits while f runs does not outlive stop
			case <-done:
				return
			default:
				f()
			}
		}
	})
	var once sync.Once
	return func() {
		once.Do(func() { close(done) })
		group.Wait()
	}
}
