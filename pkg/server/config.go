package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/routerd/routerd/pkg/clock"
	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/scheduler"
)

// Config is everything a server can be told. Start from DefaultConfig; the zero
// value is not usable.
type Config struct {
	// NATS names the servers of a cluster, separated by commas; "" runs the
	// embedded server.
	NATS        string `yaml:"nats"`
	NATSCreds   string `yaml:"nats_creds"`    // credentials file
	NATSTLSCA   string `yaml:"nats_tls_ca"`   // PEM file of the authority that signed the cluster's certificate
	NATSTLSCert string `yaml:"nats_tls_cert"` // PEM file of this client's certificate
	NATSTLSKey  string `yaml:"nats_tls_key"`  // PEM file of its key

	// Listen is the embedded server's listener: host:port, port 0 picks one,
	// "none" keeps it in this process.
	Listen string `yaml:"listen"`
	// Store is the embedded server's folder; "" is routerd under the user's state
	// directory. One process at a time may use it.
	Store string `yaml:"store"`
	// Admin is the listener of /livez, /readyz and /metrics; "none" opens none.
	Admin string `yaml:"admin"`
	// Prefix begins every subject and bucket name: 1 to 32 of [a-z0-9].
	Prefix string `yaml:"prefix"`
	// DrainTimeout bounds a shutdown's wait for accepted requests.
	DrainTimeout time.Duration `yaml:"drain_timeout"`

	Log     LogConfig             `yaml:"log"`
	Stream  StreamConfig          `yaml:"stream"`
	Roster  RosterConfig          `yaml:"roster"`
	Leases  LeasesConfig          `yaml:"leases"`
	Routing RoutingConfig         `yaml:"routing"`
	Pools   map[string]PoolConfig `yaml:"pools,omitempty"`

	// Logger takes the log; the zero value discards it.
	Logger zerolog.Logger `yaml:"-"`
	// Clock times leases and load; nil is the machine's clock.
	Clock clock.Clock `yaml:"-"`
}

// LogConfig says how the log is written.
type LogConfig struct {
	Level  string `yaml:"level"`  // trace, debug, info, warn, error
	Format string `yaml:"format"` // auto, json, text; auto is text on a terminal
}

// StreamConfig sizes the streams that this router makes.
type StreamConfig struct {
	Bytes    Size `yaml:"bytes"`     // of a new stream, at least 1 MiB
	MaxBytes Size `yaml:"max_bytes"` // streams double up to this; 0 or auto: an eighth of the NATS server's store
	Replicas int  `yaml:"replicas"`  // 1 to 5, of streams and buckets
}

// RosterConfig times the roster of workers.
type RosterConfig struct {
	TTL       time.Duration `yaml:"ttl"`        // of a registration that is not refreshed, at least 1 s
	Grace     time.Duration `yaml:"grace"`      // from a worker's departure to the purge of its subject
	PoolGrace time.Duration `yaml:"pool_grace"` // from the last worker's departure to the closing of its pool
}

// LeasesConfig times leases.
type LeasesConfig struct {
	Interval      time.Duration `yaml:"interval"`       // a lease with progress reports ends one to two of these after the last
	QuietInterval time.Duration `yaml:"quiet_interval"` // the same for a lease that never had one
	Tombstone     time.Duration `yaml:"tombstone"`      // how long an ended lease is remembered
}

// RoutingConfig says how workers are chosen.
type RoutingConfig struct {
	Policy      protocol.Policy         `yaml:"policy"`
	Seed        uint64                  `yaml:"seed"`        // of tie breaks and sampling; 0: random
	Temperature float64                 `yaml:"temperature"` // 0: the lowest cost wins
	KV          scheduler.KVConfig      `yaml:"kv"`
	Latency     scheduler.LatencyConfig `yaml:"latency"`
}

// PoolConfig overrides settings for one pool.
type PoolConfig struct {
	Routing RoutingConfig `yaml:"routing"`
}

