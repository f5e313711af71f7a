package scheduler

import (
	"math"
	"testing"

	"github.com/routerd/routerd/pkg/protocol"
)

// The numbered cases are worked examples of the formula, kept under their numbers
// wherever they are tested.
func TestKVCost(t *testing.T) {
	defaults := DefaultKVConfig()
	with := func(change func(*KVConfig)) KVConfig {
		kv := defaults
		change(&kv)
		return kv
	}
	decayed := with(func(kv *KVConfig) { kv.OverlapCreditDecay = 1 })
	credit := with(func(kv *KVConfig) { kv.OverlapScoreCredit = 1.5 })
	scaled := with(func(kv *KVConfig) { kv.PrefillLoadScale = 2 })
	uncredited := with(func(kv *KVConfig) { kv.OverlapScoreCredit = 0; kv.HostWeight = 0.5 })
	shared := with(func(kv *KVConfig) { kv.SharedCacheMultiplier = 0.5 })
	requests := with(func(kv *KVConfig) { kv.DecodeActiveRequestWeight = 3 })
	dev := func(blocks int) protocol.Overlap { return protocol.Overlap{Device: blocks} }

	tests := []struct {
		name      string
		kv        KVConfig
		tokens    int
		blockSize int // default 16
		untracked bool
		decode    bool
		c         candidate
		want      float64
	}{
		{name: "case 1", kv: defaults, tokens: 128, c: candidate{prefill: 64, blocks: 10, fresh: 4, overlap: dev(4)}, want: 22},
		{name: "case 2", kv: defaults, tokens: 100, want: 6.25},
		{name: "case 3", kv: scaled, tokens: 64, c: candidate{prefill: 16, blocks: 2, fresh: 3, overlap: dev(6)}, want: 7},
		{name: "case 3, prefill untracked", kv: scaled, tokens: 64, untracked: true, c: candidate{prefill: 16, blocks: 2, fresh: 3, overlap: dev(6)}, want: 5},
		{name: "case 6, warm", kv: defaults, tokens: 64, c: candidate{prefill: 48, overlap: dev(4)}, want: 3},
		{name: "case 6, cold", kv: defaults, tokens: 64, want: 4},
		{name: "case 6, warm, decayed", kv: decayed, tokens: 64, c: candidate{prefill: 48, overlap: dev(4)}, want: 7 - 4/1.75},
		{name: "case 6, cold, decayed", kv: decayed, tokens: 64, want: 4},
		{name: "case 7", kv: defaults, tokens: 64, untracked: true, decode: true, c: candidate{blocks: 10, overlap: dev(3)}, want: 7},
		{name: "case 7, no credit", kv: uncredited, tokens: 64, untracked: true, decode: true, c: candidate{blocks: 10, overlap: protocol.Overlap{Host: 2}}, want: 10},
		{name: "case 7, more credit than blocks", kv: requests, tokens: 64, untracked: true, decode: true, c: candidate{blocks: 10, requests: 2, overlap: dev(30)}, want: 6},
		{name: "case 9, warm", kv: defaults, tokens: 128, c: candidate{blocks: 5, overlap: dev(4)}, want: 9},
		{name: "case 9, cold", kv: defaults, tokens: 128, want: 8},
		{name: "case 9, warm, credit 1.5", kv: credit, tokens: 128, c: candidate{blocks: 5, overlap: dev(4)}, want: 7},
		{name: "case 10, warm", kv: scaled, tokens: 64, c: candidate{blocks: 3, overlap: dev(2)}, want: 7},
		{name: "case 10, cold", kv: scaled, tokens: 64, want: 8},
		{name: "case 11, device 2", kv: shared, tokens: 4, blockSize: 1, c: candidate{overlap: dev(2), shared: 2}, want: 1},
		{name: "case 11, device 0", kv: shared, tokens: 4, blockSize: 1, c: candidate{shared: 4}, want: 2},
		{name: "decode pool, prefill tracked", kv: defaults, tokens: 64, decode: true, c: candidate{blocks: 10, fresh: 4, overlap: dev(3)}, want: 15},
		{name: "decode pool, prefill untracked", kv: defaults, tokens: 64, decode: true, untracked: true, c: candidate{blocks: 10, fresh: 4, overlap: dev(3)}, want: 11},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := pricing{policy: protocol.PolicyKV, kv: test.kv, blockSize: 16, tokens: test.tokens,
				track: !test.untracked, decodeOnly: test.decode, plain: true}
			if test.blockSize > 0 {
				p.blockSize = test.blockSize
			}
			cost := p.cost(&test.c)
			near(t, "total", cost.Total, test.want)
			near(t, "sum of the terms", cost.PrefillBlocks+cost.DecodeBlocks+cost.RequestBlocks, test.want)
		})
	}
}

