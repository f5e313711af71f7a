package roster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
)

const (
	limit   = 30 * time.Second // of whatever a test waits for
	testTTL = time.Second      // where somebody is to expire
	longTTL = 2 * limit        // where nobody is
)

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(limit)
	for !holds() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("waited %s for: %s", limit, what)
		}
	}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// recorder is a Handler that writes down what it hears, as script does, and asks
// the watcher back meanwhile.
type recorder struct {
	watcher atomic.Pointer[Watcher]

	mu    sync.Mutex
	heard []string
}

func (r *recorder) Accepted(e Entry) {
	text := fmt.Sprintf("+%s@%d", e.Registration.Target(), e.Epoch)
	if e.Drain {
		text += "d"
	}
	r.add(text)
}

func (r *recorder) Left(_ string, w protocol.Worker) { r.add("-" + w.String()) }

func (r *recorder) add(text string) {
	w := r.watcher.Load()
	w.Entries("p")
	w.Refused("p")
	w.Routers()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, text)
}

func (r *recorder) said() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.heard)
}

func (r *recorder) has(text string) bool { return r.count(text) > 0 }

func (r *recorder) count(text string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.heard {
		if h == text {
			n++
		}
	}
	return n
}

func (r *recorder) anyLeft() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.heard, func(h string) bool { return strings.HasPrefix(h, "-") })
}

// running is a watcher under test.
type running struct {
	*Watcher
	*recorder
	js   jetstream.JetStream
	stop func()
}

func newJetStream(t *testing.T, conn *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// launch runs a watcher on a connection of its own.
func launch(t *testing.T, srv *server.Server, cfg Config) *running {
	t.Helper()
	return launchOn(t, natstest.Connect(t, srv), cfg)
}

func launchOn(t *testing.T, conn *nats.Conn, cfg Config) *running {
	t.Helper()
	r := &running{recorder: &recorder{}, js: newJetStream(t, conn)}
	cfg.JetStream, cfg.Handler = r.js, r.recorder
	if cfg.TTL == 0 {
		cfg.TTL = testTTL
	}
	if testing.Verbose() {
		cfg.Log = zerolog.New(zerolog.NewTestWriter(t))
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Watcher = w
	r.watcher.Store(w)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *running) waitReady(t *testing.T) *running {
	t.Helper()
	select {
	case <-r.Ready():
	case <-time.After(limit):
		t.Fatal("watcher is not ready")
	}
	return r
}

// publisher is a worker as the wire contract wants it: conditional refreshes
// with the epoch of the first put.
type publisher struct {
	t         *testing.T
	js        jetstream.JetStream
	key       string
	text      string // of the registration, without its end
	epoch     uint64
	last      uint64
	refreshes int
}

func register(t *testing.T, js jetstream.JetStream, worker string, blockSize int) *publisher {
	t.Helper()
	p := &publisher{t: t, js: js, key: key(worker), text: strings.TrimSuffix(value(worker, blockSize, ""), "}")}
	revision, err := p.bucket().Put(testContext(t), p.key, []byte(p.text+"}"))
	if err != nil {
		t.Fatal(err)
	}
	p.epoch, p.last = revision, revision
	return p
}

func (p *publisher) bucket() jetstream.KeyValue {
	p.t.Helper()
	kv, err := p.js.KeyValue(testContext(p.t), "kvr-workers")
	if err != nil {
		p.t.Fatal(err)
	}
	return kv
}

func (p *publisher) value() []byte { return []byte(fmt.Sprintf(`%s,"epoch":%d}`, p.text, p.epoch)) }

func (p *publisher) refresh() error {
	revision, err := p.bucket().Update(testContext(p.t), p.key, p.value(), p.last)
	if err == nil {
		p.last = revision
		p.refreshes++
	}
	return err
}

// keep refreshes, and creates the key again if it is gone, until stop is called.
func (p *publisher) keep() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(testTTL / 5)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				p.beat(ctx)
			}
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	p.t.Cleanup(stop)
	return stop
}

func (p *publisher) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, testTTL)
	defer cancel()
	kv, err := p.js.KeyValue(ctx, "kvr-workers")
	if err != nil {
		return
	}
	revision, err := kv.Update(ctx, p.key, p.value(), p.last)
	if err != nil {
		if revision, err = kv.Create(ctx, p.key, p.value()); err != nil {
			return
		}
	}
	p.last = revision
}

func (p *publisher) accepted() string { return fmt.Sprintf("+%s@%d", p.target(), p.epoch) }
func (p *publisher) left() string     { return "-" + p.target() }
func (p *publisher) target() string {
	_, w, _ := protocol.ParseWorkerKey(p.key)
	return w.String()
}
