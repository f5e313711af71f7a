package protocol

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// checkGood decodes a body in both encodings, and what Marshal makes of the result.
func checkGood[T any](t *testing.T, decode func([]byte) (*T, error), body string, want T) {
	t.Helper()
	inBoth(t, body, func(t *testing.T, body []byte, enc Encoding) {
		got, err := decode(body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Error(diff)
		}
		again, err := Marshal(got, enc)
		if err != nil {
			t.Fatal(err)
		}
		if got, err = decode(again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("written again: %s", diff)
		}
	})
}

func TestDecodeStatusRequest(t *testing.T) {
	got, err := DecodeStatusRequest(nil)
	if err != nil || *got != (StatusRequest{}) {
		t.Errorf("empty body: %+v, %v", got, err)
	}
	checkGood(t, DecodeStatusRequest, `{}`, StatusRequest{})
	checkGood(t, DecodeStatusRequest, `{"after":{"worker":"w","rank":3},"at":9007199254740993}`, StatusRequest{After: &After{"w", 3}, At: 1<<53 + 1})
	checkGood(t, DecodeStatusRequest, `{"after":null,"at":null,"x":1}`, StatusRequest{})
	checkBad(t, DecodeStatusRequest, []badBody{
		{`[]`, "body: must be an object"},
		{`{"after":{}}`, "after.worker: is missing"},
		{`{"after":{"worker":"w","rank":65536}}`, "after.rank: must be 0 to 65535"},
		{`{"after":{"worker":""}}`, "after.worker: must not be empty"},
		{`{"after":"w"}`, "after: must be an object, not text"},
		{`{"at":1.5}`, "at: must be an integer of 64 bits"},
	})
	if after := (After{"w", 3}); after.Target() != (Worker{"w", 3}) {
		t.Errorf("target %v", after.Target())
	}
}

func TestDecodeProgress(t *testing.T) {
	checkGood(t, DecodeProgress, `{"lease":"l","request_id":"r","attempt":2,"output_tokens":17,"elapsed_ms":12.5}`,
		ProgressReport{Lease: "l", RequestID: "r", Attempt: 2, OutputTokens: 17, ElapsedMS: 12.5})
	checkGood(t, DecodeProgress, `{"lease":"l"}`, ProgressReport{Lease: "l", Attempt: 1})
	checkBad(t, DecodeProgress, []badBody{
		{`{}`, "lease: is missing"},
		{`{"request_id":"r","attempt":1}`, "lease: is missing"},
		{`{"lease":7}`, "lease: must be text, not a number"},
		{`{"lease":"` + strings.Repeat("x", 257) + `"}`, "lease: is 257 bytes long"},
		{`{"lease":"l","attempt":0}`, "attempt: must be 1 to 4294967295"},
		{`{"lease":"l","output_tokens":-1}`, "output_tokens: must be 0 to "},
		{`{"lease":"l","output_tokens":"3"}`, "output_tokens: must be a number, not text"},
		{`{"lease":"l","elapsed_ms":-1}`, "elapsed_ms: must be at least 0"},
		{`{"lease":"l","elapsed_ms":1e999}`, "elapsed_ms: must be finite"},
		{`{"lease":"l","request_id":[]}`, "request_id: must be text, not a list"},
	})
}

func TestDecodeComplete(t *testing.T) {
	checkGood(t, DecodeComplete, `{"lease":"l","request_id":"r","attempt":2,"cached_tokens":0,"error":"e"}`,
		CompleteReport{Lease: "l", RequestID: "r", Attempt: 2, CachedTokens: ptr(0), Error: "e"})
	checkGood(t, DecodeComplete, `{"lease":"l","cached_tokens":null}`, CompleteReport{Lease: "l", Attempt: 1})
	checkGood(t, DecodeComplete, `{"request_id":"r"}`, CompleteReport{RequestID: "r", Attempt: 1})
	checkBad(t, DecodeComplete, []badBody{
		{`{}`, "lease: is missing"},
		{`{"attempt":1}`, "lease: is missing"},
		{`{"lease":"l","cached_tokens":-1}`, "cached_tokens: must be 0 to "},
		{`{"lease":"l","attempt":-1}`, "attempt: must be 1 to 4294967295"},
		{`{"lease":"l","error":{}}`, "error: must be text, not an object"},
		{`{"lease":"l","error":"` + strings.Repeat("x", 257) + `"}`, "error: is 257 bytes long"},
	})
}

func TestDecodeQuery(t *testing.T) {
	checkGood(t, DecodeQuery, `{"v":1,"epoch":42,"from":18446744073709551615}`, Query{Version: 1, Epoch: 42, From: 1<<64 - 1})
	checkGood(t, DecodeQuery, `{"epoch":"42","from":null}`, Query{Version: 1, Epoch: 42})
	checkBad(t, DecodeQuery, []badBody{
		{`{"v":2}`, "v: must be 1"},
		{`{"epoch":1.5}`, "epoch: must be an integer of 64 bits"},
		{`{"from":[]}`, "from: must be a number, not a list"},
	})
}
