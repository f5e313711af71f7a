package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sameMessage compares messages; an empty list is as good as none.
func sameMessage(got, want *EventMessage) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty())
}

// inBoth runs a test for a JSON body in each encoding.
func inBoth(t *testing.T, body string, test func(t *testing.T, body []byte, enc Encoding)) {
	t.Helper()
	t.Run("JSON", func(t *testing.T) { test(t, []byte(body), EncodingJSON) })
	t.Run("msgpack", func(t *testing.T) { test(t, inMsgpack(t, body), EncodingMsgpack) })
}

const exampleMessage = `{"v":1,"epoch":42,"events":[
  {"id":1,"stored":{"parent":null,"blocks":[[9001,14643705804678351452],[9002,16777012769546811212]],"tier":"device"}},
  {"id":2,"removed":{"blocks":[9002],"tier":"device"}},
  {"id":3,"cleared":{}}]}`

func TestDecodeExample(t *testing.T) {
	inBoth(t, exampleMessage, func(t *testing.T, body []byte, enc Encoding) {
		got, err := DecodeEventMessage(body, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := &EventMessage{Epoch: 42, Encoding: enc, Events: []Event{
			{ID: 1, Kind: EventStored, Root: true, Blocks: []Block{{9001, 14643705804678351452}, {9002, 16777012769546811212}}},
			{ID: 2, Kind: EventRemoved, Removed: []SequenceHash{9002}},
			{ID: 3, Kind: EventCleared},
		}}
		if diff := sameMessage(got, want); diff != "" {
			t.Error(diff)
		}
		if got.BlockCount() != 3 {
			t.Errorf("%d blocks", got.BlockCount())
		}
	})
}

func TestDecodeEvent(t *testing.T) {
	const big = math.MaxUint64
	undecodable := Event{ID: 7, Refusal: RefusedUndecodable}
	malformed := Event{ID: 7, Kind: EventStored, Root: true, Refusal: RefusedMalformedStore}
	tests := []struct {
		event string
		want  Event
	}{
		{`{"id":7,"stored":{"parent":5,"blocks":[[1,2]],"tier":"host"}}`,
			Event{ID: 7, Kind: EventStored, Parent: 5, Tier: TierHost, Blocks: []Block{{1, 2}}}},
		{`{"stored":{"tier":"disk","blocks":[ [1 , 2] , [ 3,4 ] ],"parent":null},"id":7}`,
			Event{ID: 7, Kind: EventStored, Root: true, Tier: TierDisk, Blocks: []Block{{1, 2}, {3, 4}}}},
		{`{"id":7,"stored":{"blocks":[]}}`, Event{ID: 7, Kind: EventStored, Root: true}},
		{`{"id":7,"stored":{"blocks":[[1,2],[-1,-2],["18446744073709551614","0"],[3,18446744073709551615]]}}`,
			Event{ID: 7, Kind: EventStored, Root: true, Blocks: []Block{{1, 2}, {big, big - 1}, {big - 1, 0}, {3, big}}}},
		{`{"id":"7","stored":{"parent":-9223372036854775808,"blocks":[[1,9007199254740993]]}}`,
			Event{ID: 7, Kind: EventStored, Parent: 1 << 63, Blocks: []Block{{1, 1<<53 + 1}}}},
		{`{"id":7,"stored":{"parent":1,"blocks":[[2,2]],"more":{"a":[{}]}},"more":[1]}`,
			Event{ID: 7, Kind: EventStored, Parent: 1, Blocks: []Block{{2, 2}}}},
		{`{"id":7,"stored":{"blocks":[[1,2]],"blocks":[[3,4]]}}`, Event{ID: 7, Kind: EventStored, Root: true, Blocks: []Block{{3, 4}}}},
		{`{"id":7,"removed":{"tier":"external","blocks":[1,-1,"3",4]}}`,
			Event{ID: 7, Kind: EventRemoved, Tier: TierExternal, Removed: []SequenceHash{1, big, 3, 4}}},
		{`{"id":7,"removed":{"blocks":[]}}`, Event{ID: 7, Kind: EventRemoved}},
		{`{"id":7,"cleared":{"why":"restart"}}`, Event{ID: 7, Kind: EventCleared}},
		{`{"id":7,"lost":{}}`, Event{ID: 7, Kind: EventLost}},
		{`{"id":7}`, Event{ID: 7, Kind: EventIgnored}},
		{`{"id":7,"moved":{"blocks":"?"}}`, Event{ID: 7, Kind: EventIgnored}},
		{`{"id":-1}`, Event{ID: big, Kind: EventIgnored}},

		{`{"id":7,"stored":{"blocks":[[1,2],[3,4],[1,5]]}}`, malformed},
		{`{"id":7,"stored":{"blocks":[[1,2]],"tier":"moon"}}`, undecodable},
		{`{"id":7,"stored":{"blocks":[[1,2]],"tier":1}}`, undecodable},
		{`{"id":7,"stored":{"blocks":[[1,2],[3]]}}`, undecodable},
		{`{"id":7,"stored":{"blocks":[[1,2],[3,4,5]]}}`, undecodable},
		{`{"id":7,"stored":{"blocks":[[1,2.0]]}}`, undecodable},
		{`{"id":7,"stored":{"blocks":[[1,18446744073709551616],[2,3]]}}`, undecodable},
		{`{"id":7,"stored":{"blocks":[[1,1e3],[2,3]]}}`, undecodable},
		{`{"id":7,"stored":{"blocks":[[1,"0x5"]]}}`, undecodable},
		{`{"id":7,"stored":{"blocks":[[1,null]]}}`, undecodable},
		{`{"id":7,"stored":{"blocks":[1,2]}}`, undecodable},
		{`{"id":7,"stored":{"parent":"root","blocks":[]}}`, undecodable},
		{`{"id":7,"stored":{"parent":1}}`, undecodable},
		{`{"id":7,"stored":[]}`, undecodable},
		{`{"id":7,"stored":null}`, undecodable},
		{`{"id":7,"cleared":null}`, undecodable},
		{`{"id":7,"removed":{}}`, undecodable},
		{`{"id":7,"removed":{"blocks":[1,2,-9223372036854775809]}}`, undecodable},
		{`{"id":7,"removed":{"blocks":[true]}}`, undecodable},
		{`{"id":7,"removed":{"blocks":[1]},"cleared":{}}`, undecodable},
		{`{"stored":{"blocks":0},"x":[[{}]],"id":7}`, undecodable},
		{`{"id":1.5,"cleared":{},"id":7}`, undecodable},
	}
	for _, test := range tests {
		inBoth(t, `{"v":1,"epoch":1,"events":[{"id":6,"lost":{}},`+test.event+`,{"id":8,"cleared":{}}]}`,
			func(t *testing.T, body []byte, enc Encoding) {
				got, err := DecodeEventMessage(body, 0)
				if err != nil {
					t.Fatalf("%s: %v", test.event, err)
				}
				want := &EventMessage{Epoch: 1, Encoding: enc, Events: []Event{
					{ID: 6, Kind: EventLost}, test.want, {ID: 8, Kind: EventCleared},
				}}
				if diff := sameMessage(got, want); diff != "" {
					t.Errorf("%s: %s", test.event, diff)
				}
			})
	}
}

func TestMalformedStore(t *testing.T) {
	for _, n := range []int{1, 2, 32, 33, 1000} {
		var blocks []string
		for i := range n {
			blocks = append(blocks, fmt.Sprintf("[%d,5]", i+10))
		}
		for name, test := range map[string]struct {
			parent string
			extra  string
			want   Refusal
		}{
			"distinct at the start":  {"null", "", ""},
			"distinct below another": {"9", "", ""},
			"contains its parent":    {fmt.Sprint(n + 9), "", RefusedMalformedStore},
			"repeats the first":      {"null", ",[10,5]", RefusedMalformedStore},
			"repeats, with a parent": {"9", ",[10,6]", RefusedMalformedStore},
		} {
			body := fmt.Sprintf(`{"events":[{"id":1,"stored":{"parent":%s,"blocks":[%s%s]}}]}`, test.parent, strings.Join(blocks, ","), test.extra)
			got, err := DecodeEventMessage([]byte(body), 0)
			if err != nil || len(got.Events) != 1 || got.Events[0].Refusal != test.want {
				t.Errorf("%d blocks, %s: %v, %v", n, name, got, err)
			}
			if test.want != "" && got.Events[0].Blocks != nil {
				t.Errorf("%d blocks, %s: the blocks are kept", n, name)
			}
		}
	}
}

func TestEventsWithoutID(t *testing.T) {
	tests := map[string]struct {
		events string
		epoch  int
		ids    []EventID
		lost   int
	}{
		"none":              {`{"cleared":{}},{"id":2,"cleared":{}}`, 1, []EventID{2}, 1},
		"null":              {`{"id":null,"cleared":{}},{"id":2,"cleared":{}}`, 1, []EventID{2}, 1},
		"unreadable":        {`{"id":2,"cleared":{}},{"id":"x","cleared":{}}`, 1, []EventID{2}, 1},
		"no object":         {`1,"x",null,[],{"id":2,"cleared":{}}`, 1, []EventID{2}, 4},
		"empty":             {`{},{},{"id":2,"cleared":{}},{}`, 1, []EventID{2}, 3},
		"0":                 {`{"id":0,"cleared":{}},{"id":1,"cleared":{}}`, 1, []EventID{1}, 1},
		"0 without epoch":   {`{"id":0,"cleared":{}},{"id":1,"cleared":{}}`, 0, []EventID{0, 1}, 0},
		"none, no epoch":    {`{"cleared":{}},{"id":1,"cleared":{}}`, 0, []EventID{1}, 1},
		"malformed, no id":  {`{"stored":{"blocks":[[1,1],[1,1]]}},{"id":1,"cleared":{}}`, 1, []EventID{1}, 1},
		"first and last":    {`{"lost":{}},{"id":1,"lost":{}},{"lost":{}}`, 1, []EventID{1}, 2},
		"events come twice": {`{"lost":{}}],"events":[{"id":1,"lost":{}}`, 1, []EventID{1}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, format := range []string{`{"v":1,"epoch":%[1]d,"events":[%[2]s]}`, `{"events":[%[2]s],"epoch":%[1]d}`} {
				inBoth(t, fmt.Sprintf(format, test.epoch, test.events), func(t *testing.T, body []byte, _ Encoding) {
					m, err := DecodeEventMessage(body, 0)
					if err != nil {
						t.Fatal(err)
					}
					var ids []EventID
					for _, e := range m.Events {
						ids = append(ids, e.ID)
					}
					if diff := cmp.Diff(test.ids, ids); diff != "" || m.Lost[RefusedUndecodable] != test.lost {
						t.Errorf("lost %v; %s", m.Lost, diff)
					}
				})
			}
		})
	}
}

