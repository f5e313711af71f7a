package protocol

import (
	"encoding/hex"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func addBoth(f *testing.F, bodies ...string) {
	for _, body := range bodies {
		f.Add([]byte(body))
		f.Add(inMsgpack(f, body))
	}
}

func FuzzDecodeEventMessage(f *testing.F) {
	addBoth(f, exampleMessage, exampleSnapshot,
		`{"epoch":1,"events":[{"id":1,"note":{"a":[1,-2,0.5,"é",null]}},{"id":2,"lost":{}},{"id":3},{"stored":{}},{"id":"18446744073709551615","cleared":{}}]}`,
		`{"v":2,"events":1}`, `{"events":[{"id":0,"removed":{"blocks":["1",-1],"tier":"external"}}]}`)
	for _, row := range readGolden[routerRow](f, "router-events.jsonl") {
		addBoth(f, row.JSON, "["+row.JSON+"]")
	}
	for _, row := range readGolden[struct {
		PayloadHex string `json:"payload_hex"`
	}](f, "router-event-lists.jsonl") {
		payload, err := hex.DecodeString(row.PayloadHex)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload)
	}
	for _, body := range []string{exampleMessage, exampleSnapshot} {
		m, err := DecodeEventMessage([]byte(body), 0)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(AppendEventMessage(nil, m, EncodingMsgpack))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := DecodeEventMessage(body, 0)
		if err != nil {
			if _, ok := err.(Refusal); !ok || m != nil {
				t.Fatalf("%v, %v", m, err)
			}
			return
		}
		checkMemory(t, m, len(body))
		checkEvents(t, m)
		// What was understood is the same once it is written and read again.
		m.Events = slices.DeleteFunc(m.Events, func(e Event) bool { return e.Refusal != "" })
		for _, enc := range []Encoding{EncodingJSON, EncodingMsgpack} {
			again, err := DecodeEventMessage(AppendEventMessage(nil, m, enc), 0)
			if err != nil {
				t.Fatalf("%+v in %v: %v", m, enc, err)
			}
			options := cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreFields(EventMessage{}, "Encoding", "RouterEvents", "Lost")}
			if enc != m.Encoding {
				options = append(options, cmpopts.IgnoreFields(Event{}, "Note"))
			}
			if diff := cmp.Diff(m, again, options); diff != "" {
				t.Fatalf("in %v: %s", enc, diff)
			}
		}
	})
}

// checkMemory checks that a message takes memory in proportion to its body.
func checkMemory(t *testing.T, m *EventMessage, body int) {
	const event, block, hash = 112, 16, 8
	size := cap(m.Events) * event
	for _, e := range m.Events {
		size += cap(e.Blocks)*block + cap(e.Removed)*hash + cap(e.Note)
	}
	if limit := 80*body + 1024; size > limit {
		t.Errorf("a body of %d bytes takes %d", body, size)
	}
}

// checkEvents checks what holds for every accepted message.
func checkEvents(t *testing.T, m *EventMessage) {
	if m.Snapshot == nil && m.BlockCount() > MaxEventBlocks {
		t.Errorf("%d blocks", m.BlockCount())
	}
	var check storeCheck
	for _, e := range m.Events {
		switch {
		case m.Snapshot != nil && (e.ID != 0 || e.Refusal != ""):
			t.Errorf("event %+v in a snapshot", e)
		case m.Snapshot == nil && m.Epoch != 0 && e.ID == 0:
			t.Errorf("event %+v has no id", e)
		case e.Refusal == "" && (e.Kind < EventStored || e.Kind > EventIgnored):
			t.Errorf("event %+v is of no kind", e)
		case e.Refusal != "" && e.Blocks != nil:
			t.Errorf("refused event %+v", e)
		case e.Kind == EventStored && check.malformed(&e):
			t.Errorf("malformed store %+v", e)
		}
	}
}

func FuzzDecodeRouteRequest(f *testing.F) {
	addBoth(f, exampleRequest,
		`{"block_hashes":[1,18446744073709551615,-1,"3"],"isl_tokens":64,"allowed_workers":[]}`,
		`{"block_hashes":[],"isl_tokens":3,"pinned":{"worker":"w"}}`,
		`{"token_ids":[1, 2 ,4294967295],"request_id":"\ud83d\ude00","x":{"y":[{}]}}`,
		`{"token_ids":[1.5]}`, `{"overrides":{"router_temperature":1e999}}`)
	for _, row := range readGolden[struct {
		Local  []decimal
		Tokens []uint32
	}](f, "hashes.jsonl") {
		for _, prompt := range []Prompt{{TokenIDs: row.Tokens}, {ByHash: true, BlockHashes: decimals[BlockHash](row.Local), ISLTokens: 1 + len(row.Tokens)}} {
			for _, enc := range []Encoding{EncodingJSON, EncodingMsgpack} {
				body, err := EncodeRouteRequest(&RouteRequest{Prompt: prompt}, enc)
				if err != nil {
					f.Fatal(err)
				}
				if len(body) < 512 {
					f.Add(body)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := DecodeRouteRequest(body)
		if err != nil {
			if e, ok := err.(*Error); !ok || e.Code != CodeInvalidRequest || q != nil {
				t.Fatalf("%v, %v", q, err)
			}
			return
		}
		if size := 4*cap(q.TokenIDs) + 8*cap(q.BlockHashes); size > 16*len(body)+64 {
			t.Errorf("a body of %d bytes takes %d", len(body), size)
		}
		if n := q.Tokens(); n < 1 || n > MaxTokens {
			t.Errorf("prompt of %d tokens", n)
		}
		for _, enc := range []Encoding{EncodingJSON, EncodingMsgpack} {
			written, err := EncodeRouteRequest(q, enc)
			if err != nil {
				t.Fatal(err)
			}
			again, err := DecodeRouteRequest(written)
			if err != nil {
				t.Fatalf("%q in %v: %v", written, enc, err)
			}
			if diff := cmp.Diff(q, again, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("in %v: %s", enc, diff)
			}
		}
	})
}
