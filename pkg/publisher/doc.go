// Package publisher is what an inference worker written in Go uses to take part
// in routing: it registers the worker, publishes every block that the engine
// stores and drops to the log, and answers the routers' queries.
//
// One Publisher serves one (worker, rank). The engine calls Stored, Removed and
// Cleared from any goroutine, in the order in which things happen; the calls
// never wait for the network. Run does the rest: it registers under a new epoch,
// publishes a snapshot of what is held and then the events in the order of the
// calls, refreshes the registration, and takes it back at the end.
//
// What is promised:
//   - The order of calls is the order in the log. Messages are published from one
//     goroutine, several of them under way; after any failure everything from
//     the first unacknowledged event on is sent again, so that a reader that drops
//     repeated ids sees each event once and in order.
//   - What the rank holds is kept in memory (about 80 bytes a block), by the
//     rules by which a router's index applies events. Its checksum rides on every
//     refresh. Whenever a snapshot is needed it is made from there: at the start
//     of an epoch, when the log has been lost or replaced, when a router asks, and
//     when more events wait than Config.MaxBuffered allows (they are dropped then,
//     and the snapshot stands for them).
//   - While NATS is away or the stream is full nothing is lost: the state is kept,
//     the roster entry shows how many events wait, and the publisher catches up by
//     itself.
//   - Once a successor has registered as the same worker and rank, Run ends with
//     ErrSucceeded and publishes no more.
//
// Engines that keep several physical copies of a block and report each (vLLM
// does) need Config.Copies: then a removal is passed on with the last copy only.
// A store of a block that is held is passed on all the same, and so is a removal
// of a block that is not: routers take both for what they are, nothing.
//
// A store behind a block that is known but gone is published together with the
// missing blocks, which are taken back at once: it is held behind a hole. A store
// behind a block that was never heard of cannot be placed by anyone; it is passed
// on, kept aside, and published again when that block is stored.
//
// A worker's credentials must let it publish to its events subject and to
// `$KV.<prefix>-workers.<pool>.<worker>.>`, subscribe to its query subject, and
// read the roster bucket (stream information and direct get). With the
// information of the pool's stream as well, a publisher recognises a stream that
// was deleted and made anew without relying on its sequence numbers.
package publisher
