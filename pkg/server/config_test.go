package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rs/zerolog"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/server"
)

// settings leaves out what no file can set.
var settings = cmpopts.IgnoreFields(server.Config{}, "Logger", "Clock")

const wholeFile = `
nats: nats://a:4222,nats://b:4222
nats_creds: /etc/creds
nats_tls_ca: /etc/ca.pem
nats_tls_cert: /etc/cert.pem
nats_tls_key: /etc/key.pem
listen: none
store: /var/lib/routerd
admin: none
prefix: kv2
drain_timeout: 7s
log: {level: debug, format: json}
stream: {bytes: 64MiB, max_bytes: 2GiB, replicas: 3}
roster: {ttl: 5s, grace: 30s, pool_grace: 3s}
leases: {interval: 20s, quiet_interval: 100s, tombstone: 50s}
routing:
  policy: kv
  seed: 18446744073709551615
  temperature: 0.5
  kv: {overlap_score_credit: 2, overlap_credit_decay: 0.1, prefill_load_scale: 3, decode_active_request_weight: 4,
       host_weight: 0.5, disk_weight: 0.2, shared_cache_multiplier: 0.3}
  latency: {prefill_base_ms: 1, prefill_ms_per_token: 2, prefill_ms_per_token2: 3, decode_scale: 4, held_up_weight: 5, learn: false}
pools:
  big: {routing: {policy: latency, kv: {host_weight: 0.9}}}
  plain: {}
`

