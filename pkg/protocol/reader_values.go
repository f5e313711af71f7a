package protocol

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// The methods below read one value each. Where it is not what is wanted they
// record a fault and return zero.

func (r *reader) isNull() bool { return r.err == nil && r.in.kind() == kindNull }

func (r *reader) bool() bool {
	if !r.want(kindBool) {
		return false
	}
	v, ok := r.in.boolean()
	if !ok {
		r.malformed()
	}
	return v
}

func (r *reader) number() (number, bool) {
	if !r.want(kindNumber) {
		return number{}, false
	}
	n, ok := r.in.number()
	if !ok {
		r.malformed()
	}
	return n, ok
}

// uint reads an integer from low to high.
func (r *reader) uint(low, high uint64) uint64 {
	n, ok := r.number()
	if !ok {
		return 0
	}
	if n.isFloat || n.negative && n.integer != 0 || n.integer < low || n.integer > high {
		r.fail("must be %d to %d", low, high)
		return 0
	}
	return n.integer
}

// int reads an integer that may be negative.
func (r *reader) int(low, high int64) int64 {
	n, ok := r.number()
	if !ok {
		return 0
	}
	v := int64(n.integer)
	if n.negative {
		v = -v
	}
	tooBig := n.integer > math.MaxInt64 // of either sign; the lowest value of all is no use to anybody
	if n.isFloat || tooBig || v < low || v > high {
		r.fail("must be %d to %d", low, high)
		return 0
	}
	return v
}

// id reads a hash, id or sequence: an unsigned 64-bit integer, a negative one
// that stands for its two's complement, or a text of decimal digits.
func (r *reader) id() uint64 {
	if r.err != nil {
		return 0
	}
	const what = "must be an integer of 64 bits"
	if r.in.kind() == kindText {
		b, ok := r.in.text()
		if !ok {
			r.malformed()
			return 0
		}
		v, ok := parseDigits(b)
		if !ok {
			r.fail(what)
		}
		return v
	}
	n, ok := r.number()
	if !ok {
		return 0
	}
	if n.isFloat || n.negative && n.integer > 1<<63 {
		r.fail(what)
		return 0
	}
	if n.negative {
		return -n.integer
	}
	return n.integer
}

func parseDigits(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	v, err := strconv.ParseUint(string(b), 10, 64)
	return v, err == nil
}

// float reads a finite number.
func (r *reader) float() float64 {
	n, ok := r.number()
	if !ok {
		return 0
	}
	v := n.float
	if !n.isFloat {
		v = float64(n.integer)
		if n.negative {
			v = -v
		}
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		r.fail("must be finite")
		return 0
	}
	return v
}

// nonNegative reads a finite number of at least 0.
func (r *reader) nonNegative() float64 {
	v := r.float()
	if r.err == nil && v < 0 {
		r.fail("must be at least 0")
	}
	return v
}

// text reads a text of at most limit bytes.
func (r *reader) text(limit int) string {
	if !r.want(kindText) {
		return ""
	}
	b, ok := r.in.text()
	switch {
	case !ok:
		r.malformed()
	case len(b) > limit:
		r.fail("is %d bytes long, at most %d are allowed", len(b), limit)
	case !utf8.Valid(b):
		r.fail("is not UTF-8 text")
	default:
		return string(b)
	}
	return ""
}

// name reads the name of a pool or worker.
func (r *reader) name() string {
	s := r.text(math.MaxInt)
	if r.err == nil {
		if err := CheckName(s); err != nil {
			r.fail("%s", err)
		}
	}
	return s
}

// raw skips a value and returns it as it was written, aliasing the body.
func (r *reader) raw(body []byte) []byte {
	if r.err == nil {
		r.in.kind() // moves to the value
	}
	start := r.in.offset()
	r.skip()
	if r.err != nil {
		return nil
	}
	return body[start:r.in.offset()]
}
