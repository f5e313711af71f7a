package mocker

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/routerd/routerd/pkg/protocol"
)

// heldModel is a plain consumer of KV events: the set of blocks a worker holds,
// with the block before each.
type heldModel map[protocol.SequenceHash]heldBlock

type heldBlock struct {
	protocol.Block
	root   bool
	parent protocol.SequenceHash
}

// apply fails where an event is not what a careful consumer expects: a store
// under a parent that is not held or of a block that is, a removal of a block
// that is not held, an event that is too large.
func (m heldModel) apply(e *protocol.Event) error {
	if len(e.Blocks)+len(e.Removed) == 0 || len(e.Blocks)+len(e.Removed) > protocol.MaxEventBlocks {
		return fmt.Errorf("event of %d blocks", len(e.Blocks)+len(e.Removed))
	}
	if _, ok := m[e.Parent]; !ok && e.Kind == protocol.EventStored && !e.Root {
		return fmt.Errorf("store under %d, which is not held", e.Parent)
	}
	root, parent := e.Root, e.Parent
	for _, b := range e.Blocks {
		if _, ok := m[b.Sequence]; ok {
			return fmt.Errorf("store of %d, which is held", b.Sequence)
		}
		m[b.Sequence] = heldBlock{b, root, parent}
		root, parent = false, b.Sequence
	}
	for _, seq := range e.Removed {
		if _, ok := m[seq]; !ok {
			return fmt.Errorf("removal of %d, which is not held", seq)
		}
		delete(m, seq)
	}
	return nil
}

func (m heldModel) state() protocol.HeldState {
	s := protocol.HeldState{Blocks: uint64(len(m))}
	for _, b := range m {
		s.Checksum += protocol.EntryChecksum(b.Block, protocol.TierDevice)
	}
	return s
}

// checkEngine verifies the engine's books against what its requests hold.
func checkEngine(e *Engine, held heldModel) error {
	if got, want := e.State(), held.state(); got != want {
		return fmt.Errorf("state %+v, its events give %+v", got, want)
	}
	for seq, b := range held {
		if _, ok := held[b.parent]; !ok && !b.root {
			return fmt.Errorf("block %d is held without its parent", seq)
		}
	}
	refs := map[int32]int32{}
	for _, t := range e.running {
		if len(t.blocks) != e.blocksFor(t.computed) {
			return fmt.Errorf("request %d has %d blocks for %d tokens", t.ID, len(t.blocks), t.computed)
		}
		for i, b := range t.blocks {
			refs[b]++
			if cached := e.cache.blocks[b].cached; cached != (i < t.full) {
				return fmt.Errorf("request %d: block %d of %d full ones is cached: %v", t.ID, i, t.full, cached)
			}
		}
	}
	idle := 0
	for b := e.cache.oldest; b != none; b = e.cache.blocks[b].next {
		if e.cache.blocks[b].refs != 0 || !e.cache.blocks[b].cached {
			return fmt.Errorf("block %d is among the idle ones: %+v", b, e.cache.blocks[b])
		}
		idle++
	}
	for i := range e.cache.blocks {
		if e.cache.blocks[i].refs != refs[int32(i)] {
			return fmt.Errorf("block %d has %d uses, want %d", i, e.cache.blocks[i].refs, refs[int32(i)])
		}
	}
	if e.cache.used != len(refs) || idle+len(e.cache.free)+len(refs) != len(e.cache.blocks) {
		return fmt.Errorf("%d used (want %d), %d idle, %d free of %d blocks",
			e.cache.used, len(refs), idle, len(e.cache.free), len(e.cache.blocks))
	}
	return nil
}

// Random requests with shared prefixes on small engines, cancelled at random. After
// each step the events must give what the engine holds, the books must balance,
// and a second engine must do the same.
func TestRandomRequests(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	preemptions := 0
	for round := range 100 {
		random := rand.New(rand.NewPCG(seed, uint64(round)))
		n, err := randomRun(random)
		if err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		preemptions += n
	}
	if preemptions < 50 {
		t.Errorf("%d preemptions in all: the rounds are too easy", preemptions)
	}
}

func randomRun(random *rand.Rand) (preemptions int, err error) {
	config := Config{
		Blocks: 4 + random.IntN(30), BlockSize: 1 + random.IntN(4), MaxRunning: 1 + random.IntN(8),
		TokenBudget: 1 + random.IntN(40), NoChunkedPrefill: random.IntN(8) == 0, Seed: random.Uint64(),
	}
	engine, err := NewEngine(config)
	if err != nil {
		return 0, err
	}
	twin, err := NewEngine(config)
	if err != nil {
		return 0, err
	}
	held := heldModel{}
	left := map[RequestID]int{} // tokens to come
	for id := RequestID(0); id < 60 || len(left) > 0; {
		for ; id < 60 && random.IntN(3) == 0; id++ {
			r := randomRequest(random, id, engine)
			if err := engine.Submit(r); err != nil {
				return 0, err
			}
			_ = twin.Submit(r)
			left[id] = min(r.OutputTokens, config.Blocks*config.BlockSize-r.PromptTokens+1)
		}
		_, working := engine.Start()
		twin.Start()
		if !working {
			if len(left) > 0 {
				return 0, fmt.Errorf("nothing to do while %d requests are open", len(left))
			}
			continue
		}
		victim := RequestID(random.IntN(300))
		if engine.Cancel(victim) {
			twin.Cancel(victim)
			delete(left, victim)
		}
		result := engine.Finish()
		if other := twin.Finish(); !reflect.DeepEqual(result, other) {
			return 0, fmt.Errorf("two equal engines: %+v and %+v", result, other)
		}
		if err := checkResult(engine, held, left, result); err != nil {
			return 0, err
		}
	}
	return engine.Counters().Preemptions, nil
}

func checkResult(e *Engine, held heldModel, left map[RequestID]int, result *Result) error {
	for i := range result.Events {
		if err := held.apply(&result.Events[i]); err != nil {
			return err
		}
	}
	for _, id := range result.Generated {
		left[id]--
	}
	for _, id := range result.Completed {
		if left[id] != 0 {
			return fmt.Errorf("request %d completed with %d tokens to come", id, left[id])
		}
		delete(left, id)
	}
	for id, n := range left {
		if n < 1 {
			return fmt.Errorf("request %d has all its tokens and is not complete", id)
		}
	}
	return checkEngine(e, held)
}

// randomRequest makes a prompt that shares a prefix of random length with others.
func randomRequest(random *rand.Rand, id RequestID, e *Engine) Request {
	size := e.config.BlockSize
	tokens := 1 + random.IntN(e.config.Blocks*size)
	prompt := make(HashedPrompt, tokens/size)
	shared := random.IntN(len(prompt) + 1)
	family := protocol.BlockHash(random.IntN(3))
	for i := range prompt {
		prompt[i] = protocol.BlockHash(i)*10 + family
		if i >= shared {
			prompt[i] += protocol.BlockHash(id+1) * 1000
		}
	}
	return Request{ID: id, PromptTokens: tokens, OutputTokens: 1 + random.IntN(20), Prompt: prompt}
}