func TestParseConfig(t *testing.T) {
	cfg, err := server.ParseConfig([]byte(wholeFile))
	check(t, err)
	check(t, cfg.Validate())
	want := server.Config{
		NATS: "nats://a:4222,nats://b:4222", NATSCreds: "/etc/creds", NATSTLSCA: "/etc/ca.pem", NATSTLSCert: "/etc/cert.pem", NATSTLSKey: "/etc/key.pem",
		Listen: "none", Store: "/var/lib/routerd", Admin: "none", Prefix: "kv2", DrainTimeout: 7 * time.Second,
		Log:    server.LogConfig{Level: "debug", Format: "json"},
		Stream: server.StreamConfig{Bytes: 64 << 20, MaxBytes: 2 << 30, Replicas: 3},
		Roster: server.RosterConfig{TTL: 5 * time.Second, Grace: 30 * time.Second, PoolGrace: 3 * time.Second},
		Leases: server.LeasesConfig{Interval: 20 * time.Second, QuietInterval: 100 * time.Second, Tombstone: 50 * time.Second},
	}
	routing := &want.Routing
	routing.Policy, routing.Seed, routing.Temperature = protocol.PolicyKV, 1<<64-1, 0.5
	routing.KV.OverlapScoreCredit, routing.KV.OverlapCreditDecay, routing.KV.PrefillLoadScale = 2, 0.1, 3
	routing.KV.DecodeActiveRequestWeight, routing.KV.HostWeight, routing.KV.DiskWeight, routing.KV.SharedCacheMultiplier = 4, 0.5, 0.2, 0.3
	routing.Latency.PrefillBaseMS, routing.Latency.PrefillMSPerToken, routing.Latency.PrefillMSPerToken2 = 1, 2, 3
	routing.Latency.DecodeScale, routing.Latency.HeldUpWeight, routing.Latency.Learn = 4, 5, false
	big := want.Routing // what the pool does not say it takes from above
	big.Policy, big.KV.HostWeight = protocol.PolicyLatency, 0.9
	want.Pools = map[string]server.PoolConfig{"big": {Routing: big}, "plain": {Routing: want.Routing}}
	if diff := cmp.Diff(want, cfg, settings); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestConfigRoundTrip(t *testing.T) {
	whole, err := server.ParseConfig([]byte(wholeFile))
	check(t, err)
	for name, cfg := range map[string]server.Config{"default": server.DefaultConfig(), "whole": whole} {
		text, err := cfg.YAML()
		check(t, err)
		again, err := server.ParseConfig(text)
		if err != nil {
			t.Fatalf("%s: %v in\n%s", name, err, text)
		}
		if diff := cmp.Diff(cfg, again, settings); diff != "" {
			t.Errorf("%s (-before +after):\n%s\n%s", name, diff, text)
		}
	}
	text, err := server.DefaultConfig().YAML()
	check(t, err)
	for _, line := range []string{"bytes: 256MiB", "max_bytes: auto", "ttl: 10s", "policy: latency", "pool_grace: 10s", "quiet_interval: 5m0s"} {
		if !strings.Contains(string(text), line) {
			t.Errorf("defaults do not say %q:\n%s", line, text)
		}
	}
}

func TestEmptyFileIsTheDefaults(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\n", "---\n", "{}", "null", "stream:\nrouting:\n  kv:\n  # policy: kv\n"} {
		cfg, err := server.ParseConfig([]byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if diff := cmp.Diff(server.DefaultConfig(), cfg, settings); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestNoSecretIsPrinted(t *testing.T) {
	cfg := server.DefaultConfig()
	cfg.NATS = "nats://user:hunter2@a:4222,nats://t0ken@b:4222"
	text, err := cfg.YAML()
	check(t, err)
	for _, secret := range []string{"hunter2", "t0ken", "user"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%q is printed:\n%s", secret, text)
		}
	}
	if !strings.Contains(string(text), "a:4222") || !strings.Contains(string(text), "b:4222") {
		t.Errorf("the servers are not printed:\n%s", text)
	}
}

func TestBadFiles(t *testing.T) {
	for _, test := range []struct{ name, text, says string }{
		{"unknown key", "listen: none\nlisten_on: x\n", `line 2: unknown field "listen_on"`},
		{"unknown key below", "routing:\n  policy: kv\n  kv:\n    overlap_credit: 1\n", `line 4: kv: unknown field "overlap_credit"`},
		{"unknown key of a pool", "pools:\n  a:\n    rooting: {}\n", `line 3: a: unknown field "rooting"`},
		{"unknown key of a pool's routing", "pools:\n  a:\n    routing:\n      polizy: kv\n", `line 4: routing: unknown field "polizy"`},
		{"twice", "listen: none\nlisten: none\n", "line 2:"},
		{"a number for a duration", "drain_timeout: 25\n", `line 1: drain_timeout: "25" is not a duration like 25s`},
		{"text for a number", "stream: {replicas: three}\n", `line 1: replicas: "three" is not a whole number`},
		{"bad size", "stream:\n  bytes: 256 parsecs\n", "256 parsecs"},
		{"text for a section", "stream: big\n", "line 1: stream: "},
		{"a section for text", "\nlisten: {a: b}\n", "line 2: "},
		{"text for a switch", "routing: {latency: {learn: often}}\n", `line 1: learn: "often" is not true or false`},
		{"a negative seed", "pools:\n  a: {routing: {seed: -1}}\n", "line 2:"},
		{"negative size", "stream: {bytes: -1}\n", "-1"},
		{"no YAML", "listen: [\n", "line 1:"},
		{"a list", "- a\n- b\n", "line 1:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := server.ParseConfig([]byte(test.text))
			oneLine(t, err, test.says)
		})
	}
	file := filepath.Join(t.TempDir(), "routerd.yaml")
	_, err := server.LoadConfig(file)
	oneLine(t, err, file)
	check(t, os.WriteFile(file, []byte("nats: [1\n"), 0o600))
	_, err = server.LoadConfig(file)
	oneLine(t, err, file)
	check(t, os.WriteFile(file, make([]byte, 1<<20+1), 0o600))
	_, err = server.LoadConfig(file)
	oneLine(t, err, file)
	check(t, os.WriteFile(file, []byte("prefix: abc"), 0o600))
	cfg, err := server.LoadConfig(file)
	check(t, err)
	if cfg.Prefix != "abc" || cfg.Listen != server.DefaultConfig().Listen {
		t.Errorf("configuration %+v", cfg)
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	check(t, new(server.DefaultConfig()).Validate())
	var cfg server.Config
	err := cfg.Validate()
	if err == nil {
		t.Fatal("the zero value is valid")
	}
	cfg = server.DefaultConfig()
	cfg.Prefix, cfg.NATSTLSCert, cfg.Listen = "KVR", "/cert", ""
	cfg.DrainTimeout = 0
	cfg.Stream = server.StreamConfig{Bytes: 1 << 19, MaxBytes: 1, Replicas: 6}
	cfg.Roster = server.RosterConfig{TTL: time.Millisecond, PoolGrace: -1}
	cfg.Leases = server.LeasesConfig{Interval: time.Hour, QuietInterval: time.Minute}
	cfg.Log = server.LogConfig{Level: "loud", Format: "xml"}
	cfg.Routing.Policy, cfg.Routing.Temperature = "best", -1
	cfg.Routing.KV.HostWeight, cfg.Routing.Latency.DecodeScale = 2, -1
	pool := cfg.Routing
	cfg.Pools = map[string]server.PoolConfig{"": {Routing: server.DefaultConfig().Routing}, "p": {Routing: pool}}
	err = cfg.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, key := range []string{
		"prefix", "nats_tls_cert", "listen:", "drain_timeout:", "stream.bytes:", "stream.max_bytes:", "stream.replicas:",
		"roster.ttl:", "roster.grace:", "roster.pool_grace:", "leases.quiet_interval:", "leases.tombstone:",
		"log.level:", "log.format:", "routing.policy:", "routing.temperature:", "routing.kv: host_weight", "routing.latency: decode_scale",
		`pools: name ""`, "pools.p.routing.policy:",
	} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("faults do not name %q:\n%v", key, err)
		}
	}
	if _, err := server.New(cfg); err == nil {
		t.Error("New takes a faulty configuration")
	}
}

