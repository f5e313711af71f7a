// Package replay routes a recorded trace over a real log, once per policy, and
// compares what came of it.
//
// The engines are simulated (package mocker) and so is time, which stands still
// while a decision is made: the figures depend on the policy alone, not on the
// machine. All else is real: a NATS server with its log on disk, a publisher per
// worker, a router with its reader and index, and routing calls over NATS. Before
// a decision the frontend waits until the router has applied what the workers
// have published; an event lag delays the events by simulated time instead.
//
// At the end the router's index must equal the workers' caches by checksum.
package replay
