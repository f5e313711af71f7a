package protocol

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
)

// The long lists of the wire contract are not read item by item through the
// cursor. A scan takes what is written plainly, in one loop over the bytes, and
// leaves an item that is not (a negative hash, one in quotes, a wrong one, the
// last one) to the cursor, which also words the error.

// integer is a type of the long lists.
type integer interface{ ~uint32 | ~uint64 }

// tokens reads token ids, from a list or from packed 32-bit values.
func (r *reader) tokens(limit int) []uint32 {
	if r.err == nil && r.in.kind() == kindBin {
		packed := r.packed(4, limit)
		out := make([]uint32, len(packed)/4)
		for i := range out {
			out[i] = binary.LittleEndian.Uint32(packed[4*i:])
		}
		return out
	}
	return readIntegers(r, limit, math.MaxUint32, func() uint32 { return uint32(r.uint(0, math.MaxUint32)) })
}

// hashes reads hashes, from a list or from packed 64-bit values.
func hashes[T ~uint64](r *reader, limit int) []T {
	if r.err == nil && r.in.kind() == kindBin {
		packed := r.packed(8, limit)
		out := make([]T, len(packed)/8)
		for i := range out {
			out[i] = T(binary.LittleEndian.Uint64(packed[8*i:]))
		}
		return out
	}
	return readIntegers(r, limit, math.MaxUint64, func() T { return T(r.id()) })
}

// packed reads bytes that hold little-endian values of a size, aliasing the body.
func (r *reader) packed(size, limit int) []byte {
	if !r.want(kindBin) {
		return nil
	}
	b, ok := r.in.bin()
	switch {
	case !ok:
		r.malformed()
	case len(b)%size != 0:
		r.fail("is %d bytes long, not a multiple of %d", len(b), size)
	case len(b)/size > limit:
		r.fail("has more than %d entries", limit)
	default:
		return b
	}
	return nil
}

// readIntegers reads a list of integers up to high, item being one read through the cursor.
func readIntegers[T integer](r *reader, limit int, high uint64, item func() T) []T {
	c, ok := r.open(kindList)
	if !ok {
		return nil
	}
	out := make([]T, 0, min(r.expect(&c), limit))
	for r.next(&c) {
		switch s := r.in.(type) {
		case *jsonSyntax:
			out, s.pos = scanDecimals(out, limit, s.body, s.pos, high)
		case *msgpackSyntax:
			out = scanPositives(out, limit, s, &c, high)
		}
		if len(out) >= limit {
			r.fail("has more than %d entries", limit)
			return nil
		}
		r.path = append(r.path, segment{index: len(out)})
		out = append(out, item())
		r.leave()
	}
	if r.err != nil {
		return nil
	}
	return out
}

// expect is how many items a list of numbers that has just been opened has at most.
func (r *reader) expect(c *container) int {
	s, ok := r.in.(*jsonSyntax)
	if !ok {
		return c.left // no more than there are bytes
	}
	list := s.body[s.pos:]
	if end := bytes.IndexByte(list, ']'); end >= 0 {
		list = list[:end]
	}
	return bytes.Count(list, []byte{','}) + 1
}

// scanDecimals reads plain numbers of a JSON list, each with the comma behind
// it, starting at a number. It stops before the first one that it leaves.
func scanDecimals[T integer](dst []T, limit int, body []byte, pos int, high uint64) ([]T, int) {
	for len(dst) < limit {
		v, end, ok := scanDecimal(body, pos)
		if !ok || v > high || end >= len(body) || body[end] != ',' {
			break
		}
		dst = append(dst, T(v))
		pos = end + 1
		for pos < len(body) && isSpace(body[pos]) {
			pos++
		}
	}
	return dst, pos
}

// scanDecimal reads a number of plain digits and returns where it ends.
func scanDecimal(body []byte, pos int) (v uint64, end int, ok bool) {
	end = pos
	for end < len(body) {
		d := body[end] - '0'
		if d > 9 {
			break
		}
		v = v*10 + uint64(d)
		end++
	}
	switch n := end - pos; {
	case n == 0, n > 20, n > 1 && body[pos] == '0':
		return 0, pos, false
	case n == 20: // beyond 2^64 the sum has wrapped to below 10^19, if it begins with 1
		return v, end, body[pos] == '1' && v >= 1e19
	}
	return v, end, true
}

