package protocol

import (
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"
)

// identifierDigits is the length of an identifier in hex, a digest of 32 bytes.
const identifierDigits = 64

// MultimodalHash is the hash of an object (an image, say) that a request names:
// the first 16 digits of 64 hex digits, XXH3-64 with seed 0 of any other text.
// The empty text names none.
func MultimodalHash(identifier string) (hash uint64, ok bool) {
	if identifier == "" {
		return 0, false
	}
	if len(identifier) == identifierDigits && isHex(identifier) {
		hash, err := strconv.ParseUint(identifier[:16], 16, 64)
		return hash, err == nil
	}
	return xxh3.HashString(identifier), true
}

// ExtraKeyHash is the hash of an object that an engine's event names among the
// extra keys of a block. Only the form that NVIDIA Dynamo's frontend gives
// counts: 16 hex digits and 48 zeros. Others are keys of another kind.
func ExtraKeyHash(item string) (hash uint64, ok bool) {
	if len(item) != identifierDigits || !isHex(item) || strings.Trim(item[16:], "0") != "" {
		return 0, false
	}
	return MultimodalHash(item)
}

func isHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}

// PadToken replaces an image placeholder by a token of its own.
func PadToken(multimodalHash uint64) uint32 {
	return uint32(1_000_000 + multimodalHash&(1<<30-1))
}
