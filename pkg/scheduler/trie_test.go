package scheduler

import (
	"fmt"
	"slices"
	"testing"

	"github.com/routerd/routerd/pkg/protocol"
)

// tracked is a trie that adds up a rank's blocks as its user does.
type tracked struct {
	trie
	blocks map[uint32]int
}

func newTracked() *tracked { return &tracked{blocks: map[uint32]int{}} }

func (t *tracked) put(slot uint32, prompt ...protocol.BlockHash) *node {
	end, added := t.add(slot, prompt)
	t.blocks[slot] += added
	return end
}

func (t *tracked) take(slot uint32, end *node) { t.blocks[slot] -= t.remove(slot, end) }

func (t *tracked) depth(slot uint32, prompt ...protocol.BlockHash) (depth int) {
	t.match(prompt, func(s uint32, d int) {
		if s == slot {
			depth = d
		}
	})
	return depth
}

func TestTrieCase21(t *testing.T) {
	tr := newTracked()
	first := tr.put(0, 1, 2, 3)
	expectBlocks(t, tr, 3)
	second := tr.put(0, 5)
	expectBlocks(t, tr, 4)
	third := tr.put(0, 1, 2, 3, 4)
	expectBlocks(t, tr, 5)
	tr.take(0, second)
	expectBlocks(t, tr, 4)
	tr.take(0, third)
	expectBlocks(t, tr, 3)
	tr.take(0, first)
	expectBlocks(t, tr, 0)
	if !tr.empty() {
		t.Error("the unused trie is not empty")
	}
}

func TestTrieCase24(t *testing.T) {
	tr := newTracked()
	tr.put(0, 1, 2, 3)
	tr.put(0, 1, 2, 4)
	expectBlocks(t, tr, 4)
}

func TestTrieCase25(t *testing.T) {
	tr := newTracked()
	tr.put(0, 1, 2, 4, 5)
	depth := tr.depth(0, 1, 2, 3, 5)
	if potential := tr.blocks[0] + 4 - depth; depth != 2 || potential != 6 {
		t.Errorf("depth %d and %d potential blocks, want 2 and 6", depth, potential)
	}
}

// Ranks share nodes, not counts.
func TestTrieKeepsRanksApart(t *testing.T) {
	tr := newTracked()
	a := tr.put(0, 1, 2, 3, 4)
	b := tr.put(7, 1, 2)
	c := tr.put(7, 1, 2, 3)
	for slot, want := range map[uint32]int{0: 4, 7: 3, 9: 0} {
		if got := tr.depth(slot, 1, 2, 3, 4, 5); got != want {
			t.Errorf("depth of slot %d is %d, want %d", slot, got, want)
		}
	}
	tr.take(0, a)
	tr.take(7, c)
	if got := tr.depth(7, 1, 2, 3, 4); got != 2 {
		t.Errorf("depth is %d after the longer prompt ended, want 2", got)
	}
	tr.take(7, b)
	if !tr.empty() {
		t.Error("the unused trie is not empty")
	}
}

// Nodes that split for a prompt merge again when it ends, so that a long-lived
// prompt costs the same whatever came and went beside it.
func TestTrieMergesWhatItSplit(t *testing.T) {
	tr := newTracked()
	long := make([]protocol.BlockHash, 64)
	for i := range long {
		long[i] = protocol.BlockHash(i + 1)
	}
	end := tr.put(0, long...)
	for cut := range long {
		branch := append(slices.Clone(long[:cut]), 1000)
		prefix := tr.put(1, long[:cut]...)
		other := tr.put(2, branch...)
		tr.take(1, prefix)
		tr.take(2, other)
	}
	if n := tr.nodes(); n != 1 || len(end.run) != 64 {
		t.Errorf("%d nodes, the prompt's with %d blocks; want 1 with 64", n, len(end.run))
	}
	tr.take(0, end)
	if !tr.empty() {
		t.Error("the unused trie is not empty")
	}
}

