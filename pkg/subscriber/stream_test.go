package subscriber_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/subscriber"
)

func TestEnsureStreamAtOnce(t *testing.T) {
	srv := natstest.Start(t)
	var group sync.WaitGroup
	epochs := make([]string, 8)
	for i := range epochs {
		js, err := jetstream.New(natstest.Connect(t, srv))
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			info, err := subscriber.EnsureStream(t.Context(), js, subscriber.StreamConfig{Pool: pool, Bytes: int64(1+i) << 20})
			if err != nil {
				t.Error(err)
				return
			}
			epochs[i] = info.Config.Metadata["epoch"]
		})
	}
	group.Wait()
	for _, epoch := range epochs {
		if epoch == "" || epoch != epochs[0] {
			t.Fatalf("epochs %q", epochs)
		}
	}
	js, _ := jetstream.New(natstest.Connect(t, srv))
	stream, err := js.Stream(t.Context(), protocol.Names{}.Stream(pool))
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	if c.Storage != jetstream.FileStorage || c.Retention != jetstream.LimitsPolicy || c.Discard != jetstream.DiscardNew || c.MaxAge != 0 ||
		!c.AllowDirect || c.DenyPurge || c.Duplicates != 100*time.Millisecond || c.Subjects[0] != (protocol.Names{}).PoolEvents(pool) {
		t.Errorf("config %+v", c)
	}
}

func TestForeignStream(t *testing.T) {
	srv := natstest.Start(t)
	js, err := jetstream.New(natstest.Connect(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	name := protocol.Names{}.Stream(pool)
	made := jetstream.StreamConfig{Name: name, Subjects: []string{protocol.Names{}.PoolEvents(pool)}, Discard: jetstream.DiscardOld, MaxAge: time.Hour}
	if _, err := js.CreateStream(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	_, err = subscriber.EnsureStream(t.Context(), js, subscriber.StreamConfig{Pool: pool})
	var foreign *subscriber.ForeignStreamError
	if !errors.As(err, &foreign) {
		t.Fatalf("got %v", err)
	}
	text := err.Error()
	for _, part := range []string{name, "discard: has DiscardOld, needs DiscardNew", "max_age: has 1h0m0s", "allow_direct", "metadata.epoch", "nats stream"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in: %s", part, text)
		}
	}
	if strings.ContainsAny(text, "\n") {
		t.Errorf("more than one line: %q", text)
	}
	// A subscriber on it says so and does nothing.
	s, err := subscriber.New(prepare(js, indexer.NewTrie()))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); !errors.As(err, &foreign) {
		t.Errorf("Run: %v", err)
	}
}

func TestGrowAndResize(t *testing.T) {
	srv := natstest.Start(t)
	js, err := jetstream.New(natstest.Connect(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	cfg := subscriber.StreamConfig{Pool: pool, Bytes: 1 << 20, MaxBytes: 3 << 20}
	if _, err := subscriber.EnsureStream(t.Context(), js, cfg); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		compacted int64
		size      int64
		grown     bool
		err       error
	}{
		{300 << 10, 1 << 20, false, nil},
		{400 << 10, 2 << 20, true, nil},
		{600 << 10, 2 << 20, false, nil},
		{800 << 10, 3 << 20, true, nil},
		{2 << 20, 3 << 20, false, subscriber.ErrStreamCeiling},
	} {
		u, grown, err := subscriber.Grow(t.Context(), js, cfg, step.compacted)
		if u.MaxBytes != step.size || grown != step.grown || !errors.Is(err, step.err) {
			t.Errorf("state of %d: %+v, grown %v, %v", step.compacted, u, grown, err)
		}
	}
	u, err := subscriber.Resize(t.Context(), js, protocol.Names{}, pool, 9<<20, 0)
	if err != nil || u.MaxBytes != 9<<20 || u.Replicas != 1 {
		t.Errorf("resize: %+v, %v", u, err)
	}
	if _, err := subscriber.EnsureStream(t.Context(), js, cfg); err != nil {
		t.Errorf("another size is foreign: %v", err)
	}
	if _, err := subscriber.Resize(t.Context(), js, protocol.Names{}, "other", 9<<20, 0); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("resize of no stream: %v", err)
	}
}

func TestValidate(t *testing.T) {
	err := subscriber.Config{Lanes: 1000, Heartbeat: time.Millisecond, Repairs: -1}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"pool", "jetstream", "sink", "lanes 1000", "heartbeat 1ms", "repairs"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
	if _, err := subscriber.New(subscriber.Config{}); err == nil {
		t.Error("New accepted it")
	}
	if err := (subscriber.StreamConfig{Pool: "p", Bytes: 5, MaxBytes: 4, Replicas: 6}).Validate(); err == nil ||
		!strings.Contains(err.Error(), "max bytes 4") || !strings.Contains(err.Error(), "replicas 6") {
		t.Errorf("stream: %v", err)
	}
}
