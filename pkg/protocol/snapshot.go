package protocol

import (
	"fmt"
	"math/bits"
)

// SummarizeSnapshot applies a snapshot's events to nothing and sums up the
// result: the number of (tier, sequence hash) pairs and the checksum over them.
// It fails, with a Refusal in the chain, if a store's parent is not held by then
// or a store is malformed.
func SummarizeSnapshot(events []Event) (blocks, checksum uint64, err error) {
	held := make(map[SequenceHash]heldBlock)
	var check storeCheck
	for i := range events {
		e := &events[i]
		switch {
		case e.Refusal != "":
			return 0, 0, fmt.Errorf("event %d of the snapshot: %w", i, e.Refusal)
		case e.Kind == EventCleared:
			clear(held)
		case e.Kind == EventRemoved:
			for _, seq := range e.Removed {
				take(held, seq, e.Tier)
			}
		case e.Kind == EventStored:
			if check.malformed(e) {
				return 0, 0, fmt.Errorf("event %d of the snapshot: %w", i, RefusedMalformedStore)
			}
			if _, ok := held[e.Parent]; !e.Root && !ok && len(e.Blocks) > 0 {
				return 0, 0, fmt.Errorf("event %d of the snapshot stores below %d, which is not held: %w", i, e.Parent, RefusedSnapshot)
			}
			for _, b := range e.Blocks {
				held[b.Sequence] = heldBlock{b.Hash, held[b.Sequence].tiers | 1<<e.Tier}
			}
		}
	}
	for seq, b := range held {
		blocks += uint64(bits.OnesCount8(b.tiers))
		for t := range Tier(Tiers) {
			if b.tiers&(1<<t) != 0 {
				checksum += EntryChecksum(Block{seq, b.hash}, t)
			}
		}
	}
	return blocks, checksum, nil
}

// heldBlock is a block that is held on at least one tier.
type heldBlock struct {
	hash  BlockHash
	tiers uint8 // a bit for each
}

func take(held map[SequenceHash]heldBlock, seq SequenceHash, t Tier) {
	b, ok := held[seq]
	if !ok {
		return
	}
	if b.tiers &^= 1 << t; b.tiers == 0 {
		delete(held, seq)
	} else {
		held[seq] = b
	}
}