func TestTrieOfEmptyPrompts(t *testing.T) {
	tr := newTracked()
	end := tr.put(3)
	if tr.empty() {
		t.Error("the trie forgot a prompt without blocks")
	}
	tr.take(3, end)
	if !tr.empty() || tr.blocks[3] != 0 {
		t.Error("the unused trie is not empty")
	}
}

// The trie against the plain model of it: every prefix of every prompt, counted
// by rank.
func TestTrieRandom(t *testing.T) {
	rng := newRand(t)
	type entry struct {
		slot   uint32
		prompt []protocol.BlockHash
		end    *node
	}
	tr, entries := newTracked(), []entry(nil)
	for step := range 1000 {
		if rng.IntN(40) < len(entries) {
			i := rng.IntN(len(entries))
			tr.take(entries[i].slot, entries[i].end)
			entries = slices.Delete(entries, i, i+1)
		} else {
			e := entry{slot: rng.Uint32N(4)}
			if len(entries) > 0 && rng.IntN(3) > 0 { // go on from somebody's prefix
				other := entries[rng.IntN(len(entries))].prompt
				e.prompt = slices.Clone(other[:rng.IntN(len(other)+1)])
			}
			for range rng.IntN(10) {
				e.prompt = append(e.prompt, protocol.BlockHash(rng.IntN(3)))
			}
			e.end = tr.put(e.slot, e.prompt...)
			entries = append(entries, e)
		}
		held := map[uint32]map[string]bool{0: {}, 1: {}, 2: {}, 3: {}}
		for _, e := range entries {
			for i := range e.prompt {
				held[e.slot][fmt.Sprint(e.prompt[:i+1])] = true
			}
		}
		query := make([]protocol.BlockHash, 12)
		for i := range query {
			query[i] = protocol.BlockHash(rng.IntN(3))
		}
		for slot, prefixes := range held {
			if tr.blocks[slot] != len(prefixes) {
				t.Fatalf("step %d: slot %d has %d blocks, want %d", step, slot, tr.blocks[slot], len(prefixes))
			}
			depth := 0
			for depth < len(query) && prefixes[fmt.Sprint(query[:depth+1])] {
				depth++
			}
			if got := tr.depth(slot, query...); got != depth {
				t.Fatalf("step %d: slot %d matches %d blocks, want %d", step, slot, got, depth)
			}
		}
		if err := tr.root.check(); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
	for _, e := range entries {
		tr.take(e.slot, e.end)
	}
	if !tr.empty() {
		t.Error("the unused trie is not empty")
	}
}

// check finds a node that is not as the trie's users rely on.
func (n *node) check() error {
	inner := n.parent != nil
	switch {
	case inner && len(n.run) == 0:
		return fmt.Errorf("node without blocks")
	case inner && len(n.shares) == 0:
		return fmt.Errorf("node %v without ranks", n.run)
	case inner && n.ends == 0 && len(n.children) < 2:
		return fmt.Errorf("node %v stands for nothing", n.run)
	case !slices.IsSortedFunc(n.shares, func(a, b share) int { return int(a.slot) - int(b.slot) }):
		return fmt.Errorf("node %v has its ranks out of order", n.run)
	}
	for first, child := range n.children {
		if child.parent != n || child.run[0] != first {
			return fmt.Errorf("node %v is linked wrongly", child.run)
		}
		if err := child.check(); err != nil {
			return err
		}
	}
	return nil
}

func (t *tracked) nodes() int { return t.root.count() - 1 }

func (n *node) count() int {
	sum := 1
	for _, child := range n.children {
		sum += child.count()
	}
	return sum
}

func expectBlocks(t *testing.T, tr *tracked, want int) {
	t.Helper()
	if got := tr.blocks[0]; got != want {
		t.Errorf("%d blocks, want %d", got, want)
	}
}
