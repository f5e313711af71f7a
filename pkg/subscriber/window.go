package subscriber

import (
	"context"
	"sync"

	"github.com/routerd/routerd/pkg/protocol"
)

// window is the messages between the reader and the lanes: a queue in stream
// order whose entries are finished in any order. Its lower edge is the applied
// watermark. One goroutine (the reader) adds; any may finish, ask and wait.
//
// Adding, finishing and advancing are O(1) amortized; there are at most as many
// entries as fit in the lanes, and at most limit bytes of messages.
type window struct {
	limit int
	room  chan struct{} // holds a token when bytes have been given back

	mu      sync.Mutex // guards what follows
	entries []windowEntry
	first   uint64 // number of entries[0]
	bytes   int
	applied protocol.StreamSeq
	waiters map[*waiter]struct{}
}

type windowEntry struct {
	seq  protocol.StreamSeq
	size int
	done bool
}

// waiter is one WaitApplied; there are as many as callers.
type waiter struct {
	seq  protocol.StreamSeq
	woke chan struct{}
}

func newWindow(limit int) *window {
	return &window{limit: limit, room: make(chan struct{}, 1), waiters: map[*waiter]struct{}{}}
}

// add enters a message and returns its number. It waits while the messages in
// flight are too many bytes, unless there are none.
func (w *window) add(ctx context.Context, seq protocol.StreamSeq, size int) (uint64, error) {
	for {
		if number, ok := w.tryAdd(seq, size); ok {
			return number, nil
		}
		select {
		case <-w.room:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (w *window) tryAdd(seq protocol.StreamSeq, size int) (uint64, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bytes > 0 && w.bytes+size > w.limit {
		return 0, false
	}
	w.bytes += size
	w.entries = append(w.entries, windowEntry{seq: seq, size: size})
	return w.first + uint64(len(w.entries)) - 1, true
}

// withdraw takes back the last message added, which has not been handed on.
func (w *window) withdraw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := len(w.entries) - 1
	w.bytes -= w.entries[last].size
	w.entries = w.entries[:last]
}

// finish marks a message as dealt with.
func (w *window) finish(number uint64) {
	w.mu.Lock()
	entry := &w.entries[number-w.first]
	entry.done = true
	w.bytes -= entry.size
	w.advanceLocked()
	w.mu.Unlock()
	select {
	case w.room <- struct{}{}:
	default:
	}
}

// pass enters a message that needs no work: it is applied once all before it are.
func (w *window) pass(seq protocol.StreamSeq) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.entries) == 0 {
		w.applied = max(w.applied, seq)
		w.wakeLocked()
		return
	}
	w.entries = append(w.entries, windowEntry{seq: seq, done: true})
}

func (w *window) advanceLocked() {
	n := 0
	for n < len(w.entries) && w.entries[n].done {
		w.applied = max(w.applied, w.entries[n].seq)
		n++
	}
	if n == 0 {
		return
	}
	w.first += uint64(n)
	if n == len(w.entries) {
		w.entries = w.entries[:0]
	} else {
		w.entries = w.entries[n:] // the array is replaced as append outgrows it
	}
	w.wakeLocked()
}

func (w *window) wakeLocked() {
	for waiter := range w.waiters {
		if waiter.seq <= w.applied {
			close(waiter.woke)
			delete(w.waiters, waiter)
		}
	}
}

// mark is the highest sequence up to which every message has been dealt with.
func (w *window) mark() protocol.StreamSeq {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.applied
}

// wait returns once the watermark has reached seq, ctx has ended or stopped is
// closed.
func (w *window) wait(ctx context.Context, stopped <-chan struct{}, seq protocol.StreamSeq) error {
	w.mu.Lock()
	if w.applied >= seq {
		w.mu.Unlock()
		return nil
	}
	me := &waiter{seq: seq, woke: make(chan struct{})}
	w.waiters[me] = struct{}{}
	w.mu.Unlock()
	var err error
	select {
	case <-me.woke:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-stopped:
		err = ErrStopped
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiters, me)
	return err
}

// drain waits until nothing is in flight. Only the adding goroutine may call it.
func (w *window) drain(ctx context.Context) error {
	for {
		w.mu.Lock()
		empty := len(w.entries) == 0
		w.mu.Unlock()
		if empty {
			return nil
		}
		select {
		case <-w.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// restart sets the watermark back for another log. Nothing may be in flight.
func (w *window) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applied = 0
}
