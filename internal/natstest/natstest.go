// Package natstest starts in-process NATS servers with JetStream on disk for
// this module's own tests. Only test files import it.
package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
)

// VerifyMain runs a package's tests, and fails if they leave a goroutine.
//
// One of nats.go's own does not count: a JetStream publisher that is cleaned up
// within microseconds of its first publish leaves its listener for reconnects
// waiting on a channel that it reads too late.
func VerifyMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}

// Start runs a server on a random loopback port, with its store in the test's
// own folder, until the test ends.
func Start(t testing.TB) *server.Server {
	t.Helper()
	return StartIn(t, t.TempDir(), -1)
}

// StartIn runs a server on a port (-1 picks one) with its store in dir, so that
// a test can stop it and start it again on the same log.
func StartIn(t testing.TB, dir string, port int) *server.Server {
	t.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir,
		NoSigs: true, NoLog: true, SyncInterval: time.Second,
	})
	if err != nil {
		t.Fatalf("make NATS server: %v", err)
	}
	srv.Start()
	t.Cleanup(func() { Stop(srv) })
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("NATS server is not ready after 10 s")
	}
	return srv
}

// Stop ends a server and waits for it; stopping it again does nothing.
func Stop(srv *server.Server) {
	// A stream that is made during the shutdown would keep its goroutines.
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if info, err := srv.Jsz(nil); err != nil || info.API.Inflight == 0 {
			break
		}
	}
	srv.Shutdown()
	srv.WaitForShutdown()
}

// Connect opens a connection to a server until the test ends.
func Connect(t testing.TB, srv *server.Server, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond)}, opts...)
	conn, err := nats.Connect(srv.ClientURL(), opts...)
	if err != nil {
		t.Fatalf("connect to NATS: %v", err)
	}
	t.Cleanup(conn.Close)
	return conn
}
