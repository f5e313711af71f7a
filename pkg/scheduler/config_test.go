package scheduler

import (
	"math"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/routerd/routerd/pkg/protocol"
)

func TestZeroConfigIsTheDefault(t *testing.T) {
	s, err := New(Config{BlockSize: 16})
	if err != nil {
		t.Fatal(err)
	}
	if s.cfg.Policy != protocol.PolicyLatency || s.cfg.KV != DefaultKVConfig() || s.cfg.Latency != DefaultLatencyConfig() {
		t.Errorf("config %+v", s.cfg)
	}
	if err := (Config{BlockSize: 16, KV: DefaultKVConfig(), Latency: DefaultLatencyConfig()}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateReportsAllFaults(t *testing.T) {
	_, err := New(Config{
		Policy: "best", Temperature: math.NaN(),
		KV: KVConfig{OverlapScoreCredit: -1, OverlapCreditDecay: math.Inf(1), PrefillLoadScale: math.NaN(), DecodeActiveRequestWeight: -1,
			HostWeight: 1.5, DiskWeight: -0.5, SharedCacheMultiplier: 2},
		Latency: LatencyConfig{PrefillBaseMS: -1, PrefillMSPerToken: -1, PrefillMSPerToken2: math.NaN(), DecodeScale: math.Inf(1), HeldUpWeight: -1},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{
		"block_size", "policy", "temperature",
		"kv.overlap_score_credit", "kv.overlap_credit_decay", "kv.prefill_load_scale", "kv.decode_active_request_weight",
		"kv.host_weight", "kv.disk_weight", "kv.shared_cache_multiplier",
		"latency.prefill_base_ms", "latency.prefill_ms_per_token:", "latency.prefill_ms_per_token2", "latency.decode_scale", "latency.held_up_weight",
	} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not reported in:\n%v", field, err)
		}
	}
}

func TestConfigKeys(t *testing.T) {
	kv, latency := DefaultKVConfig(), DefaultLatencyConfig()
	err := yaml.UnmarshalWithOptions([]byte(`{overlap_score_credit: 2, overlap_credit_decay: 3, prefill_load_scale: 4,
		decode_active_request_weight: 5, host_weight: 0.5, disk_weight: 0.6, shared_cache_multiplier: 0.7}`), &kv, yaml.Strict())
	if want := (KVConfig{2, 3, 4, 5, 0.5, 0.6, 0.7}); err != nil || kv != want {
		t.Errorf("%+v, %v; want %+v", kv, err, want)
	}
	err = yaml.UnmarshalWithOptions([]byte(`{prefill_base_ms: 1, prefill_ms_per_token: 2, prefill_ms_per_token2: 3, decode_scale: 4,
		held_up_weight: 5, learn: false}`), &latency, yaml.Strict())
	if want := (LatencyConfig{1, 2, 3, 4, 5, false}); err != nil || latency != want {
		t.Errorf("%+v, %v; want %+v", latency, err, want)
	}
}

func TestRankAttributes(t *testing.T) {
	p := newPool(t, Config{}, "w1")
	err := p.SetRank(Rank{Worker: worker("w2"), TotalBlocks: 65536, Attributes: map[string]string{
		"latency.prefill_ms_per_token": "0.1",
		"latency.held_up_weight":       "-1",
		"latency.decode_scale":         "fast",
		"latency.learn":                "true",
		"gpu":                          "h100",
	}})
	if err == nil {
		t.Fatal("the bad attributes were not refused")
	}
	for text, want := range map[string]bool{"held_up_weight": true, "decode_scale": true, "latency.learn": true, "gpu": false, "prefill_ms_per_token": false} {
		if strings.Contains(err.Error(), text) != want {
			t.Errorf("%q named: %v, in %v", text, !want, err)
		}
	}
	want := DefaultLatencyConfig()
	want.PrefillMSPerToken = 0.1
	if got := p.rankLocked(worker("w2")).profile.rates; got != want {
		t.Errorf("rates %+v, want %+v", got, want)
	}
	if d := p.schedule(p.request(640)); d.Worker.ID != "w1" || d.Reason != protocol.ReasonLowestCost {
		t.Errorf("went to %s for %s, want the faster worker", d.Worker, d.Reason)
	}
}
