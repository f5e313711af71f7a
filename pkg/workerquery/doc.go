// Package workerquery is the router's side of repair by the worker: it asks a
// rank's publisher to put into the log what the log no longer has.
//
// A question is one request on the rank's query subject. The publisher publishes
// the missing events, or a snapshot, to its own subject and then replies with the
// stream sequence, so that one answer serves every router. What the reply means
// for the index is the caller's to decide once it has read the log that far.
//
// Attempts are bounded in time and number, with a pause between them that doubles.
// A worker without a publisher that listens fails an attempt at once. However many
// ranks have holes, only a few requests are under way at a time, and one a rank; a
// rank that waits for its next attempt holds nobody up.
package workerquery