func TestSize(t *testing.T) {
	for _, test := range []struct {
		text string
		want server.Size
		back string
	}{
		{"256MiB", 256 << 20, "256MiB"}, {"2GiB", 2 << 30, "2GiB"}, {"3TiB", 3 << 40, "3TiB"}, {"1 KiB", 1024, "1KiB"},
		{"65536", 65536, "64KiB"}, {"1000", 1000, "1000"}, {"5MB", 5e6, "5000000"}, {"7B", 7, "7"}, {" auto ", 0, "auto"}, {"0", 0, "auto"},
		{"8191PiB", -1, ""}, {"9000000TiB", -1, ""}, {"-1", -1, ""}, {"1.5GiB", -1, ""}, {"", -1, ""}, {"GiB", -1, ""}, {"9223372036854775808", -1, ""},
	} {
		got, err := server.ParseSize(test.text)
		if (err != nil) != (test.want < 0) || err == nil && (got != test.want || got.String() != test.back) {
			t.Errorf("%q: %d %q, %v; want %d %q", test.text, got, got, err, test.want, test.back)
		}
	}
}

// Settings of a pool are in force for that pool alone.
func TestRoutingPerPool(t *testing.T) {
	s := start(t, func(c *server.Config) {
		own := c.Routing
		own.Policy = protocol.PolicyRoundRobin
		c.Pools = map[string]server.PoolConfig{"turns": {Routing: own}}
		c.Logger = zerolog.Nop()
	})
	s.join(pool, "w1", nil)
	s.join("turns", "w1", nil)
	for name, want := range map[string]protocol.Policy{pool: protocol.PolicyKV, "turns": protocol.PolicyRoundRobin} {
		reply, err := s.client.Route(patient(t), name, &protocol.RouteRequest{Prompt: protocol.Prompt{TokenIDs: []uint32{1}}})
		check(t, err)
		if reply.Cost.Policy != want {
			t.Errorf("pool %s is routed by %s, want %s", name, reply.Cost.Policy, want)
		}
	}
}
