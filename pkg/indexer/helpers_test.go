package indexer_test

import (
	"fmt"
	"testing"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/protocol"
)

func workerName(i int) protocol.Worker { return protocol.Worker{ID: fmt.Sprintf("worker-%d", i)} }

// prompt is n block hashes that no prompt of another seed shares.
func prompt(seed uint64, n int) []protocol.BlockHash {
	hashes := make([]protocol.BlockHash, n)
	last := protocol.SequenceHash(seed)
	for i := range hashes {
		last = protocol.NextSequenceHash(last, protocol.BlockHash(i))
		hashes[i] = protocol.BlockHash(last)
	}
	return hashes
}

// chain is the blocks of a prompt under the router's own sequence hashes.
func chain(hashes []protocol.BlockHash) []protocol.Block {
	blocks := make([]protocol.Block, len(hashes))
	for i, name := range protocol.SequenceHashes(nil, hashes) {
		blocks[i] = protocol.Block{Sequence: name, Hash: hashes[i]}
	}
	return blocks
}

func store(t testing.TB, index indexer.Index, w protocol.Worker, hashes []protocol.BlockHash) {
	t.Helper()
	if err := index.Stored(w, protocol.TierDevice, true, 0, chain(hashes)); err != nil {
		t.Fatal(err)
	}
}
