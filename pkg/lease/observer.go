package lease

import (
	"weak"

	"github.com/routerd/routerd/pkg/protocol"
)

// Observer is how the scheduler and the link to other routers tell the manager
// what they saw. It holds the manager weakly: while the manager lives calls reach
// it; afterwards they do nothing. So neither keeps the other alive, also where
// the construction of a router fails after the observer was handed over. Its
// methods are safe for concurrent use; the caller holds no lock that the ledger
// takes, for they call it.
type Observer struct{ manager weak.Pointer[Manager] }

// Observer makes an observer of this manager.
func (m *Manager) Observer() *Observer { return &Observer{weak.Make(m)} }

// Admitted says that the ledger has charged a lease. If the lease cannot live,
// because its attempt has ended or is booked already, its charge is freed before
// Admitted returns.
func (o *Observer) Admitted(l protocol.Lease) {
	if m := o.manager.Value(); m != nil {
		m.admit(l)
	}
}

// Progressed says that a lease is alive; an unknown one is ignored.
func (o *Observer) Progressed(id protocol.LeaseID) {
	if m := o.manager.Value(); m != nil {
		m.touch(id)
	}
}

// Completed says that a lease has ended. It is not passed on to peers.
func (o *Observer) Completed(id protocol.LeaseID) {
	if m := o.manager.Value(); m != nil && id != (protocol.LeaseID{}) {
		m.complete(protocol.Lease{ID: id})
	}
}
