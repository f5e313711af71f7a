package replay

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/routerd/routerd/internal/mocker"
	"github.com/routerd/routerd/pkg/protocol"
)

// Report is what a replay found. Fractions are 0 to 1.
type Report struct {
	Trace    Trace    `json:"trace"`
	Settings Settings `json:"settings"`
	Policies []Result `json:"policies"`
	OK       bool     `json:"ok"` // no error, and every index equal
}

// Trace describes what was replayed.
type Trace struct {
	File         string `json:"file"`
	Requests     int    `json:"requests"`
	PromptTokens int    `json:"prompt_tokens"`
}

// Settings are what the run was told.
type Settings struct {
	Workers    int     `json:"workers"`
	Blocks     int     `json:"blocks"`
	BlockSize  int     `json:"block_size"`
	Load       float64 `json:"load"`
	Seed       uint64  `json:"seed"`
	EventLagMS float64 `json:"event_lag_ms,omitempty"`
}

// Result is one policy's figures.
type Result struct {
	Policy       protocol.Policy `json:"policy"`
	Requests     int             `json:"requests"`
	Errors       int             `json:"errors"`
	PromptTokens int             `json:"prompt_tokens"`
	ReusedTokens int             `json:"reused_tokens"`
	Reuse        float64         `json:"reuse"`
	TTFT         Times           `json:"ttft_ms"` // simulated ms
	EndToEnd     MeanP99         `json:"e2e_ms"`  // simulated ms
	RouteCall    Quantiles       `json:"route_us"`
	Imbalance    float64         `json:"load_imbalance"` // computed tokens, largest of a worker over the mean
	Preemptions  int             `json:"preemptions"`
	Events       int             `json:"events"`
	EventBlocks  int             `json:"event_blocks"`
	EventsPerS   float64         `json:"events_per_s"` // of wall time
	BlocksPerS   float64         `json:"blocks_per_s"` // of wall time
	WallS        float64         `json:"wall_s"`
	MaxRSSBytes  int64           `json:"max_rss_bytes"` // of the process so far
	IndexEqual   bool            `json:"index_equal"`

	Failures []string `json:"failures,omitempty"` // the first few errors, in words
}

// Times sums up simulated times in ms.
type Times struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
}

// MeanP99 sums up simulated times in ms.
type MeanP99 struct {
	Mean float64 `json:"mean"`
	P99  float64 `json:"p99"`
}

// Quantiles sums up wall times in us.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// fill takes the simulation's figures and the run's wall times.
func (r *Result) fill(s *mocker.Summary, calls []time.Duration, wall time.Duration) {
	r.Requests, r.Errors = s.Requests, s.Errors
	r.PromptTokens, r.ReusedTokens, r.Reuse = s.PromptTokens, s.ReusedTokens, s.Reuse()
	r.TTFT = Times{ms(s.TTFT.Mean), ms(s.TTFT.P50), ms(s.TTFT.P90), ms(s.TTFT.P99)}
	r.EndToEnd = MeanP99{ms(s.EndToEnd.Mean), ms(s.EndToEnd.P99)}
	r.Imbalance, r.Preemptions = s.LoadImbalance, s.Preemptions
	took := mocker.SummarizeTimes(slices.Clone(calls))
	r.RouteCall = Quantiles{us(took.P50), us(took.P99)}
	r.WallS = wall.Seconds()
	r.EventsPerS = float64(r.Events) / r.WallS
	r.BlocksPerS = float64(r.EventBlocks) / r.WallS
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Print writes the report as a table.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s: %d requests, %d prompt tokens, arriving %gx as fast, on %d workers of %d blocks of %d tokens\n\n",
		r.Trace.File, r.Trace.Requests, r.Trace.PromptTokens, r.Settings.Load, r.Settings.Workers, r.Settings.Blocks, r.Settings.BlockSize)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\trequests\treused\tTTFT mean\tp50\tp90\tp99\tend to end\timbalance\tpreempted\tcall p50\tp99\tevents\tblocks\terrors\tindex\t")
	fmt.Fprintln(t, "\t\t% of prompt\tms\tms\tms\tms\tms mean\tmax/mean\t\tus\tus\tper s\tper s\t\t\t")
	for _, p := range r.Policies {
		index := "equal"
		if !p.IndexEqual {
			index = "DIFFERS"
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t%d\t%.0f\t%.0f\t%s\t%s\t%d\t%s\t\n",
			p.Policy, p.Requests, 100*p.Reuse, p.TTFT.Mean, p.TTFT.P50, p.TTFT.P90, p.TTFT.P99, p.EndToEnd.Mean,
			p.Imbalance, p.Preemptions, p.RouteCall.P50, p.RouteCall.P99, rate(p.EventsPerS), rate(p.BlocksPerS), p.Errors, index)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range r.Policies {
		for _, failure := range p.Failures {
			fmt.Fprintf(w, "%s: %s\n", p.Policy, failure)
		}
	}
	fmt.Fprintln(w, "\nTimes of requests are simulated, those of calls are this machine's.")
	return nil
}

// rate writes a number per second in thousands or millions.
func rate(perSecond float64) string {
	switch {
	case perSecond >= 1e6:
		return fmt.Sprintf("%.1fM", perSecond/1e6)
	case perSecond >= 1e4:
		return fmt.Sprintf("%.0fk", perSecond/1e3)
	default:
		return fmt.Sprintf("%.0f", math.Round(perSecond))
	}
}
