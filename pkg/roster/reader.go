package roster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

const (
	heartbeat     = time.Second     // of the server, while nothing changes; two missed are a loss
	pullExpiry    = 5 * time.Second // of one pull
	pullMessages  = 512             // asked for and held at a time
	consumerLimit = time.Minute     // the server forgets an abandoned consumer after it
	wholePatience = time.Second     // silence in a whole read after which its end is looked for
	retryMin      = 50 * time.Millisecond
	retryMax      = 500 * time.Millisecond
	// maxRecords bounds the keys of one whole read, live ones and marks.
	maxRecords = 2 * maxRanks
)

// Reasons to begin anew.
var (
	errDisconnected = errors.New("connection to NATS is lost")
	errMissed       = errors.New("the server skipped a message")
)

// update is what a reader says of its bucket.
type update struct {
	source source
	kind   kind
	born   time.Time     // whole: creation of the bucket
	ttl    time.Duration // whole: of its keys
	all    []record      // whole
	one    record        // change
}

// source is the bucket that an update is of.
type source uint8

const (
	fromWorkers source = iota
	fromRouters
	fromDrains
)

// kind is what an update says.
type kind uint8

const (
	kindLost   kind = iota // the bucket is no longer followed
	kindWhole              // it has been read and is followed from here on
	kindChange             // one of its keys changed
)

// reader follows one bucket.
type reader struct {
	js      jetstream.JetStream
	spec    spec
	source  source
	updates chan<- update
	log     zerolog.Logger
	random  *rand.Rand // of retries
	warned  bool       // of a loss that still lasts
	checked time.Time  // creation of the bucket whose settings were looked at
}

// run reads the bucket until ctx ends: whole, then change by change, and again
// from the start after whatever goes wrong.
func (r *reader) run(ctx context.Context) {
	wait := retryMin
	for ctx.Err() == nil {
		began, err := r.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if began {
			r.send(ctx, update{source: r.source, kind: kindLost})
			wait = retryMin
			r.log.Info().Err(err).Str("bucket", r.spec.bucket).Msg("reading the roster bucket again")
		} else if !r.warned {
			r.log.Warn().Err(err).Str("bucket", r.spec.bucket).Msg("roster bucket cannot be followed, trying again")
			r.warned = true
		}
		r.pause(ctx, wait/2+time.Duration(r.random.Int64N(int64(wait))))
		wait = min(2*wait, retryMax)
	}
}

func (r *reader) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// send waits for the watcher: the log keeps what is not yet read.
func (r *reader) send(ctx context.Context, u update) {
	select {
	case r.updates <- u:
	case <-ctx.Done():
	}
}

// session follows the bucket until something is wrong. began says whether it had
// read the whole bucket.
func (r *reader) session(ctx context.Context) (began bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	conn := r.js.Conn()
	lostConn := conn.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case <-lostConn:
			cancel(errDisconnected)
		case <-ctx.Done():
		}
	})
	defer func() {
		cancel(nil)
		group.Wait()
		conn.RemoveStatusListener(lostConn)
	}()
	if !conn.IsConnected() {
		return false, errDisconnected
	}
	f, err := r.follow(ctx)
	if err != nil {
		return false, err
	}
	defer f.messages.Stop()
	all, err := f.whole(ctx, r.log)
	if err != nil {
		return false, err
	}
	r.send(ctx, update{source: r.source, kind: kindWhole, born: f.born, ttl: f.ttl, all: all})
	if r.warned {
		r.log.Info().Str("bucket", r.spec.bucket).Int("keys", len(all)).Msg("roster bucket is followed again")
		r.warned = false
	}
	for {
		one, _, err := f.next(ctx)
		if err != nil {
			return true, err
		}
		r.send(ctx, update{source: r.source, kind: kindChange, one: one})
	}
}

// follow opens the bucket and begins to read it. Its consumer acknowledges
// nothing and lives in the server's memory.
func (r *reader) follow(ctx context.Context) (*follower, error) {
	stream, err := r.spec.open(ctx, r.js)
	if err != nil {
		return nil, err
	}
	info := stream.CachedInfo()
	if names := r.spec.differences(info.Config); len(names) > 0 && !info.Created.Equal(r.checked) {
		r.checked = info.Created
		r.log.Warn().Str("bucket", r.spec.bucket).Str("settings", strings.Join(names, ",")).
			Msg("roster bucket was made with other settings and is used as it is")
	}
	f := &follower{bucket: r.spec.bucket, born: info.Created, ttl: info.Config.MaxAge}
	if f.ttl <= 0 {
		f.ttl = max(r.spec.ttl, time.Second)
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	f.consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject:     keySubject(r.spec.bucket, ">"),
		DeliverPolicy:     jetstream.DeliverLastPerSubjectPolicy,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: consumerLimit,
	})
	if err != nil {
		return nil, fmt.Errorf("follow bucket %s: %w", r.spec.bucket, err)
	}
	f.messages, err = f.consumer.Messages(jetstream.PullMaxMessages(pullMessages),
		jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(heartbeat))
	if err != nil {
		return nil, fmt.Errorf("follow bucket %s: %w", r.spec.bucket, err)
	}
	return f, nil
}

// follower is one pass through a bucket.
type follower struct {
	bucket   string
	born     time.Time
	ttl      time.Duration
	consumer jetstream.Consumer
	messages jetstream.MessagesContext
	last     uint64 // consumer sequence
}

// next is the next record, and how many are known to follow it.
func (f *follower) next(ctx context.Context) (record, uint64, error) {
	msg, err := f.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return record{}, 0, fmt.Errorf("read bucket %s: %w", f.bucket, err)
	}
	meta, err := msg.Metadata()
	if err != nil {
		return record{}, 0, fmt.Errorf("read bucket %s: %w", f.bucket, err)
	}
	if meta.Sequence.Consumer != f.last+1 {
		return record{}, 0, fmt.Errorf("read bucket %s: %w", f.bucket, errMissed)
	}
	f.last = meta.Sequence.Consumer
	return newRecord(f.bucket, msg.Subject(), msg.Headers(), meta.Sequence.Stream, msg.Data()), meta.NumPending, nil
}

// whole reads up to the bucket's end and returns the latest record of each key.
func (f *follower) whole(ctx context.Context, log zerolog.Logger) ([]record, error) {
	latest := map[string]record{}
	full := false
	for pending := f.consumer.CachedInfo().NumPending; pending > 0; {
		patience, cancel := context.WithTimeout(ctx, wholePatience)
		r, left, err := f.next(patience)
		cancel()
		switch {
		case err == nil:
			pending = left
			_, known := latest[r.key]
			if known || len(latest) < maxRecords {
				latest[r.key] = r
			} else {
				full = true
			}
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			// What was to come has expired meanwhile.
			if pending, err = f.pending(ctx); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
	}
	if full {
		log.Warn().Str("bucket", f.bucket).Int("limit", maxRecords).Msg("roster bucket holds more keys than are read")
	}
	records := make([]record, 0, len(latest))
	for _, r := range latest {
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b record) int { return strings.Compare(a.key, b.key) })
	return records, nil
}

// pending asks the server how many records are still to come.
func (f *follower) pending(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	info, err := f.consumer.Info(ctx)
	if err != nil {
		return 0, fmt.Errorf("read bucket %s: %w", f.bucket, err)
	}
	inFlight := info.Delivered.Consumer - min(f.last, info.Delivered.Consumer)
	return info.NumPending + inFlight, nil
}
