package server_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/publisher"
	"github.com/routerd/routerd/pkg/server"
)

func TestRouteFollowsTheBlocks(t *testing.T) {
	s := start(t, nil)
	s.join(pool, "w1", nil)
	w2 := s.join(pool, "w2", nil)
	prompt := tokens(1, 8*blockSize+5)
	w2.holds(hashes(prompt)[:5])

	reply := route(t, s, &protocol.RouteRequest{RequestID: "r-1", Prompt: protocol.Prompt{TokenIDs: prompt}})
	lease, err := protocol.ParseLease(reply.Lease)
	check(t, err)
	if lease.Worker != (protocol.Worker{ID: "w2"}) || lease.PromptTokens != len(prompt) || lease.Blocks != 8 {
		t.Errorf("lease %+v", lease)
	}
	want := &protocol.RouteReply{
		RequestID: "r-1", Attempt: 1, Lease: reply.Lease, Worker: "w2", Endpoint: "http://w2:8000",
		Overlap: protocol.Overlap{Device: 5}, CachedTokens: 80, PrefillTokens: 53, ISLTokens: 133,
		Cost:  protocol.Cost{Policy: protocol.PolicyKV, PrefillBlocks: 53. / 16, DecodeBlocks: 8, Multiplier: 1, Total: 53./16 + 8},
		Trust: protocol.TrustExact, IndexSeq: reply.IndexSeq, Reason: protocol.ReasonLowestCost, Router: s.Token(),
		Candidates: []protocol.Candidate{},
	}
	if diff := cmp.Diff(want, reply, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("reply (-want +got):\n%s", diff)
	}
	status, err := s.client.Status(patient(t), pool, 0)
	check(t, err)
	if reply.IndexSeq == 0 || reply.IndexSeq != status[0].StreamSeqApplied {
		t.Errorf("index_seq is %d, applied %d", reply.IndexSeq, status[0].StreamSeqApplied)
	}

	byHash := route(t, s, &protocol.RouteRequest{Prompt: protocol.Prompt{BlockHashes: hashes(prompt), ISLTokens: len(prompt)}, QueryOnly: true})
	if byHash.Worker != "w2" || byHash.Overlap != want.Overlap || byHash.CachedTokens != 80 || byHash.Lease != "" {
		t.Errorf("by hashes, as a query: %+v", byHash)
	}
}

func TestOverlapRows(t *testing.T) {
	s := start(t, nil)
	w2 := s.join(pool, "w2", nil)
	w1 := s.join(pool, "w1", nil)
	prompt := tokens(1, 4*blockSize)
	w1.holds(hashes(prompt)[:1])
	w2.holds(hashes(prompt)[:3])
	w2.Stored(protocol.TierHost, true, 0, []protocol.Block{})
	reply, err := s.client.Overlap(patient(t), pool, &protocol.OverlapRequest{Prompt: protocol.Prompt{TokenIDs: prompt}})
	check(t, err)
	want := &protocol.OverlapReply{
		BlockSize: blockSize, Blocks: 4, IndexSeq: reply.IndexSeq,
		Workers: []protocol.WorkerOverlap{
			{Worker: "w1", Overlap: protocol.Overlap{Device: 1}, Trust: protocol.TrustExact},
			{Worker: "w2", Overlap: protocol.Overlap{Device: 3}, Trust: protocol.TrustExact},
		},
	}
	if diff := cmp.Diff(want, reply); diff != "" {
		t.Errorf("reply (-want +got):\n%s", diff)
	}
}

