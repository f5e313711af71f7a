package subscriber_test

import (
	"testing"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
)

// A rank that is accepted once an empty log has been read to its end has nothing
// to wait for.
func TestRankAfterEndOfEmptyLog(t *testing.T) {
	srv := natstest.Start(t)
	r := start(t, srv, nil).awaitReady()
	r.enroll(w1, 42)
	r.awaitTrust(w1, protocol.TrustExact)
	e := newEngine(t, natstest.Connect(t, srv), w1, 42)
	r.await(e.store(3)).awaitTrust(w1, protocol.TrustExact)
	e.check(r)
}
