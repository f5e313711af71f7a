package protocol

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// allocated is what f allocates, at least once over.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestJSONAgrees checks the reader against the standard library: what is JSON,
// and what it says.
func TestJSONAgrees(t *testing.T) {
	pieces := []string{"{", "}", "[", "]", ",", ":", " ", "\n", `"a"`, `"`, `\`, `\u0041`, `\ud83d\ude00`, "1", "-", "0", "1.5", ".", "e", "E+2", "18446744073709551615",
		"true", "false", "null", "nul", "x", "\x00", "é", `"\n"`, `{"a":1}`, `[1,2]`, `"k":`}
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SampledFrom([]string{"%", "[%]", `{"a":%}`}).Draw(t, "frame")
		body = strings.ReplaceAll(body, "%", strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 8).Draw(t, "inner"), ""))
		r := newReaderOf([]byte(body), EncodingJSON)
		r.skip()
		if got, want := r.finish() == nil, json.Valid([]byte(body)); got != want {
			t.Fatalf("%q: valid is %t, want %t", body, got, want)
		}
	})
}

func TestJSONSaysTheSame(t *testing.T) {
	value := jsonValue(4)
	rapid.Check(t, func(t *rapid.T) {
		body, err := json.Marshal(value.Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		packed := appendTranscoded(nil, body, EncodingJSON, EncodingMsgpack)
		back := appendTranscoded(nil, packed, EncodingMsgpack, EncodingJSON)
		var want, got any
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(back, &got); err != nil {
			t.Fatalf("%s: %v", back, err)
		}
		a, _ := json.Marshal(want)
		b, _ := json.Marshal(got)
		if string(a) != string(b) {
			t.Fatalf("%s comes back as %s", a, b)
		}
	})
}

func jsonValue(depth int) *rapid.Generator[any] {
	scalar := rapid.OneOf(
		rapid.Map(rapid.String(), func(v string) any { return v }),
		rapid.Map(rapid.Uint64(), func(v uint64) any { return v }),
		rapid.Map(rapid.Int64(), func(v int64) any { return v }),
		rapid.Map(rapid.Float64(), func(v float64) any { return v + 0 }),
		rapid.SampledFrom([]any{nil, true, false}),
	)
	if depth == 0 {
		return scalar
	}
	inner := jsonValue(depth - 1)
	return rapid.OneOf(scalar,
		rapid.Map(rapid.SliceOfN(inner, 0, 4), func(v []any) any { return v }),
		rapid.Map(rapid.MapOfN(rapid.String(), inner, 0, 4), func(v map[string]any) any { return v }),
	)
}

// A list of integers is read alike by the scan and, spaced so that the scan
// leaves it, item by item.
func TestScanAgreesWithCursor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		item := rapid.OneOf(
			rapid.StringMatching(`-?[0-9]{1,21}`),
			rapid.SampledFrom([]string{"0", "00", "-0", "18446744073709551615", "18446744073709551616", "19999999999999999999", "4294967295", "4294967296",
				"10000000000000000000", "9999999999999999999", `"7"`, "1.0", "1e2", "null", "", "[]"}),
		)
		items := rapid.SliceOfN(item, 0, 6).Draw(t, "items")
		plain := "[" + strings.Join(items, ",") + "]"
		spaced := "[ " + strings.Join(items, " , ") + " ]"
		compare(t, plain, spaced, func(r *reader) any { return hashes[BlockHash](r, 5) })
		compare(t, plain, spaced, func(r *reader) any { return r.tokens(5) })
	})
}

// compare reads two forms of a body. Where one is malformed the other has a
// fault too, but it may be met in another place.
func compare(t *rapid.T, a, b string, read func(*reader) any) {
	readers := [2]*reader{newReaderOf([]byte(a), EncodingJSON), newReaderOf([]byte(b), EncodingJSON)}
	var values, faults [2]string
	for i, r := range readers {
		values[i] = mustJSON(t, read(r))
		if err := r.finish(); err != nil {
			faults[i] = err.Error()
		}
	}
	const malformed = "is not valid JSON"
	switch {
	case (faults[0] == "") != (faults[1] == ""):
		t.Fatalf("%s: %q, but %s: %q", a, faults[0], b, faults[1])
	case strings.Contains(faults[0]+faults[1], malformed):
	case faults[0] != faults[1], values[0] != values[1]:
		t.Fatalf("%s: %q %s, but %s: %q %s", a, faults[0], values[0], b, faults[1], values[1])
	}
}

func mustJSON(t *rapid.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Bodies that claim or repeat much take memory in proportion to their own size.
func TestHostileBodies(t *testing.T) {
	const size = 1 << 17
	fill := func(head, item, tail string) []byte {
		return []byte(head + strings.Repeat(item, (size-len(head)-len(tail))/len(item)) + tail)
	}
	events := "\x81\xa6events\xdd"
	list := func(item string) []byte {
		n := (size - 16) / len(item)
		return append(append([]byte(events), byte(n>>24), byte(n>>16), byte(n>>8), byte(n)), strings.Repeat(item, n)...)
	}
	bodies := map[string][]byte{
		"empty events":         list("\x80"),
		"events with ids":      list("\x81\xa2id\x01"),
		"numbers for events":   list("\x01"),
		"wrong ids":            list("\x81\xa2id\xc2"),
		"lost events":          list("\x81\xa4lost\x80"),
		"wrong stores":         list("\x82\xa2id\x01\xa6stored\x81\xa6blocks\x91\x01"),
		"claimed blocks":       list("\x82\xa2id\x01\xa6stored\x81\xa6blocks\xdd\x00\x01\x00\x00"),
		"claimed removals":     list("\x82\xa2id\x01\xa7removed\x81\xa6blocks\xdd\x00\x01\x00\x00"),
		"RouterEvents":         fill("[", `{"event":{"event_id":1,"data":"cleared"}},`, "1]"),
		"wrong RouterEvents":   fill("[", `{"event":{"event_id":1,"data":1}},`, "1]"),
		"commas in text":       fill(`{"block_hashes":["`, ",", `"]}`),
		"deep":                 fill(`{"events":`, "[", ""),
		"long key":             fill(`{"`, "k", `":1}`),
		"escapes":              fill(`{"request_id":"`, `\u0041`, `"}`),
		"one pair each":        fill(`{"events":[`, `{"id":1,"stored":{"blocks":[[1,2] ]}},`, `1]}`),
		"repeated token lists": fill("{", `"token_ids":[1,2,3],`, `"x":1}`),
	}
	for name, body := range bodies {
		var n uint64
		for _, decode := range []func(){
			func() { _, _ = DecodeEventMessage(body, 0) },
			func() { _, _ = DecodeRouteRequest(body) },
			func() { _, _ = DecodeRegistration(body) },
			func() { _ = Unmarshal(body, &StatusReply{}) },
		} {
			n = max(n, allocated(decode))
		}
		if n > 150*size {
			t.Errorf("%s: %d bytes allocated for %d", name, n, len(body))
		}
	}
}
