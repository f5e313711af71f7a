package roster

import (
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/internal/natstest"
	"github.com/routerd/routerd/pkg/protocol"
)

func TestRegisterRefreshLeave(t *testing.T) {
	r := launch(t, natstest.Start(t), Config{TTL: longTTL}).waitReady(t)
	a := register(t, r.js, "a", 16)
	eventually(t, "a accepted", func() bool { return r.has(a.accepted()) })
	before := r.Entries("p")[0]
	if err := a.refresh(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a refreshed", func() bool { return r.count(a.accepted()) == 2 })
	entry := r.Entries("p")[0]
	if entry.Revision <= before.Revision || entry.Epoch != before.Epoch || uint64(entry.Epoch) != a.epoch {
		t.Errorf("refreshed %+v after %+v", entry, before)
	}
	if size, ok := r.BlockSize("p"); size != 16 || !ok || !slices.Equal(r.Pools(), []string{"p"}) {
		t.Errorf("block size %d, %v in pools %v", size, ok, r.Pools())
	}
	if r.SeenRevision() != protocol.Epoch(a.last) {
		t.Errorf("seen %d, want %d", r.SeenRevision(), a.last)
	}
	if err := a.bucket().Delete(testContext(t), a.key, jetstream.LastRevision(a.last)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a left", func() bool { return r.has(a.left()) })
	if _, ok := r.BlockSize("p"); ok || len(r.Pools()) != 0 || len(r.Entries("p")) != 0 {
		t.Error("the pool is still there")
	}
}

func TestExpiry(t *testing.T) {
	r := launch(t, natstest.Start(t), Config{}).waitReady(t)
	dead, alive := register(t, r.js, "dead", 16), register(t, r.js, "alive", 16)
	alive.keep()
	eventually(t, "both accepted", func() bool { return r.has(dead.accepted()) && r.has(alive.accepted()) })
	eventually(t, "dead left", func() bool { return r.has(dead.left()) })
	n := r.count(alive.accepted())
	eventually(t, "alive refreshes on", func() bool { return r.count(alive.accepted()) > n+2*int(testTTL/(testTTL/5)) })
	if r.has(alive.left()) {
		t.Error("the live worker left")
	}
	dead.beat(testContext(t)) // the same life goes on
	eventually(t, "dead is back", func() bool { return r.count(dead.accepted()) == 2 })
}

// TestOwnExpiry takes the server's expiry away, so that only the router's is left.
func TestOwnExpiry(t *testing.T) {
	srv := natstest.Start(t)
	js := newJetStream(t, natstest.Connect(t, srv))
	config := workersSpec(protocol.Names{}, 0, 1).config(time.Now())
	config.SubjectDeleteMarkerTTL, config.AllowMsgTTL = 0, false
	if _, err := js.CreateStream(testContext(t), config); err != nil {
		t.Fatal(err)
	}
	r := launch(t, srv, Config{}).waitReady(t)
	a := register(t, r.js, "a", 16)
	eventually(t, "a accepted", func() bool { return r.has(a.accepted()) })
	eventually(t, "a left", func() bool { return r.has(a.left()) })
}

func TestServerRestart(t *testing.T) {
	dir := t.TempDir()
	srv := natstest.StartIn(t, dir, -1)
	port := srv.Addr().(*net.TCPAddr).Port
	r := launch(t, srv, Config{Router: "r1"}).waitReady(t)
	dead, alive := register(t, r.js, "dead", 16), register(t, r.js, "alive", 16)
	alive.keep()
	die := dead.keep()
	eventually(t, "both accepted, and the router listed", func() bool {
		return r.has(dead.accepted()) && r.has(alive.accepted()) && slices.Equal(r.Routers(), []string{"r1"})
	})
	die()
	natstest.Stop(srv)
	down := time.NewTimer(2 * testTTL) // the outage itself is what is tested
	<-down.C
	natstest.StartIn(t, dir, port)
	returned := time.Now()
	n := r.count(alive.accepted())
	eventually(t, "alive refreshes again", func() bool { return r.count(alive.accepted()) > n })
	if r.anyLeft() {
		t.Errorf("somebody left because of the outage: %v", r.said())
	}
	eventually(t, "dead left", func() bool { return r.has(dead.left()) })
	if took := time.Since(returned); took < 2*testTTL {
		t.Errorf("dead left %s after the return, want at least two TTL", took)
	}
	if r.has(alive.left()) {
		t.Error("the live worker left")
	}
	if !slices.Equal(r.Routers(), []string{"r1"}) {
		t.Errorf("routers %v, want r1", r.Routers())
	}
}

func TestBucketDeleted(t *testing.T) {
	r := launch(t, natstest.Start(t), Config{TTL: longTTL, Router: "r1"}).waitReady(t)
	a := register(t, r.js, "a", 16)
	eventually(t, "a accepted", func() bool { return r.has(a.accepted()) })
	eventually(t, "r1 listed", func() bool { return len(r.Routers()) == 1 })
	for _, bucket := range []string{"kvr-workers", "kvr-routers", "kvr-drains"} {
		if err := r.js.DeleteKeyValue(testContext(t), bucket); err != nil {
			t.Fatal(err)
		}
	}
	for _, bucket := range []string{"kvr-workers", "kvr-routers", "kvr-drains"} {
		eventually(t, bucket+" is made again", func() bool {
			_, err := r.js.KeyValue(testContext(t), bucket)
			return err == nil
		})
	}
	if err := a.refresh(); err == nil {
		t.Error("a conditional refresh succeeded in the new bucket")
	}
	a.beat(testContext(t))
	eventually(t, "a is registered again", func() bool { return r.count(a.accepted()) == 2 })
	if r.anyLeft() {
		t.Errorf("somebody left: %v", r.said())
	}
	if a.last <= a.epoch {
		t.Errorf("revision %d of the new bucket is not above the old epoch %d", a.last, a.epoch)
	}
	if len(r.Refused("p")) != 0 || len(r.RosterRefused("p")) != 0 {
		t.Errorf("refused %v, %v", r.Refused("p"), r.RosterRefused("p"))
	}
	if !slices.Equal(r.Routers(), []string{"r1"}) {
		t.Errorf("routers %v, want r1", r.Routers())
	}
}

// TestConsumersDeleted takes the watcher's consumers away under it.
func TestConsumersDeleted(t *testing.T) {
	r := launch(t, natstest.Start(t), Config{TTL: longTTL}).waitReady(t)
	stream, err := r.js.Stream(testContext(t), "KV_kvr-workers")
	if err != nil {
		t.Fatal(err)
	}
	for name := range stream.ConsumerNames(testContext(t)).Name() {
		if err := stream.DeleteConsumer(testContext(t), name); err != nil {
			t.Fatal(err)
		}
	}
	a := register(t, r.js, "a", 16)
	eventually(t, "a accepted", func() bool { return r.has(a.accepted()) })
}

func TestConflictsInStatus(t *testing.T) {
	r := launch(t, natstest.Start(t), Config{TTL: longTTL}).waitReady(t)
	a := register(t, r.js, "a", 16)
	register(t, r.js, "b", 32)
	eventually(t, "b refused", func() bool { return len(r.Refused("p")) == 1 })
	refused := r.Refused("p")[0]
	if refused.Worker.ID != "b" || refused.Reason != RefusedConflict || !strings.Contains(refused.Message, "block size 32") || refused.Registration.BlockSize != 32 {
		t.Errorf("refused %+v", refused)
	}
	if r.RosterRefused("p")["conflict"] == 0 {
		t.Errorf("counts %v", r.RosterRefused("p"))
	}
	put := func(key, text string) {
		t.Helper()
		if _, err := a.bucket().Put(testContext(t), key, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	put("p.x.0", value("y", 16, ""))
	put("p.z.0", "{")
	put("stray", "{}")
	eventually(t, "all counted", func() bool {
		return len(r.Refused("p")) == 3 && r.RosterRefused("p")["undecodable"] > 0 && r.RosterRefused("")["undecodable"] > 0
	})
	if got := r.Entries("p"); len(got) != 1 {
		t.Errorf("accepted %+v", got)
	}
}

// TestTwoWatchers shows that a router that starts later sees what the first does.
func TestTwoWatchers(t *testing.T) {
	srv := natstest.Start(t)
	first := launch(t, srv, Config{Router: "r1"}).waitReady(t)
	for _, p := range []*publisher{register(t, first.js, "a", 16), register(t, first.js, "b", 32), register(t, first.js, "c", 16)} {
		p.keep()
	}
	eventually(t, "first has read all", func() bool { return len(first.Entries("p")) == 2 && len(first.Refused("p")) == 1 })
	second := launch(t, srv, Config{Router: "r2"}).waitReady(t)
	if got := second.Entries("p"); len(got) != 2 {
		t.Errorf("ready with %d entries, want 2", len(got))
	}
	same := func() bool {
		return reflect.DeepEqual(first.Entries("p"), second.Entries("p")) && slices.Equal(first.Pools(), second.Pools())
	}
	eventually(t, "equal rosters", same)
	both := []string{"r1", "r2"}
	eventually(t, "both listed", func() bool { return slices.Equal(first.Routers(), both) && slices.Equal(second.Routers(), both) })

	if err := second.Withdraw(testContext(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "second withdrawn", func() bool { return slices.Equal(first.Routers(), []string{"r1"}) })
	if err := second.Withdraw(testContext(t)); err != nil {
		t.Errorf("second withdrawal: %v", err)
	}
	first.stop() // without withdrawing
	eventually(t, "first expired", func() bool { return len(second.Routers()) == 0 })
}

func TestOperatorDrain(t *testing.T) {
	srv := natstest.Start(t)
	js := newJetStream(t, natstest.Connect(t, srv))
	names := protocol.Names{}
	set := func(rank *uint16, on bool) error { return SetDrain(testContext(t), js, names, "p", "a", rank, on) }
	if err := set(nil, true); !errors.Is(err, jetstream.ErrBucketNotFound) || !strings.Contains(err.Error(), "start a router first") {
		t.Errorf("without a router: %v", err)
	}
	r := launch(t, srv, Config{TTL: longTTL}).waitReady(t)
	a := register(t, r.js, "a", 16)
	eventually(t, "a accepted", func() bool { return r.has(a.accepted()) })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	drained := func() bool { e := r.Entries("p"); return len(e) == 1 && e[0].Drain && e[0].OperatorDrain }
	free := func() bool { e := r.Entries("p"); return len(e) == 1 && !e[0].Drain }
	zero := uint16(0)

	must(set(&zero, true))
	eventually(t, "rank drained", drained)
	must(set(&zero, false))
	eventually(t, "rank free", free)
	must(set(&zero, true))
	must(set(nil, true))
	if err := set(&zero, false); err == nil || !strings.Contains(err.Error(), "as a whole") {
		t.Errorf("lifted a rank of a drained worker: %v", err)
	}
	late := launch(t, srv, Config{TTL: longTTL}).waitReady(t)
	if e := late.Entries("p"); len(e) != 1 || !e[0].Drain || late.has(a.accepted()) {
		t.Errorf("a late router announced the drained worker as free: %v, %+v", late.said(), e)
	}
	must(set(nil, false))
	eventually(t, "all free", func() bool {
		e := late.Entries("p")
		return free() && len(e) == 1 && !e[0].Drain
	})
	if err := SetDrain(testContext(t), js, names, "", "a", nil, true); err == nil {
		t.Error("accepted an empty pool")
	}
	if err := SetDrain(testContext(t), js, names, "p", strings.Repeat("x", 200), nil, true); err == nil {
		t.Error("accepted a worker's name that is too long")
	}
}

func TestRevisions(t *testing.T) {
	r := launch(t, natstest.Start(t), Config{TTL: longTTL}).waitReady(t)
	ctx, a := testContext(t), protocol.Worker{ID: "a"}
	empty, err := r.LastRevision(ctx)
	if err != nil || time.Since(time.UnixMicro(int64(empty))) > time.Hour {
		t.Errorf("last revision of the empty bucket %d, %v, want microseconds since 1970", empty, err)
	}
	if _, ok, err := r.CurrentEpoch(ctx, "p", a); ok || err != nil {
		t.Errorf("an unknown rank has an epoch: %v", err)
	}
	p := register(t, r.js, "a", 16)
	if got, ok, err := r.CurrentEpoch(ctx, "p", a); uint64(got) != p.epoch || !ok || err != nil {
		t.Errorf("epoch %d, %v, %v, want %d", got, ok, err, p.epoch)
	}
	if err := p.refresh(); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := r.CurrentEpoch(ctx, "p", a); uint64(got) != p.epoch {
		t.Errorf("epoch %d after a refresh, want %d", got, p.epoch)
	}
	if got, err := r.LastRevision(ctx); uint64(got) != p.last || err != nil {
		t.Errorf("last revision %d, %v, want %d", got, err, p.last)
	}
	if err := p.bucket().Delete(ctx, p.key); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := r.CurrentEpoch(ctx, "p", a); ok || err != nil {
		t.Errorf("a deleted rank has an epoch: %v", err)
	}
}

// TestForeignBucket shows that a bucket with other settings is used as it is, and
// that its TTL counts.
func TestForeignBucket(t *testing.T) {
	srv := natstest.Start(t)
	js := newJetStream(t, natstest.Connect(t, srv))
	if _, err := js.CreateKeyValue(testContext(t), jetstream.KeyValueConfig{Bucket: "kvr-workers", TTL: testTTL, History: 5}); err != nil {
		t.Fatal(err)
	}
	r := launch(t, srv, Config{TTL: time.Hour}).waitReady(t)
	a := register(t, r.js, "a", 16)
	eventually(t, "a accepted", func() bool { return r.has(a.accepted()) })
	eventually(t, "a left", func() bool { return r.has(a.left()) })
	stream, err := js.Stream(testContext(t), "KV_kvr-workers")
	if err != nil {
		t.Fatal(err)
	}
	got := workersSpec(protocol.Names{}, time.Hour, 1).differences(stream.CachedInfo().Config)
	if want := []string{"history", "ttl", "delete_marks", "first_seq"}; !slices.Equal(got, want) {
		t.Errorf("differences %v, want %v", got, want)
	}
}

// TestBucketSettings shows that a client's own bucket of the same configuration
// has the same stream, but for where revisions begin.
func TestBucketSettings(t *testing.T) {
	srv := natstest.Start(t)
	js := newJetStream(t, natstest.Connect(t, srv))
	if _, err := js.CreateKeyValue(testContext(t), jetstream.KeyValueConfig{
		Bucket: "other", Description: "roster of workers", TTL: DefaultTTL, History: 1,
		MaxValueSize: maxValue, LimitMarkerTTL: DefaultTTL,
	}); err != nil {
		t.Fatal(err)
	}
	theirs, err := js.Stream(testContext(t), "KV_other")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := workersSpec(protocol.Names{}, DefaultTTL, 1).open(testContext(t), js)
	if err != nil {
		t.Fatal(err)
	}
	want, got := theirs.CachedInfo().Config, ours.CachedInfo().Config
	want.Name, want.Subjects, want.FirstSeq = got.Name, got.Subjects, got.FirstSeq
	want.Metadata, got.Metadata = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	again, err := workersSpec(protocol.Names{}, DefaultTTL, 1).open(testContext(t), js)
	if err != nil || again.CachedInfo().Config.FirstSeq != ours.CachedInfo().Config.FirstSeq {
		t.Errorf("a second router made another bucket: %v", err)
	}
}

// TestStartsBeforeNATS shows that a watcher waits for its server.
func TestStartsBeforeNATS(t *testing.T) {
	dir := t.TempDir()
	srv := natstest.StartIn(t, dir, -1)
	url := srv.ClientURL()
	port := srv.Addr().(*net.TCPAddr).Port
	natstest.Stop(srv)
	conn, err := nats.Connect(url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	r := launchOn(t, conn, Config{Router: "r1"})
	select {
	case <-r.Ready():
		t.Error("ready without a server")
	default:
	}
	if len(r.Routers()) != 0 || len(r.Pools()) != 0 {
		t.Error("knows somebody without a server")
	}
	natstest.StartIn(t, dir, port)
	r.waitReady(t)
	eventually(t, "listed", func() bool { return slices.Equal(r.Routers(), []string{"r1"}) })
}

func TestPrefix(t *testing.T) {
	names, err := protocol.NewNames("other")
	if err != nil {
		t.Fatal(err)
	}
	r := launch(t, natstest.Start(t), Config{Names: names}).waitReady(t)
	for _, bucket := range []string{"other-workers", "other-drains"} {
		if _, err := r.js.KeyValue(testContext(t), bucket); err != nil {
			t.Errorf("bucket %s: %v", bucket, err)
		}
	}
}

func TestValidate(t *testing.T) {
	err := Config{TTL: time.Millisecond, Replicas: 6, Router: "no.token"}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"JetStream", "TTL", "replicas", "router"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not name %s", err, want)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("made a watcher without JetStream")
	}
}
