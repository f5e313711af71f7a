package scheduler

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/routerd/routerd/pkg/clock"
	"github.com/routerd/routerd/pkg/protocol"
)

// Config sets up a Scheduler.
type Config struct {
	BlockSize int  // tokens of a block, 1 to 65,536; required
	Eagle     bool // the pool's blocks overlap by one token

	Policy      protocol.Policy // default latency
	Temperature float64         // of the choice, finite and at least 0; 0 takes the least cost
	KV          KVConfig        // the zero value is DefaultKVConfig
	Latency     LatencyConfig   // the zero value is DefaultLatencyConfig

	// DecodeOnly marks a pool whose prompts are computed by other workers: where
	// a request does not track prefill, the overlap is credited against its
	// active blocks.
	DecodeOnly bool

	// Seed of the choice among equals and of sampling; 0 takes one at random.
	Seed uint64

	// Clock times load that changes by itself; nil is the machine's. The charges
	// of this package change with reports alone, so that nothing reads it.
	Clock clock.Clock
}

// Validate reports all faults of a configuration.
func (c Config) Validate() error {
	faults := between(nil, "temperature", c.Temperature, math.MaxFloat64)
	if c.BlockSize < 1 || c.BlockSize > maxBlockSize {
		faults = append(faults, fmt.Errorf("block_size: must be 1 to %d, is %d", maxBlockSize, c.BlockSize))
	}
	if c.Policy != "" && !slices.Contains(protocol.Policies, c.Policy) {
		faults = append(faults, fmt.Errorf("policy: must be one of %v, is %q", protocol.Policies, c.Policy))
	}
	for _, fault := range c.KV.faults() {
		faults = append(faults, fmt.Errorf("kv.%w", fault))
	}
	for _, fault := range c.Latency.faults() {
		faults = append(faults, fmt.Errorf("latency.%w", fault))
	}
	return errors.Join(faults...)
}

const maxBlockSize = 1 << 16

func (c Config) withDefaults() Config {
	if c.Policy == "" {
		c.Policy = protocol.Policies[0]
	}
	if c.KV == (KVConfig{}) {
		c.KV = DefaultKVConfig()
	}
	if c.Latency == (LatencyConfig{}) {
		c.Latency = DefaultLatencyConfig()
	}
	if c.Clock == nil {
		c.Clock = clock.Wall{}
	}
	return c
}

// KVConfig has the weights of the kv and load policies, and those by which
// blocks beside the device count as cached under every policy.
type KVConfig struct {
	OverlapScoreCredit        float64 `yaml:"overlap_score_credit"`         // blocks of prefill that a block on device saves, at least 0
	OverlapCreditDecay        float64 `yaml:"overlap_credit_decay"`         // how fast a rank's excess prefill takes that credit away, at least 0
	PrefillLoadScale          float64 `yaml:"prefill_load_scale"`           // of blocks to prefill against active blocks, at least 0
	DecodeActiveRequestWeight float64 `yaml:"decode_active_request_weight"` // blocks that an active request counts for, at least 0
	HostWeight                float64 `yaml:"host_weight"`                  // of a block on host, 0 to 1
	DiskWeight                float64 `yaml:"disk_weight"`                  // of a block on disk or external, 0 to 1
	SharedCacheMultiplier     float64 `yaml:"shared_cache_multiplier"`      // of a block in a cache shared by all workers, 0 to 1
}

// DefaultKVConfig is what the zero KVConfig stands for.
func DefaultKVConfig() KVConfig {
	return KVConfig{OverlapScoreCredit: 1, PrefillLoadScale: 1, HostWeight: 0.75, DiskWeight: 0.25}
}

// Validate reports all faults, each with its field's name.
func (c KVConfig) Validate() error { return errors.Join(c.faults()...) }

func (c KVConfig) faults() (faults []error) {
	faults = between(faults, "overlap_score_credit", c.OverlapScoreCredit, math.MaxFloat64)
	faults = between(faults, "overlap_credit_decay", c.OverlapCreditDecay, math.MaxFloat64)
	faults = between(faults, "prefill_load_scale", c.PrefillLoadScale, math.MaxFloat64)
	faults = between(faults, "decode_active_request_weight", c.DecodeActiveRequestWeight, math.MaxFloat64)
	faults = between(faults, "host_weight", c.HostWeight, 1)
	faults = between(faults, "disk_weight", c.DiskWeight, 1)
	return between(faults, "shared_cache_multiplier", c.SharedCacheMultiplier, 1)
}

// LatencyConfig has the rates of the latency policy.
type LatencyConfig struct {
	PrefillBaseMS      float64 `yaml:"prefill_base_ms"`       // p0: of a step that prefills, ms
	PrefillMSPerToken  float64 `yaml:"prefill_ms_per_token"`  // p1: ms
	PrefillMSPerToken2 float64 `yaml:"prefill_ms_per_token2"` // p2: ms per token and token of its step
	DecodeScale        float64 `yaml:"decode_scale"`          // of the time of a step that decodes
	HeldUpWeight       float64 `yaml:"held_up_weight"`        // of the delay that a prefill causes to the others

	// Learn asks for rates learnt from the leases' own times. It is accepted and
	// changes nothing: rates are as configured.
	Learn bool `yaml:"learn"`
}

// DefaultLatencyConfig is what the zero LatencyConfig stands for: an engine that
// prefills some 60,000 tokens a second.
func DefaultLatencyConfig() LatencyConfig {
	return LatencyConfig{
		PrefillBaseMS: 16.5, PrefillMSPerToken: 0.0152, PrefillMSPerToken2: 4.2e-7,
		DecodeScale: 1, HeldUpWeight: 1, Learn: true,
	}
}

// Validate reports all faults, each with its field's name. All rates are finite
// and at least 0.
func (c LatencyConfig) Validate() error { return errors.Join(c.faults()...) }

func (c LatencyConfig) faults() (faults []error) {
	for _, rate := range c.rates() {
		faults = between(faults, rate.name, *rate.value, math.MaxFloat64)
	}
	return faults
}

// between adds the fault of a number outside 0 to limit, if it is one.
func between(faults []error, name string, v, limit float64) []error {
	switch {
	case v >= 0 && v <= limit:
		return faults
	case limit == math.MaxFloat64:
		return append(faults, fmt.Errorf("%s: must be finite and at least 0, is %v", name, v))
	default:
		return append(faults, fmt.Errorf("%s: must be 0 to %v, is %v", name, limit, v))
	}
}
