package lease

import (
	"slices"
	"time"
)

// maxAttempts bounds the attempts of one request that are known at a time. Past
// it the lowest ended one is forgotten; while all of them run none is added.
const maxAttempts = 64

// fate says how an attempt or a lease ended.
type fate uint8

const (
	running   fate = iota
	completed      // or superseded, or withdrawn: final
	reaped         // progress revives it
)

// attempt is one attempt of a request. It is reserved while it has neither a
// record nor a fate.
type attempt struct {
	number uint32
	fate   fate
	until  time.Duration // how long the fate is known
	record *record
}

func (a *attempt) reserved() bool { return a.record == nil && a.fate == running }

// requests are the attempts known of each request id, in the order in which they
// became known. A request has few, so they are searched one by one.
type requests map[string][]attempt

// known drops what is known no longer of a request and returns the rest.
func (q requests) known(id string, now time.Duration) []attempt {
	all := q[id]
	kept := slices.DeleteFunc(all, func(a attempt) bool { return a.fate != running && a.until <= now })
	if len(kept) < len(all) {
		q.set(id, kept)
	}
	return kept
}

func (q requests) set(id string, attempts []attempt) {
	if len(attempts) == 0 {
		delete(q, id)
		return
	}
	q[id] = attempts
}

// add makes an attempt known; false: too many of the request run.
func (q requests) add(id string, a attempt) bool {
	attempts := q[id]
	if len(attempts) >= maxAttempts {
		lowest := -1
		for i := range attempts {
			if attempts[i].fate != running && (lowest < 0 || attempts[i].number < attempts[lowest].number) {
				lowest = i
			}
		}
		if lowest < 0 {
			return false
		}
		attempts = slices.Delete(attempts, lowest, lowest+1)
	}
	q[id] = append(attempts, a)
	return true
}

// drop forgets an attempt.
func (q requests) drop(id string, number uint32) {
	q.set(id, slices.DeleteFunc(q[id], func(a attempt) bool { return a.number == number }))
}

// find returns the attempt of a number, nil if it is not known.
func find(attempts []attempt, number uint32) *attempt {
	for i := range attempts {
		if attempts[i].number == number {
			return &attempts[i]
		}
	}
	return nil
}

// highest is the greatest number known, 0 if none is.
func highest(attempts []attempt) uint32 {
	n := uint32(0)
	for i := range attempts {
		n = max(n, attempts[i].number)
	}
	return n
}