// The charge of a request, from its admission over its first token to its end.
func TestLeaseCharges(t *testing.T) {
	s := start(t, nil)
	s.join(pool, "w1", nil)
	prompt := tokens(1, 4*blockSize)
	charged := func(when string, prefill, blocks, requests int) {
		t.Helper()
		want := protocol.WorkerLoad{Worker: "w1", ActivePrefillTokens: prefill, ActiveDecodeBlocks: blocks, ActiveRequests: requests}
		if got := s.load(pool, "w1"); got != want {
			t.Errorf("%s: load %+v, want %+v", when, got, want)
		}
	}
	charged("before", 0, 0, 0)
	reply := route(t, s, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: prompt}})
	charged("admitted", 64, 4, 1)
	check(t, s.client.ReportProgress(patient(t), pool, &protocol.ProgressReport{Lease: reply.Lease, OutputTokens: 1}))
	charged("first token", 0, 4, 1)
	check(t, s.client.ReportComplete(patient(t), pool, &protocol.CompleteReport{Lease: reply.Lease}))
	charged("completed", 0, 0, 0)

	route(t, s, &protocol.RouteRequest{RequestID: "r-2", Prompt: protocol.Prompt{TokenIDs: prompt}})
	check(t, s.client.ReportComplete(patient(t), pool, &protocol.CompleteReport{RequestID: "r-2"}))
	charged("completed by request and attempt", 0, 0, 0)
	route(t, s, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: prompt}, QueryOnly: true})
	charged("queried", 0, 0, 0)
}

// A router gets a report twice, once to apply and once to answer. The answer must
// not come before the effect, whichever copy is first.
func TestAnsweredReportsAreApplied(t *testing.T) {
	s := start(t, nil)
	s.join(pool, "w1", nil)
	prompt := tokens(1, 4*blockSize)
	for range 300 {
		reply := route(t, s, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: prompt}})
		check(t, s.client.ReportProgress(patient(t), pool, &protocol.ProgressReport{Lease: reply.Lease, OutputTokens: 1}))
		if load := s.load(pool, "w1"); load.ActivePrefillTokens != 0 {
			t.Fatalf("after the answer to the first token: load %+v", load)
		}
		check(t, s.client.ReportComplete(patient(t), pool, &protocol.CompleteReport{Lease: reply.Lease}))
		if load := s.load(pool, "w1"); load.ActiveRequests != 0 {
			t.Fatalf("after the answer to the completion: load %+v", load)
		}
	}
}

// A report with a reply subject gets one answer, whatever the lease.
func TestReportsGetOneAnswer(t *testing.T) {
	s := start(t, nil)
	s.join(pool, "w1", nil)
	reply := route(t, s, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: tokens(1, 64)}})
	lease := protocol.Lease{ID: protocol.LeaseID{1}, Worker: protocol.Worker{ID: "w1"}, Attempt: 1, PromptTokens: 9}
	unknown := lease.String()
	msgpack, err := protocol.Marshal(protocol.ProgressReport{Lease: reply.Lease, OutputTokens: 3}, protocol.EncodingMsgpack)
	check(t, err)
	for _, test := range []struct {
		verb, body string
		code       protocol.Code
	}{
		{"progress", `{"lease":"` + reply.Lease + `","output_tokens":1}`, ""},
		{"progress", string(msgpack), ""},
		{"progress", `{"lease":"` + unknown + `","output_tokens":1}`, ""},
		{"progress", `{"lease":"nonsense"}`, ""},
		{"complete", `{"lease":"` + reply.Lease + `","cached_tokens":0,"error":""}`, ""},
		{"complete", `{"lease":"` + reply.Lease + `"}`, ""},
		{"complete", `{"request_id":"nobody","attempt":7}`, ""},
		{"complete", `{"lease":"` + unknown + `"}`, ""},
		{"progress", `{}`, protocol.CodeInvalidRequest},
		{"progress", `{"lease":17}`, protocol.CodeInvalidRequest},
		{"complete", `{"attempt":1}`, protocol.CodeInvalidRequest},
		{"complete", ``, protocol.CodeInvalidRequest},
	} {
		answers := s.answers(names.Lease(pool, test.verb), []byte(test.body))
		if len(answers) != 1 {
			t.Errorf("%s %s: %d answers, want 1", test.verb, test.body, len(answers))
			continue
		}
		if test.code != "" {
			if e := failure(t, answers[0]); e.Code != test.code {
				t.Errorf("%s %s: %v, want %s", test.verb, test.body, e, test.code)
			}
			continue
		}
		var ok map[string]any
		check(t, protocol.Unmarshal(answers[0].Data, &ok))
		if len(ok) != 1 || ok["ok"] != true {
			t.Errorf("%s %s: answer %v, want only ok", test.verb, test.body, ok)
		}
	}
	if load := s.load(pool, "w1"); load.ActiveRequests != 0 {
		t.Errorf("after all are completed: load %+v", load)
	}
}

