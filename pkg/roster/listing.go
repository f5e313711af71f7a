package roster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// listingRetry is the pause after a refresh that failed.
const listingRetry = 300 * time.Millisecond

// listing is this router's own key in the routers' bucket.
type listing struct {
	js      jetstream.JetStream
	bucket  string
	router  string // empty: not listed
	ttl     time.Duration
	log     zerolog.Logger
	started time.Time

	turn chan struct{} // holds the one token of whoever writes the key
	done bool          // guarded by turn: withdrawn, never to be written again
}

func newListing(cfg Config) *listing {
	l := &listing{
		js: cfg.JetStream, bucket: cfg.Names.RoutersBucket(), router: cfg.Router, ttl: cfg.TTL, log: cfg.Log,
		started: time.Now(), turn: make(chan struct{}, 1),
	}
	l.turn <- struct{}{}
	return l
}

// run refreshes the key three times per TTL until ctx ends, from ready on: a
// router that knows no worker yet is no replacement for one that does.
func (l *listing) run(ctx context.Context, ready <-chan struct{}) {
	if l.router == "" {
		return
	}
	select {
	case <-ready:
	case <-ctx.Done():
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for failures := 0; ; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		err := l.write(ctx, false)
		switch {
		case err == nil:
			failures = 0
			timer.Reset(l.ttl / 3)
			continue
		case ctx.Err() != nil:
			return
		}
		if failures++; failures == 2 { // at first the bucket may not have been made yet
			l.log.Warn().Err(err).Msg("router cannot list itself, trying again")
		}
		timer.Reset(listingRetry)
	}
}

// withdraw takes the key back for good.
func (l *listing) withdraw(ctx context.Context) error {
	if l.router == "" {
		return nil
	}
	return l.write(ctx, true)
}

// write puts or deletes the key.
func (l *listing) write(ctx context.Context, last bool) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("list router: %w", context.Cause(ctx))
	}
	if l.done {
		return nil
	}
	l.done = last
	msg := nats.NewMsg(keySubject(l.bucket, l.router))
	if last {
		msg.Header.Set(headerOperation, "DEL")
	} else {
		body, err := json.Marshal(struct {
			Version int    `json:"v"`
			Router  string `json:"router"`
			Started string `json:"started"`
		}{1, l.router, l.started.UTC().Format(time.RFC3339)})
		if err != nil {
			return fmt.Errorf("list router: %w", err)
		}
		msg.Data = body
	}
	if _, err := l.js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0)); err != nil {
		return fmt.Errorf("list router in bucket %s: %w", l.bucket, err)
	}
	return nil
}
