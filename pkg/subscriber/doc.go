// Package subscriber turns a pool's log of KV events into the index of who holds
// which blocks, and keeps that log short.
//
// # The log
//
// A pool has one JetStream stream. Every (worker, rank) has one subject in it, and
// JetStream keeps the order of each subject. EnsureStream makes the stream; Grow and
// Resize change its size; nothing here deletes one. A Subscriber reads all of it with
// one plain pull consumer that acknowledges nothing (reader, feed) and hands each
// message to the lane of its rank (lane), where it is decoded and applied. Lanes are
// bounded: a full one stops the reader, and the log keeps the rest. The window
// between reader and lanes knows the applied watermark, the highest stream sequence
// up to which every message has been dealt with; WaitApplied waits for it.
//
// A consumer is trusted for as long as its own numbers have no hole. At any doubt
// (missed heartbeat, reconnect, deletion, change of leader) another is made from the
// last message on. Each time the stream is opened its epoch, a random mark from its
// creation, and its last sequence are compared with what was read: in another stream,
// or one that has lost its tail, sequences mean other messages. Then every rank is
// emptied and the log read from its start. The server's count of pending messages is
// not exact just after a store and decides nothing.
//
// # A rank is a fold over its subject
//
// What a rank holds is a function of the messages on its subject in stream order, and
// of the epoch that the roster gives. The fold computes it, without I/O or clock:
//
//   - An epoch is one life of the publisher. A newer one, in an event or in the
//     roster, empties the rank; an older one is dropped. What is ahead of the roster
//     waits until the roster bucket has been asked. Without epochs a life begins where
//     the id falls back to 0 or 1.
//   - An id that is not above the last one is a repeat; the next one is applied; one
//     beyond a hole is held, up to a bound; a clear is a base whatever is missing
//     before it.
//   - A store whose parent is not held waits aside for it, up to a bound, and never
//     becomes a false root.
//   - A snapshot states what the rank held at one event. A fold that is behind it, or
//     in doubt, adopts it after checking its content; one that knows what was held at
//     that event compares; any other skips it.
//
// Messages may be fed to a fold again, from any point on, because what has been
// applied is known by its id. That is how everything is mended: a rank that joins
// late, comes back, has a hole, or has rewound to a snapshot is read from its subject
// once more, with a filtered consumer, while what comes in live waits and follows in
// order.
//
// So two routers that have applied the same sequence hold the same index. A router
// that lags behind a purge is the one exception: it learns what was purged from the
// snapshot that covers it, which lies further on.
//
// # Trust
//
// A rank is exact if its state is what its publisher held after the last event, as far
// as the log and the publisher's own reports tell. It is partial while a hole is known,
// while it is being read, while something could not be decoded or waits for its parent,
// after the publisher has lost events of its engine, when a snapshot or a report
// contradicts the state, and while the publisher has events that the log does not take.
// It is stale while the log cannot be read. A clear, a new life and a snapshot that
// covers the cause end a doubt.
//
// Every refresh of the roster reports the publisher's last id, where it lies in the
// log, and a checksum, so that a lost tail or a diverged index is noticed at an idle
// worker too. The last 64 moments of each rank are remembered by their checksums for
// that, for snapshots, and for the status call.
//
// # Repair
//
// Until the reader has reached the end of the log as of its start, a hole only holds
// events back: the snapshot that fills it usually follows. After that the caretaker,
// which looks at every rank at each tick, mends it from the cheapest source: the log is
// read again; the publisher is asked (Repairer) and puts its answer into the log, for
// every router at once; failing both, what can be applied is and the rank stays partial
// until a snapshot, or until it is asked again much later. What the log cannot mend, a
// doubt, skips the first step. Few ranks are under repair at a time, each under a
// context of its own that ends when it leaves: nothing is applied after that.
//
// # Compaction
//
// There is no leader and no lock. A router that holds a rank exactly, whose tail has
// grown long, publishes a snapshot of it: an ordinary message that replaces nothing. A
// router that reads a complete snapshot, whose own state at that event had the same
// checksum, and that finds its content to be what its header says, purges the subject
// up to the message that the state was of. Nothing is removed before it is proven to
// be covered, what was published meanwhile stays, and two routers that do it at once
// cost a little space. So the log of publishers that know nothing of snapshots stays
// as short as that of those that do.
//
// The subject of a rank that has left the roster is purged after a grace period, up to
// where it was read when it left, unless it has come back.
package subscriber