// answers sends a report and collects what comes back before the answer to the
// next one.
func (s *system) answers(subject string, body []byte) []*nats.Msg {
	s.Helper()
	inbox := s.conn.NewInbox()
	sub, err := s.conn.SubscribeSync(inbox)
	check(s, err)
	defer func() { _ = sub.Unsubscribe() }()
	check(s, s.conn.PublishRequest(subject, inbox, body))
	first, err := sub.NextMsgWithContext(patient(s))
	check(s, err)
	got := []*nats.Msg{first}
	s.call(names.Lease(pool, "complete"), []byte(`{"request_id":"barrier"}`))
	for {
		queued, _, err := sub.Pending()
		check(s, err)
		if queued == 0 {
			return got
		}
		next, err := sub.NextMsgWithContext(patient(s))
		check(s, err)
		got = append(got, next)
	}
}

func TestCallsInBothEncodings(t *testing.T) {
	s := start(t, nil)
	w1 := s.join(pool, "w1", nil)
	prompt := tokens(1, 3*blockSize)
	w1.holds(hashes(prompt)[:2])
	request := &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: prompt}, QueryOnly: true, Explain: true}
	for _, enc := range []protocol.Encoding{protocol.EncodingJSON, protocol.EncodingMsgpack} {
		routeBody, err := protocol.EncodeRouteRequest(request, enc)
		check(t, err)
		overlapBody, err := protocol.EncodeOverlapRequest(&protocol.OverlapRequest{Prompt: request.Prompt}, enc)
		check(t, err)
		empty, err := protocol.Marshal(struct{}{}, enc)
		check(t, err)
		for verb, body := range map[string][]byte{
			protocol.VerbRoute: routeBody, protocol.VerbOverlap: overlapBody, protocol.VerbLoads: empty, protocol.VerbStatus: empty,
		} {
			for _, subject := range []string{names.Call(pool, verb), names.Call(pool, verb) + "." + s.Token()} {
				msg := s.call(subject, body)
				if isJSON(msg.Data) != (enc == protocol.EncodingJSON) {
					t.Errorf("%s: reply to encoding %v is %q", subject, enc, msg.Data)
				}
				var reply struct {
					Worker  string `json:"worker"`
					Workers []any  `json:"workers"`
					Ranks   []any  `json:"ranks"`
					Error   any    `json:"error"`
				}
				check(t, protocol.Unmarshal(msg.Data, &reply))
				if reply.Error != nil || reply.Worker != "w1" && len(reply.Workers)+len(reply.Ranks) != 1 {
					t.Errorf("%s: %+v", subject, reply)
				}
			}
		}
	}
	// An empty request is answered in JSON, which people read.
	for _, verb := range []string{protocol.VerbLoads, protocol.VerbStatus} {
		if msg := s.call(names.Call(pool, verb), nil); !json.Valid(msg.Data) {
			t.Errorf("%s: reply to an empty request is %q", verb, msg.Data)
		}
	}
}

