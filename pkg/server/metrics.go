package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/pkg/protocol"
)

// metrics are what this router counts. Gauges of pools and ranks are read from
// the pools when they are scraped, so that a rank's series end with the rank.
type metrics struct {
	registry         *prometheus.Registry
	calls            *prometheus.CounterVec
	seconds          *prometheus.HistogramVec
	overflow         prometheus.Counter
	malformedReports prometheus.Counter
}

func newMetrics(s *Server) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "routerd_server_calls_total", Help: "Calls answered, by verb and result: ok, an error's code, or timeout where the caller had given up.",
		}, []string{"verb", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "routerd_server_call_seconds", Help: "From a call's arrival to its reply.",
			Buckets: prometheus.ExponentialBuckets(25e-6, 2, 16),
		}, []string{"verb"}),
		overflow: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "routerd_server_calls_overflow_total", Help: "Calls refused because too many were waiting in this router.",
		}),
		malformedReports: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "routerd_server_malformed_reports_total", Help: "Lease reports that could not be read.",
		}),
	}
	m.registry.MustRegister(m.calls, m.seconds, m.overflow, m.malformedReports, &poolCollector{s})
	return m
}

func (m *metrics) called(verb, result string, took time.Duration) {
	m.calls.WithLabelValues(verb, result).Inc()
	m.seconds.WithLabelValues(verb).Observe(took.Seconds())
}

// result names how a call went.
func result(err error) string {
	if err != nil {
		return string(asError(err).Code)
	}
	return "ok"
}

// gauge describes one series of poolCollector.
func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append([]string{"pool"}, labels...), nil)
}

var (
	descWorkers  = gauge("routerd_router_workers", "Accepted workers, one per rank.")
	descApplied  = gauge("routerd_subscriber_stream_sequence_applied", "Stream sequence up to which every message has been dealt with.")
	descKnown    = gauge("routerd_subscriber_stream_sequence_known", "Highest stream sequence known to exist.")
	descTrust    = gauge("routerd_subscriber_ranks", "Ranks by trust.", "trust")
	descBlocks   = gauge("routerd_indexer_blocks", "Blocks held by a rank, over all tiers.", "worker", "rank")
	descRefused  = gauge("routerd_subscriber_refused_total", "Events and messages refused, by reason, of the ranks that are there.", "reason")
	descRepairs  = gauge("routerd_subscriber_repairs_total", "Repairs begun, of the ranks that are there.")
	descLeases   = gauge("routerd_lease_live", "Leases that are charged.")
	descPrefill  = gauge("routerd_scheduler_active_prefill_tokens", "Prompt tokens admitted and not yet computed.", "worker", "rank")
	descDecode   = gauge("routerd_scheduler_active_decode_blocks", "Blocks of running requests.", "worker", "rank")
	descRequests = gauge("routerd_scheduler_active_requests", "Running requests.", "worker", "rank")
	descConflict = gauge("routerd_roster_refused_total", "Roster values refused, by reason.", "reason")
)

// poolCollector reads the pools at each scrape.
type poolCollector struct{ server *Server }

// Describe implements prometheus.Collector; the collector is unchecked, since
// its series come and go with pools and ranks.
func (c *poolCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *poolCollector) Collect(out chan<- prometheus.Metric) {
	for _, p := range c.server.pools.all() {
		emit := func(desc *prometheus.Desc, v float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, append([]string{p.name}, labels...)...)
		}
		count := func(desc *prometheus.Desc, v uint64, labels ...string) {
			out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(v), append([]string{p.name}, labels...)...)
		}
		emit(descWorkers, float64(p.router.Workers()))
		emit(descApplied, float64(p.log.Applied()))
		emit(descKnown, float64(p.log.Known()))
		emit(descLeases, float64(p.leases.Len()))
		c.collectRanks(p, emit, count)
		for _, load := range p.router.Loads().Workers {
			rank := rankLabel(load.Rank)
			emit(descPrefill, float64(load.ActivePrefillTokens), load.Worker, rank)
			emit(descDecode, float64(load.ActiveDecodeBlocks), load.Worker, rank)
			emit(descRequests, float64(load.ActiveRequests), load.Worker, rank)
		}
		for reason, n := range c.server.watcher.RosterRefused(p.name) {
			count(descConflict, n, reason)
		}
	}
}

func (c *poolCollector) collectRanks(p *pool, emit func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64, ...string)) {
	trust := map[protocol.Trust]int{
		protocol.TrustExact: 0, protocol.TrustPartial: 0, protocol.TrustStale: 0, protocol.TrustOff: 0,
	}
	refused := map[protocol.Refusal]uint64{}
	var repairs uint64
	for _, row := range p.router.Ranks(0) {
		trust[row.Trust]++
		repairs += row.Repairs
		for reason, n := range row.Refused {
			refused[reason] += n
		}
		emit(descBlocks, float64(row.Blocks), row.Worker, rankLabel(row.Rank))
	}
	for state, n := range trust {
		emit(descTrust, float64(n), string(state))
	}
	for reason, n := range refused {
		count(descRefused, n, string(reason))
	}
	count(descRepairs, repairs)
}
