package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/scope"
)

// publishCommand puts events on the log as they are given, wrong ones too: it
// shows what routers make of them. Workers use pkg/publisher, which keeps count
// of what it holds.
type publishCommand struct {
	connection `embed:""`
	Pool       string `required:"" help:"Pool of the worker."`
	Worker     string `required:"" help:"Worker to register."`
	Rank       uint16 `default:"0" help:"Its rank."`
	BlockSize  int    `required:"" help:"Tokens of a block in the pool."`
	Endpoint   string `help:"Endpoint to register." placeholder:"URL"`
	Stay       bool   `help:"Stay registered after the end of the input, until interrupted."`
	JSON       bool   `name:"json" help:"Print the report as JSON."`
}

// publishReport is what the command prints at the end.
type publishReport struct {
	Pool      string             `json:"pool"`
	Worker    string             `json:"worker"`
	Rank      uint16             `json:"rank"`
	Epoch     protocol.Epoch     `json:"epoch"`
	Events    int                `json:"events"`
	LastID    protocol.EventID   `json:"last_id"`
	StreamSeq protocol.StreamSeq `json:"stream_seq"`
}

// maxLine bounds one line of input: a message of the largest payload.
const maxLine = 1 << 20

// Run implements the command.
func (c *publishCommand) Run(a *app) error {
	for flag, name := range map[string]string{"--pool": c.Pool, "--worker": c.Worker} {
		if err := protocol.CheckName(name); err != nil {
			return usagef("%s: %w", flag, err)
		}
	}
	if c.BlockSize < 1 || c.BlockSize > protocol.MaxBlockSize {
		return usagef("--block-size: must be 1 to %d", protocol.MaxBlockSize)
	}
	s, err := c.open(a)
	if err != nil {
		return err
	}
	defer s.close()
	w := &rawWorker{session: s, timeout: c.Timeout, registration: protocol.Registration{
		Version: 1, Pool: c.Pool, Worker: c.Worker, Rank: c.Rank, BlockSize: c.BlockSize, Endpoint: c.Endpoint, Events: true,
	}}
	if err := w.register(a.ctx); err != nil {
		return err
	}
	refreshing := scope.New(a.ctx, "refresh")
	refreshing.Go(w.refresh)
	events, err := w.publishLines(a.ctx, a.stdin)
	if err == nil && c.Stay {
		fmt.Fprintf(a.stderr, "published %d events; staying registered until interrupted\n", events)
		<-a.ctx.Done()
	}
	err = errors.Join(err, refreshing.Close(), w.leave())
	if err != nil {
		return err
	}
	report := publishReport{c.Pool, c.Worker, c.Rank, *w.registration.Epoch, events, w.registration.LastID, w.registration.StreamSeq}
	if c.JSON {
		return printJSON(a.stdout, report)
	}
	_, err = fmt.Fprintf(a.stdout, "published %d events of %s/%d in epoch %d; last id %d at stream sequence %d\n",
		events, c.Worker, c.Rank, report.Epoch, report.LastID, report.StreamSeq)
	return err
}

// rawWorker is a registered worker whose events are not looked at.
type rawWorker struct {
	*session
	timeout      time.Duration
	bucket       jetstream.KeyValue
	revision     uint64
	registration protocol.Registration // the publishing goroutine's own but for what register set
}

// register begins a life of the worker.
func (w *rawWorker) register(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	name := w.names.WorkersBucket()
	if w.bucket, err = w.js.KeyValue(ctx, name); err != nil {
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			return fmt.Errorf("bucket %s does not exist: no router has run here with this --prefix; start one with `routerd serve`", name)
		}
		return fmt.Errorf("open bucket %s: %w", name, err)
	}
	value, err := protocol.Marshal(&w.registration, protocol.EncodingJSON)
	if err != nil {
		return err
	}
	if w.revision, err = w.bucket.Put(ctx, w.key(), value); err != nil {
		return fmt.Errorf("register in bucket %s: %w", name, err)
	}
	epoch := protocol.Epoch(w.revision)
	w.registration.Epoch = &epoch
	return nil
}

func (w *rawWorker) key() string {
	return protocol.WorkerKey(w.registration.Pool, w.registration.Target())
}

// refreshEvery keeps the registration alive in a bucket of the default time to live.
const refreshEvery = 3 * time.Second

// refresh keeps the registration alive until ctx ends.
func (w *rawWorker) refresh(ctx context.Context) error {
	value, err := protocol.Marshal(&protocol.Registration{
		Version: 1, Pool: w.registration.Pool, Worker: w.registration.Worker, Rank: w.registration.Rank,
		BlockSize: w.registration.BlockSize, Endpoint: w.registration.Endpoint, Events: true, Epoch: w.registration.Epoch,
	}, protocol.EncodingJSON)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(refreshEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		revision, err := w.bucket.Update(ctx, w.key(), value, w.revision)
		if errors.Is(err, jetstream.ErrKeyExists) {
			return fmt.Errorf("another process has registered worker %s", w.registration.Target())
		}
		if err == nil {
			w.revision = revision
		}
	}
}

// leave takes the registration back, unless a successor has replaced it.
func (w *rawWorker) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	defer cancel()
	err := w.bucket.Delete(ctx, w.key(), jetstream.LastRevision(w.revision))
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("deregister: %w", err)
	}
	return nil
}

// publishLines publishes one event per line and returns how many.
func (w *rawWorker) publishLines(ctx context.Context, in io.Reader) (int, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	events := 0
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		event, err := w.number(lines.Bytes())
		if err != nil {
			return events, usagef("line %d: %w", n, err)
		}
		if err := w.publish(ctx, event); err != nil {
			return events, fmt.Errorf("line %d: %w", n, err)
		}
		events++
	}
	if err := lines.Err(); err != nil {
		return events, usagef("read standard input: %w (a line holds at most %d bytes)", err, maxLine)
	}
	return events, nil
}

// number gives an event without an id the next one.
func (w *rawWorker) number(line []byte) (json.RawMessage, error) {
	var event map[string]json.RawMessage
	if err := json.Unmarshal(line, &event); err != nil || event == nil {
		return nil, errors.New(`must be one JSON object like {"stored":{"parent":null,"blocks":[[1,2]]}}`)
	}
	if raw, ok := event["id"]; ok {
		var id protocol.EventID
		if json.Unmarshal(raw, &id) == nil { // a wrong id is the router's to refuse
			w.registration.LastID = max(w.registration.LastID, id)
		}
		return json.RawMessage(line), nil
	}
	w.registration.LastID++
	event["id"] = json.RawMessage(fmt.Sprint(w.registration.LastID))
	return json.Marshal(event)
}

// publish puts one event on the log. The router makes the stream when it sees
// the registration, so nobody may answer at first.
func (w *rawWorker) publish(ctx context.Context, event json.RawMessage) error {
	body, err := json.Marshal(map[string]any{"v": 1, "epoch": w.registration.Epoch, "events": []json.RawMessage{event}})
	if err != nil {
		return err
	}
	subject := w.names.Events(w.registration.Pool, w.registration.Target())
	deadline := time.Now().Add(w.timeout)
	for {
		ack, err := w.js.Publish(ctx, subject, body)
		if err == nil {
			w.registration.StreamSeq = protocol.StreamSeq(ack.Sequence)
			return nil
		}
		if !errors.Is(err, jetstream.ErrNoStreamResponse) && !errors.Is(err, nats.ErrNoResponders) || time.Now().After(deadline) {
			return fmt.Errorf("publish on %s: %w (is a router running?)", subject, err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
