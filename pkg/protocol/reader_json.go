package protocol

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonSyntax reads JSON as RFC 8259 has it. An integer of up to 64 bits keeps
// every bit.
type jsonSyntax struct {
	body []byte
	pos  int
}

func (s *jsonSyntax) encoding() Encoding { return EncodingJSON }
func (s *jsonSyntax) offset() int        { return s.pos }
func (s *jsonSyntax) seek(offset int)    { s.pos = offset }

func (s *jsonSyntax) space() {
	for s.pos < len(s.body) && isSpace(s.body[s.pos]) {
		s.pos++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// at is the next byte, 0 at the end.
func (s *jsonSyntax) at() byte {
	if s.pos < len(s.body) {
		return s.body[s.pos]
	}
	return 0
}

func (s *jsonSyntax) kind() kind {
	s.space()
	switch c := s.at(); {
	case c == '"':
		return kindText
	case c == '{':
		return kindObject
	case c == '[':
		return kindList
	case c == '-' || c >= '0' && c <= '9':
		return kindNumber
	case s.has("null"):
		return kindNull
	case s.has("true"), s.has("false"):
		return kindBool
	}
	return kindNone
}

func (s *jsonSyntax) has(word string) bool {
	return len(s.body)-s.pos >= len(word) && string(s.body[s.pos:s.pos+len(word)]) == word
}

func (s *jsonSyntax) null() { s.pos += len("null") }

func (s *jsonSyntax) boolean() (v, ok bool) {
	if s.at() == 't' {
		s.pos += len("true")
		return true, true
	}
	s.pos += len("false")
	return false, true
}

func (s *jsonSyntax) bin() ([]byte, bool) { return nil, false }
func (s *jsonSyntax) other() bool         { return false }

func (s *jsonSyntax) number() (number, bool) {
	start := s.pos
	n := number{negative: s.at() == '-'}
	if n.negative {
		s.pos++
	}
	first := s.pos
	digits := s.digits()
	if digits == 0 || digits > 1 && s.body[first] == '0' {
		return n, false
	}
	last := s.pos
	if s.at() == '.' {
		s.pos++
		n.isFloat = true
		if s.digits() == 0 {
			return n, false
		}
	}
	if c := s.at(); c == 'e' || c == 'E' {
		s.pos++
		n.isFloat = true
		if c := s.at(); c == '+' || c == '-' {
			s.pos++
		}
		if s.digits() == 0 {
			return n, false
		}
	}
	if !n.isFloat {
		var ok bool
		n.integer, ok = parseDigits(s.body[first:last])
		n.isFloat = !ok
	}
	if n.isFloat { // out of range gives an infinity, which no field accepts
		n.float, _ = strconv.ParseFloat(string(s.body[start:s.pos]), 64)
	}
	return n, true
}

// digits moves over digits and returns how many there were.
func (s *jsonSyntax) digits() int {
	start := s.pos
	for s.pos < len(s.body) && s.body[s.pos] >= '0' && s.body[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}

func (s *jsonSyntax) text() ([]byte, bool) {
	s.pos++
	start := s.pos
	for ; s.pos < len(s.body); s.pos++ {
		switch c := s.body[s.pos]; {
		case c == '"':
			s.pos++
			return s.body[start : s.pos-1], true
		case c == '\\':
			return s.escapedText(start)
		case c < ' ':
			return nil, false
		}
	}
	return nil, false
}

// escapedText reads a text from its first escape on. Half a surrogate pair
// becomes bytes that are no UTF-8, so that it is refused where text is wanted.
func (s *jsonSyntax) escapedText(start int) ([]byte, bool) {
	out := append(make([]byte, 0, s.pos-start+32), s.body[start:s.pos]...)
	for s.pos < len(s.body) {
		c := s.body[s.pos]
		s.pos++
		switch {
		case c == '"':
			return out, true
		case c < ' ':
			return nil, false
		case c != '\\':
			out = append(out, c)
			continue
		}
		e := s.at()
		s.pos++
		switch e {
		case '"', '\\', '/':
			out = append(out, e)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			var ok bool
			if out, ok = s.escapedRune(out); !ok {
				return nil, false
			}
		default:
			return nil, false
		}
	}
	return nil, false
}

// escapedRune reads what follows `\u`, with the second half of a pair.
func (s *jsonSyntax) escapedRune(out []byte) ([]byte, bool) {
	unit, ok := s.hex4()
	if !ok {
		return nil, false
	}
	if !utf16.IsSurrogate(unit) {
		return utf8.AppendRune(out, unit), true
	}
	if s.has(`\u`) {
		back := s.pos
		s.pos += 2
		low, ok := s.hex4()
		if !ok {
			return nil, false
		}
		if r := utf16.DecodeRune(unit, low); r != utf8.RuneError {
			return utf8.AppendRune(out, r), true
		}
		s.pos = back
	}
	return append(out, 0xe0|byte(unit>>12), 0x80|byte(unit>>6)&0xbf, 0x80|byte(unit)&0xbf), true
}

func (s *jsonSyntax) hex4() (rune, bool) {
	if len(s.body)-s.pos < 4 {
		return 0, false
	}
	var v rune
	for _, c := range s.body[s.pos : s.pos+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | rune(c)
	}
	s.pos += 4
	return v, true
}

func (s *jsonSyntax) open(k kind) (container, bool) {
	s.pos++
	if k == kindList {
		return container{close: ']'}, true
	}
	return container{close: '}'}, true
}

func (s *jsonSyntax) next(c container) (after container, more, ok bool) {
	s.space()
	switch {
	case s.at() == c.close:
		s.pos++
		return c, false, true
	case !c.begun:
		c.begun = true
	case s.at() != ',':
		return c, false, false
	default:
		s.pos++
		s.space()
	}
	ok = s.pos < len(s.body) && s.at() != c.close
	return c, ok, ok
}

func (s *jsonSyntax) key() ([]byte, bool) {
	if s.at() != '"' {
		return nil, false
	}
	name, ok := s.text()
	if !ok {
		return nil, false
	}
	s.space()
	if s.at() != ':' {
		return nil, false
	}
	s.pos++
	return name, true
}
