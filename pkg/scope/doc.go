// Package scope holds cancellation that owns goroutines.
//
// A Scope is a node of a tree. It runs functions, each on a goroutine of its
// own, and has children that do the same. Cancelling a scope ends it and what is
// below it, with a cause, and touches neither its parent nor its siblings. Close
// waits until everything that the scope and its children started has returned,
// so that after it nothing of them runs. A scope that fails, because one of its
// functions returned an error, is cancelled with that error and nothing else is:
// nothing below a root can end the root.
//
// Every scope made must be closed; its parent's Close does it too. A closed
// scope is forgotten by its parent, so that scopes can come and go for ever. The
// tree can be read while it runs (Rows).
//
// Closing is soft: children end first, while the scope's own functions still
// work for them. To end everything at once, Cancel before Close.
package scope
