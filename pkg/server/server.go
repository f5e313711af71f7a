package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/routerd/routerd/pkg/clock"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/roster"
	"github.com/routerd/routerd/pkg/scope"
)

// startTimeout bounds each call that a start waits for.
const startTimeout = 10 * time.Second

// closeTimeout bounds the last flushes of a shutdown, after the drain.
const closeTimeout = 5 * time.Second

// Server is one router process: every pool's router and what they share. Its
// methods are safe for concurrent use; those that need the connection work once
// Ready is closed.
type Server struct {
	cfg     Config
	names   protocol.Names
	token   string // random, one per process life
	log     zerolog.Logger
	metrics *metrics

	ready chan struct{}
	phase atomic.Value // protocol.Phase

	// What follows is set by Run, and may be used once started is true.
	started   atomic.Bool
	transport *transport
	bulk      jetstream.JetStream // on the connection of the log
	control   jetstream.JetStream // on the connection of calls
	watcher   *roster.Watcher
	process   *scope.Scope
	pools     *pools
	leftovers *leftovers
	admin     *admin
}

// New checks a configuration and makes a server; it starts nothing.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Wall{}
	}
	names, err := protocol.NewNames(cfg.Prefix)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, names: names, token: newToken(), ready: make(chan struct{}),
		log: cfg.Logger.With().Str("component", "server").Logger(),
	}
	s.phase.Store(protocol.PhaseStarting)
	s.leftovers = &leftovers{registered: s.registered, purge: s.purgeDeparted, log: s.log}
	s.pools = &pools{
		grace: cfg.Roster.PoolGrace, make: s.makePool, log: s.log, byName: map[string]*pool{},
		left: func(p *pool) { s.leftovers.add(p.name, p.log.Departed()) },
	}
	s.metrics = newMetrics(s)
	return s, nil
}

// newToken names a router in subjects and keys.
func newToken() string {
	return "r" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12]
}

// Ready is closed once the roster has been read, every pool that it has follows
// its log up to the end as of the start, and calls are taken.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Phase says how far the server is in its life.
func (s *Server) Phase() protocol.Phase { return s.phase.Load().(protocol.Phase) }

// Token names this router among those of its prefix.
func (s *Server) Token() string { return s.token }

// Names makes the subjects and buckets of this server's prefix.
func (s *Server) Names() protocol.Names { return s.names }

// Conn is the server's own connection, for clients in the same process; nil
// before Ready. It is closed when Run returns.
func (s *Server) Conn() *nats.Conn {
	if !s.started.Load() {
		return nil
	}
	return s.transport.conn
}

// Connect opens a connection of the caller's own, inside the process where the
// server is embedded. It works once Ready is closed.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	if !s.started.Load() {
		return nil, errors.New("server is not ready")
	}
	return s.transport.connect(opts...)
}

// ClientURL is where clients and workers connect; "" before Ready, and if the
// embedded server has no listener.
func (s *Server) ClientURL() string {
	if !s.started.Load() {
		return ""
	}
	return s.transport.url
}

// AdminAddr is the address of the admin listener; "" before Ready and without one.
func (s *Server) AdminAddr() string {
	if !s.started.Load() || s.admin == nil {
		return ""
	}
	return s.admin.listener.Addr().String()
}

// WaitApplied waits until the index of a pool has dealt with every message of
// its log up to a stream sequence.
func (s *Server) WaitApplied(ctx context.Context, pool string, seq protocol.StreamSeq) error {
	p, err := s.pool(pool)
	if err != nil {
		return err
	}
	return p.log.WaitApplied(ctx, seq)
}

// Run runs the server until ctx ends, then shuts it down in order: intake, what
// was accepted, pools, connections, the embedded server. It is called once. A
// start that fails, a component that cannot go on, and accepted calls that the
// drain timeout left are errors.
func (s *Server) Run(ctx context.Context) error {
	// What the process does outlives ctx until the drain is over.
	s.process = scope.New(context.WithoutCancel(ctx), "process")
	defer s.process.Close()
	var err error
	if s.transport, err = s.openTransport(); err != nil {
		return err
	}
	err = s.serve(ctx)
	s.phase.Store(protocol.PhaseStopping)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return errors.Join(err, s.transport.close(closing))
}

// serve is Run between the opening and the closing of the transport.
func (s *Server) serve(ctx context.Context) (err error) {
	core := s.process.Child("core")
	in := &intake{
		conn: s.transport.conn, names: s.names, token: s.token, api: s, metrics: s.metrics,
		log: s.cfg.Logger.With().Str("component", "intake").Logger(),
	}
	defer in.wait()
	defer core.Close()
	defer s.pools.stop()
	s.pools.core = core
	if err := s.connectRoster(); err != nil {
		return err
	}
	if err := s.checkStreams(ctx); err != nil {
		return err
	}
	if s.admin, err = s.openAdmin(); err != nil {
		return err
	}
	s.started.Store(true)
	failed := make(chan error, 2)
	run := func(ctx context.Context, f func(context.Context) error) error {
		err := f(ctx)
		if err != nil && ctx.Err() == nil {
			failed <- err
		}
		return err
	}
	if s.admin != nil {
		core.Go(func(ctx context.Context) error { return run(ctx, s.admin.run) })
	}
	core.Go(func(ctx context.Context) error { return run(ctx, s.watcher.Run) })
	core.Go(s.leftovers.run)

	intakeScope := s.process.Child("intake")
	defer intakeScope.Close()
	if err := in.open(core.Context()); err != nil {
		return errors.Join(err, s.drain(ctx, in))
	}
	intakeScope.Go(s.becomeReady)
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	return errors.Join(err, s.drain(ctx, in))
}

