// Package mocker simulates inference engines: a block cache with prefix reuse, a
// batching scheduler and the time its steps take, with no model behind them.
//
// Its layers, each usable without the next:
//
//   - Engine is one worker as a pure function of what is submitted to it. It does
//     no I/O, has no clock and starts no goroutine; time passes in steps whose
//     length it tells and whose results it hands over at their end.
//   - Fleet drives several engines through one queue of arrivals and ends of
//     steps in simulated time, which stands still while a caller decides where a
//     request goes. The same input gives the same result each time.
//   - Worker runs one Engine on the machine's clock, publishes its KV events and
//     serves completions from Go or over HTTP.
//   - LiveFleet registers several Workers with the routers of a pool.
//
// # One step
//
// A step begins when the worker is idle and has work. Running requests come
// first, in the order of their admission: each computes what it has not computed
// yet of its known tokens (prompt and generated ones), as far as the step's token
// budget goes. Then waiting requests are admitted first in, first out, while
// their whole prompt fits beside what runs. A request whose known tokens are all
// computed generates one token. What happens in a step becomes visible at its
// end, the tokens as well as the KV events.
//
// A request that needs a block when none is left preempts the newest running
// one, which gives up its blocks, goes to the front of the queue and is computed
// again from its prompt and what it had generated.
//
// # The cache
//
// A full block is cached under its sequence hash from the moment it is computed,
// so that even a later request of the same step reuses it. A block that no
// request uses stays cached until its room is needed: blocks that cache nothing
// go first, then the least recently used ones. A request releases its blocks tail
// first and uses a block only together with all that precede it, so a cached
// block's prefix is always cached too. Blocks that hold generated tokens are
// cached under hashes of their own, which no prompt has.
//
// # Time
//
// Step times follow polynomials fitted to a real engine (see Polynomial) or are
// fixed; a speed-up divides them.
package mocker
