package protocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const exampleRegistration = `{"v":1,"pool":"llama-3-8b","worker":"w1","rank":7,"model":"llama-3-8b","block_size":16,
 "endpoint":"http://10.0.0.7:8000","total_kv_blocks":16384,"max_num_batched_tokens":8192,
 "events":false,"eagle":true,"taints":["zone-a"],"attributes":{"latency.decode_scale":"2"},"drain":true,
 "epoch":42,"last_id":18446744073709551615,"stream_seq":9007199254740993,"checksum":9223372036854775808,"unsent":3}`

func TestDecodeRegistration(t *testing.T) {
	tests := []struct {
		body string
		want Registration
	}{
		{exampleRegistration, Registration{
			Version: 1, Pool: "llama-3-8b", Worker: "w1", Rank: 7, Model: "llama-3-8b", BlockSize: 16,
			Endpoint: "http://10.0.0.7:8000", TotalKVBlocks: 16384, MaxNumBatchedTokens: 8192,
			Eagle: true, Taints: []string{"zone-a"}, Attributes: map[string]string{"latency.decode_scale": "2"}, Drain: true,
			Epoch: ptr(Epoch(42)), LastID: 1<<64 - 1, StreamSeq: 1<<53 + 1, Checksum: ptr(uint64(1 << 63)), Unsent: 3,
		}},
		{`{"pool":"p","worker":"w","block_size":1}`, Registration{Version: 1, Pool: "p", Worker: "w", BlockSize: 1, Events: true}},
		{`{"pool":"p","worker":"w","block_size":65536,"events":null,"epoch":null,"checksum":null,"new":[{}]}`,
			Registration{Version: 1, Pool: "p", Worker: "w", BlockSize: 65536, Events: true}},
		{`{"pool":"p","worker":"w","block_size":16,"epoch":0,"checksum":0,"last_id":"5"}`,
			Registration{Version: 1, Pool: "p", Worker: "w", BlockSize: 16, Events: true, Epoch: ptr(Epoch(0)), Checksum: ptr(uint64(0)), LastID: 5}},
	}
	for _, test := range tests {
		inBoth(t, test.body, func(t *testing.T, body []byte, _ Encoding) {
			got, err := DecodeRegistration(body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Error(diff)
			}
		})
		for _, enc := range []Encoding{EncodingJSON, EncodingMsgpack} {
			body, err := Marshal(&test.want, enc)
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeRegistration(body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("written in %v: %s", enc, diff)
			}
		}
	}
	if got := (&Registration{Worker: "w", Rank: 3}).Target(); got != (Worker{"w", 3}) {
		t.Errorf("target %v", got)
	}
}

func TestBadRegistrations(t *testing.T) {
	attributes := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"a%d":""`, i)
		}
		return b.String()[1:]
	}
	tests := []badBody{
		{`{"worker":"w","block_size":16}`, "pool: is missing"},
		{`{"pool":null,"worker":"w","block_size":16}`, "pool: is missing"},
		{`{"pool":"p","block_size":16}`, "worker: is missing"},
		{`{"pool":"p","worker":"w"}`, "block_size: is missing"},
		{`{"pool":"","worker":"w","block_size":16}`, "pool: must not be empty"},
		{`{"pool":"` + strings.Repeat("p", 129) + `","worker":"w","block_size":16}`, "pool: is 129 bytes long"},
		{`{"pool":"p","worker":"` + strings.Repeat("/", 67) + `","block_size":16}`, "worker: is 201 bytes long once escaped"},
		{`{"pool":"p","worker":7,"block_size":16}`, "worker: must be text, not a number"},
		{`[]`, "body: must be an object in JSON or msgpack, not a list"},
	}
	for _, field := range []badBody{
		{`"v":2`, "v: must be 1"},
		{`"v":"1"`, "v: must be a number, not text"},
		{`"v":1.5`, "v: must be 1"},
		{`"rank":65536`, "rank: must be 0 to 65535"},
		{`"rank":-1`, "rank: must be 0 to 65535"},
		{`"block_size":0`, "block_size: must be 1 to 65536"},
		{`"block_size":65537`, "block_size: must be 1 to 65536"},
		{`"block_size":-16`, "block_size: must be 1 to 65536"},
		{`"block_size":"16"`, "block_size: must be a number, not text"},
		{`"model":1`, "model: must be text, not a number"},
		{`"endpoint":"` + strings.Repeat("x", 257) + `"`, "endpoint: is 257 bytes long"},
		{`"total_kv_blocks":-1`, "total_kv_blocks: must be 0 to "},
		{`"total_kv_blocks":18446744073709551615`, "total_kv_blocks: must be 0 to 9223372036854775807"},
		{`"max_num_batched_tokens":1.5`, "max_num_batched_tokens: must be 0 to "},
		{`"unsent":-1`, "unsent: must be 0 to "},
		{`"events":"no"`, "events: must be a boolean, not text"},
		{`"eagle":1`, "eagle: must be a boolean, not a number"},
		{`"drain":0`, "drain: must be a boolean, not a number"},
		{`"taints":"a"`, "taints: must be a list, not text"},
		{`"taints":[1]`, "taints[0]: must be text, not a number"},
		{`"taints":[` + strings.TrimSuffix(strings.Repeat(`"t",`, 65), ",") + `]`, "taints: has more than 64 entries"},
		{`"attributes":[]`, "attributes: must be an object, not a list"},
		{`"attributes":{"a":1}`, "attributes.a: must be text, not a number"},
		{`"attributes":{"a":"` + strings.Repeat("x", 257) + `"}`, "attributes.a: is 257 bytes long"},
		{`"attributes":{` + attributes(257) + `}`, "attributes.a256: is one attribute too many, at most 256"},
		{`"epoch":"x"`, "epoch: must be an integer of 64 bits"},
		{`"epoch":1.5`, "epoch: must be an integer of 64 bits"},
		{`"last_id":true`, "last_id: must be a number, not a boolean"},
		{`"stream_seq":[]`, "stream_seq: must be a number, not a list"},
		{`"checksum":18446744073709551616`, "checksum: must be an integer of 64 bits"},
	} {
		tests = append(tests, badBody{`{"pool":"p","worker":"w","block_size":16,` + field.body + `}`, field.fault})
	}
	checkBad(t, DecodeRegistration, tests)
}