func TestStatus(t *testing.T) {
	s := start(t, nil)
	s.join("another", "w1", nil)
	w1 := s.join(pool, "w1", nil)
	s.join(pool, "w2", func(c *publisher.Config) { c.NoEvents = true })
	w1.holds(hashes(tokens(1, 64)))
	before, err := w1.Flush(patient(t))
	check(t, err)
	held := w1.State()
	w1.holds(hashes(tokens(2, 64)))

	replies, err := s.client.Status(patient(t), pool, 0)
	check(t, err)
	if len(replies) != 1 {
		t.Fatalf("%d replies", len(replies))
	}
	reply := replies[0]
	if reply.Pool != pool || reply.Router != s.Token() || reply.Phase != protocol.PhaseRunning || reply.BlockSize != blockSize ||
		!slices.Contains(reply.Routers, s.Token()) || reply.StreamSeqApplied != reply.StreamSeqKnown || reply.More {
		t.Errorf("reply %+v", reply)
	}
	checksum := w1.State().Checksum
	want := []protocol.RankStatus{{
		Worker: "w1", Endpoint: "http://w1:8000", Trust: protocol.TrustExact, Events: true, Epoch: w1.Epoch(),
		LastID: 2, StreamSeq: reply.StreamSeqApplied, Blocks: 8, Checksum: &checksum,
		Refused: map[protocol.Refusal]uint64{},
	}, {
		Worker: "w2", Endpoint: "http://w2:8000", Trust: protocol.TrustOff, Refused: map[protocol.Refusal]uint64{},
	}}
	if diff := cmp.Diff(want, reply.Ranks); diff != "" {
		t.Errorf("ranks (-want +got):\n%s", diff)
	}
	var scopes []string
	for _, row := range reply.Scopes {
		scopes = append(scopes, row.Parent+">"+row.Name)
	}
	for _, scope := range []string{">process", "process>core", "process>intake", "core>pool " + pool} {
		if !slices.Contains(scopes, scope) {
			t.Errorf("scopes %v: no %s", scopes, scope)
		}
	}
	if slices.Contains(scopes, "core>pool another") {
		t.Errorf("scopes %v have those of another pool", scopes)
	}

	// As of a sequence, which is kept for a while.
	replies, err = s.client.Status(patient(t), pool, before)
	check(t, err)
	if row := replies[0].Ranks[0]; row.Checksum == nil || *row.Checksum != held.Checksum || row.LastID != 1 {
		t.Errorf("at %d: %+v, want checksum %d", before, row, held.Checksum)
	}
}

// Equal prompts share blocks under equal salts and adapters, and none under others.
func TestIsolation(t *testing.T) {
	s := start(t, nil)
	w1 := s.join(pool, "w1", nil)
	prompt := tokens(1, 4*blockSize)
	worlds := []struct{ lora, salt string }{{}, {lora: "sql"}, {salt: "tenant-a"}, {salt: "tenant-b"}, {lora: "sql", salt: "tenant-a"}, {lora: "tenant-a"}, {salt: "sql"}}
	ask := func(lora, salt string) int {
		t.Helper()
		reply := route(t, s, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: prompt, LoRA: lora, CacheSalt: salt}, QueryOnly: true})
		return reply.Overlap.Device
	}
	for i, world := range worlds {
		if got := ask(world.lora, world.salt); got != 0 {
			t.Errorf("%+v, held by nobody: overlap %d", world, got)
		}
		w1.holds(protocol.BlockHashes(nil, prompt, protocol.HashOptions{BlockSize: blockSize, LoRA: world.lora, Salt: world.salt}))
		for j, other := range worlds[:i+1] {
			if got := ask(other.lora, other.salt); got != 4 {
				t.Errorf("%+v, held since round %d: overlap %d, want 4", other, j, got)
			}
		}
	}
}

// Routers of two prefixes share a NATS server and nothing else.
func TestAnotherPrefix(t *testing.T) {
	one := start(t, listening)
	two := start(t, func(c *server.Config) { c.NATS, c.Prefix = one.ClientURL(), "kvtwo" })
	two.join(pool, "w1", nil)
	reply, err := two.client.Route(patient(t), pool, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: tokens(1, 20)}})
	check(t, err)
	if reply.Worker != "w1" || reply.Router != two.Token() {
		t.Errorf("reply %+v", reply)
	}
	if _, err := one.client.Loads(patient(t), pool); codeOf(err) != protocol.CodeUnknownPool {
		t.Errorf("the other prefix: %v, want unknown_pool", err)
	}
	_, err = two.jetStream().Stream(patient(t), "KVTWO_"+strings.TrimPrefix(names.Stream(pool), "KVR_"))
	check(t, err)
}
