package indexer_test

import (
	"flag"
	"testing"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/indexer/indexertest"
)

var (
	seed = flag.Uint64("seed", 0, "seed of the random operations, after the package: go test ./pkg/indexer -seed 1; 0: another one each time")
	runs = flag.Int("runs", 0, "random runs of each shape; 0: few")
)

// implementations are held to one contract, the yardstick among them.
var implementations = map[string]func() indexer.Index{
	"trie":  func() indexer.Index { return indexer.NewTrie() },
	"model": func() indexer.Index { return indexertest.NewModel() },
}

func TestContract(t *testing.T) {
	for name, newIndex := range implementations {
		t.Run(name, func(t *testing.T) {
			options := indexertest.Options{Seed: *seed, Runs: *runs}
			if name == "model" && *runs == 0 {
				options.Runs = 1 // it is compared with itself
			}
			indexertest.Run(t, newIndex, options)
		})
	}
}
