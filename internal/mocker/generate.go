package mocker

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/routerd/routerd/pkg/protocol"
)

// GenerateRequest is a prompt for a Worker. Prompts under different adapters or
// salts share no blocks.
type GenerateRequest struct {
	TokenIDs  []uint32 // 1 to protocol.MaxTokens
	LoRA      string   // adapter; "" is the base model
	Salt      string   // cache salt; "" is none
	MaxTokens int      // to generate, at least 1; fewer if the worker cannot hold them
}

// GenerateResult is how a request went.
type GenerateResult struct {
	TTFT         time.Duration // from the call to the first token
	CachedTokens int           // leading prompt tokens that were cached
	OutputTokens []uint32      // what was generated: bytes, small letters
}

// Generate runs a request and blocks until it has ended. onTokens, which may be
// nil, sees the new tokens as they come, on the caller's goroutine; an error of
// it, or the end of ctx, takes the request out of the engine and is returned
// with what was generated until then.
//
// It fails with ErrQueueFull, ErrNotRunning, ErrPromptTooLarge, or an error for
// lengths out of bounds; only under ErrNotRunning may something have been
// generated.
func (w *Worker) Generate(ctx context.Context, r GenerateRequest, onTokens func(tokens []uint32) error) (GenerateResult, error) {
	var result GenerateResult
	c, err := w.submit(r)
	if err != nil {
		return result, err
	}
	for {
		select {
		case <-c.changed:
		case <-ctx.Done():
			w.cancel(c)
			return result, ctx.Err()
		}
		had := len(result.OutputTokens)
		done, err := w.read(c, &result)
		if news := result.OutputTokens[had:]; onTokens != nil && len(news) > 0 {
			if err := onTokens(news); err != nil {
				w.cancel(c)
				return result, err
			}
		}
		if done || err != nil {
			return result, err
		}
	}
}

func (w *Worker) submit(r GenerateRequest) (*call, error) {
	if len(r.TokenIDs) > protocol.MaxTokens {
		return nil, fmt.Errorf("prompt of %d tokens: at most %d are allowed", len(r.TokenIDs), protocol.MaxTokens)
	}
	hashes := protocol.BlockHashes(nil, r.TokenIDs, protocol.HashOptions{
		BlockSize: w.config.Engine.BlockSize, LoRA: r.LoRA, Salt: r.Salt,
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		return nil, ErrNotRunning
	}
	if len(w.calls) >= w.config.MaxRequests {
		return nil, ErrQueueFull
	}
	c := &call{id: w.nextID, arrived: time.Now(), changed: make(chan struct{}, 1)}
	err := w.engine.Submit(Request{
		ID: c.id, PromptTokens: len(r.TokenIDs), OutputTokens: r.MaxTokens, Prompt: HashedPrompt(hashes),
	})
	if err != nil {
		return nil, err
	}
	w.nextID++
	w.calls[c.id] = c
	select {
	case w.wake <- struct{}{}:
	default: // Run has been woken already and looks at the engine before it sleeps
	}
	return c, nil
}

// cancel takes a call's request out of the engine.
func (w *Worker) cancel(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.calls, c.id)
	w.engine.Cancel(c.id)
}

// read brings a result up to what the call has got.
func (w *Worker) read(c *call, result *GenerateResult) (done bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	result.TTFT, result.CachedTokens = c.ttft, c.cached
	for i := len(result.OutputTokens); i < c.generated; i++ {
		result.OutputTokens = append(result.OutputTokens, outputToken(c.id, i))
	}
	return c.done, c.err
}

// outputToken is the i'th token of a request's output. It is the byte of a small
// letter, so that output reads as text where bytes are tokens.
func outputToken(id RequestID, i int) uint32 {
	var buf [16]byte
	binary.LittleEndian.PutUint64(buf[:8], uint64(id))
	binary.LittleEndian.PutUint64(buf[8:], uint64(i))
	return 'a' + uint32(xxh3.Hash(buf[:])%26)
}
