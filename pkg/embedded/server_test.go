package embedded

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const limit = 20 * time.Second

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeServer(t, s) })
	return s
}

func closeServer(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

func connect(t *testing.T, s *Server, opts ...nats.Option) *nats.Conn {
	t.Helper()
	conn, err := s.Connect(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestInProcessOnly(t *testing.T) {
	store := t.TempDir()
	s := start(t, Config{Store: store, Listen: ListenNone})
	if s.ClientURL() != "" || s.BulkURL() != "" {
		t.Errorf("URLs %q and %q, want none", s.ClientURL(), s.BulkURL())
	}
	if !s.JetStreamReady() || s.MaxStore() <= 0 {
		t.Errorf("JetStream ready: %v, with %d bytes", s.JetStreamReady(), s.MaxStore())
	}
	publishTo(t, connect(t, s), "one")
	bulk, err := s.ConnectBulk()
	if err != nil {
		t.Fatal(err)
	}
	publishTo(t, bulk, "one")
	if _, err := os.Stat(filepath.Join(store, "jetstream")); err != nil {
		t.Errorf("the store holds no JetStream folder: %v", err)
	}
}

// TestSurvivesRestart shows that both kinds of connection find the server that
// replaces theirs, and that the log is still there.
func TestSurvivesRestart(t *testing.T) {
	s := start(t, Config{Store: t.TempDir(), Listen: "127.0.0.1:0"})
	inside, url := connect(t, s), s.ClientURL()
	bulk, err := s.ConnectBulk()
	if err != nil {
		t.Fatal(err)
	}
	if bulk.ConnectedUrl() != url || !strings.HasPrefix(url, "nats://127.0.0.1:") {
		t.Errorf("bulk connection to %q, want %q", bulk.ConnectedUrl(), url)
	}
	publishTo(t, inside, "one")
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if s.ClientURL() != url {
		t.Errorf("URL %q after a restart, want %q", s.ClientURL(), url)
	}
	for _, conn := range []*nats.Conn{inside, bulk} {
		waitConnected(t, conn)
		if seq := publishTo(t, conn, "one"); seq < 2 {
			t.Errorf("sequence %d after the restart, want the old log to go on", seq)
		}
	}
}

func TestCloseDrains(t *testing.T) {
	s, err := Start(Config{Store: t.TempDir(), Listen: ListenNone})
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, s)
	handling, release, handled := make(chan struct{}), make(chan struct{}), make(chan struct{})
	if _, err := conn.Subscribe("work", func(*nats.Msg) {
		close(handling)
		<-release
		close(handled)
	}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Publish("work", nil); err != nil {
		t.Fatal(err)
	}
	<-handling
	draining := conn.StatusChanged(nats.DRAINING_SUBS)
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	<-draining
	select {
	case <-closed:
		t.Error("closed before the handler was done")
	case <-handled:
		t.Error("handled before it was released")
	default:
	}
	close(release)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	<-handled
	if err := s.Close(context.Background()); err != nil {
		t.Errorf("second close: %v", err)
	}
	if _, err := s.Connect(); err == nil {
		t.Error("connected to a closed server")
	}
	if err := s.Restart(); !errors.Is(err, errStopped) {
		t.Errorf("restart of a closed server: %v", err)
	}
	if s.JetStreamReady() || s.MaxStore() != 0 {
		t.Error("a closed server is ready")
	}
}

func TestCloseCutsDrain(t *testing.T) {
	s, err := Start(Config{Store: t.TempDir(), Listen: ListenNone})
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, s)
	handling, release := make(chan struct{}), make(chan struct{})
	if _, err := conn.Subscribe("work", func(*nats.Msg) { close(handling); <-release }); err != nil {
		t.Fatal(err)
	}
	if err := conn.Publish("work", nil); err != nil {
		t.Fatal(err)
	}
	<-handling
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the drain to be cut", err)
	}
	close(release)
}

func TestBusyPort(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	store := t.TempDir()
	_, err = Start(Config{Store: store, Listen: listener.Addr().String()})
	want := "cannot listen on " + listener.Addr().String() + ": address already in use: stop what uses it, " +
		"or choose another address with --listen (port 0 picks a free port, none stays inside the process)"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	start(t, Config{Store: store, Listen: ListenNone}) // the lock is free again
}

// TestBrokenStore shows that a server that cannot run says why at once.
func TestBrokenStore(t *testing.T) {
	store := t.TempDir()
	if err := os.WriteFile(filepath.Join(store, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(Config{Store: store, Listen: ListenNone})
	if err == nil || !strings.HasPrefix(err.Error(), "start embedded NATS server: Can't start JetStream") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want the server's reason in one line", err)
	}
}

func TestValidate(t *testing.T) {
	err := Config{Listen: "here", MaxPayload: 1, MaxStore: -1, SyncInterval: -1}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"store:", `listen "here"`, "max payload", "max store", "sync interval"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not name %s", err, want)
		}
	}
	for _, listen := range []string{"", ListenNone, "127.0.0.1:0", ":4222", "[::1]:65535", "localhost:1"} {
		if err := (Config{Store: "x", Listen: listen}).Validate(); err != nil {
			t.Errorf("listen %q: %v", listen, err)
		}
	}
	for _, listen := range []string{"127.0.0.1", "127.0.0.1:", "h:65536", "h:-1", "h:nats"} {
		if err := (Config{Store: "x", Listen: listen}).Validate(); err == nil {
			t.Errorf("listen %q: accepted", listen)
		}
	}
}

func TestClientURL(t *testing.T) {
	for ip, want := range map[string]string{"0.0.0.0": "nats://127.0.0.1:7", "::": "nats://127.0.0.1:7", "10.0.0.1": "nats://10.0.0.1:7", "::1": "nats://[::1]:7"} {
		if got := clientURL(&net.TCPAddr{IP: net.ParseIP(ip), Port: 7}); got != want {
			t.Errorf("%s: got %s, want %s", ip, got, want)
		}
	}
}

func TestDefaultStore(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	if got, err := DefaultStore(); got != "/state/routerd" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "/home/u")
	if got, err := DefaultStore(); got != "/home/u/.local/state/routerd" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	t.Setenv("HOME", "")
	if _, err := DefaultStore(); err == nil || !strings.Contains(err.Error(), "--store") {
		t.Errorf("got %v, want an error that names --store", err)
	}
}

// publishTo stores one message in a stream of the name, made if absent.
func publishTo(t *testing.T, conn *nats.Conn, stream string) uint64 {
	t.Helper()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{stream}}); err != nil {
		t.Fatal(err)
	}
	ack, err := js.Publish(ctx, stream, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	return ack.Sequence
}

func waitConnected(t *testing.T, conn *nats.Conn) {
	t.Helper()
	changed := conn.StatusChanged(nats.CONNECTED)
	defer conn.RemoveStatusListener(changed)
	if conn.IsConnected() {
		return
	}
	select {
	case <-changed:
	case <-time.After(limit):
		t.Fatal("not connected again")
	}
}
