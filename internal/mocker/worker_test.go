package mocker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// recordingPublisher keeps what a worker publishes.
type recordingPublisher struct {
	mu   sync.Mutex
	held heldModel
	err  error
}

func (p *recordingPublisher) Stored(tier protocol.Tier, root bool, parent protocol.SequenceHash, blocks []protocol.Block) {
	p.apply(protocol.Event{Kind: protocol.EventStored, Tier: tier, Root: root, Parent: parent, Blocks: blocks})
}

func (p *recordingPublisher) Removed(tier protocol.Tier, hashes []protocol.SequenceHash) {
	p.apply(protocol.Event{Kind: protocol.EventRemoved, Tier: tier, Removed: hashes})
}

func (p *recordingPublisher) apply(e protocol.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(p.err, p.held.apply(&e))
}

func (p *recordingPublisher) state() (protocol.HeldState, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held.state(), p.err
}

// inWorker runs a worker in virtual time around a test.
func inWorker(t *testing.T, config WorkerConfig, test func(t *testing.T, w *Worker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, err := NewWorker(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		defer group.Wait()
		defer cancel()
		group.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		<-w.Ready()
		test(t, w)
	})
}

// fixed makes prefill steps of 10 ms and decode steps of 1 ms.
func fixed() Timing { return Fixed{Prefill: 10 * time.Millisecond, Decode: time.Millisecond} }

func tokens(n int, first uint32) []uint32 {
	t := make([]uint32, n)
	for i := range t {
		t[i] = first + uint32(i)
	}
	return t
}

