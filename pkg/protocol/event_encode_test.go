package protocol

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// hashDraw draws hashes, those at the edges of the encodings above all.
func hashDraw[T ~uint64]() *rapid.Generator[T] {
	edges := rapid.SampledFrom([]uint64{0, 1, 127, 128, 255, 256, 1<<16 - 1, 1 << 16, 1<<32 - 1, 1 << 32, 1<<53 + 1, 1<<63 - 1, 1 << 63, math.MaxUint64})
	return rapid.Map(rapid.OneOf(edges, rapid.Uint64()), func(v uint64) T { return T(v) })
}

func eventDraw(snapshot bool, note func(*rapid.T) []byte) *rapid.Generator[Event] {
	return rapid.Custom(func(t *rapid.T) Event {
		e := Event{Kind: EventKind(rapid.IntRange(int(EventStored), int(EventIgnored)).Draw(t, "kind"))}
		if snapshot {
			e.Kind = min(e.Kind, EventLost) // one of no kind leaves no trace there
		} else {
			e.ID = EventID(rapid.Uint64Min(1).Draw(t, "id"))
		}
		switch e.Kind {
		case EventStored:
			e.Tier = Tier(rapid.IntRange(0, Tiers-1).Draw(t, "tier"))
			if e.Root = rapid.Bool().Draw(t, "root"); !e.Root {
				e.Parent = hashDraw[SequenceHash]().Draw(t, "parent")
			}
			other := func(seq SequenceHash) bool { return e.Root || seq != e.Parent }
			for _, seq := range rapid.SliceOfNDistinct(hashDraw[SequenceHash]().Filter(other), 0, 40, rapid.ID[SequenceHash]).Draw(t, "sequence") {
				e.Blocks = append(e.Blocks, Block{seq, hashDraw[BlockHash]().Draw(t, "hash")})
			}
		case EventRemoved:
			e.Tier = Tier(rapid.IntRange(0, Tiers-1).Draw(t, "tier"))
			e.Removed = rapid.SliceOfN(hashDraw[SequenceHash](), 0, 20).Draw(t, "removed")
		case EventNote:
			e.Note = note(t)
		}
		return e
	})
}

func messageDraw(t *rapid.T, enc Encoding) *EventMessage {
	m := &EventMessage{Epoch: Epoch(hashDraw[uint64]().Draw(t, "epoch")), Encoding: enc}
	if rapid.Bool().Draw(t, "snapshot") {
		chunks := rapid.IntRange(1, MaxChunks).Draw(t, "chunks")
		m.Snapshot = &SnapshotHeader{
			ID:       rapid.StringN(1, -1, MaxTextBytes).Draw(t, "id"),
			Through:  hashDraw[EventID]().Draw(t, "through"),
			Seq:      hashDraw[StreamSeq]().Draw(t, "seq"),
			Chunk:    rapid.IntRange(0, chunks-1).Draw(t, "chunk"),
			Chunks:   chunks,
			Blocks:   hashDraw[uint64]().Draw(t, "blocks"),
			Checksum: hashDraw[uint64]().Draw(t, "checksum"),
			Inexact:  rapid.Bool().Draw(t, "inexact"),
		}
	}
	note := func(t *rapid.T) []byte {
		v := map[string]any{"text": rapid.String().Draw(t, "text"), "list": []any{1, -1, 1 << 40, -(1 << 40), 0.1, 0.5, true, nil}}
		out, err := Marshal(v, enc)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	m.Events = rapid.SliceOfN(eventDraw(m.Snapshot != nil, note), 0, 5).Draw(t, "events")
	return m
}

func TestEventMessageRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := Encoding(rapid.IntRange(0, 1).Draw(t, "from"))
		to := Encoding(rapid.IntRange(0, 1).Draw(t, "to"))
		want := messageDraw(t, from)
		body := AppendEventMessage(nil, want, to)
		if to == EncodingJSON && !json.Valid(body) {
			t.Fatalf("%s is no JSON", body)
		}
		got, err := DecodeEventMessage(body, 0)
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if from != to { // a note is the same once it is back in its own encoding
			if got, err = DecodeEventMessage(AppendEventMessage(nil, got, from), 0); err != nil {
				t.Fatal(err)
			}
			equalNotes(t, got, want)
		}
		if diff := sameMessage(got, want); diff != "" {
			t.Fatal(diff)
		}
	})
}

