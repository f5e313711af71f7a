package publisher

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

func TestConfigFaults(t *testing.T) {
	_, err := New(Config{FlushInterval: time.Second, Window: -1, MaxBuffered: 1, RefreshInterval: -1})
	if err == nil {
		t.Fatal("a configuration with faults was accepted")
	}
	for _, field := range []string{"conn", "registration.pool", "registration.worker", "registration.block_size", "flush interval", "window", "max buffered", "refresh interval"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("error does not name %s:\n%v", field, err)
		}
	}
}

func TestRegistration(t *testing.T) {
	h := newHarness(t)
	p := h.start(h.config())
	select {
	case <-p.Ready():
		t.Fatal("ready without a bucket")
	default:
	}
	h.makeBucket(10 * time.Second)
	h.until("a roster entry", func() bool { return h.roster() != nil })
	h.makeStream(1 << 20)
	p.isReady()

	p.Stored(protocol.TierDevice, true, 0, []protocol.Block{{Sequence: 1, Hash: 2}, {Sequence: 3, Hash: 4}})
	p.Removed(protocol.TierDevice, []protocol.SequenceHash{3})
	seq := p.flush()
	h.until("a refresh with the last event", func() bool { return h.roster().LastID == 2 })
	r, revision := h.rosterAt()
	if r.Epoch == nil || *r.Epoch != p.Epoch() || protocol.Epoch(revision) <= p.Epoch() {
		t.Errorf("entry of revision %d has epoch %v, want %d", revision, r.Epoch, p.Epoch())
	}
	want := protocol.EntryChecksum(protocol.Block{Sequence: 1, Hash: 2}, protocol.TierDevice)
	if r.StreamSeq != seq || r.Checksum == nil || *r.Checksum != want || r.Unsent != 0 {
		t.Errorf("entry = %+v, want stream sequence %d and checksum %d", r, seq, want)
	}
	if r.Pool != testPool || r.Target() != testWorker || r.BlockSize != 16 || r.Version != 1 || !r.Events || r.Endpoint == "" {
		t.Errorf("entry = %+v", r)
	}
	if err := p.stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if r := h.roster(); r != nil {
		t.Errorf("entry is left at the end: %+v", r)
	}
}

func TestEpochIsRevisionOfFirstPut(t *testing.T) {
	h := newLog(t)
	cfg := h.config()
	cfg.RefreshInterval = time.Hour
	p := h.start(cfg).isReady()
	r, revision := h.rosterAt()
	if r.Epoch != nil || protocol.Epoch(revision) != p.Epoch() {
		t.Errorf("entry of revision %d has epoch %v, publisher %d", revision, r.Epoch, p.Epoch())
	}
}

func TestSuccessor(t *testing.T) {
	h := newLog(t)
	first := h.start(h.config()).isReady()
	first.Stored(protocol.TierDevice, true, 0, []protocol.Block{{Sequence: 1, Hash: 1}})
	first.flush()
	second := h.start(h.config()).isReady()
	if err := first.end(); !errors.Is(err, ErrSucceeded) {
		t.Fatalf("Run of the first = %v, want ErrSucceeded", err)
	}
	if second.Epoch() <= first.Epoch() {
		t.Errorf("epoch %d follows %d", second.Epoch(), first.Epoch())
	}
	if r := h.roster(); r == nil {
		t.Error("the first took the second's entry away")
	}
	if _, err := first.Flush(context.Background()); err != nil && !errors.Is(err, ErrStopped) {
		t.Errorf("Flush after the end: %v", err)
	}
	first.Stored(protocol.TierDevice, true, 0, []protocol.Block{{Sequence: 2, Hash: 2}})
	if _, err := first.Flush(context.Background()); !errors.Is(err, ErrStopped) {
		t.Errorf("Flush of an event after the end: %v, want ErrStopped", err)
	}
	if got := second.isInLog(); got.last != 0 || got.state() != (protocol.HeldState{}) {
		t.Errorf("the second's life begins with %d events and %+v", got.last, got.state())
	}
}