func TestGenerate(t *testing.T) {
	published := &recordingPublisher{held: heldModel{}}
	inWorker(t, WorkerConfig{Engine: Config{Timing: fixed()}, Publisher: published}, func(t *testing.T, w *Worker) {
		begin := time.Now()
		var seen []uint32
		result, err := w.Generate(t.Context(), GenerateRequest{TokenIDs: tokens(100, 0), MaxTokens: 5}, func(tokens []uint32) error {
			if len(tokens) == 0 {
				t.Error("onTokens was called without tokens")
			}
			seen = append(seen, tokens...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if result.TTFT != 10*time.Millisecond || time.Since(begin) != 14*time.Millisecond {
			t.Errorf("first token after %v, all after %v; want 10ms and 14ms", result.TTFT, time.Since(begin))
		}
		if len(result.OutputTokens) != 5 || result.CachedTokens != 0 || !slices.Equal(seen, result.OutputTokens) {
			t.Errorf("result %+v, onTokens saw %v", result, seen)
		}
		// What a caller has seen is published.
		if state, err := published.state(); err != nil || state != w.State() || state.Blocks != 6 {
			t.Errorf("published %+v, %v; the worker holds %+v, want 6 blocks", state, err, w.State())
		}
		result, err = w.Generate(t.Context(), GenerateRequest{TokenIDs: tokens(100, 0), MaxTokens: 1}, nil)
		if err != nil || result.CachedTokens != 96 {
			t.Errorf("second time: %+v, %v, want 96 cached tokens", result, err)
		}
	})
}

// Prompts share blocks under the same adapter and salt alone, and under the
// hashes that routers use.
func TestGenerateUnderAdaptersAndSalts(t *testing.T) {
	published := &recordingPublisher{held: heldModel{}}
	inWorker(t, WorkerConfig{Engine: Config{Timing: fixed()}, Publisher: published}, func(t *testing.T, w *Worker) {
		for _, r := range []GenerateRequest{{}, {LoRA: "a"}, {LoRA: "b"}, {Salt: "a"}, {LoRA: "a", Salt: "a"}} {
			r.TokenIDs, r.MaxTokens = tokens(64, 7), 1
			for round, want := range []int{0, 48} {
				result, err := w.Generate(t.Context(), r, nil)
				if err != nil || result.CachedTokens != want {
					t.Errorf("adapter %q, salt %q, round %d: %d cached tokens, %v, want %d", r.LoRA, r.Salt, round, result.CachedTokens, err, want)
				}
			}
			hashes := protocol.BlockHashes(nil, r.TokenIDs, protocol.HashOptions{BlockSize: 16, LoRA: r.LoRA, Salt: r.Salt})
			for _, seq := range protocol.SequenceHashes(nil, hashes) {
				if _, ok := published.held[seq]; !ok {
					t.Errorf("adapter %q, salt %q: block %d is not published", r.LoRA, r.Salt, seq)
				}
			}
		}
	})
}

func TestGenerateManyAtOnce(t *testing.T) {
	published := &recordingPublisher{held: heldModel{}}
	config := WorkerConfig{Engine: Config{Blocks: 40, BlockSize: 4, Timing: fixed()}, Publisher: published}
	inWorker(t, config, func(t *testing.T, w *Worker) {
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() {
				n := 1 + i%30
				result, err := w.Generate(t.Context(), GenerateRequest{TokenIDs: tokens(20+i, uint32(i%3)), MaxTokens: n}, nil)
				if err != nil || len(result.OutputTokens) != n {
					t.Errorf("request %d: %d tokens, %v, want %d", i, len(result.OutputTokens), err, n)
				}
			})
		}
		group.Wait()
		synctest.Wait()
		if state, err := published.state(); err != nil || state != w.State() {
			t.Errorf("published %+v, %v; the worker holds %+v", state, err, w.State())
		}
		if w.Counters().Preemptions == 0 {
			t.Error("nothing was preempted: the worker is too large for this test")
		}
	})
}

func TestGenerateRefuses(t *testing.T) {
	inWorker(t, WorkerConfig{Engine: Config{Blocks: 4, Timing: fixed()}, MaxRequests: 1}, func(t *testing.T, w *Worker) {
		_, err := w.Generate(t.Context(), GenerateRequest{TokenIDs: tokens(65, 0), MaxTokens: 1}, nil)
		if !errors.Is(err, ErrPromptTooLarge) {
			t.Errorf("large prompt: %v", err)
		}
		for _, r := range []GenerateRequest{
			{MaxTokens: 1}, {TokenIDs: tokens(1, 0)}, {TokenIDs: make([]uint32, protocol.MaxTokens+1), MaxTokens: 1},
		} {
			if _, err := w.Generate(t.Context(), r, nil); err == nil {
				t.Errorf("%d tokens in, %d out were taken", len(r.TokenIDs), r.MaxTokens)
			}
		}
		first := true
		_, err = w.Generate(t.Context(), GenerateRequest{TokenIDs: tokens(1, 0), MaxTokens: 20}, func([]uint32) error {
			if !first {
				return nil
			}
			first = false
			if _, err := w.Generate(t.Context(), GenerateRequest{TokenIDs: tokens(1, 0), MaxTokens: 1}, nil); !errors.Is(err, ErrQueueFull) {
				t.Errorf("second request at a time: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if _, err := w.Generate(t.Context(), GenerateRequest{TokenIDs: tokens(1, 0), MaxTokens: 1}, nil); err != nil {
			t.Errorf("after the first has ended: %v", err)
		}
	})
}

// A request whose caller gives up, by context or by an error of its callback,
// leaves the engine and makes room.
func TestGenerateGivesUp(t *testing.T) {
	inWorker(t, WorkerConfig{Engine: Config{Timing: fixed()}, MaxRequests: 1}, func(t *testing.T, w *Worker) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond+time.Microsecond)
		defer cancel()
		request := GenerateRequest{TokenIDs: tokens(50, 0), MaxTokens: 100000}
		result, err := w.Generate(ctx, request, nil)
		if !errors.Is(err, context.DeadlineExceeded) || len(result.OutputTokens) != 6 {
			t.Errorf("timeout: %d tokens, %v, want 6", len(result.OutputTokens), err)
		}
		enough := errors.New("enough")
		if _, err := w.Generate(t.Context(), request, func([]uint32) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("callback: %v", err)
		}
		time.Sleep(time.Second) // virtual; the engine is idle long before
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.engine.Running()+w.engine.Waiting()+w.engine.UsedBlocks()+len(w.calls) != 0 {
			t.Errorf("%d run, %d wait, %d blocks in use, %d calls", w.engine.Running(), w.engine.Waiting(), w.engine.UsedBlocks(), len(w.calls))
		}
	})
}

func TestWorkerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := NewWorker(WorkerConfig{Engine: Config{Timing: fixed()}})
		if err != nil {
			t.Fatal(err)
		}
		request := GenerateRequest{TokenIDs: tokens(5, 0), MaxTokens: 1000}
		if _, err := w.Generate(t.Context(), request, nil); !errors.Is(err, ErrNotRunning) {
			t.Errorf("before Run: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() {
			<-w.Ready()
			if _, err := w.Generate(t.Context(), request, nil); !errors.Is(err, ErrNotRunning) {
				t.Errorf("across the end of Run: %v", err)
			}
		})
		if err := w.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		group.Wait()
		if _, err := w.Generate(t.Context(), request, nil); !errors.Is(err, ErrNotRunning) {
			t.Errorf("after Run: %v", err)
		}
		if err := w.Run(t.Context()); err == nil {
			t.Error("a second Run was allowed")
		}
	})
}

func TestWorkerConfig(t *testing.T) {
	if err := (WorkerConfig{}).Validate(); err != nil {
		t.Errorf("zero value: %v", err)
	}
	_, err := NewWorker(WorkerConfig{MaxRequests: -1, Model: string(make([]byte, 300)), Engine: Config{Blocks: -1}})
	if err == nil {
		t.Error("a bad configuration was taken")
	}
}
