package publisher

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/routerd/routerd/pkg/protocol"
)

const (
	sameAnswer    = time.Second     // that an answer serves whoever asks for the same hole
	answerTimeout = 4 * time.Second // routers wait 5 s
	queuedQueries = 256             // beyond it the connection drops them; routers ask again
	maxAnswering  = 64              // queries being answered at a time; more are told to ask again
)

// answerQueries answers routers until ctx ends: the answer is put into the log,
// behind what waits, and the reply says where it is.
func (p *Publisher) answerQueries(ctx context.Context) error {
	queries := make(chan *nats.Msg, queuedQueries)
	sub, err := p.cfg.Conn.ChanSubscribe(p.cfg.Names.Query(p.cfg.Registration.Pool, p.target), queries)
	if err != nil {
		return fmt.Errorf("subscribe to queries: %w", err)
	}
	r := responder{p: p}
	r.group.SetLimit(maxAnswering)
	defer func() {
		_ = sub.Unsubscribe() // fails only if the connection is closed
		_ = r.group.Wait()    // answers end with ctx and return no error
	}()
	for {
		select {
		case msg := <-queries:
			r.receive(ctx, msg)
		case <-ctx.Done():
			return nil
		}
	}
}

// responder is the state of the goroutine that receives queries.
type responder struct {
	p       *Publisher
	group   errgroup.Group
	answers []*answer // under way, or younger than sameAnswer; at most maxAnswering
}

// answer is one answer, which serves everybody who asks for the same hole.
type answer struct {
	kind  protocol.QueryKind
	from  protocol.EventID // of events
	until protocol.EventID // last id when it was begun

	done  chan struct{} // closed when reply and at are set
	reply protocol.QueryReply
	at    time.Time
}

// receive begins an answer to a query, or joins one.
func (r *responder) receive(ctx context.Context, msg *nats.Msg) {
	p := r.p
	p.mu.Lock()
	p.stats.Queries++
	p.mu.Unlock()
	q, err := protocol.DecodeQuery(msg.Data)
	if err != nil {
		p.respond(msg, protocol.QueryReply{Kind: protocol.QueryError, Message: err.Error()})
		return
	}
	r.forgetOld()
	a, w, refusal := r.begin(q)
	if a == nil {
		p.respond(msg, refusal)
		return
	}
	answering := r.group.TryGo(func() error {
		if w != nil {
			p.finish(ctx, a, w)
		}
		select {
		case <-a.done:
			p.respond(msg, a.reply)
		case <-ctx.Done():
		}
		return nil
	})
	if !answering {
		if w != nil {
			p.mu.Lock()
			p.out.forget(w)
			p.mu.Unlock()
			r.answers = r.answers[:len(r.answers)-1]
		}
		p.respond(msg, protocol.QueryReply{Kind: protocol.QueryError, Message: "too many queries at a time; ask again"})
	}
}

// forgetOld forgets answers that serve nobody else any more.
func (r *responder) forgetOld() {
	kept := r.answers[:0]
	for _, a := range r.answers {
		select {
		case <-a.done:
			if time.Since(a.at) < sameAnswer && a.reply.Kind == a.kind {
				kept = append(kept, a)
			}
		default:
			kept = append(kept, a)
		}
	}
	clear(r.answers[len(kept):])
	r.answers = kept
}

// begin finds the answer that serves a query too, or begins one, whose waiter is
// to be waited for; or it refuses.
func (r *responder) begin(q *protocol.Query) (*answer, *waiter, protocol.QueryReply) {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.out.last
	if q.Epoch != p.out.epoch {
		return nil, nil, protocol.QueryReply{Kind: protocol.QueryWrongEpoch, Through: last, Message: fmt.Sprintf("the epoch is %d", p.out.epoch)}
	}
	if q.From > last {
		return nil, nil, protocol.QueryReply{Kind: protocol.QueryTooNew, Through: last, Message: fmt.Sprintf("the last event is %d", last)}
	}
	a := &answer{kind: protocol.QuerySnapshot, until: last, done: make(chan struct{})}
	if q.From > 0 && p.out.canRewind(q.From) {
		a.kind, a.from = protocol.QueryEvents, q.From
	}
	for _, other := range r.answers {
		if other.kind == a.kind && other.from <= a.from && a.from <= other.until {
			return other, nil, protocol.QueryReply{}
		}
	}
	if len(r.answers) >= maxAnswering {
		return nil, nil, protocol.QueryReply{Kind: protocol.QueryError, Message: "too many queries at a time; ask again"}
	}
	r.answers = append(r.answers, a)
	if a.kind == protocol.QueryEvents {
		return a, p.out.rewind(q.From), protocol.QueryReply{}
	}
	return a, p.out.expectSnapshot(), protocol.QueryReply{}
}

// finish waits until an answer is in the log.
func (p *Publisher) finish(ctx context.Context, a *answer, w *waiter) {
	p.signal()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	stored, err := p.await(ctx, w)
	a.reply = protocol.QueryReply{Kind: a.kind, Through: stored.id, StreamSeq: stored.seq}
	if err != nil {
		a.reply = protocol.QueryReply{Kind: protocol.QueryError, Message: "answer is not in the log: " + err.Error()}
	}
	a.at = time.Now()
	close(a.done)
}

// respond replies in the encoding of the query.
func (p *Publisher) respond(msg *nats.Msg, reply protocol.QueryReply) {
	reply.Version = 1
	body, err := protocol.Marshal(&reply, protocol.DetectEncoding(msg.Data))
	if err == nil {
		err = msg.Respond(body)
	}
	if err != nil {
		p.log.Debug().Err(err).Msg("cannot reply to a query; its router asks again")
	}
}
