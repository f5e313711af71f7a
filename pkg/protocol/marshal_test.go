package protocol

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"
)

// replies has one of each reply, with integers that no float holds.
func replies() []any {
	const exact = 1<<53 + 1
	return []any{
		&RouteReply{
			RequestID: "r-1", Lease: "l", Attempt: 1, Worker: "w2", Endpoint: "http://10.0.0.8:8000", Overlap: Overlap{Device: 5},
			CachedTokens: 80, PrefillTokens: 48, ISLTokens: 128, Cost: Cost{Policy: PolicyKV, PrefillBlocks: 3, DecodeBlocks: 18, Multiplier: 1, Total: 21},
			Trust: TrustExact, IndexSeq: math.MaxUint64, Reason: ReasonLowestCost, Router: "r7",
			Candidates: []Candidate{{Worker: "w1", Trust: TrustStale, Why: "draining"}, {Worker: "w2", Rank: 1, Cost: &Cost{Total: 0.1}, Eligible: true}},
		},
		&OverlapReply{BlockSize: 16, Blocks: 8, IndexSeq: exact, Workers: []WorkerOverlap{{Worker: "w1", Rank: 3, Overlap: Overlap{1, 2, 3, 4}, Trust: TrustOff}}},
		&LoadsReply{Pool: "p", Router: "r", Workers: []WorkerLoad{{"w", 1, 2, 3, 4}}, Queues: []QueueLoad{{"c", 1, 2}}},
		&StatusReply{
			Pool: "p", Router: "r7", Routers: []string{"r7", "r8"}, Phase: PhaseRunning, BlockSize: 16, StreamSeqApplied: exact, StreamSeqKnown: 1 << 63,
			Ranks: []RankStatus{{Worker: "w", Epoch: exact, LastID: math.MaxUint64, Blocks: 1 << 63, Checksum: ptr(uint64(math.MaxUint64)),
				Refused: map[Refusal]uint64{RefusedDuplicate: exact}}},
			RosterRefused: map[string]uint64{"conflict": 1}, Scopes: []ScopeStatus{{"core", "", 3}}, More: true,
		},
		&QueryReply{Version: 1, Kind: QueryTooNew, Through: exact, StreamSeq: math.MaxUint64, Message: "m"},
		&ErrorReply{Errorf(CodeNoWorkers, "none of %d", 3)},
	}
}

