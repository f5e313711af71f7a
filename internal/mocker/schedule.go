package mocker

import (
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

// schedule fills the step: running requests, then waiting ones unless something
// was preempted.
func (e *Engine) schedule() {
	budget, preempted := e.scheduleRunning(e.config.TokenBudget)
	if !preempted {
		e.admit(budget)
	}
}

func (e *Engine) scheduleRunning(budget int) (left int, preempted bool) {
	for i := 0; i < len(e.running) && budget > 0; i++ {
		t := e.running[i]
		chunk := min(t.known()-t.computed, budget)
		for !e.reserve(t, t.computed+chunk) {
			// The newest comes last and is served last, so a request preempted here
			// has had nothing in this step that would go back to the budget.
			preempted = true
			if e.preemptNewest() == t {
				return budget, true
			}
		}
		e.compute(t, chunk)
		budget -= chunk
	}
	return budget, preempted
}

// admit lets waiting requests in until one does not fit. The whole prompt must
// fit beside what runs, not just its first chunk.
func (e *Engine) admit(budget int) {
	for budget > 0 && e.waiting.len() > 0 && len(e.running) < e.config.MaxRunning {
		t := e.waiting.peek()
		e.needHashes(t)
		cached, used := e.cachedPrefix(t)
		reuse := len(cached) * e.config.BlockSize
		if e.blocksFor(t.known())-used > e.cache.available() || !e.mayAdmit(t.known()-reuse, budget) {
			break
		}
		e.waiting.pop()
		for _, b := range cached {
			e.cache.use(b)
		}
		t.blocks = append(t.blocks, cached...)
		t.full, t.computed = len(cached), reuse
		e.result.Admitted = append(e.result.Admitted, Admission{
			ID: t.ID, CachedTokens: min(t.computed, t.PromptTokens), Again: t.admitted,
		})
		t.admitted = true
		chunk := min(t.known()-reuse, budget)
		e.reserve(t, t.computed+chunk) // never fails: there is room for all of it
		e.compute(t, chunk)
		e.running = append(e.running, t)
		budget -= chunk
	}
}

// mayAdmit reports whether a request with so many tokens to compute may take part
// in what is left of a step's budget. Without chunked prefill it must compute them
// all, or have the whole step: a prompt beyond the budget could never run
// otherwise.
func (e *Engine) mayAdmit(tokens, budget int) bool {
	return !e.config.NoChunkedPrefill || tokens <= budget || budget == e.config.TokenBudget
}

// cachedPrefix finds the longest cached prefix of a waiting request, short of its
// last token, which must be computed to generate from; used of the blocks are in
// use by others. The slice is valid until the next call.
func (e *Engine) cachedPrefix(t *task) (blocks []int32, used int) {
	e.prefix = e.prefix[:0]
	if e.config.NoPrefixCache {
		return nil, 0
	}
	var seq protocol.SequenceHash
	for i := range (t.known() - 1) / e.config.BlockSize {
		seq = chain(i, seq, t.blockHash(i, e.config.Seed))
		b, ok := e.cache.index.find(seq)
		if !ok {
			break
		}
		if e.cache.blocks[b].refs > 0 {
			used++
		}
		e.prefix = append(e.prefix, b)
	}
	return e.prefix, used
}

// needHashes makes a request's block hashes when they are first needed. They
// are kept until it ends.
func (e *Engine) needHashes(t *task) {
	if t.hashes != nil || t.Prompt == nil || e.config.NoPrefixCache {
		return
	}
	var dst []protocol.BlockHash
	if n := len(e.spare); n > 0 {
		dst = e.spare[n-1]
		e.spare = e.spare[:n-1]
	}
	t.hashes = t.Prompt.AppendBlockHashes(dst, e.config.BlockSize)
	// More would be hashes of blocks that are not full.
	t.hashes = t.hashes[:min(len(t.hashes), t.PromptTokens/e.config.BlockSize)]
}

// reserve gives a request the blocks for its first tokens, all or none.
func (e *Engine) reserve(t *task, tokens int) bool {
	need := e.blocksFor(tokens) - len(t.blocks)
	if need > e.cache.available() {
		return false
	}
	for range need {
		t.blocks = append(t.blocks, e.cache.take(&e.log))
	}
	return true
}

// compute adds a request to the step with its next tokens, and caches the blocks
// that they fill. A block whose content is cached already is not entered twice:
// the request goes on with the cached one.
func (e *Engine) compute(t *task, chunk int) {
	t.before, t.chunk = t.computed, chunk
	t.computed += chunk
	e.counters.ComputedTokens += chunk
	e.batch = append(e.batch, t)
	if e.config.NoPrefixCache {
		return
	}
	var parent protocol.SequenceHash
	if t.full > 0 {
		parent = e.cache.blocks[t.blocks[t.full-1]].Sequence
	}
	for ; (t.full+1)*e.config.BlockSize <= t.computed; t.full++ {
		hash := t.blockHash(t.full, e.config.Seed)
		content := protocol.Block{Sequence: chain(t.full, parent, hash), Hash: hash}
		if b, ok := e.cache.index.find(content.Sequence); ok {
			e.cache.use(b)
			e.cache.release(t.blocks[t.full])
			t.blocks[t.full] = b
		} else {
			e.cache.enter(t.blocks[t.full], content)
			e.log.stored(t.full == 0, parent, content)
		}
		parent = content.Sequence
	}
}

// chain is the sequence hash of a prompt's i'th block.
func chain(i int, parent protocol.SequenceHash, hash protocol.BlockHash) protocol.SequenceHash {
	if i == 0 {
		return protocol.SequenceHash(hash)
	}
	return protocol.NextSequenceHash(parent, hash)
}

// preemptNewest sends the running request that was admitted last to the front of
// the queue, without its blocks.
func (e *Engine) preemptNewest() *task {
	last := len(e.running) - 1
	t := e.running[last]
	e.running[last] = nil
	e.running = e.running[:last]
	e.release(t)
	e.waiting.pushFront(t)
	e.counters.Preemptions++
	e.result.Preempted = append(e.result.Preempted, t.ID)
	return t
}

// stepTime is the time of the step just scheduled. A request whose last prompt
// tokens are computed in it counts as prefilling: its first token costs no decode
// time. The mean length and the mean prefix of the prefills are whole tokens, as
// in the engine that the timing was fitted to.
func (e *Engine) stepTime() time.Duration {
	var prefills, before, after, decodes, context int
	for _, t := range e.batch {
		switch n := t.prefill(); {
		case n > 0:
			prefills++
			before += t.before
			after += t.before + n
		case t.ready():
			decodes++
			context += t.known()
		}
	}
	ms := 0.0
	if prefills > 0 {
		ms += e.config.Timing.PrefillMS(float64(prefills * (after/prefills - before/prefills)))
	}
	if decodes > 0 {
		ms += e.config.Timing.DecodeMS(min(1, float64(context)/float64(e.config.capacity())))
	}
	return duration(ms / e.config.SpeedUp)
}
