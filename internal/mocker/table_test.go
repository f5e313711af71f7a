package mocker

import (
	"math/rand/v2"
	"testing"

	"github.com/routerd/routerd/pkg/protocol"
)

// Random inserts and removals of few hashes, many with the same home, against a
// map: every answer must agree after each operation.
func TestTableAgainstMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, size := range []int{1, 2, 3, 16, 100} {
		table := newTable(size)
		model := map[protocol.SequenceHash]int32{}
		// Hash 0 and neighbours of 2^64 are ordinary hashes.
		hashes := make([]protocol.SequenceHash, 3*size)
		for i := range hashes {
			hashes[i] = protocol.SequenceHash(random.Uint64N(uint64(4*size))) - protocol.SequenceHash(size)
		}
		for range 20000 {
			seq := hashes[random.IntN(len(hashes))]
			if _, ok := model[seq]; ok {
				table.remove(seq)
				delete(model, seq)
			} else if len(model) < size {
				block := random.Int32N(1 << 20)
				table.insert(seq, block)
				model[seq] = block
			}
			for _, h := range hashes {
				want, held := model[h]
				if got, ok := table.find(h); ok != held || got != want {
					t.Fatalf("size %d: find(%d) = %d, %v, want %d, %v", size, h, got, ok, want, held)
				}
			}
			if table.count != len(model) {
				t.Fatalf("size %d: count %d, want %d", size, table.count, len(model))
			}
		}
	}
}
