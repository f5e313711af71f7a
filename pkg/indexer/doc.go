// Package indexer knows which worker holds which blocks, and how many leading
// blocks of a prompt each of them holds.
//
// # What it holds
//
// State is per worker (a serving rank) and tier. A worker's engine names a block
// by a sequence hash; where the block belongs is its path, the block hashes from
// the start of the prompt. So workers whose engines hash differently share one
// tree, and nothing depends on how an engine makes its names. Several sequence
// hashes of a worker may name one path: it is held until the last is gone.
//
// The rules, the same for every Index:
//   - A store needs a parent that this worker holds on any tier, or begins at the
//     root. Else it is refused whole: there is never a false root.
//   - A store that repeats a sequence hash, or contains its own parent, is refused
//     whole. Whether it is comes first, so it is the same for everyone.
//   - A known sequence hash that is stored at another path moves there on every
//     tier. What lies below its old path stays.
//   - A removal takes just the blocks it names. A removed inner block cuts what a
//     match counts at that point; what lies behind stays held, can be removed, and
//     counts again when the block is back. A match never counts across a hole.
//   - Storing, removing and clearing are idempotent.
//   - A match counts leading blocks on device, then how many more follow on host,
//     then disk, then external. It never goes back to a faster tier: what device
//     holds behind a block that only host has is not counted as device.
//
// # Trie
//
// Trie is the Index in use: a tree with one node for each path that somebody
// holds or that leads to such a path, and a table per worker from sequence hash
// to node and tiers.
//
//	nodes    segments of 4,096, addressed by a 32-bit number, freed ones reused.
//	         32 B a node, no pointers: block hash, parent, one child, number of
//	         children, two holders or the number of a list of them.
//	edges    one map (parent, block hash) -> node for every child but the one in
//	         its parent's node. Along a chain no map is asked.
//	holders  4 B each: the worker's number, a bit per tier, a mark for aliases;
//	         sorted by worker. Up to two are in the node, more in a list.
//	aliases  a map (node, worker) -> how many sequence hashes per tier beyond the
//	         first, only for paths that a worker names more than once.
//	workers  per worker a map sequence hash -> node, tiers; block count and
//	         checksum, kept up to date with every change.
//
// An entry, one (worker, sequence hash), costs about 70 B if nobody shares its
// path, about 45 B if 16 workers do (BenchmarkMemory). A node without holder and child is freed at
// once, and its ancestors with it. Tables keep the room that their peak needed
// until their worker is cleared, the tree until it is empty.
//
// One RWMutex guards all of it. A store or removal costs two map operations a
// block, 0.1 to 0.2 us. A clear, a drop and a replacement cost that for every
// block at once, with the lock held: some 10 ms for 65,536 blocks. A match costs
// one step per block and a comparison of the holders of neighbouring blocks;
// worker by worker it looks only where they differ. It allocates nothing. A
// snapshot reads under the lock and is put in order without it.
//
// # Guarantees
//
// Each call is atomic: a match sees every change made before it began and none
// in part, a replacement included. Answers are exact for every sequence of calls;
// package indexertest has the contract and a plain model that says what exact is.
// The tree tells paths apart by comparing block hashes themselves, never a hash
// of a path, so only equal 64-bit block hashes under one parent can be confused.
package indexer
