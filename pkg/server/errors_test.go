package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/routerd/routerd/pkg/client"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/publisher"
)

// badCalls are bodies that a router refuses, with what its message must name.
// They are for a pool of block size 16 with workers w1 (one rank), w2 (two ranks)
// and w3, which drains.
var badCalls = []struct {
	name, verb, body string
	code             protocol.Code
	names            string
}{
	{"empty body", "route", ``, protocol.CodeInvalidRequest, "body"},
	{"no prompt", "route", `{}`, protocol.CodeInvalidRequest, "token_ids"},
	{"empty prompt", "route", `{"token_ids":[]}`, protocol.CodeInvalidRequest, "token_ids"},
	{"both forms", "route", `{"token_ids":[1],"block_hashes":[],"isl_tokens":1}`, protocol.CodeInvalidRequest, "block_hashes"},
	{"hashes without length", "route", `{"block_hashes":[]}`, protocol.CodeInvalidRequest, "isl_tokens"},
	{"length without hashes", "route", `{"isl_tokens":5}`, protocol.CodeInvalidRequest, "token_ids"},
	{"too many hashes", "route", `{"block_hashes":[1,2],"isl_tokens":31}`, protocol.CodeInvalidRequest, "block_hashes"},
	{"too few hashes", "route", `{"block_hashes":[1],"isl_tokens":32}`, protocol.CodeInvalidRequest, "block_hashes"},
	{"too long by hashes", "route", `{"block_hashes":[],"isl_tokens":1048577}`, protocol.CodeInvalidRequest, "isl_tokens"},
	{"negative token", "route", `{"token_ids":[1,-2]}`, protocol.CodeInvalidRequest, "token_ids[1]"},
	{"token too large", "route", `{"token_ids":[4294967296]}`, protocol.CodeInvalidRequest, "token_ids[0]"},
	{"token of 1.5", "route", `{"token_ids":[1,2,1.5]}`, protocol.CodeInvalidRequest, "token_ids[2]"},
	{"token is text", "route", `{"token_ids":["a"]}`, protocol.CodeInvalidRequest, "token_ids[0]"},
	{"tokens are text", "route", `{"token_ids":"1,2"}`, protocol.CodeInvalidRequest, "token_ids"},
	{"hash is no number", "route", `{"block_hashes":[{}],"isl_tokens":16}`, protocol.CodeInvalidRequest, "block_hashes[0]"},
	{"negative timeout", "route", `{"token_ids":[1],"timeout_ms":-1}`, protocol.CodeInvalidRequest, "timeout_ms"},
	{"attempt 0", "route", `{"token_ids":[1],"attempt":0}`, protocol.CodeInvalidRequest, "attempt"},
	{"negative output", "route", `{"token_ids":[1],"expected_output_tokens":-7}`, protocol.CodeInvalidRequest, "expected_output_tokens"},
	{"long text", "route", `{"token_ids":[1],"request_id":"` + strings.Repeat("x", 257) + `"}`, protocol.CodeInvalidRequest, "request_id"},
	{"huge text", "route", `{"token_ids":[1],"lora_name":"` + strings.Repeat("x", 900_000) + `"}`, protocol.CodeInvalidRequest, "lora_name"},
	{"text is a number", "route", `{"token_ids":[1],"cache_salt":5}`, protocol.CodeInvalidRequest, "cache_salt"},
	{"list is text", "route", `{"token_ids":[1],"excluded_workers":"w1"}`, protocol.CodeInvalidRequest, "excluded_workers"},
	{"entry is a number", "route", `{"token_ids":[1],"excluded_workers":["w1",2]}`, protocol.CodeInvalidRequest, "excluded_workers[1]"},
	{"long list", "route", `{"token_ids":[1],"allowed_workers":["w"` + strings.Repeat(`,"w"`, 4096) + `]}`, protocol.CodeInvalidRequest, "allowed_workers"},
	{"query_only is text", "route", `{"token_ids":[1],"query_only":"yes"}`, protocol.CodeInvalidRequest, "query_only"},
	{"negative override", "route", `{"token_ids":[1],"overrides":{"router_temperature":-1}}`, protocol.CodeInvalidRequest, "overrides.router_temperature"},
	{"infinite override", "route", `{"token_ids":[1],"overrides":{"overlap_score_credit":1e999}}`, protocol.CodeInvalidRequest, "overrides.overlap_score_credit"},
	{"override is text", "route", `{"token_ids":[1],"overrides":{"prefill_load_scale":"2"}}`, protocol.CodeInvalidRequest, "overrides.prefill_load_scale"},
	{"weight is text", "route", `{"token_ids":[1],"preferred_taints":{"a":"b"}}`, protocol.CodeInvalidRequest, "preferred_taints.a"},
	{"pin without worker", "route", `{"token_ids":[1],"pinned":{"rank":0}}`, protocol.CodeInvalidRequest, "pinned.worker"},
	{"pin with rank -1", "route", `{"token_ids":[1],"pinned":{"worker":"w1","rank":-1}}`, protocol.CodeInvalidRequest, "pinned.rank"},
	{"pin without rank of two", "route", `{"token_ids":[1],"pinned":{"worker":"w2"}}`, protocol.CodeInvalidRequest, "pinned.rank"},
	{"truncated", "route", `{"token_ids":[1,2`, protocol.CodeInvalidRequest, "token_ids"},
	{"goes on", "route", `{"token_ids":[1]} {}`, protocol.CodeInvalidRequest, "body"},
	{"a list", "route", `[1,2]`, protocol.CodeInvalidRequest, "body"},
	{"deep nesting", "route", `{"x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, protocol.CodeInvalidRequest, "x"},
	{"msgpack of nothing", "route", "\xc1", protocol.CodeInvalidRequest, "body"},
	{"msgpack that claims 4 billion", "route", "\x81\xa9token_ids\xdd\xff\xff\xff\xff", protocol.CodeInvalidRequest, "token_ids"},
	{"msgpack bin of 3 bytes", "route", "\x81\xa9token_ids\xc4\x03abc", protocol.CodeInvalidRequest, "token_ids"},
	{"pinned unknown", "route", `{"token_ids":[1],"pinned":{"worker":"w9"}}`, protocol.CodeNoWorkers, "w9"},
	{"pinned unknown rank", "route", `{"token_ids":[1],"pinned":{"worker":"w1","rank":3}}`, protocol.CodeNoWorkers, "rank 3"},
	{"pinned drains", "route", `{"token_ids":[1],"pinned":{"worker":"w3"}}`, protocol.CodeNoWorkers, "draining"},
	{"pinned excluded", "route", `{"token_ids":[1],"pinned":{"worker":"w1"},"excluded_workers":["w1"]}`, protocol.CodePinnedNotAllowed, "w1"},
	{"pinned not allowed", "route", `{"token_ids":[1],"pinned":{"worker":"w1"},"allowed_workers":["w2"]}`, protocol.CodePinnedNotAllowed, "w1"},
	{"none allowed", "route", `{"token_ids":[1],"allowed_workers":[]}`, protocol.CodeNoWorkers, "not_allowed"},
	{"none has the taint", "route", `{"token_ids":[1],"required_taints":["gold"]}`, protocol.CodeNoWorkers, "required_taints"},
	{"overlap of nothing", "overlap", `{"token_ids":[]}`, protocol.CodeInvalidRequest, "token_ids"},
	{"overlap of wrong hashes", "overlap", `{"block_hashes":[1,2,3],"isl_tokens":16}`, protocol.CodeInvalidRequest, "block_hashes"},
	{"overlap after nobody", "overlap", `{"token_ids":[1],"after":{}}`, protocol.CodeInvalidRequest, "after.worker"},
	{"status of text", "status", `"all"`, protocol.CodeInvalidRequest, "body"},
	{"status at text", "status", `{"at":"now"}`, protocol.CodeInvalidRequest, "at"},
}

func TestBadCalls(t *testing.T) {
	s := start(t, nil)
	s.join(pool, "w1", nil)
	s.join(pool, "w2", nil)
	s.join(pool, "w2", func(c *publisher.Config) { c.Registration.Rank = 1 })
	s.join(pool, "w3", func(c *publisher.Config) { c.Registration.Drain = true })
	bad := func(name, verb string, body []byte, code protocol.Code, field string) {
		t.Run(name, func(t *testing.T) {
			e := failure(t, s.call(names.Call(pool, verb), body))
			if e.Code != code || !strings.Contains(e.Message, field) {
				t.Errorf("error is %v, want %s that names %q", e, code, field)
			}
			if len(e.Message) > 1000 {
				t.Errorf("message has %d bytes", len(e.Message))
			}
			if reply := s.call(names.Call(pool, "route"), []byte(`{"token_ids":[1,2,3],"query_only":true}`)); reply.Header.Get(protocol.HeaderErrorCode) != "" {
				t.Errorf("the next call: %s", reply.Data)
			}
		})
	}
	for _, c := range badCalls {
		bad(c.name, c.verb, []byte(c.body), c.code, c.names)
	}
	// What JSON has no way to write, or not in a message's size.
	for name, v := range map[string]float64{"NaN": math.NaN(), "infinity": math.Inf(1)} {
		body, err := msgpack.Marshal(map[string]any{"token_ids": []uint32{1}, "overrides": map[string]any{"router_temperature": v}})
		check(t, err)
		bad("msgpack "+name, "route", body, protocol.CodeInvalidRequest, "overrides.router_temperature")
	}
	tooMany, err := msgpack.Marshal(map[string]any{"isl_tokens": 1 << 20, "block_hashes": make([]byte, 8*(1<<16-1))})
	check(t, err)
	bad("msgpack one hash short", "route", tooMany, protocol.CodeInvalidRequest, "block_hashes")
	many := append([]byte(`{"token_ids":[`), bytes.Repeat([]byte("1,"), 480_000)...)
	bad("a million bytes, truncated", "route", many, protocol.CodeInvalidRequest, "token_ids")

	loads, err := s.client.Loads(patient(t), pool)
	check(t, err)
	for _, row := range loads.Workers {
		if row.ActiveRequests != 0 {
			t.Errorf("refused calls are charged: %+v", row)
		}
	}
}

func TestTooManyTokens(t *testing.T) {
	s := start(t, nil)
	s.join(pool, "w1", nil)
	_, err := s.Route(patient(t), pool, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: make([]uint32, 1<<18)}, QueryOnly: true})
	check(t, err)
	// 2^20+1 tokens as JSON exceed the message size of the server, which the client
	// gets round by hashing; then the length is what is refused.
	_, err = s.client.Route(patient(t), pool, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: make([]uint32, 1<<20+1)}})
	if codeOf(err) != protocol.CodeInvalidRequest || !strings.Contains(err.Error(), "isl_tokens") {
		t.Errorf("error is %v, want invalid_request that names isl_tokens", err)
	}
	reply, err := s.client.Route(patient(t), pool, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: make([]uint32, 1<<20)}})
	check(t, err)
	if reply.ISLTokens != 1<<20 {
		t.Errorf("reply has isl_tokens %d", reply.ISLTokens)
	}
}

func TestPoolNames(t *testing.T) {
	s := start(t, nil)
	for _, test := range []struct {
		token string
		code  protocol.Code
	}{
		{"nobody", protocol.CodeUnknownPool},
		{"=2F", protocol.CodeUnknownPool},
		{"=2f", protocol.CodeInvalidName},
		{"=ZZ", protocol.CodeInvalidName},
		{"=", protocol.CodeInvalidName},
		{"=FF", protocol.CodeInvalidName},
		{"a+b", protocol.CodeInvalidName},
		{strings.Repeat("x", 128), protocol.CodeUnknownPool},
		{strings.Repeat("x", 129), protocol.CodeInvalidName},
		{strings.Repeat("=2F", 67), protocol.CodeInvalidName},
	} {
		for _, rest := range []string{"route", "overlap", "loads", "status", "route." + s.Token(), "lease.progress", "lease.complete"} {
			body := []byte(`{"token_ids":[1]}`)
			switch rest {
			case "loads", "status":
				body = nil
			case "lease.progress", "lease.complete":
				body = []byte(`{"lease":"x"}`)
			}
			if e := failure(t, s.call("kvr."+test.token+"."+rest, body)); e.Code != test.code {
				t.Errorf("pool %q, %s: %v, want %s", test.token, rest, e, test.code)
			}
		}
	}
}

func TestDuplicateRequest(t *testing.T) {
	s := start(t, nil)
	s.join(pool, "w1", nil)
	request := func(attempt int) error {
		body := fmt.Appendf(nil, `{"request_id":"r","attempt":%d,"token_ids":[1,2,3]}`, attempt)
		msg := s.call(names.Call(pool, "route"), body)
		if msg.Header.Get(protocol.HeaderErrorCode) == "" {
			return nil
		}
		return failure(t, msg)
	}
	check(t, request(2))
	for _, attempt := range []int{2, 1} {
		if err := request(attempt); codeOf(err) != protocol.CodeDuplicateRequest {
			t.Errorf("attempt %d after 2: %v, want duplicate_request", attempt, err)
		}
	}
	check(t, request(3))
	if load := s.load(pool, "w1"); load.ActiveRequests != 1 {
		t.Errorf("attempt 3 has not ended attempt 2: %+v", load)
	}
}

// A call without a reply subject is decided like another, and nobody is told.
func TestCallWithoutReply(t *testing.T) {
	s := start(t, nil)
	s.join(pool, "w1", nil)
	check(t, s.conn.Publish(names.Call(pool, "route"), []byte(`{"token_ids":[1,`)))
	check(t, s.conn.Publish("kvr.=zz.route", nil))
	check(t, s.conn.Publish(names.Call(pool, "route"), []byte(`{"request_id":"r","token_ids":[1]}`)))
	eventually(t, "the call to be admitted", func() bool { return s.load(pool, "w1").ActiveRequests == 1 })
}

// After its timeout a call is neither admitted nor answered.
func TestCallTimesOut(t *testing.T) {
	s := start(t, nil)
	s.join(pool, "w1", nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Route(ctx, pool, &protocol.RouteRequest{RequestID: "r", Prompt: protocol.Prompt{TokenIDs: []uint32{1}}}); err == nil || codeOf(err) != "" {
		t.Errorf("error is %v, want the context's", err)
	}
	if load := s.load(pool, "w1"); load.ActiveRequests != 0 {
		t.Errorf("load %+v", load)
	}
	// The client that gives up withdraws what it asked for.
	slow, err := client.New(client.Config{Conn: s.conn})
	check(t, err)
	if _, err := slow.Route(ctx, pool, &protocol.RouteRequest{RequestID: "r", Prompt: protocol.Prompt{TokenIDs: []uint32{1}}}); err == nil {
		t.Error("route with an ended context succeeds")
	}
	eventually(t, "nothing to be charged", func() bool { return s.load(pool, "w1").ActiveRequests == 0 })
}

// Errors are the same in both encodings.
func TestErrorEncodings(t *testing.T) {
	s := start(t, nil)
	texts := map[string]bool{}
	for _, enc := range []protocol.Encoding{protocol.EncodingJSON, protocol.EncodingMsgpack} {
		body, err := protocol.EncodeRouteRequest(&protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: []uint32{1}}}, enc)
		check(t, err)
		msg := s.call(names.Call("nobody", "route"), body)
		if json.Valid(msg.Data) != (enc == protocol.EncodingJSON) {
			t.Errorf("encoding %v: reply %q", enc, msg.Data)
		}
		texts[failure(t, msg).Message] = true
	}
	if len(texts) != 1 {
		t.Errorf("messages differ: %v", texts)
	}
	// What is written into a header stays one line of it.
	msg := s.call("kvr.nobody.route", []byte("{\"token_ids\":[1],\"a\\r\\nNats-Service-Error-Code: 200\":{\"x\":}}"))
	if got := failure(t, msg); got.Code != protocol.CodeInvalidRequest {
		t.Errorf("error is %v", got)
	}
	if len(msg.Header) != 2 {
		t.Errorf("headers %v", msg.Header)
	}
}

// Whatever arrives is answered, and the router goes on.
func TestRandomBodies(t *testing.T) {
	s := start(t, nil)
	s.join(pool, "w1", nil)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var seeds [][]byte
	for _, c := range badCalls {
		if len(c.body) < 1000 {
			seeds = append(seeds, []byte(c.body))
		}
	}
	for _, enc := range []protocol.Encoding{protocol.EncodingJSON, protocol.EncodingMsgpack} {
		body, err := protocol.EncodeRouteRequest(&protocol.RouteRequest{
			RequestID: "r", Prompt: protocol.Prompt{TokenIDs: tokens(1, 40), LoRA: "a"}, Pinned: &protocol.Pin{Worker: "w1"},
			Allowed: &[]string{"w1"}, PreferredTaints: map[string]float64{"a": 1}, Explain: true,
		}, enc)
		check(t, err)
		seeds = append(seeds, body, body, body)
	}
	for i := range 2000 {
		body := bytes.Clone(seeds[random.IntN(len(seeds))])
		for range 1 + random.IntN(4) {
			at := random.IntN(len(body) + 1)
			switch random.IntN(4) {
			case 0:
				body = body[:at]
			case 1:
				body = slices.Insert(body, at, byte(random.IntN(256)))
			case 2:
				if at < len(body) {
					body[at] = byte(random.IntN(256))
				}
			case 3:
				body = append(body, body[at:]...)
			}
		}
		rest := []string{"route", "overlap", "loads", "status", "lease.progress", "lease.complete"}[random.IntN(6)]
		msg := s.call("kvr."+protocol.Escape(pool)+"."+rest, body)
		if msg.Header.Get(protocol.HeaderErrorCode) != "" {
			if e := failure(t, msg); e.Code == protocol.CodeInternal {
				t.Errorf("round %d, %s %q: %v", i, rest, body, e)
			}
		}
	}
	if reply := route(t, s, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: tokens(1, 40)}}); reply.Worker != "w1" {
		t.Errorf("reply %+v", reply)
	}
}
