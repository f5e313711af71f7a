package lease

import "sync/atomic"

// The states of a lease's clock. A new lease is touched; claimed is final.
const (
	touched uint32 = iota
	quiet
	claimed
)

// clockWord is a lease's clock: one atomic word, no lock. It tells whether there
// was a sign of life since the reaper last looked, and makes sure that one
// caller alone ends the lease. The zero value is touched.
type clockWord struct{ state atomic.Uint32 }

// touch notes a sign of life. It does nothing to a claimed lease.
func (c *clockWord) touch() {
	if c.state.Load() == quiet {
		c.state.CompareAndSwap(quiet, touched)
	}
}

// claim is true for the one caller that may end the lease.
func (c *clockWord) claim() bool { return c.state.Swap(claimed) != claimed }

// reap is the reaper's look: touched becomes quiet, quiet becomes claimed. It is
// true if it claimed the lease.
func (c *clockWord) reap() bool {
	for {
		switch c.state.Load() {
		case touched:
			if c.state.CompareAndSwap(touched, quiet) {
				return false
			}
		case quiet:
			if c.state.CompareAndSwap(quiet, claimed) {
				return true
			}
		default:
			return false
		}
	}
}
