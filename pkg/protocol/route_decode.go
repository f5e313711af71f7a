package protocol

import (
	"math"
	"time"
	"unicode/utf8"
)

// Bounds that are wide enough for any use and keep arithmetic safe.
const (
	maxTimeoutMS = math.MaxInt64 / uint64(time.Millisecond)
	maxCount     = math.MaxInt32
)

// DecodeRouteRequest reads the body of a routing call. The error is an *Error
// with CodeInvalidRequest whose message names the field. Whether the number of
// block hashes fits the prompt is left to Prompt.Check.
func DecodeRouteRequest(body []byte) (*RouteRequest, error) {
	r := newReader(body)
	q := &RouteRequest{Attempt: 1}
	r.object(func(name []byte) {
		switch string(name) {
		case "request_id":
			q.RequestID = r.text(MaxTextBytes)
		case "attempt":
			q.Attempt = uint32(r.uint(1, math.MaxUint32))
		case "timeout_ms":
			q.TimeoutMS = int64(r.uint(0, maxTimeoutMS))
		case "expected_output_tokens":
			q.ExpectedOutputTokens = int(r.uint(0, maxCount))
		case "priority":
			q.Priority = int(r.int(math.MinInt32, math.MaxInt32))
		case "strict_priority":
			q.StrictPriority = uint32(r.uint(0, math.MaxUint32))
		case "policy_class":
			q.PolicyClass = r.text(MaxTextBytes)
		case "session_id":
			q.SessionID = r.text(MaxTextBytes)
		case "pinned":
			q.Pinned = r.pin()
		case "allowed_workers":
			allowed := r.names()
			q.Allowed = &allowed
		case "excluded_workers":
			q.Excluded = r.names()
		case "required_taints":
			q.RequiredTaints = r.texts(MaxTaints)
		case "preferred_taints":
			q.PreferredTaints = r.weights()
		case "overrides":
			q.Overrides = r.overrides()
		case "query_only":
			q.QueryOnly = r.bool()
		case "explain":
			q.Explain = r.bool()
		default:
			r.prompt(name, &q.Prompt)
		}
	})
	r.checkPrompt(&q.Prompt)
	return result(q, r)
}

// DecodeOverlapRequest reads the body of an overlap call; its error is as that
// of DecodeRouteRequest.
func DecodeOverlapRequest(body []byte) (*OverlapRequest, error) {
	r := newReader(body)
	q := &OverlapRequest{}
	r.object(func(name []byte) {
		if string(name) == "after" {
			q.After = r.after()
			return
		}
		r.prompt(name, &q.Prompt)
	})
	r.checkPrompt(&q.Prompt)
	return result(q, r)
}

// result is what a decoder returns at its end.
func result[T any](v *T, r *reader) (*T, error) {
	if err := r.finish(); err != nil {
		return nil, err
	}
	return v, nil
}

// prompt reads a field of a prompt and leaves any other.
func (r *reader) prompt(name []byte, p *Prompt) {
	switch string(name) {
	case "token_ids":
		p.TokenIDs = r.tokens(MaxTokens)
	case "block_hashes":
		p.BlockHashes, p.ByHash = hashes[BlockHash](r, MaxTokens), true
	case "isl_tokens":
		p.ISLTokens = int(r.uint(0, MaxTokens))
	case "lora_name":
		p.LoRA = r.text(MaxTextBytes)
	case "cache_salt":
		p.CacheSalt = r.text(MaxTextBytes)
	}
}

// checkPrompt checks that a prompt has one of its two forms and is not empty.
func (r *reader) checkPrompt(p *Prompt) {
	switch {
	case p.TokenIDs != nil && p.ByHash:
		r.failField("block_hashes", "must not be given together with token_ids")
	case p.TokenIDs != nil && len(p.TokenIDs) == 0:
		r.failField("token_ids", "must not be empty")
	case p.TokenIDs != nil && p.ISLTokens != 0:
		r.failField("isl_tokens", "goes with block_hashes, not with token_ids")
	case p.TokenIDs == nil && !p.ByHash:
		r.failField("token_ids", "is missing, and so is block_hashes with isl_tokens")
	case p.ByHash && p.ISLTokens == 0:
		r.failField("isl_tokens", "must be 1 to %d when block_hashes is given", MaxTokens)
	}
}

// Check reports, as an *Error with CodeInvalidRequest, a number of block hashes
// that does not fit the prompt's length under the pool's block size.
func (p *Prompt) Check(blockSize int, eagle bool) error {
	if !p.ByHash {
		return nil
	}
	if want := WholeBlocks(p.ISLTokens, blockSize, eagle); len(p.BlockHashes) != want {
		return Errorf(CodeInvalidRequest, "block_hashes: has %d entries, but isl_tokens of %d makes %d whole blocks of %d",
			len(p.BlockHashes), p.ISLTokens, want, blockSize)
	}
	return nil
}

func (r *reader) pin() *Pin {
	p := &Pin{}
	r.object(func(name []byte) {
		switch string(name) {
		case "worker":
			p.Worker = r.name()
		case "rank":
			rank := r.rank()
			p.Rank = &rank
		}
	})
	if p.Worker == "" {
		r.failField("worker", "is missing")
	}
	return p
}

func (r *reader) rank() uint16 { return uint16(r.uint(0, MaxRank)) }

func (r *reader) after() *After {
	a := &After{}
	r.object(func(name []byte) {
		switch string(name) {
		case "worker":
			a.Worker = r.name()
		case "rank":
			a.Rank = r.rank()
		}
	})
	if a.Worker == "" {
		r.failField("worker", "is missing")
	}
	return a
}

// names reads a list of worker names.
func (r *reader) names() []string {
	out := []string{}
	r.list(MaxListNames, func(int) { out = append(out, r.name()) })
	return out
}

func (r *reader) texts(limit int) []string {
	out := []string{}
	r.list(limit, func(int) { out = append(out, r.text(MaxTextBytes)) })
	return out
}

// fieldText checks the name of a field that outside input chooses.
func (r *reader) fieldText(name []byte) string {
	switch {
	case len(name) > MaxTextBytes:
		r.fail("has a name of %d bytes, at most %d are allowed", len(name), MaxTextBytes)
	case !utf8.Valid(name):
		r.fail("has a name that is not UTF-8 text")
	}
	return string(name)
}

// weights reads preferred taints.
func (r *reader) weights() map[string]float64 {
	out := map[string]float64{}
	r.object(func(name []byte) {
		key := r.fieldText(name)
		out[key] = r.float()
		if len(out) > MaxTaints {
			r.fail("is one taint too many, at most %d are allowed", MaxTaints)
		}
	})
	return out
}

func (r *reader) overrides() (o Overrides) {
	number := func() *float64 { v := r.nonNegative(); return &v }
	flag := func() *bool { v := r.bool(); return &v }
	r.object(func(name []byte) {
		switch string(name) {
		case "overlap_score_credit":
			o.OverlapScoreCredit = number()
		case "prefill_load_scale":
			o.PrefillLoadScale = number()
		case "router_temperature":
			o.Temperature = number()
		case "assume_kv_reuse":
			o.AssumeKVReuse = flag()
		case "track_prefill_tokens":
			o.TrackPrefillTokens = flag()
		case "shared_cache_multiplier":
			o.SharedCacheMultiplier = number()
		}
	})
	return o
}
