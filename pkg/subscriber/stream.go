package subscriber

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

const (
	// DefaultStreamBytes is the size a pool's stream is made with.
	DefaultStreamBytes = 256 << 20

	// epochKey is the stream's own mark in its metadata: random, written once at
	// creation, so that a reader can tell a stream made anew from the old one.
	epochKey = "epoch"

	// minDuplicateWindow is the smallest the server takes. Readers drop repeats by
	// event id, so the stream need not remember message ids.
	minDuplicateWindow = 100 * time.Millisecond
)

// StreamConfig says how a pool's stream is made.
type StreamConfig struct {
	Names protocol.Names
	Pool  string

	// Bytes is the size a new stream gets; default DefaultStreamBytes.
	Bytes int64
	// MaxBytes is the ceiling up to which Grow enlarges it; default Bytes.
	MaxBytes int64
	// Replicas of a new stream, 1 to 5; default 1.
	Replicas int
}

// Validate reports every fault of the configuration.
func (c StreamConfig) Validate() error {
	var faults []error
	if err := protocol.CheckName(c.Pool); err != nil {
		faults = append(faults, fmt.Errorf("pool %q %w", c.Pool, err))
	}
	if c.Bytes < 0 {
		faults = append(faults, fmt.Errorf("stream bytes %d: must not be negative", c.Bytes))
	}
	if c.MaxBytes < 0 || c.MaxBytes > 0 && c.MaxBytes < c.bytes() {
		faults = append(faults, fmt.Errorf("stream max bytes %d: must be at least stream bytes, %d", c.MaxBytes, c.bytes()))
	}
	if c.Replicas < 0 || c.Replicas > 5 {
		faults = append(faults, fmt.Errorf("stream replicas %d: must be 1 to 5", c.Replicas))
	}
	return errors.Join(faults...)
}

func (c StreamConfig) name() string   { return c.Names.Stream(c.Pool) }
func (c StreamConfig) bytes() int64   { return cmp.Or(c.Bytes, DefaultStreamBytes) }
func (c StreamConfig) ceiling() int64 { return max(c.MaxBytes, c.bytes()) }

func (c StreamConfig) stream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        c.name(),
		Subjects:    []string{c.Names.PoolEvents(c.Pool)},
		Storage:     jetstream.FileStorage,
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		MaxBytes:    c.bytes(),
		MaxMsgs:     -1,
		MaxMsgSize:  -1,
		AllowDirect: true,
		Duplicates:  minDuplicateWindow,
		Replicas:    max(c.Replicas, 1),
		Metadata:    map[string]string{epochKey: rand.Text()},
	}
}

// ForeignStreamError says that a stream of a pool's name exists whose settings
// would lose events or hide their loss. It is left as it is.
type ForeignStreamError struct {
	Stream      string
	Differences []string // "setting: has X, needs Y"
}

func (e *ForeignStreamError) Error() string {
	return fmt.Sprintf("stream %s exists with other settings (%s): change them with `nats stream edit %s`, or remove it with `nats stream rm %s` and let routerd create it",
		e.Stream, strings.Join(e.Differences, "; "), e.Stream, e.Stream)
}

// EnsureStream returns a pool's stream, creating it if there is none. Several
// routers may call it at once: one creates, the others read back what it made.
// An existing stream is never changed; if its settings are foreign the error is
// a *ForeignStreamError. Sizes, replicas and the duplicate window may differ.
func EnsureStream(ctx context.Context, js jetstream.JetStream, cfg StreamConfig) (*jetstream.StreamInfo, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, cfg.name())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = js.CreateStream(ctx, cfg.stream())
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			stream, err = js.Stream(ctx, cfg.name())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create or inspect stream %s: %w", cfg.name(), err)
	}
	info := stream.CachedInfo()
	if diff := foreign(&info.Config, cfg); len(diff) > 0 {
		return nil, &ForeignStreamError{Stream: cfg.name(), Differences: diff}
	}
	return info, nil
}

// foreign lists what keeps a stream from being a pool's log.
func foreign(have *jetstream.StreamConfig, cfg StreamConfig) []string {
	want := cfg.stream()
	var diff []string
	differs := func(setting string, has, needs any) {
		diff = append(diff, fmt.Sprintf("%s: has %v, needs %v", setting, has, needs))
	}
	if !slices.Equal(have.Subjects, want.Subjects) {
		differs("subjects", have.Subjects, want.Subjects)
	}
	if have.Storage != want.Storage {
		differs("storage", have.Storage, want.Storage)
	}
	if have.Retention != want.Retention {
		differs("retention", have.Retention, want.Retention)
	}
	if have.Discard != want.Discard {
		differs("discard", have.Discard, want.Discard)
	}
	if have.MaxAge != 0 {
		differs("max_age", have.MaxAge, "none")
	}
	if have.MaxMsgs > 0 {
		differs("max_msgs", have.MaxMsgs, "none")
	}
	if have.MaxMsgsPerSubject > 0 {
		differs("max_msgs_per_subject", have.MaxMsgsPerSubject, "none")
	}
	if have.MaxMsgSize > 0 && have.MaxMsgSize < protocol.MaxPackedMessage {
		differs("max_msg_size", have.MaxMsgSize, fmt.Sprintf("at least %d", protocol.MaxPackedMessage))
	}
	for _, flag := range []struct {
		setting    string
		has, needs bool
	}{
		{"allow_direct", have.AllowDirect, true},
		{"deny_purge", have.DenyPurge, false},
		{"no_ack", have.NoAck, false},
		{"sealed", have.Sealed, false},
		{"mirror", have.Mirror != nil, false},
		{"sources", len(have.Sources) > 0, false},
		{"subject_transform", have.SubjectTransform != nil, false},
	} {
		if flag.has != flag.needs {
			differs(flag.setting, flag.has, flag.needs)
		}
	}
	if have.Metadata[epochKey] == "" {
		differs("metadata."+epochKey, "none", "a random text")
	}
	return diff
}

// Usage is how full a pool's stream is.
type Usage struct {
	Messages uint64
	Bytes    uint64
	MaxBytes int64 // 0: no limit
	Subjects uint64
	LastSeq  protocol.StreamSeq
	Replicas int
}

// Full is the fraction of MaxBytes in use, 0 without a limit.
func (u Usage) Full() float64 {
	if u.MaxBytes <= 0 {
		return 0
	}
	return float64(u.Bytes) / float64(u.MaxBytes)
}

func usageOf(info *jetstream.StreamInfo) Usage {
	return Usage{
		Messages: info.State.Msgs,
		Bytes:    info.State.Bytes,
		MaxBytes: max(info.Config.MaxBytes, 0),
		Subjects: info.State.NumSubjects,
		LastSeq:  protocol.StreamSeq(info.State.LastSeq),
		Replicas: info.Config.Replicas,
	}
}

// StreamUsage reads how full a pool's stream is. The error wraps
// jetstream.ErrStreamNotFound if there is none.
func StreamUsage(ctx context.Context, js jetstream.JetStream, names protocol.Names, pool string) (Usage, error) {
	name := names.Stream(pool)
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return Usage{}, fmt.Errorf("inspect stream %s: %w", name, err)
	}
	return usageOf(stream.CachedInfo()), nil
}
