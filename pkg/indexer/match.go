package indexer

import (
	"slices"

	"github.com/routerd/routerd/pkg/protocol"
)

// walker is one worker that still matches while a prompt is walked. It counts
// on one tier at a time and only moves to slower ones.
type walker struct {
	worker workerID
	tier   protocol.Tier
	blocks [protocol.Tiers]int
}

// step counts blocks that are held alike on tiers, and says whether the worker
// still matches: its tier or a slower one has them.
func (w *walker) step(tiers tierSet, blocks int) bool {
	for tiers&tierBit(w.tier) == 0 {
		if w.tier++; w.tier == protocol.Tiers {
			return false
		}
	}
	w.blocks[w.tier] += blocks
	return true
}

// walk is the scratch space of one match. Walkers are in ascending order of worker.
type walk struct {
	walkers []walker
}

// match walks the prompt down the tree. Where a path has the same holders on the
// same tiers as the one above it, nobody's count can end and nobody's tier can
// change, so such a stretch is counted at once; any other is intersected worker
// by worker. Nothing is inferred from the size of a set.
func (t *Trie) match(wk *walk, dst []protocol.Match, prompt []protocol.BlockHash) []protocol.Match {
	wk.walkers = wk.walkers[:0]
	var stretch []holder // the holders of the last `alike` blocks
	alike := 0
	id := root
	for depth, hash := range prompt {
		if id = t.tree.child(id, hash); id == 0 {
			break
		}
		hs := t.tree.of(t.tree.at(id))
		if depth > 0 && slices.Equal(hs, stretch) {
			alike++
			continue
		}
		if depth == 0 {
			wk.start(hs)
		} else {
			dst = t.advance(wk, dst, stretch, alike)
			dst = t.keep(wk, dst, hs)
			if len(wk.walkers) == 0 {
				return dst
			}
		}
		stretch, alike = hs, 1
	}
	dst = t.advance(wk, dst, stretch, alike)
	for i := range wk.walkers {
		dst = t.emit(dst, &wk.walkers[i])
	}
	return dst
}

// start makes a walker of each holder of the first block.
func (wk *walk) start(hs []holder) {
	for _, h := range hs {
		wk.walkers = append(wk.walkers, walker{worker: h.worker()})
	}
}

// keep drops, and writes out, the walkers that are not among hs.
func (t *Trie) keep(wk *walk, dst []protocol.Match, hs []holder) []protocol.Match {
	kept := wk.walkers[:0]
	for i := range wk.walkers {
		w := &wk.walkers[i]
		at, found := seek(hs, w.worker)
		hs = hs[at:]
		if found {
			kept = append(kept, *w)
		} else {
			dst = t.emit(dst, w)
		}
	}
	wk.walkers = kept
	return dst
}

// advance counts a stretch of blocks for all walkers, each of which is among
// hs, and drops and writes out those whose tiers do not carry on.
func (t *Trie) advance(wk *walk, dst []protocol.Match, hs []holder, blocks int) []protocol.Match {
	kept := wk.walkers[:0]
	for i := range wk.walkers {
		w := &wk.walkers[i]
		at, _ := seek(hs, w.worker)
		hs = hs[at:]
		if w.step(hs[0].tiers(), blocks) {
			kept = append(kept, *w)
		} else {
			dst = t.emit(dst, w)
		}
	}
	wk.walkers = kept
	return dst
}

// seek is find for a worker that is expected near the start.
func seek(hs []holder, w workerID) (int, bool) {
	for i, h := range hs[:min(len(hs), 8)] {
		if h.worker() >= w {
			return i, h.worker() == w
		}
	}
	return find(hs, w)
}

func (t *Trie) emit(dst []protocol.Match, w *walker) []protocol.Match {
	return append(dst, protocol.Match{
		Worker: t.byID[w.worker].name,
		Overlap: protocol.Overlap{
			Device:   w.blocks[protocol.TierDevice],
			Host:     w.blocks[protocol.TierHost],
			Disk:     w.blocks[protocol.TierDisk],
			External: w.blocks[protocol.TierExternal],
		},
	})
}
