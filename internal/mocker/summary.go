package mocker

import (
	"slices"
	"time"
)

// Summary is the figures of a fleet's run.
type Summary struct {
	Requests  int // that arrived
	Completed int
	Errors    int // requests that could not be routed or were refused

	PromptTokens int // of all requests without an error
	// ReusedTokens is how many of them were cached at admission. A request that
	// was preempted counts the admission that reused most, as the published
	// figures of such simulations do; FirstReusedTokens counts the first one.
	ReusedTokens      int
	FirstReusedTokens int

	TTFT     Times // from arrival to the first token
	EndToEnd Times // from arrival to the last token

	ComputedTokens int
	LoadImbalance  float64 // computed tokens, largest of a worker over the mean
	Preemptions    int
	Steps          int
	Last           time.Duration // last completion
}

// Reuse is the fraction of prompt tokens that were reused.
func (s *Summary) Reuse() float64 {
	if s.PromptTokens == 0 {
		return 0
	}
	return float64(s.ReusedTokens) / float64(s.PromptTokens)
}

// Times sums up a sample of times.
type Times struct{ Mean, P50, P90, P99 time.Duration }

// SummarizeTimes sorts a sample and sums it up: pNN is element
// floor(NN/100 x count) of the sorted times. An empty sample gives zeros.
func SummarizeTimes(sample []time.Duration) Times {
	if len(sample) == 0 {
		return Times{}
	}
	slices.Sort(sample)
	sum := 0.0 // a sum of long runs may exceed 64 bits of nanoseconds
	for _, d := range sample {
		sum += float64(d)
	}
	at := func(percent int) time.Duration { return sample[percent*len(sample)/100] }
	return Times{
		Mean: time.Duration(sum / float64(len(sample))),
		P50:  at(50), P90: at(90), P99: at(99),
	}
}

// recorder follows requests from arrival to completion.
type recorder struct {
	open map[RequestID]*openRequest
	s    Summary
	ttft []time.Duration
	e2e  []time.Duration
}

// openRequest is a request that has not completed.
type openRequest struct {
	arrived   time.Duration
	reused    int // most at any admission
	firstTime int // at the first one
}

func (r *recorder) init() { r.open = make(map[RequestID]*openRequest) }

func (r *recorder) arrived(now time.Duration, request *Request) {
	r.s.Requests++
	r.s.PromptTokens += request.PromptTokens
	r.open[request.ID] = &openRequest{arrived: now}
}

func (r *recorder) failed(request *Request) {
	r.s.Errors++
	r.s.PromptTokens -= request.PromptTokens
	delete(r.open, request.ID)
}

func (r *recorder) stepDone(now time.Duration, result *Result) {
	for _, a := range result.Admitted {
		o := r.open[a.ID]
		o.reused = max(o.reused, a.CachedTokens)
		if !a.Again {
			o.firstTime = a.CachedTokens
		}
	}
	for _, id := range result.FirstTokens {
		r.ttft = append(r.ttft, now-r.open[id].arrived)
	}
	for _, id := range result.Completed {
		o := r.open[id]
		r.e2e = append(r.e2e, now-o.arrived)
		r.s.Completed++
		r.s.ReusedTokens += o.reused
		r.s.FirstReusedTokens += o.firstTime
		r.s.Last = now
		delete(r.open, id)
	}
}

func (r *recorder) summary() Summary {
	s := r.s
	s.TTFT = SummarizeTimes(r.ttft)
	s.EndToEnd = SummarizeTimes(r.e2e)
	return s
}
