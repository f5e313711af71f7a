package indexertest

import "github.com/routerd/routerd/pkg/protocol"

// matchCases: what a prompt finds.
var matchCases = []testCase{
	{"leading blocks", func(b bench) {
		b.store(0, count(1, 3), 0)
		b.want(count(1, 3), 3)
		b.want(path{1, 2, 999}, 2)
		b.want(count(1, 4), 3)
		b.want(path{999})
		b.want(path{})
	}},
	{"branches", func(b bench) {
		b.store(0, path{1, 2}, 0)
		b.store(1, path{1, 3}, 0)
		b.want(path{1}, 1, 1)
		b.want(path{1, 2}, 2, 1)
		b.want(path{1, 3}, 1, 2)
	}},
	{"a match begins at the root", func(b bench) {
		b.store(0, count(1, 3), 0)
		b.want(path{2, 3})
	}},
	{"equal blocks under two parents", func(b bench) {
		b.store(0, path{1, 5}, 0)
		b.store(0, path{2, 5}, 0)
		b.want(path{1, 5}, 2)
		b.want(path{2, 5}, 2)
		b.removed(0, 0, path{1, 5}.name())
		b.want(path{1, 5}, 1)
		b.want(path{2, 5}, 2)
	}},
	{"disjoint prompts", func(b bench) {
		b.store(0, count(1, 3), 0)
		b.store(0, count(100, 102), 0)
		b.want(count(1, 3), 3)
		b.want(count(100, 102), 3)
		b.want(path{1, 100, 101}, 1)
	}},
	{"five depths of one prompt", func(b bench) {
		depths := []int{10, 20, 35, 64, 100}
		for worker, d := range depths {
			b.store(worker, count(1, d), 0)
		}
		b.want(count(1, 100), depths...)
	}},
	{"twenty stores of ten", func(b bench) {
		for at := 0; at < 200; at += 10 {
			b.store(0, count(1, at+10), at)
		}
		b.want(count(1, 200), 200)
		b.want(count(1, 75), 75)
	}},
	{"a prompt that differs deep down", func(b bench) {
		b.store(0, count(1, 1000), 0)
		prompt := count(1, 1000)
		prompt[499] = 7777
		b.want(prompt, 499)
	}},
	{"a match adds to what is there", func(b bench) {
		b.store(0, count(1, 2), 0)
		b.store(1, count(1, 3), 0)
		there := protocol.Match{Worker: protocol.Worker{ID: "there"}}
		found := b.index.Match([]protocol.Match{there}, count(1, 3))
		if len(found) != 3 || found[0] != there {
			b.Fatalf("got %v", found)
		}
	}},
	{"ranks are apart", func(b bench) {
		b.store(0, count(1, 3), 0) // workers 0 and 1 are ranks of one
		b.store(1, count(1, 2), 0)
		b.index.Cleared(workerName(0))
		b.want(count(1, 3), 0, 2)
	}},
	{"equal prompts under another salt or adapter", func(b bench) {
		tokens := make([]uint32, 64)
		hash := func(o protocol.HashOptions) path {
			o.BlockSize = 16
			return protocol.BlockHashes(nil, tokens, o)
		}
		b.store(0, hash(protocol.HashOptions{LoRA: "adapter-a"}), 0)
		b.store(1, hash(protocol.HashOptions{Salt: "tenant-a"}), 0)
		b.want(hash(protocol.HashOptions{}))
		b.want(hash(protocol.HashOptions{LoRA: "adapter-a", Salt: "tenant-a"}))
		b.want(hash(protocol.HashOptions{LoRA: "adapter-a"}), 4)
		b.want(hash(protocol.HashOptions{Salt: "tenant-a"}), 0, 4)
	}},
}
