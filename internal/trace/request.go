package trace

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/pkg/protocol"
)

// TokensPerID is the number of prompt tokens that one hash id stands for.
const TokensPerID = 512

// Request is one line of a trace.
type Request struct {
	Timestamp    time.Duration // of the arrival, since the start of the trace
	InputLength  int           // tokens of the prompt, at least 1
	OutputLength int           // tokens to generate, at least 1
	HashIDs      []uint64      // content of the prompt, an id per TokensPerID tokens
}

// CheckBlockSize reports whether prompts can be cut into blocks of this many
// tokens: the size must divide TokensPerID.
func CheckBlockSize(blockSize int) error {
	if blockSize < 1 || TokensPerID%blockSize != 0 {
		return fmt.Errorf("block size %d: must divide %d, the tokens of one hash id of the trace", blockSize, TokensPerID)
	}
	return nil
}

// AppendBlockHashes appends the hash of each full block of the prompt to dst and
// returns it. It allocates only to grow dst. A block size that CheckBlockSize
// refuses gives none.
func (r *Request) AppendBlockHashes(dst []protocol.BlockHash, blockSize int) []protocol.BlockHash {
	if CheckBlockSize(blockSize) != nil {
		return dst
	}
	left := r.InputLength / blockSize
	dst = slices.Grow(dst, left)
	perID := TokensPerID / blockSize
	for _, id := range r.HashIDs {
		n := min(perID, left)
		for i := range n {
			dst = append(dst, blockHash(id, i))
		}
		left -= n
	}
	return dst
}

// blockHash is the hash of the index'th block of an id's content: XXH3-64 of
// both as little-endian 64-bit values. No tokens stand behind it, so it only has
// to be the same for the same content and differ for another.
func blockHash(id uint64, index int) protocol.BlockHash {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:8], id)
	binary.LittleEndian.PutUint64(buf[8:], uint64(index))
	return protocol.BlockHash(xxh3.Hash(buf[:]))
}