// connectRoster makes what reads the roster.
func (s *Server) connectRoster() (err error) {
	if s.bulk, err = jetstream.New(s.transport.bulk); err != nil {
		return fmt.Errorf("open JetStream: %w", err)
	}
	if s.control, err = jetstream.New(s.transport.conn); err != nil {
		return fmt.Errorf("open JetStream: %w", err)
	}
	s.watcher, err = roster.New(roster.Config{
		JetStream: s.control, Names: s.names, TTL: s.cfg.Roster.TTL, Replicas: s.cfg.Stream.Replicas,
		Router: s.token, Handler: s.pools, Log: s.cfg.Logger,
	})
	return err
}

// becomeReady waits for the roster and the pools that it has, and says so.
func (s *Server) becomeReady(ctx context.Context) error {
	select {
	case <-s.watcher.Ready():
	case <-ctx.Done():
		return nil
	}
	for _, p := range s.pools.all() {
		select {
		case <-p.log.Ready():
		case <-p.logEnded: // its last worker left, or the stream is no log
		case <-ctx.Done():
			return nil
		}
	}
	s.phase.CompareAndSwap(protocol.PhaseStarting, protocol.PhaseRunning)
	s.log.Info().Str("router", s.token).Str("nats", s.transport.url).Str("admin", s.AdminAddr()).
		Int("pools", len(s.pools.all())).Msg("ready")
	close(s.ready)
	return nil
}

// drain closes the intake and waits for what it has accepted.
func (s *Server) drain(ctx context.Context, in *intake) error {
	s.phase.Store(protocol.PhaseDraining)
	s.log.Info().Str("router", s.token).Msg("shutting down")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout)
	defer cancel()
	s.watcher.Withdraw(ctx)
	return in.close(ctx)
}

// unready says what a router that is not ready waits for.
func (s *Server) unready() string {
	switch phase := s.Phase(); {
	case phase == protocol.PhaseDraining || phase == protocol.PhaseStopping:
		return "shutting down"
	case phase == protocol.PhaseRunning:
		return ""
	case !s.rosterRead():
		return "reading the roster of workers"
	default:
		return "reading the log"
	}
}

// registered says whether a worker is in the roster, accepted or refused.
func (s *Server) registered(pool string, w protocol.Worker) bool {
	return slices.ContainsFunc(s.watcher.Entries(pool), func(e roster.Entry) bool { return e.Registration.Target() == w }) ||
		slices.ContainsFunc(s.watcher.Refused(pool), func(r roster.Refused) bool { return r.Worker == w })
}

// rosterRead says whether the roster has been read once.
func (s *Server) rosterRead() bool {
	if !s.started.Load() {
		return false
	}
	select {
	case <-s.watcher.Ready():
		return true
	default:
		return false
	}
}

// scopeRows is the tree of scopes as the status call of a pool shows it: without
// those of other pools, of which there may be thousands.
func (s *Server) scopeRows(pool string) []protocol.ScopeStatus {
	rows := []protocol.ScopeStatus{}
	own := poolScope(pool)
	other := func(name string) bool { return name != own && strings.HasPrefix(name, poolScope("")) }
	for _, row := range s.process.Rows() {
		if !other(row.Name) && !other(row.Parent) {
			rows = append(rows, protocol.ScopeStatus{Name: row.Name, Parent: row.Parent, Goroutines: row.Goroutines})
		}
	}
	return rows
}

// poolScope names the scope of a pool.
func poolScope(pool string) string { return "pool " + pool }

// refusedRows are the registrations of a pool that were refused, as status rows;
// the reply gets their counts.
func (s *Server) refusedRows(pool string, reply *protocol.StatusReply) []protocol.RankStatus {
	for reason, n := range s.watcher.RosterRefused(pool) {
		reply.RosterRefused[reason] = n
	}
	var rows []protocol.RankStatus
	for _, refused := range s.watcher.Refused(pool) {
		rows = append(rows, protocol.RankStatus{
			Worker: refused.Worker.ID, Rank: refused.Worker.Rank, Trust: protocol.TrustOff,
			Refused: map[protocol.Refusal]uint64{}, Conflict: refused.Message,
		})
	}
	return rows
}

// mergeRows puts the accepted and the refused rows of a pool into one order.
func mergeRows(accepted, refused []protocol.RankStatus) []protocol.RankStatus {
	rows := append(accepted, refused...)
	slices.SortStableFunc(rows, func(a, b protocol.RankStatus) int { return a.Target().Compare(b.Target()) })
	return rows
}
