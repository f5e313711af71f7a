package scope

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// ErrClosed is the cause of a scope that was closed without being cancelled first.
var ErrClosed = errors.New("scope is closed")

// Scope is a cancellation token that owns the goroutines under it. Make one with
// New or Child. All methods are safe for concurrent use.
type Scope struct {
	name   string
	parent *Scope // nil: a root
	serial uint64 // among the parent's children, in the order of their making

	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	ended   chan struct{} // closed once everything has returned

	mu         sync.Mutex // guards what follows
	closing    bool
	goroutines int
	failure    error
	made       uint64
	children   map[uint64]*Scope
}

// Row is one scope of a tree.
type Row struct {
	Name       string
	Parent     string // name of the parent, "" for the scope that was asked
	Goroutines int    // functions running in this scope itself
}

// New makes a root. It ends at the latest when ctx does, and has ctx's values.
func New(ctx context.Context, name string) *Scope {
	s := &Scope{name: name, ended: make(chan struct{}), children: map[uint64]*Scope{}}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// Child makes a scope below this one. Below a scope that has been cancelled or
// closed the child is closed from the start: it refuses to run anything.
func (s *Scope) Child(name string) *Scope {
	child := New(s.ctx, name)
	child.parent = s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endingLocked() {
		child.closing = true
		child.cancel(ErrClosed)
		close(child.ended)
		return child
	}
	s.made++
	child.serial = s.made
	s.children[child.serial] = child
	return child
}

// Go runs f on a goroutine of its own. f must return soon after its context
// ends. An error that f returns cancels this scope with it as the cause, except
// for one that only says that the scope had been cancelled before. Go returns
// false, and does not run f, once the scope has been cancelled or closed.
func (s *Scope) Go(f func(context.Context) error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endingLocked() {
		return false
	}
	s.goroutines++
	s.running.Go(func() { s.returned(f(s.ctx)) })
	return true
}

// returned takes the result of a function that ran here.
func (s *Scope) returned(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.goroutines--
	if err == nil || s.ctx.Err() != nil && (errors.Is(err, s.ctx.Err()) || errors.Is(err, context.Cause(s.ctx))) {
		return
	}
	if s.failure == nil {
		s.failure = err
	}
	s.cancel(err)
}

func (s *Scope) endingLocked() bool { return s.closing || s.ctx.Err() != nil }

// Cancel ends the contexts of this scope and all below it; the first cause stays
// (nil stands for context.Canceled). It does not wait: the scope must still be closed.
func (s *Scope) Cancel(cause error) { s.cancel(cause) }

// Close ends the scope and waits until everything that it and the scopes below
// it started has returned: first the children, all at once, then its own
// functions. It returns the error with which the first of its own functions
// failed, if one did. Closing again waits for the same end. A function that runs
// in the scope or below it must not call Close: it would wait for itself.
func (s *Scope) Close() error {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	children := slices.Collect(maps.Values(s.children))
	s.mu.Unlock()
	if first {
		var group sync.WaitGroup
		for _, child := range children {
			group.Go(func() { _ = child.Close() }) // a child's failure is its owner's to look at
		}
		group.Wait()
		s.cancel(ErrClosed)
		s.running.Wait()
		if s.parent != nil {
			s.parent.forget(s)
		}
		close(s.ended)
	}
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

func (s *Scope) forget(child *Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.children, child.serial)
}

// Context ends with the scope.
func (s *Scope) Context() context.Context { return s.ctx }

// Cause says why the scope ended, nil while it has not: what Cancel was given,
// the error of a function that failed, ErrClosed, or the cause of what is above it.
func (s *Scope) Cause() error { return context.Cause(s.ctx) }

// Name is the scope's name.
func (s *Scope) Name() string { return s.name }

// Rows lists this scope and all below it that are not closed: each parent before
// its children, children in the order of their making.
func (s *Scope) Rows() []Row { return s.appendRows(nil, "") }

func (s *Scope) appendRows(rows []Row, parent string) []Row {
	s.mu.Lock()
	row := Row{Name: s.name, Parent: parent, Goroutines: s.goroutines}
	children := slices.Collect(maps.Values(s.children))
	s.mu.Unlock()
	slices.SortFunc(children, func(a, b *Scope) int { return cmp.Compare(a.serial, b.serial) })
	rows = append(rows, row)
	for _, child := range children {
		rows = child.appendRows(rows, s.name)
	}
	return rows
}