func TestEntryThatExpired(t *testing.T) {
	h := newHarness(t)
	h.makeBucket(time.Second)
	h.makeStream(1 << 20)
	cfg := h.config()
	cfg.RefreshInterval = 1500 * time.Millisecond
	p := h.start(cfg).isReady()
	first, revision := h.rosterAt()
	if first == nil {
		t.Fatal("no entry after registration")
	}
	h.until("the entry to expire", func() bool { return h.roster() == nil })
	h.until("the entry to come back", func() bool { return h.roster() != nil })
	r, again := h.rosterAt()
	if r.Epoch == nil || *r.Epoch != p.Epoch() || again <= revision {
		t.Errorf("entry of revision %d has epoch %v, want %d", again, r.Epoch, p.Epoch())
	}
	if err := p.stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestEntryThatWasDeleted(t *testing.T) {
	h := newLog(t)
	p := h.start(h.config()).isReady()
	bucket, err := h.js.KeyValue(t.Context(), testNames.WorkersBucket())
	h.check(err)
	h.check(bucket.Delete(t.Context(), protocol.WorkerKey(testPool, testWorker)))
	h.until("the entry to come back", func() bool { return h.roster() != nil })
	if r := h.roster(); r.Epoch == nil || *r.Epoch != p.Epoch() {
		t.Errorf("entry = %+v, want epoch %d", r, p.Epoch())
	}
}

func TestBucketThatWasMadeAgain(t *testing.T) {
	h := newLog(t)
	p := h.start(h.config()).isReady()
	h.check(h.js.DeleteKeyValue(t.Context(), testNames.WorkersBucket()))
	h.makeBucket(10 * time.Second)
	h.until("the entry to come back", func() bool { return h.roster() != nil })
	if r := h.roster(); r.Epoch == nil || *r.Epoch != p.Epoch() {
		t.Errorf("entry = %+v, want epoch %d", r, p.Epoch())
	}
}

func TestAbandonedEntryStays(t *testing.T) {
	h := newLog(t)
	cfg := h.config()
	cfg.Abandon = true
	first := h.start(cfg).isReady()
	if err := first.stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if h.roster() == nil {
		t.Fatal("an abandoned entry was taken back")
	}
	second := h.start(h.config()).isReady()
	if second.Epoch() <= first.Epoch() {
		t.Errorf("epoch %d follows %d", second.Epoch(), first.Epoch())
	}
	if err := second.stop(); err != nil || h.roster() != nil {
		t.Errorf("Run = %v, entry %v", err, h.roster())
	}
}

func TestDrainAndUpdate(t *testing.T) {
	h := newLog(t)
	cfg := h.config()
	cfg.RefreshInterval = time.Hour // refreshes are those asked for
	p := h.start(cfg).isReady()
	p.SetDrain(true)
	h.until("the drain", func() bool { return h.roster().Drain })
	r := p.Registration()
	r.Drain, r.Taints = false, []string{"zone-a"}
	h.check(p.UpdateRegistration(r))
	r.Taints[0] = "changed by the caller"
	h.until("the update", func() bool { got := h.roster(); return !got.Drain && len(got.Taints) == 1 && got.Taints[0] == "zone-a" })
	if got := h.roster(); got.Epoch == nil || *got.Epoch != p.Epoch() {
		t.Errorf("entry = %+v, want epoch %d", got, p.Epoch())
	}
	r.BlockSize = 32
	if err := p.UpdateRegistration(r); err == nil {
		t.Error("the block size was changed")
	}
}

func TestWorkerWithoutEvents(t *testing.T) {
	h := newHarness(t)
	h.makeBucket(10 * time.Second)
	cfg := h.config()
	cfg.NoEvents = true
	p := h.start(cfg).isReady()
	p.Stored(protocol.TierDevice, true, 0, []protocol.Block{{Sequence: 1, Hash: 1}})
	if seq, err := p.Flush(t.Context()); seq != 0 || err != nil || p.LastID() != 0 {
		t.Errorf("Flush = %d, %v; last id %d", seq, err, p.LastID())
	}
	if r := h.roster(); r.Events || r.Checksum != nil {
		t.Errorf("entry = %+v", r)
	}
	if err := p.stop(); err != nil || h.roster() != nil {
		t.Errorf("Run = %v, entry %v", err, h.roster())
	}
}
