package mocker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/publisher"
)

// LiveConfig says what a LiveFleet is. Conn and Pool are required.
type LiveConfig struct {
	Conn    *nats.Conn // shared by the workers; not closed by the fleet
	Names   protocol.Names
	Pool    string
	Workers int    // at least 1
	Engine  Config // of each worker
	Log     zerolog.Logger
}

// LiveFleet is workers on the machine's clock that are registered with routers:
// each publishes its KV events and serves requests over HTTP on the loopback
// interface, where its registration says.
type LiveFleet struct {
	config  LiveConfig
	members []*LiveWorker
	ready   chan struct{}
}

// LiveWorker is one worker of a LiveFleet.
type LiveWorker struct {
	*Worker
	name      string
	publisher *publisher.Publisher
	listener  net.Listener
}

// Name is the worker's id in the roster.
func (w *LiveWorker) Name() string { return w.name }

// Endpoint is the URL under which the worker is registered.
func (w *LiveWorker) Endpoint() string { return "http://" + w.listener.Addr().String() }

// Flush waits until what the worker has done is in the log, and returns the
// stream sequence of the last of it.
func (w *LiveWorker) Flush(ctx context.Context) (protocol.StreamSeq, error) {
	return w.publisher.Flush(ctx)
}

// NewLiveFleet checks the configuration and makes the workers mock-0, mock-1, …
// It listens for their endpoints and starts nothing else; Run must follow.
func NewLiveFleet(config LiveConfig) (_ *LiveFleet, err error) {
	if config.Workers < 1 {
		return nil, fmt.Errorf("fleet of %d mock workers: must have at least 1", config.Workers)
	}
	f := &LiveFleet{config: config, ready: make(chan struct{})}
	defer func() {
		if err != nil {
			f.closeListeners()
		}
	}()
	for i := range config.Workers {
		w, err := f.newWorker(i)
		if err != nil {
			return nil, err
		}
		f.members = append(f.members, w)
	}
	return f, nil
}

func (f *LiveFleet) newWorker(i int) (*LiveWorker, error) {
	engine := f.config.Engine.withDefaults()
	engine.Seed += uint64(i)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for mock worker %d: %w", i, err)
	}
	w := &LiveWorker{name: fmt.Sprintf("mock-%d", i), listener: listener}
	w.publisher, err = publisher.New(publisher.Config{
		Conn: f.config.Conn, Names: f.config.Names, Log: f.config.Log,
		Registration: protocol.Registration{
			Pool: f.config.Pool, Worker: w.name, Model: f.config.Pool, BlockSize: engine.BlockSize, Endpoint: w.Endpoint(),
			TotalKVBlocks: uint64(engine.Blocks), MaxNumBatchedTokens: uint64(engine.TokenBudget),
		},
	})
	if err == nil {
		w.Worker, err = NewWorker(WorkerConfig{Engine: engine, Model: f.config.Pool, Publisher: w.publisher})
	}
	if err != nil {
		listener.Close()
		return nil, err
	}
	return w, nil
}

func (f *LiveFleet) closeListeners() {
	for _, w := range f.members {
		w.listener.Close()
	}
}

// Workers are the members, in the order of their numbers.
func (f *LiveFleet) Workers() []*LiveWorker { return f.members }

// Ready is closed once every worker is registered and takes requests.
func (f *LiveFleet) Ready() <-chan struct{} { return f.ready }

// Run runs the workers until ctx ends; then they end their requests, publish what
// waits and leave the roster. The failure of one ends all. It is called once.
func (f *LiveFleet) Run(ctx context.Context) error {
	defer f.closeListeners()
	// Publishers end after the engines, so that the last events reach the log.
	publishing, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	publishers, publishing := errgroup.WithContext(publishing)
	engines, serving := errgroup.WithContext(ctx)
	for _, w := range f.members {
		publishers.Go(func() error { return w.publisher.Run(publishing) })
		engines.Go(func() error { return w.Run(serving) })
		engines.Go(func() error { return serve(serving, w.listener, w.Handler()) })
		engines.Go(func() error { // a publisher that has failed ends the engines
			select {
			case <-publishing.Done():
				return context.Cause(publishing)
			case <-serving.Done():
				return nil
			}
		})
	}
	engines.Go(func() error { return f.becomeReady(serving) })
	err := engines.Wait()
	leave()
	return errors.Join(err, publishers.Wait())
}

func (f *LiveFleet) becomeReady(ctx context.Context) error {
	for _, w := range f.members {
		for _, ready := range []<-chan struct{}{w.Ready(), w.publisher.Ready()} {
			select {
			case <-ready:
			case <-ctx.Done():
				return nil
			}
		}
	}
	close(f.ready)
	f.config.Log.Info().Str("pool", f.config.Pool).Int("workers", len(f.members)).
		Str("first_endpoint", f.members[0].Endpoint()).Msg("mock workers are ready")
	return nil
}

// serve answers requests until ctx ends.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve mock worker: %w", err)
	}
	return nil
}
