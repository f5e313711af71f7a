package router

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/routerd/routerd/pkg/lease"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/scheduler"
)

// Matcher is the index as a router needs it.
type Matcher interface {
	// Match appends what each worker holds of a prompt to dst.
	Match(dst []protocol.Match, prompt []protocol.BlockHash) []protocol.Match
	// State is what a worker holds in all.
	State(w protocol.Worker) protocol.HeldState
}

// Log says how far the index follows the log.
type Log interface {
	// Trust is what is known of one worker's part of the index.
	Trust(w protocol.Worker) protocol.Trust
	// Applied is the stream sequence up to which every message has been dealt with.
	Applied() protocol.StreamSeq
	// CaughtUp says whether the end of the log, as of the start, has been reached.
	CaughtUp() bool
	// Ranks has a row per rank, as of a stream sequence if that is not 0.
	Ranks(at protocol.StreamSeq) []protocol.RankStatus
}

// Config joins the parts of one pool. All fields are required.
type Config struct {
	Pool      string
	Router    string // this router's token
	BlockSize int    // tokens
	Eagle     bool
	Matcher   Matcher
	Log       Log
	Scheduler *scheduler.Scheduler
	Leases    *lease.Manager
}

// Router answers the calls of one pool.
type Router struct {
	cfg     Config
	scratch sync.Pool // of *scratch

	mu      sync.Mutex             // serialises changes of workers
	workers atomic.Pointer[roster] // replaced as a whole
}

// scratch is the memory that one call needs and the next one reuses.
type scratch struct {
	hashes  []protocol.BlockHash
	matches []protocol.Match
}

// New makes the router of a pool without workers.
func New(cfg Config) *Router {
	r := &Router{cfg: cfg}
	r.scratch.New = func() any { return new(scratch) }
	r.workers.Store(&roster{})
	return r
}

// SetWorker takes an accepted roster entry, new or changed. draining joins the
// worker's own wish and an operator's. The error names attributes that are no
// rates; the worker is set all the same, with the pool's rates in their place.
func (r *Router) SetWorker(reg *protocol.Registration, draining bool) error {
	w := reg.Target()
	next := &entry{settings(reg), draining}
	if reflect.DeepEqual(r.workers.Load().of(w), next) {
		return nil // a refresh
	}
	r.changeRoster(func(now *roster) *roster { return now.with(w, next) })
	return r.cfg.Scheduler.SetRank(scheduler.Rank{
		Worker: w, TotalBlocks: reg.TotalKVBlocks, MaxBatchedTokens: reg.MaxNumBatchedTokens,
		Taints: reg.Taints, Attributes: reg.Attributes, Draining: draining,
	})
}

// settings is a registration without what changes from refresh to refresh.
func settings(reg *protocol.Registration) protocol.Registration {
	s := *reg
	s.Epoch, s.LastID, s.StreamSeq, s.Checksum, s.Unsent = nil, 0, 0, nil, 0
	return s
}

// RemoveWorker forgets a worker that left, and ends its leases.
func (r *Router) RemoveWorker(w protocol.Worker) {
	r.changeRoster(func(now *roster) *roster { return now.without(w) })
	r.cfg.Scheduler.RemoveRank(w) // first, or a report in between revives a lease whose charge then goes
	r.cfg.Leases.EndWorker(w)
}

func (r *Router) changeRoster(change func(*roster) *roster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workers.Store(change(r.workers.Load()))
}

// Workers is the number of accepted workers.
func (r *Router) Workers() int { return len(r.workers.Load().order) }

