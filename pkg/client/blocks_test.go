package client

import (
	"fmt"
	"slices"
	"testing"

	"github.com/routerd/routerd/pkg/protocol"
)

// A prompt whose message would be too large goes as block hashes, which are
// those that a router computes from the tokens.
func TestLargePromptGoesByHash(t *testing.T) {
	large := prompt(300_000) // 1.2 MB of tokens, the server takes 1 MiB
	large.LoRA, large.CacheSalt = "adapter", "salt"
	for _, blocks := range []Blocks{{Size: 16}, {Size: 16, Eagle: true}, {Size: 100_000 / 4}} {
		t.Run(fmt.Sprintf("%+v", blocks), func(t *testing.T) {
			c, f := start(t, Config{})
			f.set(func() { f.blocks = blocks })
			for n := range 2 {
				reply, err := c.Route(t.Context(), pool, &protocol.RouteRequest{Prompt: large})
				if err != nil {
					t.Fatal(err)
				}
				if reply.ISLTokens != 300_000 {
					t.Errorf("the router saw %d tokens", reply.ISLTokens)
				}
				q := got[*protocol.RouteRequest](t, f, n+1)[n]
				want := protocol.BlockHashes(nil, large.TokenIDs, protocol.HashOptions{
					BlockSize: blocks.Size, Eagle: blocks.Eagle, LoRA: "adapter", Salt: "salt",
				})
				if !slices.Equal(want, q.BlockHashes) || !q.ByHash || q.TokenIDs != nil {
					t.Errorf("by hash %v, %d hashes, %d expected", q.ByHash, len(q.BlockHashes), len(want))
				}
			}
			if n := len(got[*protocol.OverlapRequest](t, f, 2)); n != 2 {
				t.Errorf("the blocks were asked for with %d calls, want 2 once", n)
			}
			if _, err := c.Overlap(t.Context(), pool, &protocol.OverlapRequest{Prompt: large}); err != nil {
				t.Error(err)
			}
		})
	}
}

// A pool that has come back with another block size is asked again.
func TestChangedBlockSizeIsLearnedAnew(t *testing.T) {
	c, f := start(t, Config{})
	large := &protocol.RouteRequest{Prompt: prompt(300_000)}
	for _, blocks := range []Blocks{{Size: 16}, {Size: 32}, {Size: 32, Eagle: true}} {
		f.set(func() { f.blocks = blocks })
		if _, err := c.Route(t.Context(), pool, large); err != nil {
			t.Errorf("%+v: %v", blocks, err)
		}
	}
}

func TestConfiguredBlocksAreNotAsked(t *testing.T) {
	c, f := start(t, Config{Blocks: map[string]Blocks{pool: {Size: 16}}})
	if _, err := c.Route(t.Context(), pool, &protocol.RouteRequest{Prompt: prompt(300_000)}); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.received {
		if _, ok := v.(*protocol.OverlapRequest); ok {
			t.Error("the blocks were asked for")
		}
	}
}

func TestPromptTooLargeEvenByHash(t *testing.T) {
	c, f := start(t, Config{})
	f.set(func() { f.blocks = Blocks{Size: 1} })
	_, err := c.Route(t.Context(), pool, &protocol.RouteRequest{Prompt: prompt(300_000)})
	contains(t, err, "raise its max_payload")
	hashes := protocol.Prompt{BlockHashes: make([]protocol.BlockHash, 200_000), ISLTokens: 200_000}
	_, err = c.Overlap(t.Context(), pool, &protocol.OverlapRequest{Prompt: hashes})
	contains(t, err, "raise its max_payload")
}

func TestBoundOfLearnedPools(t *testing.T) {
	c, f := start(t, Config{})
	for i := range maxLearned {
		c.learned[fmt.Sprint("p", i)] = Blocks{Size: 16}
	}
	if _, err := c.Route(t.Context(), pool, &protocol.RouteRequest{Prompt: prompt(300_000)}); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.learned[pool]; !ok || len(c.learned) != maxLearned {
		t.Errorf("%d pools are kept, the last one among them: %v", len(c.learned), ok)
	}
	got[*protocol.RouteRequest](t, f, 1)
}