// scanPositives reads integers of a msgpack list that are written unsigned. The
// container has one more item than c.left says, the one that is next; that
// stays so.
func scanPositives[T integer](dst []T, limit int, s *msgpackSyntax, c *container, high uint64) []T {
	for c.left > 0 && len(dst) < limit {
		v, end, ok := scanPositive(s.body, s.pos)
		if !ok || v > high {
			break
		}
		dst = append(dst, T(v))
		s.pos = end
		c.left--
	}
	return dst
}

// scanPositive reads an integer that is written unsigned and returns where it ends.
func scanPositive(body []byte, pos int) (v uint64, end int, ok bool) {
	if pos >= len(body) {
		return 0, pos, false
	}
	rest := body[pos+1:]
	switch c := body[pos]; {
	case c < 0x80:
		return uint64(c), pos + 1, true
	case c == msgpackU8 && len(rest) >= 1:
		return uint64(rest[0]), pos + 2, true
	case c == msgpackU16 && len(rest) >= 2:
		return uint64(binary.BigEndian.Uint16(rest)), pos + 3, true
	case c == msgpackU32 && len(rest) >= 4:
		return uint64(binary.BigEndian.Uint32(rest)), pos + 5, true
	case c == msgpackU64 && len(rest) >= 8:
		return binary.BigEndian.Uint64(rest), pos + 9, true
	}
	return 0, pos, false
}

// blocks reads a list of pairs of sequence hash and block hash.
func (r *reader) blocks() []Block {
	c, ok := r.open(kindList)
	if !ok {
		return nil
	}
	out := r.pairs[:0]
	for r.next(&c) {
		switch s := r.in.(type) {
		case *jsonSyntax:
			out, s.pos = scanDecimalPairs(out, s.body, s.pos)
		case *msgpackSyntax:
			out = scanPositivePairs(out, s, &c)
		}
		r.path = append(r.path, segment{index: len(out)})
		out = append(out, r.block())
		r.leave()
	}
	r.pairs = out
	if r.err != nil {
		return nil
	}
	return slices.Clone(out)
}

// block reads one pair.
func (r *reader) block() Block {
	var pair [2]uint64
	n := 0
	r.list(len(pair), func(i int) { pair[i], n = r.id(), i+1 })
	if r.err == nil && n != len(pair) {
		r.fail("must be a pair of sequence hash and block hash")
	}
	return Block{SequenceHash(pair[0]), BlockHash(pair[1])}
}

// scanDecimalPairs is scanDecimals for pairs.
func scanDecimalPairs(dst []Block, body []byte, pos int) ([]Block, int) {
	at := func(p int, c byte) bool { return p < len(body) && body[p] == c }
	space := func(p int) int {
		for p < len(body) && isSpace(body[p]) {
			p++
		}
		return p
	}
	for at(pos, '[') {
		seq, end, ok := scanDecimal(body, space(pos+1))
		if !ok || !at(end, ',') {
			break
		}
		hash, end, ok := scanDecimal(body, space(end+1))
		if !ok || !at(end, ']') || !at(end+1, ',') {
			break
		}
		dst = append(dst, Block{SequenceHash(seq), BlockHash(hash)})
		pos = space(end + 2)
	}
	return dst, pos
}

// scanPositivePairs is scanPositives for pairs.
func scanPositivePairs(dst []Block, s *msgpackSyntax, c *container) []Block {
	const pair = 0x92 // a list of two
	for c.left > 0 && s.pos < len(s.body) && s.body[s.pos] == pair {
		seq, end, ok := scanPositive(s.body, s.pos+1)
		if !ok {
			break
		}
		hash, end, ok := scanPositive(s.body, end)
		if !ok {
			break
		}
		dst = append(dst, Block{SequenceHash(seq), BlockHash(hash)})
		s.pos = end
		c.left--
	}
	return dst
}