func TestCachedTokensCase5(t *testing.T) {
	p := pricing{kv: KVConfig{HostWeight: 0.5, DiskWeight: 0.25}, blockSize: 16}
	held := protocol.Overlap{Device: 2, Host: 3, Disk: 4, External: 5}
	near(t, "E", p.heldBlocks(&held), 5.75)
	if got := p.cachedTokens(&held); got != 92 {
		t.Errorf("C = %d, want 92", got)
	}
}

// The load policy is kv for ranks that hold nothing.
func TestLoadCostIgnoresOverlap(t *testing.T) {
	p := pricing{policy: protocol.PolicyLoad, kv: DefaultKVConfig(), blockSize: 16, tokens: 128, track: true, plain: true}
	p.kv.SharedCacheMultiplier = 1
	c := candidate{prefill: 64, blocks: 10, fresh: 4, shared: 3, overlap: protocol.Overlap{Device: 4, Host: 2, Disk: 1}}
	near(t, "total", p.cost(&c).Total, 12+14)
}

func TestLatencyCost(t *testing.T) {
	slow := LatencyConfig{PrefillBaseMS: 1, PrefillMSPerToken: 0.5, PrefillMSPerToken2: 0.001, DecodeScale: 0.1, HeldUpWeight: 2}
	rates := DefaultLatencyConfig()
	tests := []struct {
		name   string
		tokens int
		c      candidate
		want   protocol.Cost // its terms
	}{
		{
			"idle", 1000,
			candidate{fresh: 62, profile: &profile{total: 65536, budget: 8192, rates: rates}},
			protocol.Cost{PrefillMS: 37.91107284890488, DecodeMS: 15.62, Total: 53.53107284890488},
		},
		{
			"nearly full", 1000,
			candidate{prefill: 5000, requests: 10, blocks: 60000, fresh: 10, overlap: protocol.Overlap{Device: 40},
				profile: &profile{total: 65536, budget: 8192, rates: rates}},
			protocol.Cost{QueueMS: 93.2032, PrefillMS: 55.64009407214073, DecodeMS: 6.0790752, MemoryMS: 1567.9931640625, Total: 1722.9155333346384},
		},
		{
			"all cached but the last token", 64,
			candidate{prefill: 100, requests: 3, fresh: 4, overlap: protocol.Overlap{Device: 4},
				profile: &profile{total: 100, budget: 64, rates: rates}},
			protocol.Cost{QueueMS: 1.522688, PrefillMS: 48.73363242, DecodeMS: 0.0156564326, Total: 50.2719768526},
		},
		{
			"other rates, overfull", 9000,
			candidate{requests: 50, blocks: 80, fresh: 500, profile: &profile{total: 400, budget: 2048, rates: slow}},
			protocol.Cost{PrefillMS: 22954.005, DecodeMS: 45864, MemoryMS: 55000, Total: 123818.005},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := pricing{policy: protocol.PolicyLatency, blockSize: 16, tokens: test.tokens, track: true, plain: true}
			got := p.cost(&test.c)
			near(t, "queue_ms", got.QueueMS, test.want.QueueMS)
			near(t, "prefill_ms", got.PrefillMS, test.want.PrefillMS)
			near(t, "decode_ms", got.DecodeMS, test.want.DecodeMS)
			near(t, "memory_ms", got.MemoryMS, test.want.MemoryMS)
			near(t, "total", got.Total, test.want.Total)
		})
	}
}

