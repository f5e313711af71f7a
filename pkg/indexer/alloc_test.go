//go:build !race

package indexer_test

import (
	"testing"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/protocol"
)

// The race detector makes pools forget, so this is not asked under it.
func TestMatchAllocatesNothing(t *testing.T) {
	trie := indexer.NewTrie()
	prompt := prompt(1, 500)
	for worker := range 20 {
		store(t, trie, workerName(worker), prompt[:20*(worker+1)])
	}
	dst := make([]protocol.Match, 0, 20)
	trie.Match(dst, prompt)
	if n := testing.AllocsPerRun(100, func() { dst = trie.Match(dst[:0], prompt) }); n > 0 || len(dst) != 20 {
		t.Errorf("%v allocations for %d matches, want none for 20", n, len(dst))
	}
}