func TestRepliesRoundTrip(t *testing.T) {
	for _, want := range replies() {
		for _, enc := range []Encoding{EncodingJSON, EncodingMsgpack} {
			body, err := Marshal(want, enc)
			if err != nil {
				t.Fatal(err)
			}
			if DetectEncoding(body) != enc {
				t.Errorf("%T in %v is taken for the other encoding", want, enc)
			}
			got := newOf(want)
			if err := Unmarshal(body, got); err != nil {
				t.Fatalf("%T: %v", want, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%T in %v: %s", want, enc, diff)
			}
		}
	}
}

func newOf(v any) any {
	switch v.(type) {
	case *RouteReply:
		return &RouteReply{}
	case *OverlapReply:
		return &OverlapReply{}
	case *LoadsReply:
		return &LoadsReply{}
	case *StatusReply:
		return &StatusReply{}
	case *QueryReply:
		return &QueryReply{}
	}
	return &ErrorReply{}
}

// TestSameFields checks that a body has the same fields in both encodings, left
// out or not.
func TestSameFields(t *testing.T) {
	values := append(replies(), &RouteReply{}, &StatusReply{}, &Registration{}, &RouteRequest{}, &OverlapRequest{}, &StatusRequest{},
		&ProgressReport{}, &CompleteReport{}, &Query{}, &RouteRequest{Allowed: &[]string{}, Pinned: &Pin{Worker: "w"}, Overrides: Overrides{Temperature: ptr(0.0)}})
	for _, v := range values {
		var inJSON, inMsgpack any
		body, err := Marshal(v, EncodingJSON)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(body, &inJSON); err != nil {
			t.Fatal(err)
		}
		if body, err = Marshal(v, EncodingMsgpack); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(appendTranscoded(nil, body, EncodingMsgpack, EncodingJSON), &inMsgpack); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(inJSON, inMsgpack); diff != "" {
			t.Errorf("%T: %s", v, diff)
		}
	}
}

func TestRepliesHaveNoNull(t *testing.T) {
	for _, v := range []any{&RouteReply{}, &OverlapReply{}, &LoadsReply{}, &StatusReply{Ranks: []RankStatus{{}}}, &StatusReply{}, &ErrorReply{Error: &Error{}}} {
		for _, enc := range []Encoding{EncodingJSON, EncodingMsgpack} {
			body, err := Marshal(v, enc)
			if err != nil {
				t.Fatal(err)
			}
			if text := appendTranscoded(nil, body, enc, EncodingJSON); bytes.Contains(text, []byte("null")) {
				t.Errorf("%T in %v: %s", v, enc, text)
			}
		}
	}
	if _, err := Marshal(&ErrorReply{}, EncodingJSON); err != nil {
		t.Error(err)
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	for _, body := range []string{
		"", "x", "{", `{"v":1}x`, `{"v":1}{}`, `{"through":1.5}`, "\xc1", "\x81\xa7message\xdb\xff\xff\xff\xff", "\x81\xa1x" + strings.Repeat("\x91", 1000) + "\x01",
		"\x81\xa7through\xa1x", "\x80\x80",
	} {
		if err := Unmarshal([]byte(body), &QueryReply{}); err == nil {
			t.Errorf("%.40q is accepted", body)
		}
	}
	// A claim of four thousand million workers costs nothing.
	hostile := append(appendText([]byte{0x81}, "workers"), msgpackArr32, 0xff, 0xff, 0xff, 0xff)
	if n := allocated(func() { _ = Unmarshal(hostile, &OverlapReply{}) }); n > 1<<16 {
		t.Errorf("%d bytes are allocated for %d", n, len(hostile))
	}
}

// TestMsgpackAgrees checks our reader and writer against the library.
func TestMsgpackAgrees(t *testing.T) {
	for _, v := range []any{
		nil, true, false, 0, 1, 127, 128, 255, 256, 65535, 65536, math.MaxUint32, math.MaxInt64, uint64(math.MaxUint64),
		-1, -32, -33, -128, -129, -32768, -32769, math.MinInt32, math.MinInt64, 1.5, float32(1.5), "", "a", strings.Repeat("x", 31), strings.Repeat("x", 32),
		strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 65536), []any{}, make([]int, 15), make([]int, 16), make([]int, 65536),
		map[string]any{}, map[string]any{"a": []any{1, "b", nil}},
	} {
		for _, compact := range []bool{false, true} {
			var buf bytes.Buffer
			e := msgpack.NewEncoder(&buf)
			e.UseCompactInts(compact)
			if err := e.Encode(v); err != nil {
				t.Fatal(err)
			}
			want, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if got := appendTranscoded(nil, buf.Bytes(), EncodingMsgpack, EncodingJSON); string(got) != string(want) {
				t.Errorf("%.40v is read as %.40s, want %.40s", v, got, want)
			}
			var back any
			d := msgpack.NewDecoder(bytes.NewReader(appendTranscoded(nil, want, EncodingJSON, EncodingMsgpack)))
			if back, err = d.DecodeInterface(); err != nil {
				t.Fatal(err)
			}
			if again, _ := json.Marshal(back); string(again) != string(want) {
				t.Errorf("%.40v is written as %.40s", v, again)
			}
		}
	}
	keys := map[string]int{}
	for i := range 70000 {
		keys[strings.Repeat("k", i%40)+string(rune('A'+i%26))+strings.Repeat("z", i/1000)] = i
	}
	body, err := Marshal(keys, EncodingMsgpack)
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(body)
	n := 0
	r.object(func([]byte) { n++ })
	if err := r.finish(); err != nil || n != len(keys) {
		t.Errorf("%d keys of %d, %v", n, len(keys), err)
	}
}
