package server_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/embedded"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/publisher"
	"github.com/routerd/routerd/pkg/server"
)

// Every call that has arrived when a shutdown begins is answered.
func TestShutdownAnswersWhatItAccepted(t *testing.T) {
	const calls = 200
	s := start(t, listening)
	s.join(pool, "w1", nil)
	cfg := testConfig(t)
	cfg.NATS = s.ClientURL()
	second := run(t, cfg) // so that the connection of the callers outlives it
	second.awaitReady()

	inbox := s.conn.NewInbox()
	sub, err := s.conn.SubscribeSync(inbox)
	check(t, err)
	subject := names.Call(pool, protocol.VerbRoute) + "." + second.Token()
	for i := range calls {
		check(t, s.conn.PublishRequest(subject, inbox, fmt.Appendf(nil, `{"request_id":"r%d","token_ids":[1,2,3]}`, i)))
	}
	check(t, s.conn.Flush()) // they are with the NATS server
	_, err = second.conn.RequestWithContext(patient(t), names.Call(pool, protocol.VerbLoads)+"."+second.Token(), nil)
	check(t, err) // and with the router's connection
	check(t, second.stop())
	for i := range calls {
		msg, err := sub.NextMsgWithContext(patient(t))
		if err != nil {
			t.Fatalf("reply %d of %d: %v", i, calls, err)
		}
		if msg.Header.Get("Status") == "503" || msg.Header.Get(protocol.HeaderErrorCode) != "" {
			t.Fatalf("reply %d of %d: %v %s", i, calls, msg.Header, msg.Data)
		}
	}
	_, err = s.conn.Request(subject, []byte(`{"token_ids":[1]}`), patience)
	if !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("after the shutdown: %v, want no responders", err)
	}
}

// A shutdown closes connections and store, so that the next start finds it free.
func TestShutdownEndsEverything(t *testing.T) {
	cfg := testConfig(t)
	listening(&cfg)
	cfg.Admin = "127.0.0.1:0"
	s := run(t, cfg)
	s.awaitReady()
	s.join(pool, "w1", func(c *publisher.Config) { c.Abandon = true })
	url, admin := s.ClientURL(), s.AdminAddr()
	check(t, s.stop())
	for _, address := range []string{strings.TrimPrefix(url, "nats://"), admin} {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			t.Errorf("%s is still listened on", address)
		}
	}
	if !s.Conn().IsClosed() || s.Phase() != protocol.PhaseStopping {
		t.Errorf("connection closed: %v, phase %s", s.Conn().IsClosed(), s.Phase())
	}
	if _, err := s.Route(patient(t), pool, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: []uint32{1}}}); codeOf(err) != protocol.CodeShuttingDown {
		t.Errorf("route after the end: %v, want shutting_down", err)
	}
	again := run(t, cfg)
	again.awaitReady()
	check(t, again.stop())
}

// A server that is told to stop while it starts does so.
func TestStopWhileStarting(t *testing.T) {
	cfg := testConfig(t)
	for range 5 {
		check(t, run(t, cfg).stop())
	}
	s := run(t, cfg)
	s.awaitReady()
	check(t, s.stop())
}

// oneLine checks that an error is one line, short, and says some things.
func oneLine(t *testing.T, err error, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	text := err.Error()
	if strings.Contains(text, "\n") || len(text) > 500 {
		t.Errorf("error is not one short line: %q", text)
	}
	for _, part := range says {
		if !strings.Contains(text, part) {
			t.Errorf("error %q does not say %q", text, part)
		}
	}
}

func TestStartFails(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer busy.Close()
	locked := start(t, listening)
	file := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(file, nil, 0o600))
	for _, test := range []struct {
		name   string
		change func(*server.Config)
		says   []string
	}{
		{"busy port", func(c *server.Config) { c.Listen = busy.Addr().String() }, []string{busy.Addr().String(), "--listen"}},
		{"busy admin port", func(c *server.Config) { c.Admin = busy.Addr().String() }, []string{busy.Addr().String(), "--admin"}},
		{"store is a file", func(c *server.Config) { c.Store = file }, []string{file, "--store"}},
		{"store below a file", func(c *server.Config) { c.Store = filepath.Join(file, "store") }, []string{file, "--store"}},
		{"unreachable NATS", func(c *server.Config) { c.NATS = "nats://user:secret@127.0.0.1:1" }, []string{"127.0.0.1:1"}},
		{"no URL", func(c *server.Config) { c.NATS = "nats://user:sec%ret@127.0.0.1:1" }, []string{"URL"}},
		{"no credentials file", func(c *server.Config) { c.NATS, c.NATSCreds = locked.ClientURL(), file+".creds" }, []string{file + ".creds"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := testConfig(t)
			test.change(&cfg)
			s := run(t, cfg)
			err := s.end()
			oneLine(t, err, test.says...)
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("error %q has the password", err)
			}
			if s.ClientURL() != "" || s.AdminAddr() != "" {
				t.Errorf("a server that did not start has addresses %q and %q", s.ClientURL(), s.AdminAddr())
			}
		})
	}
}

func TestStoreIsLocked(t *testing.T) {
	cfg := testConfig(t)
	s := run(t, cfg)
	s.awaitReady()
	err := run(t, cfg).end()
	oneLine(t, err, cfg.Store, fmt.Sprint(os.Getpid()), "--store")
	if _, ok := errors.AsType[*embedded.LockedError](err); !ok {
		t.Errorf("error is %T", err)
	}
}

// makeForeignStream takes the name of the pool's stream for something else.
func makeForeignStream(t *testing.T, s *system) {
	t.Helper()
	_, err := s.jetStream().CreateStream(patient(t), jetstream.StreamConfig{
		Name: names.Stream(pool), Subjects: []string{names.PoolEvents(pool)},
		Retention: jetstream.WorkQueuePolicy, MaxMsgs: 10, Discard: jetstream.DiscardOld,
	})
	check(t, err)
}
