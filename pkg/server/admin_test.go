package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/clock"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/publisher"
	"github.com/routerd/routerd/pkg/server"
)

// get asks the admin listener.
func (s *system) get(path string) (int, string) {
	s.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	reply, err := (&http.Client{Transport: transport, Timeout: patience}).Get("http://" + s.AdminAddr() + path)
	check(s, err)
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	check(s, err)
	return reply.StatusCode, string(body)
}

func TestAdmin(t *testing.T) {
	s := start(t, func(c *server.Config) { c.Admin = "127.0.0.1:0" })
	w1 := s.join(pool, "w1", nil)
	s.join(pool, "w2", func(c *publisher.Config) { c.NoEvents = true })
	w1.holds(hashes(tokens(1, 64)))
	route(t, s, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: tokens(1, 64)}})
	s.call("kvr.nobody.loads", nil)
	s.call(names.Lease(pool, "complete"), []byte(`{`))
	s.publish(pool, protocol.Worker{ID: "w1"}, []byte(`17`))
	for _, path := range []string{"/livez", "/readyz"} {
		if code, body := s.get(path); code != http.StatusOK || body != "ok\n" {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	if code, _ := s.get("/nothing"); code != http.StatusNotFound {
		t.Errorf("/nothing: %d", code)
	}
	label := fmt.Sprintf("pool=%q", pool)
	expect := func(there bool, series ...string) {
		t.Helper()
		_, text := s.get("/metrics")
		for _, line := range series {
			if strings.Contains(text, "\n"+line) != there {
				t.Errorf("series %q is there: %v, want %v", line, !there, there)
			}
		}
	}
	expect(true,
		`routerd_router_workers{`+label+`} 2`,
		`routerd_subscriber_ranks{`+label+`,trust="exact"} `,
		`routerd_subscriber_ranks{`+label+`,trust="off"} 1`,
		`routerd_subscriber_stream_sequence_applied{`+label+`} 3`,
		`routerd_subscriber_stream_sequence_known{`+label+`} 3`,
		`routerd_subscriber_refused_total{`+label+`,reason="undecodable"} 1`,
		`routerd_subscriber_repairs_total{`+label+`} `,
		`routerd_indexer_blocks{`+label+`,rank="0",worker="w1"} 4`,
		`routerd_lease_live{`+label+`} 1`,
		`routerd_scheduler_active_decode_blocks{`+label+`,rank="0",worker="w1"} 4`,
		`routerd_scheduler_active_prefill_tokens{`+label+`,rank="0",worker="w1"} 0`,
		`routerd_scheduler_active_requests{`+label+`,rank="0",worker="w1"} 1`,
		`routerd_server_calls_total{result="ok",verb="route"} 1`,
		`routerd_server_calls_total{result="unknown_pool",verb="loads"} 1`,
		`routerd_server_call_seconds_count{verb="route"} 1`,
		`routerd_server_malformed_reports_total `,
	)
	check(t, w1.leave())
	eventually(t, "the worker to be gone", func() bool { return s.row(pool, protocol.Worker{ID: "w1"}) == nil })
	expect(false,
		`routerd_indexer_blocks{`+label+`,rank="0",worker="w1"}`,
		`routerd_scheduler_active_requests{`+label+`,rank="0",worker="w1"}`,
	)
	expect(true, `routerd_scheduler_active_requests{`+label+`,rank="0",worker="w2"} 0`)
}

// A router is not ready before it has read the roster, and says so.
func TestNotReady(t *testing.T) {
	s := start(t, listening)
	cfg := testConfig(t)
	cfg.NATS, cfg.Admin = s.ClientURL(), "127.0.0.1:0"
	// A bucket of the name that is none keeps the roster from being read.
	cfg.Prefix = "broken"
	_, err := s.jetStream().CreateStream(patient(t), jetstream.StreamConfig{Name: "KV_broken-workers", Subjects: []string{"elsewhere"}})
	check(t, err)
	two := run(t, cfg)
	eventually(t, "the admin listener", func() bool { return two.AdminAddr() != "" })
	if code, body := two.get("/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d %q", code, body)
	}
	if code, body := two.get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "roster") {
		t.Errorf("/readyz: %d %q", code, body)
	}
	_, err = two.Route(patient(t), pool, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: []uint32{1}}})
	if codeOf(err) != protocol.CodeNotReady {
		t.Errorf("route: %v, want not_ready", err)
	}
	eventually(t, "calls to be answered", func() bool {
		msg, err := s.conn.Request("broken.some.route", []byte(`{"token_ids":[1]}`), patience)
		return err == nil && len(msg.Data) > 0 && failure(t, msg).Code == protocol.CodeNotReady
	})
}

// Leases expire on the clock that the server is given.
func TestInjectedClock(t *testing.T) {
	begin := time.Unix(0, 0)
	simulated := clock.NewSimulated(begin)
	s := start(t, func(c *server.Config) { c.Clock = simulated })
	s.join(pool, "w1", nil)
	silent := route(t, s, &protocol.RouteRequest{RequestID: "silent", Prompt: protocol.Prompt{TokenIDs: tokens(1, 20)}})
	alive := route(t, s, &protocol.RouteRequest{RequestID: "alive", Prompt: protocol.Prompt{TokenIDs: tokens(2, 20)}})
	requests := func(at time.Duration, want int) {
		t.Helper()
		simulated.Advance(begin.Add(at))
		if got := s.load(pool, "w1").ActiveRequests; got != want {
			t.Errorf("after %v: %d requests, want %d", at, got, want)
		}
	}
	progress := func() {
		check(t, s.client.ReportProgress(patient(t), pool, &protocol.ProgressReport{Lease: alive.Lease, RequestID: "alive"}))
	}
	progress()
	for minutes := range 11 {
		requests(time.Duration(minutes)*time.Minute, 2-minutes/10)
		if minutes < 10 {
			progress()
		}
	}
	requests(14*time.Minute, 0)
	progress() // it was alive all the same
	requests(14*time.Minute, 1)
	if silent.Worker != "w1" {
		t.Errorf("reply %+v", silent)
	}
}
