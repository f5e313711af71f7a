// Package lease keeps the records of admitted requests: which request runs on
// which worker, for as long as its frontend reports it alive. A worker stays
// charged with a request from its admission to its completion; this package
// decides when that is, and a Ledger (the scheduler) does the charging.
//
// # Life of a lease
//
// A routing call reserves its request id and attempt (Begin). The scheduler
// chooses and charges a worker and says so to the Observer: the lease is
// admitted. Reports of progress keep it alive, the first one ending its prefill
// charge. It ends once, in one of these ways:
//
//   - completed, by a report;
//   - superseded, by a higher attempt of its request, while nothing had been
//     reported on it;
//   - reaped, after one to two intervals without a sign of life;
//   - with its worker, when that leaves.
//
// Whatever races, one caller wins the claim on the lease's clock; it removes the
// record, then frees the charge. So every charge is freed exactly once.
//
// # The lease string
//
// A lease outlives the router that granted it. The string that the frontend
// holds has all that is needed to charge it again, so a report on an unknown
// lease revives it. What stops a late report from reviving a lease that has
// ended is its tombstone, by lease id and by request id and attempt. A reaped
// lease's tombstone stops admissions, not progress: a report shows that it runs.
// A worker's departure leaves no tombstones, so that what still runs on it is
// charged again once it is back.
//
// # Bounds
//
// At MaxLeases live leases and reservations Begin refuses, and unknown leases
// are not revived. At MaxTombstones the oldest tombstone is forgotten before its
// time; a report still on its way could then revive its lease until that is
// reaped. A request has at most 64 attempts at a time, ended ones included.
//
// # Locking and liveness
//
// One read-write mutex guards the maps and chains; the ledger is never called
// under it. A progress report takes it for reading and sets an atomic word. The
// reaper too reads under it, a thousand leases at a time, and takes it for
// writing only where it found something to end.
//
// The manager is held weakly by its observer and by its reaper: neither the
// scheduler that has the observer nor a clock that runs the reaper keeps a
// closed router's manager, or what that holds, alive.
package lease
