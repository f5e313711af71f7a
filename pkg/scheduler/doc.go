// Package scheduler decides which worker serves a request. It knows what every
// rank of one pool is busy with, puts a cost on each rank that may take the
// request, chooses, and charges the choice to the rank, all in one step: two
// requests never see the same free capacity. It does no I/O and starts no
// goroutine.
//
// # Active load
//
// An admitted request charges its rank, under its lease, from Schedule until
// Release:
//
//   - prefill tokens: the prompt's tokens that the rank does not hold, until
//     FirstToken;
//   - blocks: the prompt's whole blocks. Requests of a rank that begin with the
//     same blocks share them: a block counts once however many requests use it;
//   - one request.
//
// The blocks are kept in one compressed prefix tree for all ranks (see trie), so
// that the blocks a request would add are found for all ranks in one walk.
// A charge costs O(depth) to add and to remove; nothing is ever recounted.
//
// # Costs
//
// In the formulas below L is the prompt's tokens, B the tokens of a block,
// A, D and Q the rank's active prefill tokens, blocks and requests, and X the
// request's blocks that are not active on the rank. Of the prompt the rank holds
// E = device + host_weight·host + disk_weight·(disk + external) blocks, which is
// C = round(E·B) tokens.
//
// The kv policy is the block cost of NVIDIA Dynamo's KV router, a lower one
// being better:
//
//	raw     = (A + max(L, C)) / B              0 if prefill is not tracked
//	g       = 1 / (1 + decay·((A - Amin)/B) / ceil(L/B))
//	credit  = overlap_score_credit·g·device + host_weight·host
//	          + disk_weight·(disk + external) + shared_cache_multiplier·shared
//	cost    = prefill_load_scale·max(0, raw - credit) + (D + X)
//	          + decode_active_request_weight·Q
//
// where Amin is the least A of the eligible ranks and shared counts what a cache
// shared by all workers holds behind the device's part. In a pool that only
// decodes (Config.DecodeOnly), when prefill is not tracked and there is a device
// credit, the cost is max(0, D + X - credit) + decode_active_request_weight·Q.
// The load policy is the same as if no rank held anything.
//
// The latency policy, the default, adds up expected milliseconds from the
// engine's rates (LatencyConfig), with N the rank's blocks in all and budget the
// tokens of one of its steps:
//
//	n       = L - min(C, L - 1)                what is left to compute
//	f(n)    = p1·n + p2·n·min(n, budget)       its prefill
//	step(d) = max(1, decode_scale·(-25.74·u² + 54.01·u + 5.74)), u = min(1, d/N)
//	queue   = p1·A + p2·A·budget               the prefill ahead of it
//	prefill = f(n) + ceil((A + n)/budget)·(p0 + step(D + X))
//	decode  = f(n)·(1 + held_up_weight·Q/100)  what it holds up for the others
//	memory  = 1e5·max(0, (D + X)/N - 0.9)      a full rank preempts
//
// The rates need not be exact: they set off queue against cache against memory,
// and twice or half of each moves the outcome by a few percent.
//
// Under every policy but random and round-robin the sum is multiplied by
// exp(-tanh(w)), w being the weights of the request's preferred taints that the
// rank has: a positive weight attracts, a negative one repels.
//
// # Choice
//
// At temperature 0 the least cost wins, and exactly equal costs are tied: the
// winner is drawn uniformly from a seeded source. Above it a rank is drawn with
// a probability in proportion to exp(-(cost - min)/((max - min)·temperature)).
// A pin leaves one candidate, whose preferred taints and temperature do not
// count.
//
// Draining ranks, workers outside the request's allow-list, excluded ones and
// those without its required taints are not eligible.
package scheduler