func TestRefusedMessages(t *testing.T) {
	many := func(n int) string { return strings.TrimSuffix(strings.Repeat("[1,2],", n), ",") }
	pairs := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ",[%d,2]", i)
		}
		return b.String()[1:]
	}
	tests := []struct {
		name, body string
		want       error
	}{
		{"no version", `{"events":[]}`, nil},
		{"no events", `{"v":1,"epoch":1}`, RefusedUndecodable},
		{"null events", `{"v":1,"events":null}`, RefusedUndecodable},
		{"events of another type", `{"v":1,"events":{}}`, RefusedUndecodable},
		{"epoch of another type", `{"v":1,"epoch":"x","events":[]}`, RefusedUndecodable},
		{"empty object", `{}`, RefusedUndecodable},
		{"another object", `{"hello":"world"}`, RefusedUndecodable},
		{"version 2", `{"v":2,"events":[]}`, RefusedVersion},
		{"version 0", `{"v":0,"events":[]}`, RefusedVersion},
		{"version 2 last", `{"events":[],"v":2}`, RefusedVersion},
		{"version 2 of another shape", `{"events":{"a":1},"v":2}`, RefusedVersion},
		{"version of another type", `{"v":"1","events":[]}`, RefusedVersion},
		{"8,192 blocks", `{"events":[{"id":1,"stored":{"blocks":[` + pairs(8192) + `]}}]}`, nil},
		{"8,193 blocks", `{"events":[{"id":1,"stored":{"blocks":[` + pairs(8193) + `]}}]}`, RefusedTooManyBlocks},
		{"8,193 equal blocks", `{"events":[{"id":1,"stored":{"blocks":[` + many(8193) + `]}}]}`, RefusedTooManyBlocks},
		{"8,193 in two events", `{"events":[{"id":1,"stored":{"blocks":[` + pairs(8192) + `]}},{"id":2,"removed":{"blocks":[1]}}]}`, RefusedTooManyBlocks},
		{"too deep", `{"events":[` + strings.Repeat(`[`, 70) + strings.Repeat(`]`, 70) + `]}`, RefusedUndecodable},
		{"too deep elsewhere", `{"x":` + strings.Repeat(`{"a":`, 70) + `1` + strings.Repeat(`}`, 70) + `,"events":[]}`, RefusedUndecodable},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			body := []byte(test.body)
			check := func(t *testing.T, body []byte) {
				if _, err := DecodeEventMessage(body, 0); !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
			}
			check(t, body)
			if !strings.HasPrefix(test.name, "too deep") { // the transcoder has the same bound
				check(t, inMsgpack(t, test.body))
			}
		})
	}
	for _, body := range []string{"", " ", "x", "hello", "{", `{"v":1`, `{"v":1,"events":[]}}`, `{"v":1,"events":[]} x`, `{"v":1,,"events":[]}`, `{"v":1,"events":[],}`, "\xc1", "\x81", "\x80", "\xdf\xff\xff\xff\xff", "\x81\xa6events\xdd\xff\xff\xff\xff"} {
		if _, err := DecodeEventMessage([]byte(body), 0); err != RefusedUndecodable {
			t.Errorf("%q: %v", body, err)
		}
	}
}