// Route chooses a worker and admits the request on it, unless it is query_only.
// If ctx ends first nothing is admitted and ctx's error is returned; every other
// error is a *protocol.Error.
func (r *Router) Route(ctx context.Context, q *protocol.RouteRequest) (*protocol.RouteReply, error) {
	buf := r.scratch.Get().(*scratch)
	defer r.scratch.Put(buf)
	hashes, err := r.blockHashes(buf, &q.Prompt)
	if err != nil {
		return nil, err
	}
	indexSeq := r.cfg.Log.Applied()
	usable := r.cfg.Log.CaughtUp()
	buf.matches = buf.matches[:0]
	if usable {
		buf.matches = r.cfg.Matcher.Match(buf.matches, hashes)
	}
	requestID := q.RequestID
	if requestID == "" {
		requestID = uuid.NewString()
	}
	attempt := max(q.Attempt, 1)
	if !q.QueryOnly {
		if err := r.cfg.Leases.Begin(requestID, attempt); err != nil {
			return nil, err
		}
		defer r.cfg.Leases.Abandon(requestID, attempt) // does nothing once admitted
	}
	decision, err := r.cfg.Scheduler.Schedule(ctx, &scheduler.Request{
		Lease:  protocol.Lease{ID: uuid.New(), RequestID: requestID, Attempt: attempt},
		Tokens: q.Tokens(), Hashes: hashes, Matches: buf.matches,
		Usable: func(w protocol.Worker) bool { return usable && r.usable(w) },
		Pinned: q.Pinned, Allowed: q.Allowed, Excluded: q.Excluded,
		RequiredTaints: q.RequiredTaints, PreferredTaints: q.PreferredTaints,
		Overrides: q.Overrides, QueryOnly: q.QueryOnly, Explain: q.Explain,
	})
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil && !q.QueryOnly {
		r.Withdraw(requestID, attempt)
		return nil, err
	}
	reply := r.reply(q, decision, len(hashes))
	reply.RequestID, reply.Attempt, reply.IndexSeq = requestID, attempt, indexSeq
	return reply, nil
}

// Withdraw ends an admitted request whose caller never got the reply.
func (r *Router) Withdraw(requestID string, attempt uint32) {
	r.cfg.Leases.Complete(&protocol.CompleteReport{RequestID: requestID, Attempt: attempt})
}

func (r *Router) reply(q *protocol.RouteRequest, d *scheduler.Decision, blocks int) *protocol.RouteReply {
	workers := r.workers.Load()
	reply := &protocol.RouteReply{
		Worker: d.Worker.ID, Rank: d.Worker.Rank,
		Endpoint: workers.endpoint(d.Worker),
		Overlap:  d.Overlap, CachedTokens: d.CachedTokens, PrefillTokens: d.PrefillTokens, ISLTokens: q.Tokens(),
		Cost: d.Cost, Trust: r.trust(workers, d.Worker), Reason: d.Reason, Router: r.cfg.Router,
		QueuedMS:   float64(d.Queued) / float64(time.Millisecond),
		Candidates: []protocol.Candidate{},
	}
	if !q.QueryOnly {
		reply.Lease = d.Lease.String()
	}
	if d.Overlap == (protocol.Overlap{}) {
		reply.ZeroOverlap = r.whyZero(workers, d.Worker, blocks)
	}
	if q.Explain {
		n := fitting(len(d.Candidates), func(i int) int { return candidateBytes + written(d.Candidates[i].Worker) })
		reply.Candidates, reply.More = d.Candidates[:n], n < len(d.Candidates)
		for i := range reply.Candidates {
			c := &reply.Candidates[i]
			c.Trust = r.trust(workers, protocol.Worker{ID: c.Worker, Rank: c.Rank})
		}
	}
	return reply
}

// usable says whether a worker's part of the index can be relied on.
func (r *Router) usable(w protocol.Worker) bool {
	return r.trust(r.workers.Load(), w) != protocol.TrustOff
}

func (r *Router) trust(workers *roster, w protocol.Worker) protocol.Trust {
	if !workers.publishes(w) {
		return protocol.TrustOff
	}
	return r.cfg.Log.Trust(w)
}

func (r *Router) whyZero(workers *roster, w protocol.Worker, blocks int) protocol.ZeroOverlap {
	switch trust := r.trust(workers, w); {
	case blocks == 0:
		return protocol.ZeroShorterThanBlock
	case trust == protocol.TrustOff:
		return protocol.ZeroWorkerOff
	case !r.cfg.Log.CaughtUp():
		return protocol.ZeroIndexBehind
	case r.cfg.Matcher.State(w).Blocks > 0:
		return protocol.ZeroNoPrefix
	case trust == protocol.TrustExact:
		return protocol.ZeroNonePublished
	default:
		return protocol.ZeroIndexBehind
	}
}

