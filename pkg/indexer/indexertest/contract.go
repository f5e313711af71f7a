package indexertest

import (
	"testing"

	"github.com/routerd/routerd/pkg/indexer"
)

// Options sizes the random part of Run.
type Options struct {
	// Seed of the random operations; 0: another one each time.
	Seed uint64
	// Runs of each shape; 0: 10, or 2 with -short.
	Runs int
	// Operations of a run; 0: 400.
	Operations int
}

func (o Options) runs() int {
	switch {
	case o.Runs > 0:
		return o.Runs
	case testing.Short():
		return 2
	}
	return 10
}

func (o Options) operations() int {
	if o.Operations > 0 {
		return o.Operations
	}
	return 400
}

// Run checks everything that the interface promises on indexes that newIndex makes.
func Run(t *testing.T, newIndex func() indexer.Index, o Options) {
	t.Run("cases", func(t *testing.T) { Cases(t, newIndex) })
	t.Run("random", func(t *testing.T) { Random(t, newIndex, o) })
	t.Run("race", func(t *testing.T) { Race(t, newIndex) })
}
