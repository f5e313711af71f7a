// Package router answers the calls of one pool. It joins what others know: the
// index says who holds which blocks, the log how far that can be trusted, the
// scheduler who is busy and which worker costs least, the lease manager which
// requests are running.
//
// A routing call never waits for the log and never fails because the index is
// empty, behind or broken: without a usable index it is decided by load alone,
// and the reply says so.
//
// The package does no I/O and starts no goroutine. A Router is safe for
// concurrent use.
package router
