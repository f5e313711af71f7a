package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// startLimit bounds how long the server may take to become ready; replaying a
// large log takes about a microsecond a message.
const startLimit = 60 * time.Second

// errStopped says that the server is closed, or between two lives of Restart.
var errStopped = errors.New("embedded NATS server is stopped")

// Server is an embedded NATS server with JetStream. All methods are safe for
// concurrent use.
type Server struct {
	options *server.Options // of every life; the port is fixed by the first
	log     zerolog.Logger
	lock    *storeLock
	url     string // of the listener, set by Start; empty: none
	current atomic.Pointer[server.Server]

	change sync.Mutex // held by Restart and Close

	mu     sync.Mutex   // guards what follows
	conns  []*nats.Conn // open ones, and closed ones not yet swept
	closed bool
}

// Start locks the store and runs a server on it until Close. It returns when
// the server takes connections. Its errors are one line that says what to do; a
// store that is in use is a *LockedError.
func Start(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure embedded NATS server: %w", err)
	}
	lock, err := lockStore(cfg.Store)
	if err != nil {
		return nil, err
	}
	s := &Server{options: serverOptions(cfg), log: cfg.Log, lock: lock}
	if err := s.begin(); err != nil {
		return nil, errors.Join(err, lock.release())
	}
	return s, nil
}

func serverOptions(cfg Config) *server.Options {
	host, port, _ := cfg.address() // validated
	options := &server.Options{
		ServerName: "routerd",
		Host:       host,
		Port:       port,
		DontListen: cfg.Listen == ListenNone,
		NoSigs:     true, // else the server's own handler ends the process
		NoLog:      true,

		JetStream:              true,
		StoreDir:               cfg.Store,
		DisableJetStreamBanner: true,
		JetStreamMaxStore:      cfg.MaxStore,
		SyncInterval:           cmp.Or(cfg.SyncInterval, DefaultSyncInterval),
		MaxPayload:             int32(cmp.Or(cfg.MaxPayload, DefaultMaxPayload)),
	}
	if port == 0 {
		options.Port = server.RANDOM_PORT
	}
	return options
}

// begin starts one life of the server and waits until it is ready.
func (s *Server) begin() error {
	if err := s.checkPort(); err != nil {
		return err
	}
	srv, err := server.NewServer(s.options.Clone())
	if err != nil {
		return fmt.Errorf("make embedded NATS server: %w", err)
	}
	log := &serverLog{log: s.log}
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	if err := waitReady(srv, log); err != nil {
		stop(srv)
		return err
	}
	if addr, ok := srv.Addr().(*net.TCPAddr); ok && s.url == "" && !s.options.DontListen {
		s.options.Port = addr.Port // later lives listen on the same
		s.url = clientURL(addr)
	}
	s.current.Store(srv)
	return nil
}

// checkPort finds out whether the address can be listened on, since the server
// itself would say so in its log only.
func (s *Server) checkPort() error {
	if s.options.DontListen {
		return nil
	}
	address := net.JoinHostPort(s.options.Host, strconv.Itoa(max(s.options.Port, 0)))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w: stop what uses it, or choose another address with --listen"+
			" (port 0 picks a free port, %s stays inside the process)", address, cause(err), ListenNone)
	}
	return listener.Close()
}

func waitReady(srv *server.Server, log *serverLog) error {
	deadline := time.Now().Add(startLimit)
	for {
		if reason := log.fatal.Load(); reason != nil {
			return fmt.Errorf("start embedded NATS server: %s", *reason)
		}
		if srv.ReadyForConnections(100*time.Millisecond) && srv.JetStreamEnabled() {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("embedded NATS server is not ready after %s: look at its log, or choose another folder with --store", startLimit)
		}
	}
}

// clientURL is how a client of this machine reaches a listener.
func clientURL(addr *net.TCPAddr) string {
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = "127.0.0.1" // :: takes IPv4 too
	}
	return "nats://" + net.JoinHostPort(host, strconv.Itoa(addr.Port))
}

// ClientURL is the URL of the listener, empty if there is none.
func (s *Server) ClientURL() string { return s.url }

// BulkURL is where readers of long streams connect to: the listener, or empty
// for a connection inside the process.
func (s *Server) BulkURL() string { return s.url }