// A message that is cut anywhere is refused, and never read past its end.
func TestTruncatedMessages(t *testing.T) {
	m, err := DecodeEventMessage([]byte(exampleMessage), 0)
	if err != nil {
		t.Fatal(err)
	}
	m.Events = append(m.Events, Event{ID: 4, Kind: EventNote, Note: []byte(`{"a":[1,"b",null,true,-2.5]}`)})
	for _, body := range [][]byte{[]byte(exampleMessage), inMsgpack(t, exampleMessage),
		AppendEventMessage(nil, m, EncodingJSON), AppendEventMessage(nil, m, EncodingMsgpack)} {
		for n := range body {
			if _, err := DecodeEventMessage(body[:n:n], 0); err != RefusedUndecodable {
				t.Errorf("%q: %v", body[:n], err)
			}
		}
	}
}

func TestPackedBlocks(t *testing.T) {
	bin := func(values ...uint64) []byte {
		b := appendBinHeader(nil, 8*len(values))
		for _, v := range values {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		return b
	}
	// message wraps the fields of a change of one kind.
	message := func(kind string, fields ...any) []byte {
		b := appendText(appendMapHeader(nil, 1), "events")
		b = appendMapHeader(appendListHeader(b, 1), 2)
		b = appendUint(appendText(b, "id"), 7)
		b = appendMapHeader(appendText(b, kind), len(fields)/2)
		for i := 0; i < len(fields); i += 2 {
			b = append(appendText(b, fields[i].(string)), fields[i+1].([]byte)...)
		}
		return b
	}
	list := appendUint(appendUint(appendListHeader(appendListHeader(nil, 1), 2), 1), 2)
	undecodable := Event{ID: 7, Refusal: RefusedUndecodable}
	tests := map[string]struct {
		body []byte
		want Event
	}{
		"stored":         {message("stored", "seq", bin(1, math.MaxUint64), "local", bin(3, 1<<63)), Event{ID: 7, Kind: EventStored, Root: true, Blocks: []Block{{1, 3}, {math.MaxUint64, 1 << 63}}}},
		"no block":       {message("stored", "local", bin(), "seq", bin()), Event{ID: 7, Kind: EventStored, Root: true}},
		"removed":        {message("removed", "blocks", bin(5, 6)), Event{ID: 7, Kind: EventRemoved, Removed: []SequenceHash{5, 6}}},
		"a list":         {message("stored", "blocks", list), Event{ID: 7, Kind: EventStored, Root: true, Blocks: []Block{{1, 2}}}},
		"repeated":       {message("stored", "seq", bin(1, 1), "local", bin(2, 2)), Event{ID: 7, Kind: EventStored, Root: true, Refusal: RefusedMalformedStore}},
		"seq alone":      {message("stored", "seq", bin(1)), undecodable},
		"local alone":    {message("stored", "local", bin(1)), undecodable},
		"both forms":     {message("stored", "seq", bin(1), "local", bin(1), "blocks", list), undecodable},
		"other lengths":  {message("stored", "seq", bin(1, 2), "local", bin(1)), undecodable},
		"half a value":   {message("stored", "seq", []byte{msgpackBin8, 3, 1, 2, 3}, "local", []byte{msgpackBin8, 3, 1, 2, 3}), undecodable},
		"half a removal": {message("removed", "blocks", []byte{msgpackBin8, 3, 1, 2, 3}), undecodable},
		"blocks packed":  {message("stored", "blocks", bin(1, 2)), undecodable},
		"text":           {message("removed", "blocks", appendText(nil, "12345678")), undecodable},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeEventMessage(test.body, 0)
			if err != nil {
				t.Fatal(err)
			}
			if diff := sameMessage(got, &EventMessage{Encoding: EncodingMsgpack, Events: []Event{test.want}}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNotes(t *testing.T) {
	text := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	for _, note := range []string{`{"a":[1,2]}`, `null`, `"x"`, `1.5`, `[]`, `{"a": {"b" :18446744073709551615}}`, text(MaxNoteBytes)} {
		m, err := DecodeEventMessage([]byte(`{"events":[{"id":1,"note": `+note+` }]}`), 0)
		if err != nil || len(m.Events) != 1 || m.Events[0].Kind != EventNote || string(m.Events[0].Note) != note {
			t.Errorf("note %.40s gives %.200v, %v", note, m, err)
		}
	}
	m, err := DecodeEventMessage([]byte(`{"events":[{"id":1,"note":`+text(MaxNoteBytes+1)+`},{"id":2,"lost":{}}]}`), 0)
	want := &EventMessage{Events: []Event{{ID: 1, Refusal: RefusedUndecodable}, {ID: 2, Kind: EventLost}}}
	if err != nil {
		t.Fatal(err)
	}
	if diff := sameMessage(m, want); diff != "" {
		t.Error(diff)
	}
}

// What is decoded stays when the buffer it came in is used again.
func TestDecodedMessageIsACopy(t *testing.T) {
	const body = `{"snapshot":{"id":"abc","through":1,"blocks":0,"checksum":0},"events":[{"note":{"a":"b"}},{"removed":{"blocks":[]}},{"stored":{"blocks":[[1,2]]}}]}`
	inBoth(t, body, func(t *testing.T, body []byte, _ Encoding) {
		want, err := DecodeEventMessage(body, 0)
		if err != nil {
			t.Fatal(err)
		}
		buf := append([]byte{}, body...)
		got, err := DecodeEventMessage(buf, 0)
		clear(buf)
		if err != nil {
			t.Fatal(err)
		}
		if diff := sameMessage(got, want); diff != "" {
			t.Error(diff)
		}
	})
}