// equalNotes checks that notes say the same, and then makes them equal.
func equalNotes(t *rapid.T, got, want *EventMessage) {
	for i := range min(len(got.Events), len(want.Events)) {
		if want.Events[i].Kind != EventNote {
			continue
		}
		a := fmt.Sprint(noteValue(t, got.Events[i].Note, got.Encoding))
		b := fmt.Sprint(noteValue(t, want.Events[i].Note, want.Encoding))
		if a != b {
			t.Fatalf("note %s, want %s", a, b)
		}
		got.Events[i].Note = want.Events[i].Note
	}
}

func noteValue(t *rapid.T, note []byte, enc Encoding) any {
	v := map[string]any{}
	if err := json.Unmarshal(appendTranscoded(nil, note, enc, EncodingJSON), &v); err != nil {
		t.Fatalf("note %q: %v", note, err)
	}
	return v
}

func TestPackedSize(t *testing.T) {
	m := &EventMessage{Epoch: 1, Events: []Event{{ID: 1, Kind: EventStored, Root: true, Blocks: make([]Block, 1000)}}}
	if n := len(AppendEventMessage(nil, m, EncodingMsgpack)); n > 16*1000+100 {
		t.Errorf("%d bytes for 1,000 blocks", n)
	}
	m = &EventMessage{Epoch: 1, Events: []Event{{ID: 1, Kind: EventRemoved, Removed: make([]SequenceHash, 1000)}}}
	if n := len(AppendEventMessage(nil, m, EncodingMsgpack)); n > 8*1000+100 {
		t.Errorf("%d bytes for 1,000 removals", n)
	}
}

// An event that was refused keeps its id and has no effect for whoever reads it again.
func TestEncodeRefusedEvent(t *testing.T) {
	m := &EventMessage{Events: []Event{{ID: 5, Kind: EventStored, Refusal: RefusedMalformedStore}, {ID: 6, Refusal: RefusedUndecodable}}}
	for _, enc := range []Encoding{EncodingJSON, EncodingMsgpack} {
		got, err := DecodeEventMessage(AppendEventMessage(nil, m, enc), 0)
		if err != nil {
			t.Fatal(err)
		}
		want := &EventMessage{Encoding: enc, Events: []Event{{ID: 5, Kind: EventIgnored}, {ID: 6, Kind: EventIgnored}}}
		if diff := sameMessage(got, want); diff != "" {
			t.Error(diff)
		}
	}
}

func TestTranscode(t *testing.T) {
	tests := []struct{ in, back string }{ // JSON, and the same after a way through msgpack
		{`null`, `null`},
		{`true`, `true`},
		{`[false]`, `[false]`},
		{` [ 1 , -1 , -32 , -33 , 255 , 65536 ] `, `[1,-1,-32,-33,255,65536]`},
		{`[18446744073709551615,-9223372036854775808,9007199254740993]`, `[18446744073709551615,-9223372036854775808,9007199254740993]`},
		{`[1.5,0.1,-2e300,1e-7,-18446744073709551615]`, `[1.5,0.1,-2e+300,1e-07,-1.8446744073709552e+19]`},
		{`{"a":{"b":[]},"c":{}}`, `{"a":{"b":[]},"c":{}}`},
		{`"\u0000\n\"\\\/é\ud83d\ude00"`, `"\u0000\u000a\"\\/é😀"`},
		{`{"":""}`, `{"":""}`},
		{`1e999`, `null`},
		{`{"a":`, `null`},
		{``, `null`},
		{`1 2`, `null`},
	}
	for _, test := range tests {
		packed := appendTranscoded(nil, []byte(test.in), EncodingJSON, EncodingMsgpack)
		if got := appendTranscoded(nil, packed, EncodingMsgpack, EncodingJSON); string(got) != test.back {
			t.Errorf("%s comes back as %s, want %s", test.in, got, test.back)
		}
	}
	for in, want := range map[string]string{ // msgpack that JSON has no words for
		"\xc4\x02\x01\x02":                     `"AQI="`,
		"\xd4\x01\x02":                         `null`,
		"\xc7\x02\x01\x02\x03":                 `null`,
		"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x01": `null`,
		"\x82\x01\x02\xa1a\x03":                `{"a":3}`,
		"\x82\xa1a\x03\xc0\x02":                `{"a":3}`,
		"\xa1\xff":                             "\"\ufffd\"",
		"\xd9\x01a":                            `"a"`,
		"\xc1":                                 `null`,
		"\x92\x01":                             `null`,
	} {
		if got := appendTranscoded(nil, []byte(in), EncodingMsgpack, EncodingJSON); string(got) != want {
			t.Errorf("%q gives %s, want %s", in, got, want)
		}
	}
}
