package replay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/client"
	"github.com/routerd/routerd/pkg/clock"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/publisher"
	"github.com/routerd/routerd/pkg/scope"
	"github.com/routerd/routerd/pkg/server"
)

// readyTimeout bounds the wait for routers and workers to find each other.
const readyTimeout = 30 * time.Second

// epoch is when simulated time begins.
var epoch = time.Unix(0, 0)

// system is a router with the workers of the simulation: one of this process's
// own, or a running one.
type system struct {
	pool       string
	names      protocol.Names
	conn       *nats.Conn
	client     *client.Client
	publishers []*publisher.Publisher
	numbers    map[string]int // of workers, by name

	clock  *clock.Simulated // nil with a running server
	server *server.Server   // nil with a running server
	store  string

	processes *scope.Scope // the server
	workers   *scope.Scope // the publishers; closed first
}

// open starts the server and the publishers, and waits for them.
func open(ctx context.Context, o *Options, policy protocol.Policy) (_ *system, err error) {
	s := &system{
		names: o.Names, numbers: map[string]int{}, pool: "replay",
		processes: scope.New(context.WithoutCancel(ctx), "server"),
		workers:   scope.New(context.WithoutCancel(ctx), "workers"),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	ready, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if o.Connect != nil {
		s.pool += "-" + uuid.NewString()[:8]
		s.conn, err = o.Connect()
	} else {
		err = s.startServer(ready, o, policy)
	}
	if err != nil {
		return nil, err
	}
	if s.client, err = client.New(client.Config{Conn: s.conn, Names: s.names}); err != nil {
		return nil, err
	}
	if err := s.startWorkers(ready, o); err != nil {
		return nil, err
	}
	return s, s.waitWorkers(ready, o.Workers)
}

// startServer runs a server with a temporary store and no listener.
func (s *system) startServer(ctx context.Context, o *Options, policy protocol.Policy) (err error) {
	if s.store, err = os.MkdirTemp("", "routerd-replay-"); err != nil {
		return fmt.Errorf("make temporary store: %w", err)
	}
	s.clock = clock.NewSimulated(epoch)
	cfg := server.DefaultConfig()
	cfg.Listen, cfg.Admin, cfg.Store, cfg.Clock = "none", "none", s.store, s.clock
	cfg.Routing.Policy, cfg.Routing.Seed = policy, o.Seed
	if s.server, err = server.New(cfg); err != nil {
		return err
	}
	failed := make(chan error, 1)
	s.processes.Go(func(ctx context.Context) error {
		err := s.server.Run(ctx)
		failed <- err
		return err
	})
	select {
	case <-s.server.Ready():
	case err := <-failed:
		return fmt.Errorf("start server: %w", err)
	case <-ctx.Done():
		return fmt.Errorf("start server: %w", ctx.Err())
	}
	s.names = s.server.Names()
	s.conn, err = s.server.Connect(nats.Name("routerd replay"))
	return err
}

// startWorkers registers a publisher per worker.
func (s *system) startWorkers(ctx context.Context, o *Options) error {
	for i := range o.Workers {
		name := workerName(i, o.Workers)
		s.numbers[name] = i
		p, err := publisher.New(publisher.Config{
			Conn: s.conn, Names: s.names,
			Registration: protocol.Registration{
				Pool: s.pool, Worker: name, BlockSize: o.BlockSize, TotalKVBlocks: uint64(o.Blocks), MaxNumBatchedTokens: 8192,
			},
			FlushInterval: 5 * time.Millisecond, // messages are sent by Flush, before each decision
		})
		if err != nil {
			return err
		}
		s.publishers = append(s.publishers, p)
		s.workers.Go(p.Run)
	}
	for _, p := range s.publishers {
		select {
		case <-p.Ready():
		case <-ctx.Done():
			return fmt.Errorf("register workers: %w: is a router running?", ctx.Err())
		}
	}
	return nil
}

// waitWorkers waits until every router holds every worker for exact.
func (s *system) waitWorkers(ctx context.Context, workers int) error {
	return poll(ctx, func() (bool, error) {
		replies, err := s.client.Status(ctx, s.pool, 0)
		if err != nil {
			return false, err
		}
		for _, reply := range replies {
			exact := 0
			for i := range reply.Ranks {
				if reply.Ranks[i].Trust == protocol.TrustExact {
					exact++
				}
			}
			if exact < workers {
				return false, fmt.Errorf("router %s has %d of %d workers", reply.Router, exact, workers)
			}
		}
		return len(replies) > 0, nil
	})
}

// poll calls done until it says so; the last error is returned if ctx ends first.
func poll(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, err := done()
		if ok {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// advance moves the router's clock, where it is ours.
func (s *system) advance(now time.Duration) {
	if s.clock != nil {
		s.clock.Advance(epoch.Add(now))
	}
}

// waitApplied waits until every router has applied the log up to seq.
func (s *system) waitApplied(ctx context.Context, seq protocol.StreamSeq) error {
	if s.server != nil {
		return s.server.WaitApplied(ctx, s.pool, seq)
	}
	return poll(ctx, func() (bool, error) {
		replies, err := s.client.Status(ctx, s.pool, 0)
		for _, reply := range replies {
			if reply.StreamSeqApplied < seq {
				return false, nil
			}
		}
		return len(replies) > 0, err
	})
}

// close ends workers, then the server, and removes what the replay made.
func (s *system) close() error {
	err := s.workers.Close()
	if s.conn != nil && s.server == nil {
		err = errors.Join(err, s.deleteStream())
	}
	if s.conn != nil {
		s.conn.Close()
	}
	err = errors.Join(err, s.processes.Close())
	if s.store != "" {
		err = errors.Join(err, os.RemoveAll(s.store))
	}
	return err
}

// deleteStream removes the log of a pool that a running server was lent, once its
// routers have closed the pool and would not make the stream again.
func (s *system) deleteStream() error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	_ = poll(ctx, func() (bool, error) {
		_, err := s.client.Status(ctx, s.pool, 0)
		failure, ok := errors.AsType[*protocol.Error](err)
		return ok && failure.Code == protocol.CodeUnknownPool, err
	})
	js, err := jetstream.New(s.conn)
	if err == nil {
		err = js.DeleteStream(ctx, s.names.Stream(s.pool))
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}
