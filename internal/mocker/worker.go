package mocker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// Failures of Generate.
var (
	// ErrQueueFull: as many requests wait or run as the worker takes. Try another
	// worker, or again later.
	ErrQueueFull = errors.New("worker has as many requests as it takes")
	// ErrNotRunning: the worker's Run has not begun, or has ended.
	ErrNotRunning = errors.New("worker is not running")
)

// Bounds and defaults of a Worker.
const (
	DefaultMaxRequests = 1024
	DefaultModel       = "mock"
)

// Publisher takes the KV events of a worker in their order. Its methods are
// called by the worker's Run alone, must not block for long, and must not keep
// the slices.
type Publisher interface {
	// Stored says that blocks are cached, below parent or at the start of a
	// prompt if root.
	Stored(tier protocol.Tier, root bool, parent protocol.SequenceHash, blocks []protocol.Block)
	// Removed says that blocks are no longer cached.
	Removed(tier protocol.Tier, hashes []protocol.SequenceHash)
}

// WorkerConfig configures a Worker. The zero value is usable.
type WorkerConfig struct {
	Engine      Config
	Model       string    // name of the base model; default "mock"
	MaxRequests int       // waiting and running at once; default 1,024, 1 to 2^20
	Publisher   Publisher // of KV events; nil: they are dropped
}

// Validate reports every fault of the configuration.
func (c WorkerConfig) Validate() error {
	c = c.withDefaults()
	var name error
	if len(c.Model) > protocol.MaxTextBytes {
		name = fmt.Errorf("model name of %d bytes: at most %d are allowed", len(c.Model), protocol.MaxTextBytes)
	}
	return errors.Join(name, within("requests at most", c.MaxRequests, 1<<20), c.Engine.Validate())
}

func (c WorkerConfig) withDefaults() WorkerConfig {
	if c.Model == "" {
		c.Model = DefaultModel
	}
	if c.MaxRequests == 0 {
		c.MaxRequests = DefaultMaxRequests
	}
	c.Engine = c.Engine.withDefaults()
	return c
}

// Worker runs an Engine on the machine's clock. Its methods are safe for
// concurrent use; Run is called once.
type Worker struct {
	config WorkerConfig
	wake   chan struct{} // holds one; there may be work
	ready  chan struct{} // closed when Run has begun

	mu      sync.Mutex // guards what follows
	engine  *Engine
	running bool
	started bool
	nextID  RequestID
	calls   map[RequestID]*call // at most MaxRequests
}

// call is a Generate that waits. Tokens are not queued for it: which they are
// follows from their number, so a slow reader costs nothing.
type call struct {
	id      RequestID
	arrived time.Time
	changed chan struct{} // holds one; what follows has changed

	// Guarded by Worker.mu.
	generated int
	cached    int
	ttft      time.Duration
	done      bool
	err       error
}

func (c *call) notify() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// NewWorker makes a worker with an empty cache.
func NewWorker(config WorkerConfig) (*Worker, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure mock worker: %w", err)
	}
	config = config.withDefaults()
	engine, err := NewEngine(config.Engine)
	if err != nil {
		return nil, err
	}
	return &Worker{
		config: config, engine: engine,
		wake: make(chan struct{}, 1), ready: make(chan struct{}),
		calls: make(map[RequestID]*call),
	}, nil
}

// Ready is closed once Run takes requests.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Model is the name of the base model.
func (w *Worker) Model() string { return w.config.Model }

// State sums up what the cache holds as of the end of the step under way; events
// are published when it has ended.
func (w *Worker) State() protocol.HeldState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.engine.State()
}

// Counters returns what the engine has done so far.
func (w *Worker) Counters() Counters {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.engine.Counters()
}

// Run simulates until ctx ends, which is no error. Requests that have not ended
// by then fail with ErrNotRunning.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.begin(); err != nil {
		return err
	}
	defer w.end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		w.mu.Lock()
		took, working := w.engine.Start()
		w.mu.Unlock()
		if !working {
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		timer.Reset(took)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		w.mu.Lock()
		result := w.engine.Finish() // ours until the next Start
		w.mu.Unlock()
		// Events first: who holds a token may count on its blocks being announced.
		w.publish(result.Events)
		w.deliver(result)
	}
}

func (w *Worker) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		return errors.New("run mock worker: Run was called before")
	}
	w.started, w.running = true, true
	close(w.ready)
	return nil
}

func (w *Worker) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
	for id, c := range w.calls {
		c.done, c.err = true, ErrNotRunning
		delete(w.calls, id)
		c.notify()
	}
}

// deliver tells the calls what they got in a step.
func (w *Worker) deliver(result *Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range result.Admitted {
		if c := w.calls[a.ID]; c != nil && !a.Again {
			c.cached = a.CachedTokens
		}
	}
	for _, id := range result.Generated {
		if c := w.calls[id]; c != nil {
			if c.generated++; c.generated == 1 {
				c.ttft = time.Since(c.arrived)
			}
			c.notify()
		}
	}
	for _, id := range result.Completed {
		if c := w.calls[id]; c != nil {
			c.done = true
			delete(w.calls, id)
		}
	}
}

func (w *Worker) publish(events []protocol.Event) {
	if w.config.Publisher == nil {
		return
	}
	for i := range events {
		switch e := &events[i]; e.Kind {
		case protocol.EventStored:
			w.config.Publisher.Stored(e.Tier, e.Root, e.Parent, e.Blocks)
		case protocol.EventRemoved:
			w.config.Publisher.Removed(e.Tier, e.Removed)
		}
	}
}
