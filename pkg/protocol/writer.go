package protocol

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"
)

// What follows appends msgpack values, each in its shortest form.

func appendMapHeader(dst []byte, n int) []byte {
	switch {
	case n < 16:
		return append(dst, 0x80|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, msgpackMap16), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, msgpackMap32), uint32(n))
}

func appendListHeader(dst []byte, n int) []byte {
	switch {
	case n < 16:
		return append(dst, 0x90|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, msgpackArr16), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, msgpackArr32), uint32(n))
}

func appendBinHeader(dst []byte, n int) []byte { return appendLength(dst, msgpackBin8, n) }

// appendLength appends one of three first bytes, for lengths of 1, 2 or 4 bytes,
// and the length.
func appendLength(dst []byte, first byte, n int) []byte {
	switch {
	case n <= math.MaxUint8:
		return append(dst, first, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, first+1), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, first+2), uint32(n))
}

func appendText[T string | []byte](dst []byte, s T) []byte {
	if len(s) < 32 {
		dst = append(dst, 0xa0|byte(len(s)))
	} else {
		dst = appendLength(dst, msgpackStr8, len(s))
	}
	return append(dst, s...)
}

func appendUint(dst []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(dst, byte(v))
	case v <= math.MaxUint8:
		return append(dst, msgpackU8, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, msgpackU16), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, msgpackU32), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, msgpackU64), v)
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, msgpackTrue)
	}
	return append(dst, msgpackFalse)
}

// appendNumber appends a number as msgpack.
func appendNumber(dst []byte, n number) []byte {
	switch {
	case n.isFloat && float64(float32(n.float)) == n.float:
		return binary.BigEndian.AppendUint32(append(dst, msgpackF32), math.Float32bits(float32(n.float)))
	case n.isFloat || n.negative && n.integer > 1<<63:
		v := n.float
		if !n.isFloat {
			v = -float64(n.integer)
		}
		return binary.BigEndian.AppendUint64(append(dst, msgpackF64), math.Float64bits(v))
	case n.negative && n.integer <= 32:
		return append(dst, -byte(n.integer))
	case n.negative:
		return binary.BigEndian.AppendUint64(append(dst, msgpackI64), -n.integer)
	}
	return appendUint(dst, n.integer)
}

// appendJSONNumber appends a number as JSON, which has no infinities.
func appendJSONNumber(dst []byte, n number) []byte {
	switch {
	case n.isFloat && (math.IsNaN(n.float) || math.IsInf(n.float, 0)):
		return append(dst, "null"...)
	case n.isFloat:
		return strconv.AppendFloat(dst, n.float, 'g', -1, 64)
	case n.negative:
		dst = append(dst, '-')
	}
	return strconv.AppendUint(dst, n.integer, 10)
}

// appendJSONText appends a JSON string. What is no UTF-8 becomes U+FFFD.
func appendJSONText(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for len(s) > 0 {
		c := s[0]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			dst = append(dst, c)
		default:
			r, size := utf8.DecodeRune(s)
			dst = utf8.AppendRune(dst, r)
			s = s[size:]
			continue
		}
		s = s[1:]
	}
	return append(dst, '"')
}

// appendTranscoded appends a value that is written in one encoding in another.
// msgpack that JSON cannot say changes: bytes become base64 text, extensions and
// numbers that are not finite null, and a key that is no text is left out with
// its value. A value that is not well-formed becomes null.
func appendTranscoded(dst, value []byte, from, to Encoding) []byte {
	if from == to && len(value) > 0 {
		return append(dst, value...)
	}
	r := newReaderOf(value, from)
	out := transcoder{r, to}.value(dst)
	if r.finish() != nil {
		return transcoder{r, to}.null(dst)
	}
	return out
}

type transcoder struct {
	r  *reader
	to Encoding
}

func (t transcoder) null(dst []byte) []byte {
	if t.to == EncodingJSON {
		return append(dst, "null"...)
	}
	return append(dst, msgpackNil)
}

func (t transcoder) value(dst []byte) []byte {
	if t.r.err != nil {
		return dst
	}
	ok := true
	switch k := t.r.in.kind(); k {
	case kindNull:
		t.r.in.null()
		dst = t.null(dst)
	case kindBool:
		v, _ := t.r.in.boolean()
		if t.to == EncodingJSON {
			dst = strconv.AppendBool(dst, v)
		} else {
			dst = appendBool(dst, v)
		}
	case kindNumber:
		var n number
		n, ok = t.r.in.number()
		if t.to == EncodingJSON {
			dst = appendJSONNumber(dst, n)
		} else {
			dst = appendNumber(dst, n)
		}
	case kindText:
		var s []byte
		s, ok = t.r.in.text()
		dst = t.text(dst, s)
	case kindBin:
		var b []byte
		b, ok = t.r.in.bin()
		dst = t.text(dst, []byte(base64.StdEncoding.EncodeToString(b)))
	case kindList, kindObject:
		dst = t.container(dst, k)
	case kindOther:
		ok = t.r.in.other()
		dst = t.null(dst)
	default:
		ok = false
	}
	if !ok {
		t.r.malformed()
	}
	return dst
}

func (t transcoder) text(dst, s []byte) []byte {
	if t.to == EncodingJSON {
		return appendJSONText(dst, s)
	}
	return appendText(dst, s)
}

// container copies a list or an object. In msgpack its length comes first and is
// not known before its end, so that the long form leaves room for any.
func (t transcoder) container(dst []byte, k kind) []byte {
	c, ok := t.r.open(k)
	if !ok {
		return dst
	}
	head := len(dst)
	first, last := byte('['), byte(']')
	switch {
	case t.to == EncodingMsgpack && k == kindObject:
		dst = append(dst, msgpackMap32, 0, 0, 0, 0)
	case t.to == EncodingMsgpack:
		dst = append(dst, msgpackArr32, 0, 0, 0, 0)
	case k == kindObject:
		first, last = '{', '}'
		fallthrough
	default:
		dst = append(dst, first)
	}
	n := uint32(0)
	for t.r.next(&c) {
		var key []byte
		if k == kindObject {
			if key, ok = t.r.in.key(); !ok {
				t.r.malformed()
				return dst
			}
			if key == nil {
				t.r.skip()
				continue
			}
		}
		if n > 0 && t.to == EncodingJSON {
			dst = append(dst, ',')
		}
		n++
		if k == kindObject {
			dst = t.text(dst, key)
			if t.to == EncodingJSON {
				dst = append(dst, ':')
			}
		}
		dst = t.value(dst)
	}
	if t.to == EncodingJSON {
		return append(dst, last)
	}
	binary.BigEndian.PutUint32(dst[head+1:], n)
	return dst
}
