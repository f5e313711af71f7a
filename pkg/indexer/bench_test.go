package indexer_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/protocol"
)

// names lists a chain's sequence hashes from its tail, the order in which engines free.
func names(blocks []protocol.Block) []protocol.SequenceHash {
	hashes := make([]protocol.SequenceHash, len(blocks))
	for i, b := range blocks {
		hashes[len(blocks)-1-i] = b.Sequence
	}
	return hashes
}

// BenchmarkApply stores prompts of 64 blocks and removes the oldest ones, so
// that every worker keeps 16,384 blocks. An operation is one block, stored and
// later removed. "shared" has 16 workers that hold the same prompts.
func BenchmarkApply(b *testing.B) {
	const length, kept = 64, 256
	for _, shared := range []int{1, 16} {
		b.Run(fmt.Sprintf("shared=%d", shared), func(b *testing.B) {
			var prompts [2 * kept][]protocol.Block
			var removals [2 * kept][]protocol.SequenceHash
			for i := range prompts {
				prompts[i] = chain(prompt(uint64(i+1), length))
				removals[i] = names(prompts[i])
			}
			trie := indexer.NewTrie()
			step := func(i int) {
				w := workerName(i % shared)
				at := i / shared
				trie.Removed(w, protocol.TierDevice, removals[(at+kept)%len(removals)])
				if err := trie.Stored(w, protocol.TierDevice, true, 0, prompts[at%len(prompts)]); err != nil {
					b.Fatal(err)
				}
			}
			i := 0
			for ; i < 2*len(prompts)*shared; i++ {
				step(i)
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if n%length == 0 {
					step(i)
					i++
				}
			}
			b.ReportMetric(2*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mblocks/s")
		})
	}
}

// BenchmarkApplySingly stores and removes one block a call, as decoding engines do.
func BenchmarkApplySingly(b *testing.B) {
	blocks := chain(prompt(1, 4096))
	trie := indexer.NewTrie()
	store(b, trie, workerName(0), prompt(2, 16_384))
	w := workerName(0)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		at := n % len(blocks)
		if at == 0 && n > 0 {
			b.StopTimer()
			trie.Removed(w, protocol.TierDevice, names(blocks))
			b.StartTimer()
		}
		var parent protocol.SequenceHash
		if at > 0 {
			parent = blocks[at-1].Sequence
		}
		if err := trie.Stored(w, protocol.TierDevice, at == 0, parent, blocks[at:at+1]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMatch asks for one prompt of D blocks that W workers hold: all of
// them the whole, or in tiers (half of them D/16, a quarter D/8 and so on).
// Half a million blocks of other prompts are there too.
func BenchmarkMatch(b *testing.B) {
	for _, size := range []struct{ workers, depth int }{
		{8, 128}, {8, 750}, {8, 1024}, {256, 128}, {256, 1024},
	} {
		for _, spread := range []string{"all", "tier"} {
			b.Run(fmt.Sprintf("W=%d/D=%d/%s", size.workers, size.depth, spread), func(b *testing.B) {
				trie := background(b)
				asked := prompt(1, size.depth)
				for worker := range size.workers {
					depth := size.depth
					if spread == "tier" {
						depth = tierDepth(worker, size.workers, size.depth)
					}
					store(b, trie, workerName(worker), asked[:depth])
				}
				dst := trie.Match(nil, asked)
				b.ReportAllocs()
				for b.Loop() {
					dst = trie.Match(dst[:0], asked)
				}
				if len(dst) != size.workers {
					b.Fatalf("got %d matches", len(dst))
				}
			})
		}
	}
}

// tierDepth: half of the workers hold a sixteenth, a quarter an eighth and so
// on; the last sixteenth of them hold all.
func tierDepth(worker, workers, depth int) int {
	part := 16
	for bound := workers / 2; worker >= bound && part > 1; bound += (workers - bound) / 2 {
		part /= 2
	}
	return max(1, depth/part)
}

func background(b *testing.B) *indexer.Trie {
	trie := indexer.NewTrie()
	for i := range 1000 {
		store(b, trie, workerName(i%8), prompt(uint64(1000+i), 512))
	}
	return trie
}

// full is a trie whose worker 0 holds 65,536 blocks: 455 prompts of 256, the
// first half of which is shared by eight.
func full(b *testing.B) *indexer.Trie {
	trie := indexer.NewTrie()
	for i := range 455 {
		hashes := append(prompt(uint64(i/8), 128), prompt(uint64(1000+i), 128)...)
		store(b, trie, workerName(0), hashes)
	}
	return trie
}

func BenchmarkSnapshot(b *testing.B) {
	trie := full(b)
	blocks := trie.State(workerName(0)).Blocks
	b.ReportAllocs()
	for b.Loop() {
		trie.Snapshot(workerName(0), protocol.MaxEventBlocks)
	}
	b.ReportMetric(float64(blocks), "blocks")
}

func BenchmarkReplace(b *testing.B) {
	trie := full(b)
	events := trie.Snapshot(workerName(0), protocol.MaxEventBlocks)
	b.ReportAllocs()
	for b.Loop() {
		if err := trie.Replace(workerName(0), events); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(trie.State(workerName(0)).Blocks), "blocks")
}

func BenchmarkClear(b *testing.B) {
	trie := full(b)
	events := trie.Snapshot(workerName(0), protocol.MaxEventBlocks)
	for b.Loop() {
		trie.Cleared(workerName(0))
		b.StopTimer()
		if err := trie.Replace(workerName(0), events); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkMemory reports the heap that one (worker, block) takes.
func BenchmarkMemory(b *testing.B) {
	for _, shared := range []int{1, 16} {
		b.Run(fmt.Sprintf("shared=%d", shared), func(b *testing.B) {
			var bytes, entries float64
			for b.Loop() {
				before := heap()
				trie := indexer.NewTrie()
				for worker := range 64 {
					for i := range 160 {
						store(b, trie, workerName(worker), prompt(uint64(worker/shared*1000+i), 100))
					}
				}
				bytes = float64(heap() - before)
				entries = float64(trie.Size().Entries)
			}
			b.ReportMetric(bytes/entries, "B/entry")
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
