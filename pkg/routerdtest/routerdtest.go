package routerdtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/routerd/routerd/internal/mocker"
	"github.com/routerd/routerd/pkg/client"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/scope"
	"github.com/routerd/routerd/pkg/server"
)

// startTimeout bounds a start, also on a machine that is busy with other tests.
const startTimeout = 30 * time.Second

// Options say what is started. The zero value is usable.
type Options struct {
	Pool      string          // of the mock workers; default "test"
	Workers   int             // how many; default 2
	Blocks    int             // KV blocks of each; default 4,096
	BlockSize int             // tokens of a block; default 16
	SpeedUp   float64         // of the engines against their own clock; default 100
	Policy    protocol.Policy // default latency
	Seed      uint64          // of tie breaks; default 1, so that tests repeat
	// Configure may change the router's configuration before it starts.
	Configure func(*server.Config)
}

func (o Options) withDefaults() Options {
	set(&o.Pool, "test")
	set(&o.Workers, 2)
	set(&o.Blocks, 4096)
	set(&o.BlockSize, 16)
	set(&o.SpeedUp, 100)
	set(&o.Policy, protocol.PolicyLatency)
	set(&o.Seed, 1)
	return o
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// System is a running NATS server, router and mock workers. Its methods are safe
// for concurrent use.
type System struct {
	options Options
	store   string
	server  *server.Server
	conn    *nats.Conn
	client  *client.Client
	workers []*Worker

	servers *scope.Scope
	fleet   *scope.Scope // closed before servers
}

// Start starts a system for a test, which fails if it cannot, and stops it when
// the test ends.
func Start(t testing.TB, o Options) *System {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatalf("start routerd: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("stop routerd: %v", err)
		}
	})
	return s
}

// New starts a system for what has no testing.TB, an Example say. It returns once
// the router knows every worker. Close must be called.
func New(o Options) (_ *System, err error) {
	s := &System{
		options: o.withDefaults(),
		servers: scope.New(context.Background(), "router"), fleet: scope.New(context.Background(), "workers"),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := s.startServer(ctx); err != nil {
		return nil, err
	}
	if s.conn, err = s.server.Connect(nats.Name("routerdtest")); err != nil {
		return nil, err
	}
	if s.client, err = client.New(client.Config{Conn: s.conn, Names: s.server.Names()}); err != nil {
		return nil, err
	}
	return s, s.startWorkers(ctx)
}

func (s *System) startServer(ctx context.Context) (err error) {
	if s.store, err = os.MkdirTemp("", "routerdtest-"); err != nil {
		return fmt.Errorf("make store: %w", err)
	}
	cfg := server.DefaultConfig()
	cfg.Listen, cfg.Admin, cfg.Store = "127.0.0.1:0", "127.0.0.1:0", s.store
	cfg.Routing.Policy, cfg.Routing.Seed = s.options.Policy, s.options.Seed
	if s.options.Configure != nil {
		s.options.Configure(&cfg)
	}
	if s.server, err = server.New(cfg); err != nil {
		return err
	}
	s.servers.Go(s.server.Run)
	return await(ctx, s.servers, s.server.Ready(), "router")
}

func (s *System) startWorkers(ctx context.Context) error {
	fleet, err := mocker.NewLiveFleet(mocker.LiveConfig{
		Conn: s.conn, Names: s.server.Names(), Pool: s.options.Pool, Workers: s.options.Workers,
		Engine: mocker.Config{Blocks: s.options.Blocks, BlockSize: s.options.BlockSize, SpeedUp: s.options.SpeedUp},
	})
	if err != nil {
		return err
	}
	s.fleet.Go(fleet.Run)
	if err := await(ctx, s.fleet, fleet.Ready(), "mock workers"); err != nil {
		return err
	}
	for _, w := range fleet.Workers() {
		s.workers = append(s.workers, &Worker{w})
	}
	return s.awaitWorkers(ctx)
}

// await waits for a part to be ready, or for what is wrong with it.
func await(ctx context.Context, part *scope.Scope, ready <-chan struct{}, what string) error {
	select {
	case <-ready:
		return nil
	case <-part.Context().Done():
		return fmt.Errorf("start %s: %w", what, part.Cause())
	case <-ctx.Done():
		return fmt.Errorf("start %s: %w", what, ctx.Err())
	}
}

// awaitWorkers waits until the router trusts what it knows of every worker.
func (s *System) awaitWorkers(ctx context.Context) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		status, err := s.server.Status(s.options.Pool, &protocol.StatusRequest{})
		exact := 0
		if err == nil {
			for i := range status.Ranks {
				if status.Ranks[i].Trust == protocol.TrustExact {
					exact++
				}
			}
		}
		if exact >= s.options.Workers {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("router knows %d of %d mock workers: %w", exact, s.options.Workers, ctx.Err())
		}
	}
}

// Pool is the mock workers' pool.
func (s *System) Pool() string { return s.options.Pool }

// URL is where NATS clients of the code under test connect.
func (s *System) URL() string { return s.server.ClientURL() }

// Conn is a connection to the NATS server; Close closes it.
func (s *System) Conn() *nats.Conn { return s.conn }

// Client makes routing calls.
func (s *System) Client() *client.Client { return s.client }

// Server is the router itself, with its Go API and its admin address.
func (s *System) Server() *server.Server { return s.server }

// Workers are the mock workers, in the order of their names.
func (s *System) Workers() []*Worker { return s.workers }

// Worker finds a mock worker by its name in a routing reply; nil if it is none.
func (s *System) Worker(name string) *Worker {
	for _, w := range s.workers {
		if w.Name() == name {
			return w
		}
	}
	return nil
}

// Settle waits until the router has applied all that the workers have published
// so far, so that the next routing call sees it.
func (s *System) Settle(ctx context.Context) error {
	for _, w := range s.workers {
		seq, err := w.live.Flush(ctx)
		if err != nil {
			return fmt.Errorf("flush events of %s: %w", w.Name(), err)
		}
		if err := s.server.WaitApplied(ctx, s.options.Pool, seq); err != nil {
			return fmt.Errorf("wait for events of %s: %w", w.Name(), err)
		}
	}
	return nil
}

// Close stops the workers, then the router and NATS, waits for them and removes
// the store. Closing again does nothing.
func (s *System) Close() error {
	err := s.fleet.Close()
	if s.conn != nil {
		s.conn.Close()
	}
	return errors.Join(err, s.servers.Close(), os.RemoveAll(s.store))
}
