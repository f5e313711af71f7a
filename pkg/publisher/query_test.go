package publisher

import (
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// ask sends a query as a router does.
func (h *harness) ask(q protocol.Query, enc protocol.Encoding) protocol.QueryReply {
	h.Helper()
	q.Version = 1
	body, err := protocol.Marshal(q, enc)
	h.check(err)
	return h.askRaw(body)
}

func (h *harness) askRaw(body []byte) (reply protocol.QueryReply) {
	h.Helper()
	msg, err := h.conn.Request(testNames.Query(testPool, testWorker), body, 5*time.Second)
	if err != nil {
		h.Error(err)
		return reply
	}
	if got, want := protocol.DetectEncoding(msg.Data), protocol.DetectEncoding(body); got != want {
		h.Errorf("reply is encoded as %v, the query as %v", got, want)
	}
	if err := protocol.Unmarshal(msg.Data, &reply); err != nil {
		h.Error(err)
	}
	return reply
}

func TestQueries(t *testing.T) {
	h := newLog(t)
	p := h.start(h.config()).isReady()
	for i := range protocol.SequenceHash(20) {
		p.store(i + 1)
		p.flush()
	}
	before := p.flush()
	for _, enc := range []protocol.Encoding{protocol.EncodingJSON, protocol.EncodingMsgpack} {
		for _, tt := range []struct {
			q    protocol.Query
			want protocol.QueryKind
		}{
			{protocol.Query{Epoch: p.Epoch() - 1}, protocol.QueryWrongEpoch},
			{protocol.Query{Epoch: p.Epoch() + 1, From: 3}, protocol.QueryWrongEpoch},
			{protocol.Query{Epoch: p.Epoch(), From: 21}, protocol.QueryTooNew},
		} {
			if got := h.ask(tt.q, enc); got.Kind != tt.want || got.Version != 1 || got.Message == "" {
				t.Errorf("%+v is answered %+v, want %s", tt.q, got, tt.want)
			}
		}
	}
	if got := h.askRaw([]byte("{")); got.Kind != protocol.QueryError {
		t.Errorf("a malformed query is answered %+v", got)
	}
	if seq := p.flush(); seq != before {
		t.Errorf("refusals put something into the log: sequence %d after %d", seq, before)
	}

	events := h.ask(protocol.Query{Epoch: p.Epoch(), From: 11}, protocol.EncodingJSON)
	if events.Kind != protocol.QueryEvents || events.Through != 20 || events.StreamSeq <= before {
		t.Errorf("reply = %+v, want events through 20 behind sequence %d", events, before)
	}
	got := p.isInLog()
	if last := got.messages[len(got.messages)-1]; last.seq != events.StreamSeq || got.repeated != 10 {
		t.Errorf("log ends at %d with %d repeated events, want %d with 10", last.seq, got.repeated, events.StreamSeq)
	}

	snapshot := h.ask(protocol.Query{Epoch: p.Epoch()}, protocol.EncodingMsgpack)
	if snapshot.Kind != protocol.QuerySnapshot || snapshot.Through != 20 || snapshot.StreamSeq <= events.StreamSeq {
		t.Errorf("reply = %+v, want a snapshot through 20 behind sequence %d", snapshot, events.StreamSeq)
	}
	if got := p.isInLog(); got.snapshots != 2 {
		t.Errorf("%d snapshots in the log, want 2", got.snapshots)
	}
	if s := p.Stats(); s.Queries != 9 {
		t.Errorf("%d queries were counted, want 9", s.Queries)
	}
}

func TestTheSameHoleIsAnsweredOnce(t *testing.T) {
	h := newLog(t)
	p := h.start(h.config()).isReady()
	p.work(random(t), 200)
	before := p.flush()
	for _, q := range []protocol.Query{{Epoch: p.Epoch(), From: 5}, {Epoch: p.Epoch()}} {
		replies := make([]protocol.QueryReply, 10)
		var group sync.WaitGroup
		for i := range replies {
			group.Go(func() { replies[i] = h.ask(q, protocol.EncodingJSON) })
		}
		group.Wait()
		replies = append(replies, h.ask(q, protocol.EncodingJSON))
		for _, r := range replies {
			if r != replies[0] || r.StreamSeq <= before {
				t.Errorf("replies %+v and %+v to one question, want one behind sequence %d", replies[0], r, before)
			}
		}
		before = p.flush()
	}
	if got := p.isInLog(); got.snapshots != 2 {
		t.Errorf("%d snapshots in the log, want 2", got.snapshots)
	}
}

func TestHoleThatIsNoLongerKept(t *testing.T) {
	h := newLog(t)
	p := h.start(h.config()).isReady()
	all := chains(600, 64)
	for _, chain := range all {
		p.Stored(device, true, 0, chain)
		p.flush()
	}
	p.mu.Lock()
	first, weight := p.out.ring.first, p.out.ring.weight
	p.mu.Unlock()
	if weight > recentWeight || first <= 1 {
		t.Errorf("events from %d of weight %d are kept, at most %d are allowed", first, weight, recentWeight)
	}
	if got := h.ask(protocol.Query{Epoch: p.Epoch(), From: first - 1}, protocol.EncodingJSON); got.Kind != protocol.QuerySnapshot {
		t.Errorf("reply = %+v, want a snapshot", got)
	}
	if got := h.ask(protocol.Query{Epoch: p.Epoch(), From: first}, protocol.EncodingJSON); got.Kind != protocol.QueryEvents {
		t.Errorf("reply = %+v, want events", got)
	}
	p.isInLog()
}

func TestQueriesUnderLoad(t *testing.T) {
	h := newLog(t)
	p := h.start(h.config()).isReady()
	p.underLoad(t, func() {
		for from := range protocol.EventID(40) {
			q := protocol.Query{Epoch: p.Epoch(), From: from * from}
			switch got := h.ask(q, protocol.EncodingMsgpack); got.Kind {
			case protocol.QueryEvents, protocol.QuerySnapshot:
				if got.StreamSeq == 0 || got.Through < q.From {
					t.Errorf("%+v is answered %+v", q, got)
				}
			case protocol.QueryTooNew:
			default:
				t.Errorf("%+v is answered %+v", q, got)
			}
		}
	})
	p.isInLog()
}
