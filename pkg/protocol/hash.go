package protocol

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// hashSeed is the base seed of block hashes and the seed of the chain over them.
const hashSeed = 1337

// HashOptions says how a prompt's tokens become block hashes.
type HashOptions struct {
	BlockSize int    // tokens of a block; below 1 gives no hashes
	LoRA      string // adapter name; "" is none
	Salt      string // cache salt; "" is none
	Eagle     bool   // blocks overlap by one token

	// Multimodal has, per block, the hashes of the objects in it; blocks beyond
	// its end have none. Order does not matter.
	Multimodal [][]uint64
}

// Seed is the seed of every block of a prompt with these options.
func (o *HashOptions) Seed() uint64 {
	seed := uint64(hashSeed)
	if o.LoRA != "" {
		seed += xxh3.HashStringSeed(o.LoRA, 0)
	}
	if o.Salt != "" {
		seed += xxh3.HashStringSeed(o.Salt, 1)
	}
	return seed
}

// Blocks is the number of whole blocks in a prompt of n tokens.
func (o *HashOptions) Blocks(tokens int) int { return WholeBlocks(tokens, o.BlockSize, o.Eagle) }

// WholeBlocks is the number of whole blocks in a prompt. Under EAGLE a block
// needs one token more than its size.
func WholeBlocks(tokens, blockSize int, eagle bool) int {
	if eagle {
		tokens--
	}
	if blockSize < 1 || tokens < 1 {
		return 0
	}
	return tokens / blockSize
}

// BlockHashes appends the hash of every whole block of tokens to dst: XXH3-64
// of the tokens as little-endian 32-bit values, then of the block's multimodal
// hashes in ascending order, under Seed. A partial last block has none.
func BlockHashes(dst []BlockHash, tokens []uint32, o HashOptions) []BlockHash {
	n := o.Blocks(len(tokens))
	seed := o.Seed()
	window := o.BlockSize
	if o.Eagle {
		window++
	}
	dst = slices.Grow(dst, n)
	buf := make([]byte, 0, 4*max(window, 0)+64)
	for i := range n {
		buf = buf[:0]
		for _, token := range tokens[i*o.BlockSize : i*o.BlockSize+window] {
			buf = binary.LittleEndian.AppendUint32(buf, token)
		}
		if i < len(o.Multimodal) {
			for _, h := range slices.Sorted(slices.Values(o.Multimodal[i])) {
				buf = binary.LittleEndian.AppendUint64(buf, h)
			}
		}
		dst = append(dst, BlockHash(xxh3.HashSeed(buf, seed)))
	}
	return dst
}

// SequenceHashes appends the router's own chain over block hashes to dst: the
// first is the block hash itself, each later one XXH3-64 of its predecessor and
// the block hash.
func SequenceHashes(dst []SequenceHash, blocks []BlockHash) []SequenceHash {
	dst = slices.Grow(dst, len(blocks))
	for i, h := range blocks {
		if i == 0 {
			dst = append(dst, SequenceHash(h))
			continue
		}
		dst = append(dst, NextSequenceHash(dst[len(dst)-1], h))
	}
	return dst
}

// NextSequenceHash is the chain's value one block after prev.
func NextSequenceHash(prev SequenceHash, h BlockHash) SequenceHash {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:8], uint64(prev))
	binary.LittleEndian.PutUint64(buf[8:], uint64(h))
	return SequenceHash(xxh3.HashSeed(buf[:], hashSeed))
}

// EntryChecksum is one held block's part of a rank's checksum: the checksum is
// the sum modulo 2^64 over all (tier, sequence hash) pairs held.
func EntryChecksum(b Block, t Tier) uint64 {
	var buf [17]byte
	binary.LittleEndian.PutUint64(buf[:8], uint64(b.Sequence))
	binary.LittleEndian.PutUint64(buf[8:16], uint64(b.Hash))
	buf[16] = byte(t)
	return xxh3.Hash(buf[:])
}
