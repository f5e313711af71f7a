package routerdtest

import (
	"context"
	"time"

	"github.com/routerd/routerd/internal/mocker"
)

// Worker is a mock worker.
type Worker struct{ live *mocker.LiveWorker }

// Request is a prompt for a worker.
type Request struct {
	TokenIDs  []uint32
	LoRA      string // adapter; "" is the base model
	CacheSalt string
	MaxTokens int // to generate; default 1
}

// Response is how a worker served a request.
type Response struct {
	TTFT         time.Duration // from the call to the first token
	CachedTokens int           // leading prompt tokens that were cached
	OutputTokens int
}

// Name is the worker's id in the roster and in routing replies.
func (w *Worker) Name() string { return w.live.Name() }

// Endpoint is the URL of its completions API, as registered.
func (w *Worker) Endpoint() string { return w.live.Endpoint() }

// Serve computes a prompt and generates from it, as a request to the endpoint
// does. It blocks until the last token. It fails when ctx ends, when the worker's
// queue is full or it has stopped, or when the prompt does not fit into it.
func (w *Worker) Serve(ctx context.Context, r Request) (Response, error) {
	result, err := w.live.Generate(ctx, mocker.GenerateRequest{
		TokenIDs: r.TokenIDs, LoRA: r.LoRA, Salt: r.CacheSalt, MaxTokens: max(r.MaxTokens, 1),
	}, nil)
	return Response{TTFT: result.TTFT, CachedTokens: result.CachedTokens, OutputTokens: len(result.OutputTokens)}, err
}

// Blocks is how many blocks the worker holds.
func (w *Worker) Blocks() uint64 { return w.live.State().Blocks }