// Slower tiers and a shared cache count as cached with their weights.
func TestLatencyCountsOtherTiers(t *testing.T) {
	p := pricing{policy: protocol.PolicyLatency, kv: DefaultKVConfig(), sharedHits: 0.5, blockSize: 16, tokens: 1600, track: true, plain: true}
	w := &profile{total: 65536, budget: 8192, rates: DefaultLatencyConfig()}
	mixed := p.cost(&candidate{overlap: protocol.Overlap{Device: 4, Host: 8, Disk: 2, External: 2}, shared: 6, profile: w})
	plain := p.cost(&candidate{overlap: protocol.Overlap{Device: 4 + 6 + 1 + 3}, profile: w})
	if mixed != plain {
		t.Errorf("cost %+v, want that of 14 blocks on device, %+v", mixed, plain)
	}
}

// Where prefill is not tracked only the step joined and the memory count.
func TestLatencyWithoutPrefillTracking(t *testing.T) {
	w := &profile{total: 1000, budget: 8192, rates: DefaultLatencyConfig()}
	p := pricing{policy: protocol.PolicyLatency, blockSize: 16, tokens: 1600, plain: true}
	got := p.cost(&candidate{prefill: 5000, requests: 9, blocks: 400, fresh: 100, profile: w})
	near(t, "total", got.Total, 16.5+(-25.74*0.25+54.01*0.5+5.74))
}

// A rank of unknown size is weighed by its prefill alone.
func TestLatencyOfUnknownSize(t *testing.T) {
	w, err := newProfile(Rank{}, DefaultLatencyConfig())
	if err != nil {
		t.Fatal(err)
	}
	p := pricing{policy: protocol.PolicyLatency, blockSize: 16, tokens: 1000, track: true, plain: true}
	got := p.cost(&candidate{blocks: 1 << 30, profile: &w})
	near(t, "total", got.Total, 2*15.62+16.5+5.74)
}

func TestTaintMultiplier(t *testing.T) {
	multiplier := func(weights float64) float64 {
		p := pricing{policy: protocol.PolicyKV, kv: DefaultKVConfig(), blockSize: 16, tokens: 16, track: true}
		return p.cost(&candidate{taints: weights}).Multiplier
	}
	near(t, "case 13, 0.85", math.Round(multiplier(0.85)*1e5)/1e5, 0.50104)
	near(t, "case 13, -0.25", math.Round(multiplier(-0.25)*1e4)/1e4, 1.2775)
	near(t, "none matches", multiplier(0), 1)
	near(t, "most attractive", multiplier(math.MaxFloat64), math.Exp(-1))
	near(t, "most repellent", multiplier(-math.MaxFloat64), math.E)
}

// No setting that passes validation makes a cost infinite or no number.
func TestCostsStayFinite(t *testing.T) {
	most := math.MaxFloat64
	kv := KVConfig{most, most, most, most, 1, 1, most}
	rates := LatencyConfig{PrefillBaseMS: most, PrefillMSPerToken: most, PrefillMSPerToken2: most, DecodeScale: most, HeldUpWeight: most}
	w := &profile{total: 1, budget: math.MaxUint64, rates: rates}
	for _, policy := range protocol.Policies {
		for _, track := range []bool{true, false} {
			for _, overlap := range []protocol.Overlap{{}, {Device: 1, Host: 1, Disk: 1, External: 1}, {Device: 1 << 20}} {
				p := pricing{policy: policy, kv: kv, sharedHits: 1, blockSize: 1, tokens: 1 << 20, track: track, decodeOnly: true}
				for _, c := range []candidate{{}, {prefill: 1 << 40, blocks: 1 << 40, requests: 1 << 20, fresh: 1 << 20, shared: 1 << 20, taints: -most}} {
					c.overlap, c.profile = overlap, w
					if got := p.cost(&c).Total; got < 0 || got > most {
						t.Errorf("%s, tracked %v: %+v costs %v", policy, track, c, got)
					}
				}
			}
		}
	}
}