// JetStreamReady says whether the server runs and takes calls to JetStream.
func (s *Server) JetStreamReady() bool {
	srv := s.current.Load()
	return srv != nil && srv.Running() && srv.JetStreamEnabled()
}

// MaxStore is what JetStream may keep on disk in bytes: as configured, or what
// the server found. 0 if it does not run.
func (s *Server) MaxStore() int64 {
	if srv := s.current.Load(); srv != nil {
		if config := srv.JetStreamConfig(); config != nil {
			return config.MaxStore
		}
	}
	return 0
}

// InProcessConn implements nats.InProcessConnProvider with the server that runs
// now, so that connections survive Restart.
func (s *Server) InProcessConn() (net.Conn, error) {
	srv := s.current.Load()
	if srv == nil {
		return nil, errStopped
	}
	return srv.InProcessConn()
}

// Connect opens a connection inside the process, with a router's options and
// then the caller's. Close closes it if the caller has not.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	return s.connect("", append([]nats.Option{nats.InProcessServer(s)}, opts...))
}

// ConnectBulk opens a connection for readers of long streams: through the
// listener where there is one, else inside the process.
func (s *Server) ConnectBulk(opts ...nats.Option) (*nats.Conn, error) {
	if s.url == "" {
		return s.Connect(opts...)
	}
	return s.connect(s.url, opts)
}

func (s *Server) connect(url string, opts []nats.Option) (*nats.Conn, error) {
	conn, err := nats.Connect(url, append(connOptions(s.log), opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to embedded NATS server: %w", err)
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.conns = slices.DeleteFunc(s.conns, (*nats.Conn).IsClosed)
		s.conns = append(s.conns, conn)
	}
	s.mu.Unlock()
	if closed {
		conn.Close()
		return nil, fmt.Errorf("connect to embedded NATS server: %w", errStopped)
	}
	return conn, nil
}

// Restart ends the server and starts a new one on the same store and port.
// Connections reconnect by themselves; calls under way fail. If the new one
// cannot start, the old one is gone all the same, and Restart may be tried again.
func (s *Server) Restart() error {
	s.change.Lock()
	defer s.change.Unlock()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return fmt.Errorf("restart embedded NATS server: %w", errStopped)
	}
	if srv := s.current.Swap(nil); srv != nil {
		stop(srv)
	}
	return s.begin()
}

// Close drains the connections that were opened through the Server, shuts the
// server down, waits for it and unlocks the store. When ctx ends before a
// connection is drained, it is closed as it is, and the error says so. Closing
// again does nothing.
func (s *Server) Close(ctx context.Context) error {
	s.change.Lock()
	defer s.change.Unlock()
	s.mu.Lock()
	already, conns := s.closed, s.conns
	s.closed, s.conns = true, nil
	s.mu.Unlock()
	if already {
		return nil
	}
	err := drain(ctx, conns)
	if srv := s.current.Swap(nil); srv != nil {
		stop(srv)
	}
	return errors.Join(err, s.lock.release())
}

// drain lets all connections finish at once and waits until they are closed.
func drain(ctx context.Context, conns []*nats.Conn) error {
	var cut error
	closed := make([]chan nats.Status, len(conns))
	for i, conn := range conns {
		closed[i] = conn.StatusChanged(nats.CLOSED)
		if conn.Drain() != nil { // not connected, or closed
			conn.Close()
		}
	}
	for i, conn := range conns {
		for !conn.IsClosed() {
			select {
			case <-closed[i]:
			case <-ctx.Done():
				cut = fmt.Errorf("drain connections to the embedded NATS server: %w", context.Cause(ctx))
				conn.Close()
			}
		}
		conn.RemoveStatusListener(closed[i])
	}
	return cut
}

// settleLimit bounds the wait for calls of JetStream's API at a shutdown.
const settleLimit = 2 * time.Second

func stop(srv *server.Server) {
	settle(srv)
	srv.Shutdown()
	srv.WaitForShutdown()
}

// settle waits until the server has done what was asked of JetStream, whether or
// not somebody still waits for the answer: a stream made while it shuts down would
// keep its goroutines and files.
func settle(srv *server.Server) {
	deadline := time.Now().Add(settleLimit)
	for time.Now().Before(deadline) {
		info, err := srv.Jsz(nil)
		if err != nil || info.API.Inflight == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// cause is the system's own error inside err where there is one: "address
// already in use" rather than a chain of operations.
func cause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