// blockHashes are the hashes of a prompt's whole blocks, in buf or the prompt's own.
func (r *Router) blockHashes(buf *scratch, p *protocol.Prompt) ([]protocol.BlockHash, error) {
	if err := p.Check(r.cfg.BlockSize, r.cfg.Eagle); err != nil {
		return nil, err
	}
	if p.ByHash {
		return p.BlockHashes, nil
	}
	buf.hashes = protocol.BlockHashes(buf.hashes[:0], p.TokenIDs, protocol.HashOptions{
		BlockSize: r.cfg.BlockSize, LoRA: p.LoRA, Salt: p.CacheSalt, Eagle: r.cfg.Eagle,
	})
	return buf.hashes, nil
}

// Overlap says what every accepted worker holds of a prompt.
func (r *Router) Overlap(q *protocol.OverlapRequest) (*protocol.OverlapReply, error) {
	buf := r.scratch.Get().(*scratch)
	defer r.scratch.Put(buf)
	hashes, err := r.blockHashes(buf, &q.Prompt)
	if err != nil {
		return nil, err
	}
	reply := &protocol.OverlapReply{
		BlockSize: r.cfg.BlockSize, Blocks: len(hashes), IndexSeq: r.cfg.Log.Applied(),
		Workers: []protocol.WorkerOverlap{},
	}
	buf.matches = r.cfg.Matcher.Match(buf.matches[:0], hashes)
	held := make(map[protocol.Worker]protocol.Overlap, len(buf.matches))
	for _, m := range buf.matches {
		held[m.Worker] = m.Overlap
	}
	workers := r.workers.Load()
	order := after(workers.order, q.After)
	n := fitting(len(order), func(i int) int { return overlapBytes + written(order[i].ID) })
	for _, w := range order[:n] {
		reply.Workers = append(reply.Workers, protocol.WorkerOverlap{
			Worker: w.ID, Rank: w.Rank, Overlap: held[w], Trust: r.trust(workers, w),
		})
	}
	reply.More = n < len(order)
	return reply, nil
}

// Loads says what the accepted workers are charged with.
func (r *Router) Loads() *protocol.LoadsReply {
	return &protocol.LoadsReply{
		Pool: r.cfg.Pool, Router: r.cfg.Router,
		Workers: append([]protocol.WorkerLoad{}, r.cfg.Scheduler.Loads()...),
		Queues:  []protocol.QueueLoad{},
	}
}

// Ranks has a status row per accepted worker in order, as of a stream sequence
// if that is not 0.
func (r *Router) Ranks(at protocol.StreamSeq) []protocol.RankStatus {
	known := map[protocol.Worker]protocol.RankStatus{}
	for _, row := range r.cfg.Log.Ranks(at) {
		known[row.Target()] = row
	}
	workers := r.workers.Load()
	rows := make([]protocol.RankStatus, 0, len(workers.order))
	for i, w := range workers.order {
		e := workers.entries[i]
		row, ok := known[w]
		if !ok {
			row = protocol.RankStatus{Trust: protocol.TrustPartial}
		}
		if !e.registration.Events {
			row.Trust = protocol.TrustOff
		}
		if row.Refused == nil {
			row.Refused = map[protocol.Refusal]uint64{}
		}
		row.Worker, row.Rank = w.ID, w.Rank
		row.Endpoint, row.Events, row.Drain = e.registration.Endpoint, e.registration.Events, e.draining
		rows = append(rows, row)
	}
	return rows
}

// Progress takes a report that a request is alive.
func (r *Router) Progress(report *protocol.ProgressReport) { r.cfg.Leases.Progress(report) }

// Complete takes a report that a request has ended.
func (r *Router) Complete(report *protocol.CompleteReport) { r.cfg.Leases.Complete(report) }

// BlockSize is the tokens of a block in this pool.
func (r *Router) BlockSize() int { return r.cfg.BlockSize }

func (r *Router) String() string { return fmt.Sprintf("router of pool %q", r.cfg.Pool) }
