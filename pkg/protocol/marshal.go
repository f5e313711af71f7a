package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/vmihailenco/msgpack/v5"
)

// structTag names the fields in both encodings.
const structTag = "json"

// Marshal writes a body. v is a pointer to one of this package's structs, or
// another value whose fields have json tags. Lists and maps of a reply that are
// nil become empty, as no reader expects null there.
func Marshal(v any, enc Encoding) ([]byte, error) {
	if reply, ok := v.(interface{ fill() }); ok {
		reply.fill()
	}
	if enc == EncodingJSON {
		body, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("write body: %w", err)
		}
		return body, nil
	}
	var buf bytes.Buffer
	e := msgpack.NewEncoder(&buf)
	e.SetCustomStructTag(structTag)
	e.UseCompactInts(true)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("write body: %w", err)
	}
	return buf.Bytes(), nil
}

// Unmarshal reads a body into v, a pointer to a struct with json tags, in
// whichever encoding the body is. It is meant for replies: unknown fields are
// ignored and limits are not checked. Integers keep all 64 bits; under an any
// they are json.Number or, from msgpack, sized integers.
func Unmarshal(body []byte, v any) error {
	if DetectEncoding(body) == EncodingJSON {
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		if err := d.Decode(v); err != nil {
			return fmt.Errorf("read body: %w", err)
		}
		if _, err := d.Token(); err != io.EOF {
			return fmt.Errorf("read body: it goes on after its end, at byte %d", d.InputOffset())
		}
		return nil
	}
	// The library allocates by the lengths that a body claims and follows any
	// nesting, so both are checked against the body first.
	r := newReader(body)
	r.skip()
	if err := r.finish(); err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	d := msgpack.NewDecoder(bytes.NewReader(body))
	d.SetCustomStructTag(structTag)
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	return nil
}

func (r *RouteReply) fill()   { fillList(&r.Candidates) }
func (r *OverlapReply) fill() { fillList(&r.Workers) }

func (r *LoadsReply) fill() {
	fillList(&r.Workers)
	fillList(&r.Queues)
}

func (r *StatusReply) fill() {
	fillList(&r.Routers)
	fillList(&r.Ranks)
	fillList(&r.Scopes)
	fillMap(&r.RosterRefused)
	for i := range r.Ranks {
		fillMap(&r.Ranks[i].Refused)
	}
}

func (r *ErrorReply) fill() {
	if r.Error != nil {
		fillMap(&r.Error.Details)
	}
}

func fillList[T any](list *[]T) {
	if *list == nil {
		*list = []T{}
	}
}

func fillMap[K comparable, V any](m *map[K]V) {
	if *m == nil {
		*m = map[K]V{}
	}
}
