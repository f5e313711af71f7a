package subscriber

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

// ErrStreamCeiling says that a stream needs more room than it may have: what
// its workers hold, compacted, or what waits to be compacted has outgrown the
// ceiling. An operator raises it, or resizes the stream by hand.
var ErrStreamCeiling = errors.New("stream is as large as it may be: raise stream.max_bytes or use `routerd pools resize`")

// growFull is the fraction in use at which a stream is doubled whatever fills it.
const growFull = 0.9

// Grow doubles a pool's stream, up to cfg's ceiling, if compacted bytes of state
// exceed a third of it or it is nine tenths full. It returns the usage after
// that and whether the stream was enlarged, and ErrStreamCeiling if it had to be
// and could not. Two routers that grow one stream at once double it once, or
// both set the same size.
func Grow(ctx context.Context, js jetstream.JetStream, cfg StreamConfig, compacted int64) (Usage, bool, error) {
	stream, err := js.Stream(ctx, cfg.name())
	if err != nil {
		return Usage{}, false, fmt.Errorf("inspect stream %s: %w", cfg.name(), err)
	}
	info := stream.CachedInfo()
	usage := usageOf(info)
	if usage.MaxBytes == 0 || (compacted <= usage.MaxBytes/3 && usage.Full() < growFull) {
		return usage, false, nil
	}
	size := min(2*usage.MaxBytes, cfg.ceiling())
	if size <= usage.MaxBytes {
		return usage, false, ErrStreamCeiling
	}
	info.Config.MaxBytes = size
	if err := updateStream(ctx, js, info.Config); err != nil {
		return usage, false, err
	}
	usage.MaxBytes = size
	return usage, true, nil
}

// Resize sets the size and replicas of a pool's stream; 0 keeps what is. The
// error wraps jetstream.ErrStreamNotFound if there is no such stream.
func Resize(ctx context.Context, js jetstream.JetStream, names protocol.Names, pool string, bytes int64, replicas int) (Usage, error) {
	name := names.Stream(pool)
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return Usage{}, fmt.Errorf("inspect stream %s: %w", name, err)
	}
	info := stream.CachedInfo()
	if bytes > 0 {
		if uint64(bytes) < info.State.Bytes {
			return Usage{}, fmt.Errorf("resize stream %s to %d bytes: it holds %d; choose at least that", name, bytes, info.State.Bytes)
		}
		info.Config.MaxBytes = bytes
	}
	if replicas > 0 {
		info.Config.Replicas = replicas
	}
	if err := updateStream(ctx, js, info.Config); err != nil {
		return Usage{}, err
	}
	return StreamUsage(ctx, js, names, pool)
}

func updateStream(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) error {
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("update stream %s: %w", cfg.Name, err)
	}
	return nil
}
