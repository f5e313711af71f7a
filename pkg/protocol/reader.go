package protocol

import (
	"fmt"
	"strconv"
)

// maxDepth bounds how deep a body may nest, since reading it recurses.
const maxDepth = 64

// kind is what the next value of a body is.
type kind uint8

const (
	kindNone kind = iota // no value: the end of the body, or something malformed
	kindNull
	kindBool
	kindNumber
	kindText
	kindBin // msgpack only
	kindList
	kindObject
	kindOther // a msgpack extension
)

var kindNames = [...]string{"nothing", "null", "a boolean", "a number", "text", "bytes", "a list", "an object", "an extension"}

func (k kind) String() string { return kindNames[k] }

// syntax is one encoding, read value by value. What a method reads must be what
// kind has just said; false means that the body is malformed there.
type syntax interface {
	encoding() Encoding
	offset() int
	seek(offset int)
	kind() kind
	null()
	boolean() (v, ok bool)
	number() (number, bool)
	text() ([]byte, bool) // may alias the body, and need not be UTF-8
	bin() ([]byte, bool)  // aliases the body
	other() bool          // skips a kindOther
	open(kind) (container, bool)
	next(container) (c container, more, ok bool) // moves to the next item or key, or out
	key() ([]byte, bool)                         // nil if it is no text
}

// container is a list or an object that is being read.
type container struct {
	close byte // JSON: its last character
	begun bool // JSON: an item has been read
	left  int  // msgpack: items, or pairs of key and value, to come
}

// number is a number as written: an integer of up to 64 bits and a sign, or,
// with a fraction, an exponent or more bits, a float.
type number struct {
	negative bool
	integer  uint64 // its absolute value
	float    float64
	isFloat  bool
}

// fault is the first thing that is wrong with a body.
type fault struct {
	where string // path of the field, "" for the body as a whole
	what  string
}

func (f *fault) Error() string {
	if f.where == "" {
		return "body: " + f.what
	}
	return f.where + ": " + f.what
}

// segment is a step of a path: a field's name or a place in a list.
type segment struct {
	name  []byte // nil in a list
	index int
}

// reader is the cursor that all decoders of outside input share. It reads JSON
// and msgpack alike, so a body is described once, field by field. The first
// fault sticks: from then on every method returns zero values and no container
// has more items, so a description needs no error handling of its own.
//
// Nothing that a body merely claims is allocated; what is read takes memory in
// proportion to the bytes that are there.
type reader struct {
	in    syntax
	size  int // bytes of the body
	path  []segment
	depth int
	err   *fault

	attempts int   // that are going on, one within the other
	unworded fault // stands for a fault within an attempt, which nobody will read

	pairs []Block // where blocks are read before their number is known

	// What in and path begin with, so that a reader is one allocation.
	json    jsonSyntax
	msgpack msgpackSyntax
	steps   [8]segment
}

func newReader(body []byte) *reader { return newReaderOf(body, DetectEncoding(body)) }

// newReaderOf reads what is in a known encoding: a part of a body, say, of which
// the first byte alone does not tell.
func newReaderOf(body []byte, enc Encoding) *reader {
	r := &reader{size: len(body)}
	r.path = r.steps[:0]
	if enc == EncodingJSON {
		r.json.body = body
		r.in = &r.json
	} else {
		r.msgpack.body = body
		r.in = &r.msgpack
	}
	return r
}

// finish checks that the body ends here and returns the first fault as an
// invalid_request.
func (r *reader) finish() error {
	if r.err == nil && r.in.kind() != kindNone {
		r.fail("goes on after its end, at byte %d", r.in.offset())
	} else if r.err == nil && r.in.offset() < r.size {
		r.malformed()
	}
	if r.err != nil {
		return Errorf(CodeInvalidRequest, "%s", r.err.Error())
	}
	return nil
}

// fail records that the value at the current path is wrong.
func (r *reader) fail(format string, args ...any) {
	switch {
	case r.err != nil:
	case r.attempts > 0:
		r.err = &r.unworded
	default:
		r.err = &fault{where: r.where(), what: fmt.Sprintf(format, args...)}
	}
}

// failField records that a field of the object that is read, or of the body, is wrong.
func (r *reader) failField(name, format string, args ...any) {
	r.path = append(r.path, segment{name: []byte(name)})
	r.fail(format, args...)
	r.leave()
}

func (r *reader) malformed() {
	r.fail("is not valid %s at byte %d of the body", r.in.encoding(), r.in.offset())
}

func (r *reader) leave() { r.path = r.path[:len(r.path)-1] }

