package indexertest

import (
	"errors"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/protocol"
)

const (
	device   = protocol.TierDevice
	host     = protocol.TierHost
	disk     = protocol.TierDisk
	external = protocol.TierExternal
)

type overlap = protocol.Overlap

// tierCases: what is held where, and how a match goes on from tier to tier.
var tierCases = []testCase{
	{"host goes on where device ends", func(b bench) {
		b.store(0, count(1, 2), 0)
		b.storeOn(host, 0, count(1, 3), 2)
		b.store(1, count(1, 2), 0)
		b.wantOn(count(1, 4), overlap{Device: 2, Host: 1}, overlap{Device: 2})
	}},
	{"all tiers in turn", func(b bench) {
		b.store(0, count(1, 2), 0)
		b.storeOn(host, 0, count(1, 5), 2)
		b.storeOn(disk, 0, count(1, 6), 5)
		b.storeOn(external, 0, count(1, 10), 6)
		b.wantOn(count(1, 12), overlap{Device: 2, Host: 3, Disk: 1, External: 4})
	}},
	{"a tier may be skipped", func(b bench) {
		b.store(0, count(1, 1), 0)
		b.storeOn(external, 0, count(1, 3), 1)
		b.wantOn(count(1, 3), overlap{Device: 1, External: 2})
	}},
	{"nothing on device", func(b bench) {
		b.storeOn(host, 0, count(1, 2), 0)
		b.storeOn(disk, 1, count(1, 3), 0)
		b.wantOn(count(1, 3), overlap{Host: 2}, overlap{Disk: 3})
	}},
	{"what host holds of device's part does not matter", func(b bench) {
		b.store(0, count(1, 3), 0)
		b.storeOn(host, 0, count(1, 5), 0)
		b.wantOn(count(1, 5), overlap{Device: 3, Host: 2})
		b.removedOn(host, 0, 0, names(count(1, 1), count(1, 2))...)
		b.wantOn(count(1, 5), overlap{Device: 3, Host: 2})
	}},
	{"a match does not go back to a faster tier", func(b bench) {
		b.store(0, count(1, 5), 0)
		b.storeOn(host, 0, count(1, 3), 2)
		b.removed(0, 0, count(1, 3).name())
		b.wantOn(count(1, 5), overlap{Device: 2, Host: 1})
	}},
	{"a hole is one if no further tier has it", func(b bench) {
		b.storeOn(host, 0, count(1, 5), 0)
		b.storeOn(disk, 0, count(1, 3), 2)
		b.removedOn(host, 0, 0, count(1, 3).name())
		b.wantOn(count(1, 5), overlap{Host: 2, Disk: 1})
		b.removedOn(disk, 0, 0, count(1, 3).name())
		b.wantOn(count(1, 5), overlap{Host: 2})
	}},
	{"a parent on any tier will do", func(b bench) {
		b.storeOn(disk, 0, count(1, 2), 0)
		b.store(0, count(1, 3), 2)
		b.wantOn(count(1, 3), overlap{Disk: 2})
		b.storeOn(host, 0, count(1, 2), 0)
		b.wantOn(count(1, 3), overlap{Host: 2})
		b.store(0, count(1, 2), 0)
		b.wantOn(count(1, 3), overlap{Device: 3})
	}},
	// Other indexes keep a table per lower tier and take such a store without its
	// parent. Here a block has a place only below its parent, so the store is
	// refused, and whoever feeds the index keeps it aside until the parent comes.
	{"a host store waits for its parent like any other", func(b bench) {
		orphan := []protocol.Block{{Sequence: 1301, Hash: 111}, {Sequence: 1302, Hash: 112}}
		if err := b.index.Stored(workerName(0), host, false, 1300, orphan); !errors.Is(err, indexer.ErrParentNotHeld) {
			b.Fatalf("got error %v", err)
		}
		b.want(path{111, 112})
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 1300, Hash: 110})
		b.mustStore(host, 0, false, 1300, orphan...)
		b.wantOn(path{110, 111, 112}, overlap{Device: 1, Host: 2})
		b.want(path{111, 112})
	}},
	{"a removed block on host cuts what follows until it returns", func(b bench) {
		b.mustStore(device, 0, true, 0, protocol.Block{Sequence: 1300, Hash: 110})
		b.mustStore(host, 0, false, 1300, protocol.Block{Sequence: 1301, Hash: 111}, protocol.Block{Sequence: 1302, Hash: 112})
		b.removedOn(host, 0, 0, 1301)
		b.wantOn(path{110, 111, 112}, overlap{Device: 1})
		b.mustStore(device, 0, false, 1300, protocol.Block{Sequence: 1301, Hash: 111})
		b.wantOn(path{110, 111, 112}, overlap{Device: 2, Host: 1})
	}},
	{"removal is from one tier", func(b bench) {
		b.store(0, count(1, 3), 0)
		b.storeOn(host, 0, count(1, 3), 0)
		b.wantBlocks(0, 6)
		b.removed(0, 0, names(count(1, 2), count(1, 3))...)
		b.wantOn(count(1, 3), overlap{Device: 1, Host: 2})
		b.removedOn(disk, 0, 1, count(1, 1).name())
		b.wantBlocks(0, 4)
	}},
	{"a block held only on host is unknown on device", func(b bench) {
		b.storeOn(host, 0, count(1, 1), 0)
		b.removed(0, 1, count(1, 1).name())
		b.wantOn(count(1, 1), overlap{Host: 1})
	}},
	{"cleared on all tiers of one rank", func(b bench) {
		for worker := range 2 {
			for tier := range protocol.Tier(protocol.Tiers) {
				b.storeOn(tier, worker, count(1, 2), 0)
			}
		}
		b.wantBlocks(0, 8)
		b.index.Cleared(workerName(0))
		b.wantBlocks(0, 0)
		b.wantBlocks(1, 8)
		b.want(count(1, 2), 0, 2)
		b.wantEmpty(2)
	}},
}
