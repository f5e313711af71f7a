package subscriber_test

import (
	"testing"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
)

func TestEventsReachIndex(t *testing.T) {
	srv := natstest.Start(t)
	r := start(t, srv, nil)
	r.enroll(w1, 42)
	r.awaitReady()
	e := newEngine(t, natstest.Connect(t, srv), w1, 42)
	for range 50 {
		e.store(3)
	}
	seq := e.send(&protocol.EventMessage{Events: []protocol.Event{e.evicting(20), e.storing(5)}})
	r.await(seq)
	e.check(r)
	if trust := r.Trust(w1); trust != protocol.TrustExact {
		t.Errorf("trust is %s", trust)
	}
	if row := r.row(w1); row.LastID != e.id || row.StreamSeq != seq || row.Epoch != 42 || *row.Checksum != e.state().Checksum {
		t.Errorf("row %+v", row)
	}
	if r.Known() != seq || r.Applied() != seq {
		t.Errorf("applied %d, known %d, want %d", r.Applied(), r.Known(), seq)
	}
}