// where writes the path: `pinned.rank`, `token_ids[3]`.
func (r *reader) where() string {
	var out []byte
	for _, s := range r.path {
		switch {
		case s.name == nil:
			out = append(out, '[')
			out = strconv.AppendInt(out, int64(s.index), 10)
			out = append(out, ']')
		default:
			if len(out) > 0 {
				out = append(out, '.')
			}
			out = append(out, fieldName(s.name)...)
		}
	}
	return string(out)
}

// fieldName is a name from outside as an error shows it: short and on one line.
func fieldName(name []byte) string {
	plain := len(name) <= 64
	for _, c := range name {
		plain = plain && c > ' ' && c < 0x7f
	}
	if plain {
		return string(name)
	}
	return strconv.QuoteToASCII(string(name[:min(len(name), 64)]))
}

// want checks what the next value is.
func (r *reader) want(k kind) bool {
	if r.err != nil {
		return false
	}
	got := r.in.kind()
	switch {
	case got == k:
		return true
	case got == kindNone:
		r.malformed()
	case len(r.path) == 0:
		r.fail("must be %s in JSON or msgpack, not %s", k, got)
	default:
		r.fail("must be %s, not %s", k, got)
	}
	return false
}

func (r *reader) open(k kind) (container, bool) {
	if !r.want(k) {
		return container{}, false
	}
	if r.depth++; r.depth > maxDepth {
		r.fail("is nested deeper than %d", maxDepth)
		return container{}, false
	}
	c, ok := r.in.open(k)
	if !ok {
		r.malformed()
	}
	return c, ok
}

func (r *reader) next(c *container) bool {
	if r.err != nil {
		return false
	}
	after, more, ok := r.in.next(*c)
	*c = after
	if !ok {
		r.malformed()
		return false
	}
	if !more {
		r.depth--
	}
	return more
}

// object reads an object, calling field for each of its fields that is not
// null. A field that is left unread is skipped; of fields with the same name the
// last one counts.
func (r *reader) object(field func(name []byte)) {
	r.members(func(name []byte) {
		if r.in.kind() != kindNull {
			field(name)
		}
	})
}

// members is object where null tells something.
func (r *reader) members(field func(name []byte)) {
	c, ok := r.open(kindObject)
	if !ok {
		return
	}
	for r.next(&c) {
		name, ok := r.in.key()
		if !ok {
			r.malformed()
			return
		}
		if name == nil { // a key that is no text names no field
			name = []byte{}
		}
		r.path = append(r.path, segment{name: name})
		r.in.kind() // moves to the value
		start := r.in.offset()
		field(name)
		if r.err == nil && r.in.offset() == start {
			r.skip()
		}
		r.leave()
	}
}

// list reads a list of at most limit items, of which item reads one.
func (r *reader) list(limit int, item func(i int)) {
	c, ok := r.open(kindList)
	if !ok {
		return
	}
	for i := 0; r.next(&c); i++ {
		if i == limit {
			r.fail("has more than %d entries", limit)
			return
		}
		r.path = append(r.path, segment{index: i})
		item(i)
		r.leave()
	}
}

// skip reads over a value of any kind.
func (r *reader) skip() {
	if r.err != nil {
		return
	}
	ok := true
	switch k := r.in.kind(); k {
	case kindNull:
		r.in.null()
	case kindBool:
		_, ok = r.in.boolean()
	case kindNumber:
		_, ok = r.in.number()
	case kindText:
		_, ok = r.in.text()
	case kindBin:
		_, ok = r.in.bin()
	case kindOther:
		ok = r.in.other()
	case kindList, kindObject:
		r.skipContainer(k)
	default:
		ok = false
	}
	if !ok {
		r.malformed()
	}
}

func (r *reader) skipContainer(k kind) {
	c, ok := r.open(k)
	if !ok {
		return
	}
	for r.next(&c) {
		if k == kindObject {
			if _, ok := r.in.key(); !ok {
				r.malformed()
				return
			}
		}
		r.skip()
	}
}

// attempt calls read for the next value. If that finds a fault it forgets the
// fault, skips the value and returns false; where the value is malformed, so
// that its end is not known, the fault stays.
func (r *reader) attempt(read func()) bool {
	start, depth, path := r.in.offset(), r.depth, len(r.path)
	r.attempts++
	read()
	r.attempts--
	if r.err == nil {
		return true
	}
	r.rewind(start, depth, path)
	r.skip()
	return false
}

// rewind goes back to an earlier place and forgets the fault met since.
func (r *reader) rewind(offset, depth, path int) {
	r.in.seek(offset)
	r.depth, r.path, r.err = depth, r.path[:path], nil
}
