package protocol

import (
	"encoding/binary"
	"math"
)

// msgpackSyntax reads msgpack. Lengths are believed only as far as the body
// reaches: an item takes at least a byte.
type msgpackSyntax struct {
	body []byte
	pos  int
}

// First bytes of msgpack values that stand for themselves; the rest are ranges.
const (
	msgpackNil   = 0xc0
	msgpackFalse = 0xc2
	msgpackTrue  = 0xc3
	msgpackBin8  = 0xc4
	msgpackExt8  = 0xc7
	msgpackF32   = 0xca
	msgpackF64   = 0xcb
	msgpackU8    = 0xcc
	msgpackU16   = 0xcd
	msgpackU32   = 0xce
	msgpackU64   = 0xcf
	msgpackI8    = 0xd0
	msgpackI64   = 0xd3
	msgpackFix1  = 0xd4 // extension of 1 byte, up to 16 bytes at 0xd8
	msgpackStr8  = 0xd9
	msgpackStr32 = 0xdb
	msgpackArr16 = 0xdc
	msgpackArr32 = 0xdd
	msgpackMap16 = 0xde
	msgpackMap32 = 0xdf
)

func (s *msgpackSyntax) encoding() Encoding { return EncodingMsgpack }
func (s *msgpackSyntax) offset() int        { return s.pos }
func (s *msgpackSyntax) seek(offset int)    { s.pos = offset }

func (s *msgpackSyntax) kind() kind {
	if s.pos >= len(s.body) {
		return kindNone
	}
	switch c := s.body[s.pos]; {
	case c < 0x80, c >= 0xe0, c >= msgpackF32 && c <= msgpackI64:
		return kindNumber
	case c < 0x90, c == msgpackMap16, c == msgpackMap32:
		return kindObject
	case c < 0xa0, c == msgpackArr16, c == msgpackArr32:
		return kindList
	case c < 0xc0, c >= msgpackStr8 && c <= msgpackStr32:
		return kindText
	case c == msgpackNil:
		return kindNull
	case c == msgpackFalse, c == msgpackTrue:
		return kindBool
	case c >= msgpackBin8 && c < msgpackExt8:
		return kindBin
	case c >= msgpackExt8 && c < msgpackF32, c >= msgpackFix1 && c < msgpackStr8:
		return kindOther
	}
	return kindNone // 0xc1 is never used
}

// take moves over n bytes and returns them.
func (s *msgpackSyntax) take(n uint64) ([]byte, bool) {
	if n > uint64(len(s.body)-s.pos) {
		return nil, false
	}
	b := s.body[s.pos : s.pos+int(n)]
	s.pos += int(n)
	return b, true
}

// fixed reads a big-endian integer of 1 << log bytes.
func (s *msgpackSyntax) fixed(log byte) (uint64, bool) {
	b, ok := s.take(1 << log)
	if !ok {
		return 0, false
	}
	switch log {
	case 0:
		return uint64(b[0]), true
	case 1:
		return uint64(binary.BigEndian.Uint16(b)), true
	case 2:
		return uint64(binary.BigEndian.Uint32(b)), true
	}
	return binary.BigEndian.Uint64(b), true
}

func (s *msgpackSyntax) first() byte {
	c := s.body[s.pos]
	s.pos++
	return c
}

func (s *msgpackSyntax) null()                 { s.pos++ }
func (s *msgpackSyntax) boolean() (v, ok bool) { return s.first() == msgpackTrue, true }

func (s *msgpackSyntax) number() (number, bool) {
	c := s.first()
	switch {
	case c < 0x80:
		return number{integer: uint64(c)}, true
	case c >= 0xe0:
		return signed(int64(int8(c))), true
	case c == msgpackF32:
		v, ok := s.fixed(2)
		return number{isFloat: true, float: float64(math.Float32frombits(uint32(v)))}, ok
	case c == msgpackF64:
		v, ok := s.fixed(3)
		return number{isFloat: true, float: math.Float64frombits(v)}, ok
	case c <= msgpackU64:
		v, ok := s.fixed(c - msgpackU8)
		return number{integer: v}, ok
	}
	log := c - msgpackI8
	v, ok := s.fixed(log)
	unused := 64 - 8<<log
	return signed(int64(v<<unused) >> unused), ok
}

func signed(v int64) number {
	if v < 0 {
		return number{negative: true, integer: -uint64(v)}
	}
	return number{integer: uint64(v)}
}

func (s *msgpackSyntax) text() ([]byte, bool) {
	c := s.first()
	if c < 0xc0 {
		return s.take(uint64(c & 0x1f))
	}
	n, ok := s.fixed(c - msgpackStr8)
	if !ok {
		return nil, false
	}
	return s.take(n)
}

func (s *msgpackSyntax) bin() ([]byte, bool) {
	n, ok := s.fixed(s.first() - msgpackBin8)
	if !ok {
		return nil, false
	}
	return s.take(n)
}

func (s *msgpackSyntax) other() bool {
	c := s.first()
	n, ok := uint64(1), true
	if c >= msgpackFix1 {
		n <<= c - msgpackFix1
	} else {
		n, ok = s.fixed(c - msgpackExt8)
	}
	if ok {
		_, ok = s.take(n + 1) // a type byte precedes the data
	}
	return ok
}

func (s *msgpackSyntax) open(k kind) (container, bool) {
	c := s.first()
	n, ok := uint64(c&0x0f), true
	if c >= msgpackArr16 {
		n, ok = s.fixed(1 + (c-msgpackArr16)&1)
	}
	room := len(s.body) - s.pos
	if k == kindObject {
		room /= 2
	}
	if !ok || n > uint64(room) {
		return container{}, false
	}
	return container{left: int(n)}, true
}

func (s *msgpackSyntax) next(c container) (after container, more, ok bool) {
	if c.left == 0 {
		return c, false, true
	}
	c.left--
	return c, true, true
}

// key reads a field's name. A key of another scalar kind names no field; one
// that is a list or an object is refused, as few languages can hold it.
func (s *msgpackSyntax) key() ([]byte, bool) {
	switch s.kind() {
	case kindText:
		return s.text()
	case kindBin:
		return s.bin()
	case kindNumber:
		_, ok := s.number()
		return nil, ok
	case kindNull, kindBool:
		s.pos++
		return nil, true
	case kindOther:
		return nil, s.other()
	}
	return nil, false
}
