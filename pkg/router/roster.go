package router

import (
	"slices"

	"github.com/routerd/routerd/pkg/protocol"
)

// roster is an immutable view of the accepted workers: their names in order, and
// what is known of each at the same place. Finding one takes O(log n), a change
// copies two slices.
type roster struct {
	order   []protocol.Worker
	entries []*entry
}

type entry struct {
	registration protocol.Registration
	draining     bool
}

func (o *roster) place(w protocol.Worker) (at int, found bool) {
	return slices.BinarySearchFunc(o.order, w, protocol.Worker.Compare)
}

// of is what is known of a worker, nil for one that is not in the roster.
func (o *roster) of(w protocol.Worker) *entry {
	if at, found := o.place(w); found {
		return o.entries[at]
	}
	return nil
}

// endpoint is where a worker serves, "" for one that has just left.
func (o *roster) endpoint(w protocol.Worker) string {
	if e := o.of(w); e != nil {
		return e.registration.Endpoint
	}
	return ""
}

// publishes says whether a worker publishes events.
func (o *roster) publishes(w protocol.Worker) bool {
	e := o.of(w)
	return e == nil || e.registration.Events
}

// with is the roster with a worker added or changed.
func (o *roster) with(w protocol.Worker, e *entry) *roster {
	at, found := o.place(w)
	next := &roster{order: o.order, entries: slices.Clone(o.entries)}
	if found {
		next.entries[at] = e
		return next
	}
	next.order = slices.Insert(slices.Clone(o.order), at, w)
	next.entries = slices.Insert(next.entries, at, e)
	return next
}

// without is the roster without a worker.
func (o *roster) without(w protocol.Worker) *roster {
	at, found := o.place(w)
	if !found {
		return o
	}
	return &roster{
		order:   slices.Delete(slices.Clone(o.order), at, at+1),
		entries: slices.Delete(slices.Clone(o.entries), at, at+1),
	}
}