// DefaultConfig is what an empty configuration gives.
func DefaultConfig() Config {
	return Config{
		Listen: "127.0.0.1:4222", Admin: "127.0.0.1:9464", Prefix: protocol.DefaultPrefix,
		DrainTimeout: 25 * time.Second,
		Log:          LogConfig{Level: "info", Format: "auto"},
		Stream:       StreamConfig{Bytes: 256 << 20, Replicas: 1},
		Roster:       RosterConfig{TTL: 10 * time.Second, Grace: time.Minute, PoolGrace: 10 * time.Second},
		Leases:       LeasesConfig{Interval: time.Minute, QuietInterval: 5 * time.Minute, Tombstone: 5 * time.Minute},
		Routing: RoutingConfig{
			Policy: protocol.PolicyLatency,
			KV:     scheduler.DefaultKVConfig(), Latency: scheduler.DefaultLatencyConfig(),
		},
		Logger: zerolog.Nop(),
	}
}

// Validate reports every fault of the configuration, each by its key.
func (c *Config) Validate() error {
	var faults []error
	fault := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	if _, err := protocol.NewNames(c.Prefix); err != nil {
		faults = append(faults, err)
	}
	fault((c.NATSTLSCert == "") == (c.NATSTLSKey == ""), "nats_tls_cert and nats_tls_key: give both or none")
	if c.NATS == "" {
		fault(c.NATSCreds == "" && c.NATSTLSCA == "" && c.NATSTLSCert == "",
			"nats_creds, nats_tls_ca, nats_tls_cert: belong to a cluster; set nats to its URLs")
		fault(c.Listen != "", "listen: must be host:port or none")
	}
	fault(c.DrainTimeout > 0, "drain_timeout: must be above 0")
	fault(c.Stream.Bytes >= 1<<20, "stream.bytes: must be at least 1MiB")
	fault(c.Stream.MaxBytes == 0 || c.Stream.MaxBytes >= c.Stream.Bytes, "stream.max_bytes: must be auto or at least stream.bytes (%s)", c.Stream.Bytes)
	fault(c.Stream.Replicas >= 1 && c.Stream.Replicas <= 5, "stream.replicas: must be 1 to 5")
	fault(c.Roster.TTL >= time.Second && c.Roster.TTL <= time.Hour, "roster.ttl: must be 1s to 1h")
	fault(c.Roster.Grace > 0, "roster.grace: must be above 0")
	fault(c.Roster.PoolGrace > 0, "roster.pool_grace: must be above 0")
	for _, d := range []struct {
		key   string
		value time.Duration
	}{{"interval", c.Leases.Interval}, {"quiet_interval", c.Leases.QuietInterval}, {"tombstone", c.Leases.Tombstone}} {
		fault(d.value >= time.Millisecond && d.value <= 24*time.Hour, "leases.%s: must be 1ms to 24h", d.key)
	}
	fault(c.Leases.QuietInterval >= c.Leases.Interval, "leases.quiet_interval: must be at least leases.interval")
	if _, err := zerolog.ParseLevel(c.Log.Level); err != nil || c.Log.Level == "" {
		fault(false, "log.level: must be trace, debug, info, warn or error")
	}
	fault(slices.Contains([]string{"auto", "json", "text"}, c.Log.Format), "log.format: must be auto, json or text")
	faults = append(faults, c.Routing.validate("routing")...)
	for name, pool := range c.Pools {
		if err := protocol.CheckName(name); err != nil {
			faults = append(faults, fmt.Errorf("pools: name %q %w", name, err))
		}
		faults = append(faults, pool.Routing.validate("pools."+name+".routing")...)
	}
	return errors.Join(faults...)
}

func (c *RoutingConfig) validate(key string) []error {
	var faults []error
	if !slices.Contains(protocol.Policies, c.Policy) {
		names := make([]string, len(protocol.Policies))
		for i, p := range protocol.Policies {
			names[i] = string(p)
		}
		faults = append(faults, fmt.Errorf("%s.policy: %q is none of %s", key, c.Policy, strings.Join(names, ", ")))
	}
	if !(c.Temperature >= 0) || c.Temperature > 1e6 {
		faults = append(faults, fmt.Errorf("%s.temperature: must be a number from 0 to 1000000", key))
	}
	if err := c.KV.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("%s.kv: %w", key, err))
	}
	if err := c.Latency.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("%s.latency: %w", key, err))
	}
	return faults
}

// routing is what is in force for a pool.
func (c *Config) routing(pool string) RoutingConfig {
	if own, ok := c.Pools[pool]; ok {
		return own.Routing
	}
	return c.Routing
}
