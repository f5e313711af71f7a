package mocker

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/pkg/protocol"
)

// RequestID names a request of one engine. The caller gives it and must not use
// it for two requests of one engine: it enters the hashes of generated blocks.
type RequestID uint64

// Request is one prompt and how much is to be generated from it.
type Request struct {
	ID           RequestID
	PromptTokens int    // at least 1
	OutputTokens int    // at least 1; cut to what the worker can hold
	Prompt       Prompt // nil: a prompt that shares nothing with any other
}

// Prompt gives the block hashes of a prompt when an engine first looks at it,
// which for a request deep in a queue is late: hashes are larger than what they
// are made from.
type Prompt interface {
	// AppendBlockHashes appends the hash of each of the prompt's full blocks to
	// dst and returns it, the same each time it is called.
	AppendBlockHashes(dst []protocol.BlockHash, blockSize int) []protocol.BlockHash
}

// HashedPrompt is a prompt whose block hashes are made already, under the block
// size of the engine that it is given to.
type HashedPrompt []protocol.BlockHash

// AppendBlockHashes implements Prompt.
func (p HashedPrompt) AppendBlockHashes(dst []protocol.BlockHash, _ int) []protocol.BlockHash {
	return append(dst, p...)
}

// task is a request in an engine.
type task struct {
	Request
	hashes []protocol.BlockHash // of the prompt's full blocks; nil until first looked at

	generated int // tokens
	computed  int // of the known tokens
	blocks    []int32
	full      int // leading blocks that are computed whole, and cached
	admitted  bool
	cancelled bool // leaves at the end of the step

	// Of the current step.
	chunk  int // tokens computed in it
	before int // tokens computed before it
}

// known is the number of tokens whose content is known: all but the next.
func (t *task) known() int { return t.PromptTokens + t.generated }

// ready says that all known tokens are computed, so that one is generated.
func (t *task) ready() bool { return t.computed == t.known() }

// prefill is the number of prompt tokens that the current step computes.
func (t *task) prefill() int { return min(t.chunk, max(t.PromptTokens-t.before, 0)) }

// blockHash is the hash of the i'th block of what is known.
func (t *task) blockHash(i int, seed uint64) protocol.BlockHash {
	if i < len(t.hashes) {
		return t.hashes[i]
	}
	return outputHash(seed, t.ID, i)
}

// outputHash names a block that holds generated tokens: the same for one request
// of one engine each time it is computed, and no other block's.
func outputHash(seed uint64, id RequestID, block int) protocol.BlockHash {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:8], uint64(id))
	binary.LittleEndian.PutUint64(buf[8:], uint64(block))
	// The seed is mixed first, so that neighbouring ones share no hashes, and
	// differs from that of prompts.
	return protocol.BlockHash(xxh3.HashSeed(buf[:], xxh3.HashStringSeed("generated", seed)))
}
