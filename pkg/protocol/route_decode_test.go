package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

const exampleRequest = `{"request_id":"r-1","attempt":2,"timeout_ms":1500,"token_ids":[1,2,3],
 "lora_name":"adapter-a","cache_salt":"tenant-a","expected_output_tokens":100,
 "priority":-5,"strict_priority":4294967295,"policy_class":"batch","session_id":"s-1",
 "pinned":{"worker":"w1","rank":0},"allowed_workers":["w1","w2"],"excluded_workers":["w3"],
 "required_taints":["zone-a"],"preferred_taints":{"zone-a":0.5,"slow":-2},
 "overrides":{"overlap_score_credit":1.0,"prefill_load_scale":2,"router_temperature":0.0,"assume_kv_reuse":false,
  "track_prefill_tokens":true,"shared_cache_multiplier":0.25},
 "query_only":true,"explain":true}`

func TestDecodeRouteRequest(t *testing.T) {
	tests := map[string]struct {
		body string
		want RouteRequest
	}{
		"everything": {exampleRequest, RouteRequest{
			RequestID: "r-1", Attempt: 2, TimeoutMS: 1500, Prompt: Prompt{TokenIDs: []uint32{1, 2, 3}, LoRA: "adapter-a", CacheSalt: "tenant-a"},
			ExpectedOutputTokens: 100, Priority: -5, StrictPriority: math.MaxUint32, PolicyClass: "batch", SessionID: "s-1",
			Pinned: &Pin{"w1", ptr(uint16(0))}, Allowed: &[]string{"w1", "w2"}, Excluded: []string{"w3"},
			RequiredTaints: []string{"zone-a"}, PreferredTaints: map[string]float64{"zone-a": 0.5, "slow": -2},
			Overrides: Overrides{ptr(1.0), ptr(2.0), ptr(0.0), ptr(false), ptr(true), ptr(0.25)}, QueryOnly: true, Explain: true,
		}},
		"tokens": {`{"token_ids":[0, 4294967295 ,10]}`, RouteRequest{Attempt: 1, Prompt: Prompt{TokenIDs: []uint32{0, math.MaxUint32, 10}}}},
		"hashes": {`{"block_hashes":[1,18446744073709551615,-1,"18446744073709551614",9007199254740993,9223372036854775808],"isl_tokens":100}`,
			RouteRequest{Attempt: 1, Prompt: Prompt{ByHash: true, ISLTokens: 100,
				BlockHashes: []BlockHash{1, math.MaxUint64, math.MaxUint64, math.MaxUint64 - 1, 1<<53 + 1, 1 << 63}}}},
		"shorter than a block": {`{"block_hashes":[],"isl_tokens":3}`, RouteRequest{Attempt: 1, Prompt: Prompt{ByHash: true, BlockHashes: []BlockHash{}, ISLTokens: 3}}},
		"null is absent": {`{"token_ids":[1],"block_hashes":null,"isl_tokens":null,"request_id":null,"attempt":null,"timeout_ms":null,"pinned":null,
			"allowed_workers":null,"excluded_workers":null,"preferred_taints":null,"overrides":null,"priority":null,"query_only":null,"lora_name":null}`,
			RouteRequest{Attempt: 1, Prompt: Prompt{TokenIDs: []uint32{1}}}},
		"null within":            {`{"token_ids":[1],"pinned":{"worker":"w","rank":null},"overrides":{"router_temperature":null}}`, RouteRequest{Attempt: 1, Prompt: Prompt{TokenIDs: []uint32{1}}, Pinned: &Pin{Worker: "w"}}},
		"nobody allowed":         {`{"token_ids":[1],"allowed_workers":[]}`, RouteRequest{Attempt: 1, Prompt: Prompt{TokenIDs: []uint32{1}}, Allowed: &[]string{}}},
		"unknown fields":         {`{"new":{"a":[1,{"b":null}]},"token_ids":[1],"x":[[]],"y":"z"}`, RouteRequest{Attempt: 1, Prompt: Prompt{TokenIDs: []uint32{1}}}},
		"the last of two counts": {`{"token_ids":[1,2],"token_ids":[3],"attempt":2,"attempt":3}`, RouteRequest{Attempt: 3, Prompt: Prompt{TokenIDs: []uint32{3}}}},
		"escapes":                {`{"token_ids":[1],"request\u005fid":"\u00e9\ud83d\ude00\n\"\/"}`, RouteRequest{Attempt: 1, RequestID: "é😀\n\"/", Prompt: Prompt{TokenIDs: []uint32{1}}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBoth(t, test.body, func(t *testing.T, body []byte, _ Encoding) {
				got, err := DecodeRouteRequest(body)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(&test.want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// badBody is a body and what the error has to begin with.
type badBody struct{ body, fault string }

func checkBad[T any](t *testing.T, decode func([]byte) (T, error), tests []badBody) {
	t.Helper()
	for _, test := range tests {
		inBoth(t, test.body, func(t *testing.T, body []byte, _ Encoding) {
			_, err := decode(body)
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeInvalidRequest || e.Retryable {
				t.Fatalf("%.200s: %v", test.body, err)
			}
			if !strings.HasPrefix(e.Message, test.fault) {
				t.Errorf("%.200s: message %q, want it to begin with %q", test.body, e.Message, test.fault)
			}
			if strings.ContainsAny(e.Message, "\r\n") || len(e.Message) > 512 {
				t.Errorf("%.200s: message %q is no header's value", test.body, e.Message)
			}
		})
	}
}

func TestBadPrompts(t *testing.T) {
	tests := []badBody{
		{`{}`, "token_ids: is missing"},
		{`{"isl_tokens":5}`, "token_ids: is missing"},
		{`{"token_ids":[]}`, "token_ids: must not be empty"},
		{`{"token_ids":[1],"block_hashes":[1],"isl_tokens":16}`, "block_hashes: must not be given together with token_ids"},
		{`{"token_ids":[],"block_hashes":[],"isl_tokens":16}`, "block_hashes: must not be given together with token_ids"},
		{`{"token_ids":[1],"isl_tokens":16}`, "isl_tokens: "},
		{`{"block_hashes":[1]}`, "isl_tokens: must be 1 to 1048576"},
		{`{"block_hashes":[],"isl_tokens":0}`, "isl_tokens: must be 1 to 1048576"},
		{`{"block_hashes":[],"isl_tokens":-1}`, "isl_tokens: must be 0 to 1048576"},
		{`{"block_hashes":[],"isl_tokens":1048577}`, "isl_tokens: must be 0 to 1048576"},
		{`{"token_ids":[1,2,3,4294967296]}`, "token_ids[3]: must be 0 to 4294967295"},
		{`{"token_ids":[1,2,3,4294967296,5]}`, "token_ids[3]: must be 0 to 4294967295"},
		{`{"token_ids":[1,-2]}`, "token_ids[1]: must be 0 to 4294967295"},
		{`{"token_ids":[1.5]}`, "token_ids[0]: must be 0 to 4294967295"},
		{`{"token_ids":[1,2e3,4]}`, "token_ids[1]: must be 0 to 4294967295"},
		{`{"token_ids":[18446744073709551616]}`, "token_ids[0]: must be 0 to 4294967295"},
		{`{"token_ids":[18446744073709551616,1]}`, "token_ids[0]: must be 0 to 4294967295"},
		{`{"token_ids":["1"]}`, "token_ids[0]: must be a number, not text"},
		{`{"token_ids":[1,null]}`, "token_ids[1]: must be a number, not null"},
		{`{"token_ids":[1,[2]]}`, "token_ids[1]: must be a number, not a list"},
		{`{"token_ids":"1"}`, "token_ids: must be a list, not text"},
		{`{"token_ids":{"0":1}}`, "token_ids: must be a list, not an object"},
		{`{"token_ids":5}`, "token_ids: must be a list, not a number"},
		{`{"token_ids":true}`, "token_ids: must be a list, not a boolean"},
		{`{"block_hashes":[1,2.5],"isl_tokens":32}`, "block_hashes[1]: must be an integer of 64 bits"},
		{`{"block_hashes":[18446744073709551616],"isl_tokens":32}`, "block_hashes[0]: must be an integer of 64 bits"},
		{`{"block_hashes":[99999999999999999999,1],"isl_tokens":32}`, "block_hashes[0]: must be an integer of 64 bits"},
		{`{"block_hashes":[-9223372036854775809],"isl_tokens":32}`, "block_hashes[0]: must be an integer of 64 bits"},
		{`{"block_hashes":["-1"],"isl_tokens":32}`, "block_hashes[0]: must be an integer of 64 bits"},
		{`{"block_hashes":[""],"isl_tokens":32}`, "block_hashes[0]: must be an integer of 64 bits"},
		{`{"block_hashes":["18446744073709551616"],"isl_tokens":32}`, "block_hashes[0]: must be an integer of 64 bits"},
		{`{"block_hashes":[true],"isl_tokens":32}`, "block_hashes[0]: must be a number, not a boolean"},
		{`{"token_ids":[1],"lora_name":7}`, "lora_name: must be text, not a number"},
		{`{"token_ids":[1],"cache_salt":"` + strings.Repeat("x", 257) + `"}`, "cache_salt: is 257 bytes long, at most 256"},
		{`[]`, "body: must be an object in JSON or msgpack, not a list"},
	}
	checkBad(t, DecodeRouteRequest, tests)
	checkBad(t, DecodeOverlapRequest, tests)
}

func TestBadRouteRequests(t *testing.T) {
	long := strings.Repeat("x", 257)
	list := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	taints := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"t%d":1`, i)
		}
		return b.String()[1:]
	}
	tests := []badBody{
		{`"request_id":7`, "request_id: must be text, not a number"},
		{`"request_id":"` + long + `"`, "request_id: is 257 bytes long"},
		{`"attempt":0`, "attempt: must be 1 to 4294967295"},
		{`"attempt":-1`, "attempt: must be 1 to 4294967295"},
		{`"attempt":4294967296`, "attempt: must be 1 to 4294967295"},
		{`"attempt":"1"`, "attempt: must be a number, not text"},
		{`"timeout_ms":-1`, "timeout_ms: must be 0 to "},
		{`"timeout_ms":9223372036855`, "timeout_ms: must be 0 to 9223372036854"},
		{`"expected_output_tokens":-1`, "expected_output_tokens: must be 0 to "},
		{`"priority":1.5`, "priority: must be -2147483648 to 2147483647"},
		{`"priority":2147483648`, "priority: must be -2147483648 to 2147483647"},
		{`"priority":-2147483649`, "priority: must be -2147483648 to 2147483647"},
		{`"priority":18446744073709551615`, "priority: must be -2147483648 to 2147483647"},
		{`"strict_priority":-1`, "strict_priority: must be 0 to 4294967295"},
		{`"policy_class":[]`, "policy_class: must be text, not a list"},
		{`"session_id":"` + long + `"`, "session_id: is 257 bytes long"},
		{`"pinned":"w1"`, "pinned: must be an object, not text"},
		{`"pinned":{}`, "pinned.worker: is missing"},
		{`"pinned":{"worker":""}`, "pinned.worker: must not be empty"},
		{`"pinned":{"worker":5}`, "pinned.worker: must be text, not a number"},
		{`"pinned":{"worker":"w","rank":65536}`, "pinned.rank: must be 0 to 65535"},
		{`"pinned":{"worker":"w","rank":-1}`, "pinned.rank: must be 0 to 65535"},
		{`"allowed_workers":"w1"`, "allowed_workers: must be a list, not text"},
		{`"allowed_workers":["w1",7]`, "allowed_workers[1]: must be text, not a number"},
		{`"allowed_workers":[""]`, "allowed_workers[0]: must not be empty"},
		{`"allowed_workers":["` + strings.Repeat("x", 129) + `"]`, "allowed_workers[0]: is 129 bytes long, at most 128"},
		{`"excluded_workers":["` + strings.Repeat(".", 100) + `"]`, "excluded_workers[0]: is 300 bytes long once escaped"},
		{`"excluded_workers":[` + list(4097, `"w"`) + `]`, "excluded_workers: has more than 4096 entries"},
		{`"required_taints":[` + list(65, `"t"`) + `]`, "required_taints: has more than 64 entries"},
		{`"required_taints":["` + long + `"]`, "required_taints[0]: is 257 bytes long"},
		{`"preferred_taints":["zone-a"]`, "preferred_taints: must be an object, not a list"},
		{`"preferred_taints":{"zone-a":"x"}`, "preferred_taints.zone-a: must be a number, not text"},
		{`"preferred_taints":{"zone-a":1e999}`, "preferred_taints.zone-a: must be finite"},
		{`"preferred_taints":{"a\nb":true}`, `preferred_taints."a\nb": must be a number, not a boolean`},
		{`"preferred_taints":{"` + long + `":1}`, `preferred_taints."xxx`},
		{`"preferred_taints":{` + taints(65) + `}`, "preferred_taints.t64: is one taint too many, at most 64"},
		{`"overrides":[]`, "overrides: must be an object, not a list"},
		{`"overrides":{"router_temperature":-1}`, "overrides.router_temperature: must be at least 0"},
		{`"overrides":{"overlap_score_credit":1e999}`, "overrides.overlap_score_credit: must be finite"},
		{`"overrides":{"prefill_load_scale":"1"}`, "overrides.prefill_load_scale: must be a number, not text"},
		{`"overrides":{"shared_cache_multiplier":-0.001}`, "overrides.shared_cache_multiplier: must be at least 0"},
		{`"overrides":{"assume_kv_reuse":1}`, "overrides.assume_kv_reuse: must be a boolean, not a number"},
		{`"overrides":{"track_prefill_tokens":"yes"}`, "overrides.track_prefill_tokens: must be a boolean, not text"},
		{`"query_only":1`, "query_only: must be a boolean, not a number"},
		{`"explain":"true"`, "explain: must be a boolean, not text"},
		{`"token_ids":[` + list(MaxTokens+1, "7") + `]`, "token_ids: has more than 1048576 entries"},
	}
	for i := range tests {
		tests[i].body = `{"token_ids":[1],` + tests[i].body + `}`
	}
	checkBad(t, DecodeRouteRequest, tests)
}

// TestMalformedRequests has bodies that are broken in one encoding.
func TestMalformedRequests(t *testing.T) {
	field := func(name string, value ...byte) []byte { return append(appendText([]byte{0x81}, name), value...) }
	nan := binary.BigEndian.AppendUint64([]byte{msgpackF64}, math.Float64bits(math.NaN()))
	for _, test := range []struct {
		body  []byte
		fault string
	}{
		{nil, "body: is not valid JSON at byte 0"},
		{[]byte("hello"), "body: must be an object in JSON or msgpack, not a number"},
		{[]byte(`{`), "body: is not valid JSON at byte 1"},
		{[]byte(`{"token_ids":[1,2}`), "token_ids"},
		{[]byte(`{"token_ids":[1,]}`), "token_ids"},
		{[]byte(`{"token_ids":[1,2,]}`), "token_ids"},
		{[]byte(`{"token_ids":[,1]}`), "token_ids[0]: is not valid JSON"},
		{[]byte(`{"token_ids":[01]}`), "token_ids[0]: is not valid JSON"},
		{[]byte(`{"token_ids":[01,2]}`), "token_ids[0]: is not valid JSON"},
		{[]byte(`{"token_ids":[1 2]}`), "token_ids"},
		{[]byte(`{"token_ids":[1.]}`), "token_ids[0]: is not valid JSON"},
		{[]byte(`{"token_ids":[1e]}`), "token_ids[0]: is not valid JSON"},
		{[]byte(`{"token_ids":[+1]}`), "token_ids[0]: is not valid JSON"},
		{[]byte(`{"token_ids":[-]}`), "token_ids[0]: is not valid JSON"},
		{[]byte(`{"token_ids":[NaN]}`), "token_ids[0]: is not valid JSON"},
		{[]byte(`{"token_ids":[1]} x`), "body: is not valid JSON at byte 18"},
		{[]byte(`{"token_ids":[1]}{}`), "body: goes on after its end, at byte 17"},
		{[]byte(`{"token_ids":[1],}`), "body: is not valid JSON"},
		{[]byte(`{token_ids:[1]}`), "body: is not valid JSON at byte 1"},
		{[]byte(`{"token_ids" [1]}`), "body: is not valid JSON"},
		{[]byte(`{"request_id":"\ud800"}`), "request_id: is not UTF-8 text"},
		{[]byte(`{"request_id":"\ud800\u0041"}`), "request_id: is not UTF-8 text"},
		{[]byte(`{"request_id":"\udc00"}`), "request_id: is not UTF-8 text"},
		{[]byte("{\"request_id\":\"\xff\"}"), "request_id: is not UTF-8 text"},
		{[]byte("{\"request_id\":\"a\nb\"}"), "request_id: is not valid JSON"},
		{[]byte(`{"request_id":"\x"}`), "request_id: is not valid JSON"},
		{[]byte(`{"request_id":"\u12"}`), "request_id: is not valid JSON"},
		{[]byte(`{"request_id":"\u00g0"}`), "request_id: is not valid JSON"},
		{[]byte(`{"request_id":"a`), "request_id: is not valid JSON"},
		{[]byte(`{"preferred_taints":{"\ud800":1}}`), `preferred_taints."\xed\xa0\x80": has a name that is not UTF-8 text`},
		{[]byte("{\"preferred_taints\":{\"\xff\":1}}"), `preferred_taints."\xff": has a name that is not UTF-8 text`},
		{[]byte(`{"x":` + strings.Repeat("[", 1<<20)), "x: is nested deeper than 64"},
		{bytesRepeat([]byte("\x81\xa1x"), "\x91", 1<<20), "x: is nested deeper than 64"},

		{field("token_ids", msgpackBin8, 5, 1, 2, 3, 4, 5), "token_ids: is 5 bytes long, not a multiple of 4"},
		{field("token_ids", msgpackBin8, 0), "token_ids: must not be empty"},
		{field("block_hashes", msgpackBin8, 4, 1, 2, 3, 4), "block_hashes: is 4 bytes long, not a multiple of 8"},
		{field("token_ids", msgpackBin8+2, 0xff, 0xff, 0xff, 0xff), "token_ids: is not valid msgpack"},
		{field("token_ids", msgpackArr32, 0xff, 0xff, 0xff, 0xff), "token_ids: is not valid msgpack"},
		{field("token_ids", msgpackArr16, 0, 3, 1, 2), "token_ids"},
		{field("token_ids", 0x93, 1, msgpackU16, 1), "token_ids"},
		{field("token_ids", 0x91, msgpackI64, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "token_ids[0]: must be 0 to 4294967295"},
		{field("request_id", msgpackStr32, 0xff, 0xff, 0xff, 0xff), "request_id: is not valid msgpack"},
		{field("request_id", msgpackBin8, 1, 'a'), "request_id: must be text, not bytes"},
		{field("request_id", msgpackFix1, 1, 1), "request_id: must be text, not an extension"},
		{field("request_id", 0xa1, 0xff), "request_id: is not UTF-8 text"},
		{field("request_id", 0xc1), "request_id: is not valid msgpack"},
		{field("overrides", field("router_temperature", nan...)...), "overrides.router_temperature: must be finite"},
		{field("preferred_taints", field("a", nan...)...), "preferred_taints.a: must be finite"},
		{[]byte{msgpackMap32, 0xff, 0xff, 0xff, 0xff}, "body: is not valid msgpack"},
		{append(field("token_ids", 0x91, 1), 0), "body: goes on after its end"},
	} {
		_, err := DecodeRouteRequest(test.body)
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeInvalidRequest || !strings.HasPrefix(e.Message, test.fault) {
			t.Errorf("%.60q: %v, want %q", test.body, err, test.fault)
		}
	}
}

func bytesRepeat(head []byte, s string, n int) []byte { return append(head, strings.Repeat(s, n)...) }

func TestPackedPrompt(t *testing.T) {
	tokens := &RouteRequest{Attempt: 1, Prompt: Prompt{TokenIDs: []uint32{0, 1, math.MaxUint32}}}
	hashes := &RouteRequest{Attempt: 1, Prompt: Prompt{ByHash: true, ISLTokens: 50, BlockHashes: []BlockHash{0, 1<<53 + 1, math.MaxUint64}}}
	none := &RouteRequest{Attempt: 1, Prompt: Prompt{ByHash: true, ISLTokens: 5, BlockHashes: []BlockHash{}}}
	for _, want := range []*RouteRequest{tokens, hashes, none} {
		for _, enc := range []Encoding{EncodingJSON, EncodingMsgpack} {
			body, err := EncodeRouteRequest(want, enc)
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeRouteRequest(body)
			if err != nil {
				t.Fatalf("%q: %v", body, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%v: %s", enc, diff)
			}
			overlap, err := EncodeOverlapRequest(&OverlapRequest{Prompt: want.Prompt, After: &After{"w", 3}}, enc)
			if err != nil {
				t.Fatal(err)
			}
			again, err := DecodeOverlapRequest(overlap)
			if err != nil {
				t.Fatalf("%q: %v", overlap, err)
			}
			if diff := cmp.Diff(&OverlapRequest{Prompt: want.Prompt, After: &After{"w", 3}}, again); diff != "" {
				t.Errorf("%v: %s", enc, diff)
			}
		}
	}
}

func TestEncodeRouteRequestKeepsTheRequest(t *testing.T) {
	want, err := DecodeRouteRequest([]byte(exampleRequest))
	if err != nil {
		t.Fatal(err)
	}
	for _, enc := range []Encoding{EncodingJSON, EncodingMsgpack} {
		body, err := EncodeRouteRequest(want, enc)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRouteRequest(body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: %s", enc, diff)
		}
	}
	if _, err := EncodeRouteRequest(&RouteRequest{Overrides: Overrides{Temperature: ptr(math.NaN())}}, EncodingJSON); err == nil {
		t.Error("a number that is not finite goes into JSON")
	}
}

func TestPromptCheck(t *testing.T) {
	tests := []struct {
		p     Prompt
		size  int
		eagle bool
		ok    bool
	}{
		{Prompt{ByHash: true, BlockHashes: make([]BlockHash, 2), ISLTokens: 33}, 16, false, true},
		{Prompt{ByHash: true, BlockHashes: make([]BlockHash, 2), ISLTokens: 32}, 16, false, true},
		{Prompt{ByHash: true, BlockHashes: make([]BlockHash, 2), ISLTokens: 31}, 16, false, false},
		{Prompt{ByHash: true, BlockHashes: make([]BlockHash, 2), ISLTokens: 48}, 16, false, false},
		{Prompt{ByHash: true, BlockHashes: make([]BlockHash, 2), ISLTokens: 32}, 16, true, false},
		{Prompt{ByHash: true, BlockHashes: make([]BlockHash, 2), ISLTokens: 33}, 16, true, true},
		{Prompt{ByHash: true, ISLTokens: 15}, 16, false, true},
		{Prompt{TokenIDs: make([]uint32, 5)}, 16, false, true},
	}
	for _, test := range tests {
		err := test.p.Check(test.size, test.eagle)
		if (err == nil) != test.ok {
			t.Errorf("%+v: %v", test, err)
		}
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Code != CodeInvalidRequest || !strings.HasPrefix(e.Message, "block_hashes: has 2 entries")) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
