package scheduler

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// What the latency policy takes where a worker does not say.
const (
	defaultBudget = 8192
	fullFrom      = 0.9 // part of a rank's blocks beyond which preemption is feared
	fullMS        = 1e5 // per part of the blocks beyond it
)

// profile is what the latency policy knows of a rank's engine.
type profile struct {
	total  float64 // N: blocks it can hold, +Inf if unknown
	budget float64 // tokens of one of its steps
	rates  LatencyConfig
}

// newProfile reads a rank's profile. It is usable whatever the error, which
// names attributes that were refused.
func newProfile(r Rank, pool LatencyConfig) (profile, error) {
	p := profile{total: math.Inf(1), budget: defaultBudget, rates: pool}
	if r.TotalBlocks > 0 {
		p.total = float64(r.TotalBlocks)
	}
	if r.MaxBatchedTokens > 0 {
		p.budget = float64(r.MaxBatchedTokens)
	}
	err := p.rates.setAttributes(r.Attributes)
	return p, err
}

const ratePrefix = "latency."

type namedRate struct {
	name  string
	value *float64
}

// rates are the fields that a worker's attributes can set.
func (c *LatencyConfig) rates() [5]namedRate {
	return [5]namedRate{
		{"prefill_base_ms", &c.PrefillBaseMS},
		{"prefill_ms_per_token", &c.PrefillMSPerToken},
		{"prefill_ms_per_token2", &c.PrefillMSPerToken2},
		{"decode_scale", &c.DecodeScale},
		{"held_up_weight", &c.HeldUpWeight},
	}
}

func (c *LatencyConfig) setAttributes(attributes map[string]string) error {
	var faults []error
	for name, text := range attributes {
		if key, ok := strings.CutPrefix(name, ratePrefix); ok {
			faults = append(faults, c.setAttribute(key, text))
		}
	}
	return errors.Join(faults...)
}

func (c *LatencyConfig) setAttribute(key, text string) error {
	rates := c.rates()
	at := slices.IndexFunc(rates[:], func(r namedRate) bool { return r.name == key })
	if at < 0 {
		return fmt.Errorf("attribute %q: is no rate of the latency policy", ratePrefix+key)
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= math.MaxFloat64) {
		return fmt.Errorf("attribute %q: %q is no finite number of at least 0", ratePrefix+key, text)
	}
	*rates[at].value = v
	return nil
}

// milliseconds has the terms of the latency policy, see the package comment.
// Without prefill tracking the prompt is computed elsewhere: what is left is the
// step that the request joins.
func (p *pricing) milliseconds(c *candidate) (queue, prefill, decode, memory float64) {
	w := c.profile
	var ahead, left float64
	if p.track {
		cached := p.inTokens(p.heldBlocks(&c.overlap) + p.sharedHits*float64(c.shared))
		ahead, left = float64(c.prefill), float64(p.tokens-min(cached, p.tokens-1))
	}
	full := float64(c.blocks+c.fresh) / w.total
	own := w.rates.prefillMS(left, w.budget)
	steps := max(1, math.Ceil((ahead+left)/w.budget))
	queue = w.rates.PrefillMSPerToken*ahead + w.rates.PrefillMSPerToken2*ahead*w.budget
	prefill = own + steps*(w.rates.PrefillBaseMS+w.rates.stepMS(full))
	decode = own * (1 + w.rates.HeldUpWeight*float64(c.requests)/100)
	memory = fullMS * max(0, full-fullFrom)
	return bounded(queue), bounded(prefill), bounded(decode), bounded(memory)
}

// prefillMS is the time to compute n tokens of one prompt.
func (c *LatencyConfig) prefillMS(n, budget float64) float64 {
	return c.PrefillMSPerToken*n + c.PrefillMSPerToken2*n*min(n, budget)
}

// stepMS is the decode time of one step of a rank that is full to a part.
func (c *LatencyConfig) stepMS(full float64) float64 {
	u := min(1, full)
	return max(1, c.DecodeScale*(-25.74*u*u+54.01*u+5.74))
}
