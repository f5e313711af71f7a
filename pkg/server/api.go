package server

import (
	"context"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/router"
)

// Route chooses a worker of a pool and admits the request on it; the calls over
// NATS come here too. Its errors are *protocol.Error, or ctx's if that ends
// first, and then nothing is admitted.
func (s *Server) Route(ctx context.Context, pool string, r *protocol.RouteRequest) (*protocol.RouteReply, error) {
	p, err := s.pool(pool)
	if err != nil {
		return nil, err
	}
	return p.router.Route(ctx, r)
}

// Overlap says what the workers of a pool hold of a prompt.
func (s *Server) Overlap(pool string, r *protocol.OverlapRequest) (*protocol.OverlapReply, error) {
	p, err := s.pool(pool)
	if err != nil {
		return nil, err
	}
	return p.router.Overlap(r)
}

// Loads says what the workers of a pool are charged with.
func (s *Server) Loads(pool string) (*protocol.LoadsReply, error) {
	p, err := s.pool(pool)
	if err != nil {
		return nil, err
	}
	return p.router.Loads(), nil
}

// Progress takes a frontend's report that a request is alive.
func (s *Server) Progress(pool string, r *protocol.ProgressReport) error {
	p, err := s.pool(pool)
	if err != nil {
		return err
	}
	p.router.Progress(r)
	return nil
}

// Complete takes a frontend's report that a request has ended.
func (s *Server) Complete(pool string, r *protocol.CompleteReport) error {
	p, err := s.pool(pool)
	if err != nil {
		return err
	}
	p.router.Complete(r)
	return nil
}

// Status says what this router knows of a pool.
func (s *Server) Status(pool string, r *protocol.StatusRequest) (*protocol.StatusReply, error) {
	if !s.started.Load() {
		return nil, protocol.Errorf(protocol.CodeNotReady, "this router is starting: try again")
	}
	reply := &protocol.StatusReply{
		Pool: pool, Router: s.token, Routers: append([]string{}, s.watcher.Routers()...), Phase: s.Phase(),
		Ranks: []protocol.RankStatus{}, RosterRefused: map[string]uint64{}, Scopes: s.scopeRows(pool),
	}
	rows := s.refusedRows(pool, reply)
	if p, err := s.pool(pool); err == nil {
		reply.BlockSize = p.router.BlockSize()
		reply.StreamSeqApplied, reply.StreamSeqKnown = p.log.Applied(), p.log.Known()
		rows = mergeRows(p.router.Ranks(r.At), rows)
	} else if len(rows) == 0 {
		return nil, err // a pool whose registrations were all refused is worth showing
	}
	reply.Ranks, reply.More = router.PageRanks(rows, r.After)
	return reply, nil
}

// withdraw ends an admitted request whose reply could not be sent.
func (s *Server) withdraw(pool string, reply *protocol.RouteReply) {
	if p, err := s.pool(pool); err == nil {
		p.router.Withdraw(reply.RequestID, reply.Attempt)
	}
}

// pool finds a pool, or says why it cannot be used.
func (s *Server) pool(name string) (*pool, error) {
	if !s.rosterRead() {
		return nil, protocol.Errorf(protocol.CodeNotReady, "this router has not read the roster of workers yet: try again")
	}
	if p := s.pools.get(name); p != nil {
		return p, nil
	}
	if s.Phase() == protocol.PhaseStopping {
		return nil, protocol.Errorf(protocol.CodeShuttingDown, "this router has shut down: call another")
	}
	return nil, protocol.Errorf(protocol.CodeUnknownPool,
		"pool %q has no worker: `routerd pools` lists those that have; a worker joins by registering in bucket %s", name, s.names.WorkersBucket())
}
