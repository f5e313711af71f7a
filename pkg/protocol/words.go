package protocol

import (
	"cmp"
	"fmt"
)

// Limits of outside input.
const (
	MaxTokens        = 1 << 20   // tokens in a prompt
	MaxEventBlocks   = 8192      // blocks in one event message
	MaxNoteBytes     = 64 << 10  // bytes of a note event
	MaxTextBytes     = 256       // bytes of a text that is not a name
	MaxNameBytes     = 128       // bytes of a pool or worker name
	MaxEscapedBytes  = 200       // bytes of an escaped name
	MaxListNames     = 4096      // entries in a list of names
	MaxTaints        = 64        // taints of a worker or a request
	MaxRank          = 1<<16 - 1 // data-parallel rank
	MaxChunks        = 1000      // messages of one snapshot
	MaxLeaseBytes    = 256       // bytes of a lease string
	MaxReplyBytes    = 512 << 10 // a status, overlap or explain reply is cut here
	MaxPackedMessage = 256 << 10 // bytes a publisher packs into one message at most
)

// Worker names one serving rank of one worker, the target of a routing call.
type Worker struct {
	ID   string
	Rank uint16
}

func (w Worker) String() string { return fmt.Sprintf("%s/%d", w.ID, w.Rank) }

// Compare orders by worker id, then rank: the order of every list on the wire.
func (w Worker) Compare(o Worker) int {
	return cmp.Or(cmp.Compare(w.ID, o.ID), cmp.Compare(w.Rank, o.Rank))
}

// BlockHash is the content hash of one block of tokens (see BlockHashes).
type BlockHash uint64

// SequenceHash is the engine's opaque hash of the whole prefix up to a block.
type SequenceHash uint64

// Block is one cached block: the engine's name for it and its content.
type Block struct {
	Sequence SequenceHash
	Hash     BlockHash
}

// EventID numbers the events of one (worker, rank, epoch), from 1.
type EventID uint64

// StreamSeq is a JetStream stream sequence.
type StreamSeq uint64

// Epoch is one life of a (worker, rank): the roster revision of its first put.
// 0 says that the publisher uses none.
type Epoch uint64

// Tier says where a block lives.
type Tier uint8

// Tiers, from the fastest. Their values enter the checksum.
const (
	TierDevice Tier = iota
	TierHost
	TierDisk
	TierExternal
	Tiers = 4 // how many there are
)

var tierNames = [Tiers]string{"device", "host", "disk", "external"}

func (t Tier) String() string {
	if int(t) < len(tierNames) {
		return tierNames[t]
	}
	return fmt.Sprintf("tier(%d)", uint8(t))
}

// ParseTier reads a tier's name; "" is device.
func ParseTier(s string) (Tier, bool) {
	if s == "" {
		return TierDevice, true
	}
	for t, name := range tierNames {
		if s == name {
			return Tier(t), true
		}
	}
	return 0, false
}

// Trust says what is known of the index's state for one (worker, rank).
type Trust string

// The states of trust.
const (
	TrustExact   Trust = "exact"
	TrustPartial Trust = "partial" // a known hole
	TrustStale   Trust = "stale"   // no contact with the log
	TrustOff     Trust = "off"     // publishes no events
)

// Refusal is why an event, a message or a roster value was not taken. Refusals
// are counted per rank and shown by the status call; they are never fatal.
type Refusal string

// The refusals of the wire contract.
const (
	RefusedUndecodable    Refusal = "undecodable"
	RefusedVersion        Refusal = "version"
	RefusedTooManyBlocks  Refusal = "too_many_blocks"
	RefusedOldEpoch       Refusal = "old_epoch"
	RefusedFutureEpoch    Refusal = "future_epoch"
	RefusedDuplicate      Refusal = "duplicate"
	RefusedMalformedStore Refusal = "malformed_store"
	RefusedOrphanDropped  Refusal = "orphan_dropped"
	RefusedSnapshot       Refusal = "snapshot"
	RefusedRouterEvent    Refusal = "router_event"
	RefusedOtherRank      Refusal = "other_rank"
	RefusedNoEpoch        Refusal = "refresh_without_epoch"
)

func (r Refusal) Error() string { return "refused: " + string(r) }

// Overlap counts the leading blocks of a prompt that a worker holds on device,
// and how many more follow from there on host, then disk, then external.
type Overlap struct {
	Device   int `json:"device"`
	Host     int `json:"host"`
	Disk     int `json:"disk"`
	External int `json:"external"`
}

// Blocks is the number of leading blocks held on any tier.
func (o Overlap) Blocks() int { return o.Device + o.Host + o.Disk + o.External }

// Match is what one worker holds of a prompt.
type Match struct {
	Worker  Worker
	Overlap Overlap
}

// HeldState sums up what one rank holds on all tiers.
type HeldState struct {
	Blocks   uint64 // (tier, sequence hash) pairs
	Checksum uint64 // sum of their EntryChecksum, modulo 2^64
}
