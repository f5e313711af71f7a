package indexer

import (
	"errors"

	"github.com/routerd/routerd/pkg/protocol"
)

// Failures of a store; the index is unchanged.
var (
	// ErrParentNotHeld: the worker holds the parent on no tier. Keep the store
	// until the parent comes, or ask for a snapshot.
	ErrParentNotHeld = errors.New("parent block is not held")
	// ErrMalformedStore: a sequence hash repeats, or the store contains its own
	// parent. It is wrong whatever the worker holds.
	ErrMalformedStore = errors.New("store repeats a sequence hash or contains its parent")
)

// Index knows which worker holds which blocks. It is safe for concurrent use and
// never waits for anything but other calls; each call is atomic. A worker is
// known from its first store until Drop. No call keeps a slice it is given.
type Index interface {
	// Stored adds blocks below parent, or at the start of a prompt if root
	// (parent then says nothing). Storing again changes nothing; a known sequence
	// hash at another path moves there on every tier. No blocks are no change.
	// It fails with ErrMalformedStore or else ErrParentNotHeld.
	Stored(w protocol.Worker, tier protocol.Tier, root bool, parent protocol.SequenceHash, blocks []protocol.Block) error
	// Removed takes blocks from one tier and returns how many of them the worker
	// did not hold there; those are skipped.
	Removed(w protocol.Worker, tier protocol.Tier, hashes []protocol.SequenceHash) (unknown int)
	// Cleared empties a worker on all tiers.
	Cleared(w protocol.Worker)
	// Drop forgets a worker that left.
	Drop(w protocol.Worker)
	// Replace makes a worker hold exactly what the events of a snapshot say, in
	// one step. Removals of what is not held, and events that are refused or of
	// other kinds, are skipped. It fails, naming the event, with the errors of
	// Stored; then the worker holds nothing.
	Replace(w protocol.Worker, events []protocol.Event) error
	// Holds says whether a worker holds a block on any tier.
	Holds(w protocol.Worker, hash protocol.SequenceHash) bool
	// Match appends, for each worker that holds at least one leading block of the
	// prompt, how many it holds. The order is not defined.
	Match(dst []protocol.Match, prompt []protocol.BlockHash) []protocol.Match
	// State is the block count and checksum of a worker, zero if unknown. O(1).
	State(w protocol.Worker) protocol.HeldState
	// Snapshot is the events, without ids, that rebuild what a worker holds:
	// parents before children, a final removal per tier for held blocks behind a
	// missing one. Each event names at most maxBlocks blocks (below 1: as many as
	// one message may). None for a worker that holds nothing.
	Snapshot(w protocol.Worker, maxBlocks int) []protocol.Event
}
