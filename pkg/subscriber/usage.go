package subscriber

import (
	"context"
	"errors"
	"time"
)

// watchUsage reads how full the stream is, now and then: from half full on every
// tail is compacted, and a stream too small for its state is enlarged.
func (c *caretaker) watchUsage(ctx context.Context) {
	if c.cfg.Compaction.Off {
		return
	}
	ticker := time.NewTicker(c.cfg.Compaction.UsageEvery)
	defer ticker.Stop()
	alarmed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !c.contact.Load() {
			continue
		}
		alarmed = c.checkUsage(ctx, alarmed)
	}
}

// checkUsage returns whether the stream needs to grow and may not.
func (c *caretaker) checkUsage(ctx context.Context, alarmed bool) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	usage, grown, err := Grow(ctx, c.cfg.Publish, c.cfg.Stream, c.compacted())
	switch {
	case errors.Is(err, ErrStreamCeiling):
		c.stats.ceiling.Add(1)
		if !alarmed {
			c.log.Error().Err(err).Uint64("bytes", usage.Bytes).Int64("max_bytes", usage.MaxBytes).Msg("stream cannot grow")
		}
		alarmed = true
	case err != nil:
		c.log.Warn().Err(err).Msg("cannot read how full the stream is")
		return alarmed
	default:
		alarmed = false
	}
	if grown {
		c.stats.grown.Add(1)
		c.log.Info().Int64("max_bytes", usage.MaxBytes).Msg("stream enlarged")
	}
	c.pressed.Store(usage.Full() >= c.cfg.Compaction.Full)
	return alarmed
}

// compacted estimates the bytes that the snapshots of all ranks take.
func (c *caretaker) compacted() int64 {
	var bytes int64
	for _, r := range c.all() {
		bytes += chunkOverhead + blockBytes*int64(c.cfg.Sink.State(r.w).Blocks)
	}
	return bytes
}
