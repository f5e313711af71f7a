package mocker

import "github.com/routerd/routerd/pkg/protocol"

// cache is a worker's KV blocks. Every block is in one of three states:
//
//	free    it caches nothing and no request uses it; on the free stack
//	in use  refs > 0; it caches something once it is full
//	idle    cached and used by nobody; in the list of idle blocks, oldest use first
//
// take, use and release cost O(1). The index is a hash table from sequence hash
// to block (see table); the list is threaded through the blocks themselves.
type cache struct {
	blocks []block
	index  table
	free   []int32 // stack
	oldest int32   // idle block that was released first, none if there is no idle block
	newest int32
	used   int // blocks with refs > 0

	checksum uint64 // sum of the EntryChecksum of all cached blocks
}

type block struct {
	protocol.Block
	refs       int32 // requests that use it
	prev, next int32 // neighbours among the idle blocks
	cached     bool
}

const none int32 = -1

func newCache(n int) *cache {
	c := &cache{
		blocks: make([]block, n),
		index:  newTable(n),
		free:   make([]int32, n),
		oldest: none, newest: none,
	}
	for i := range c.free {
		c.free[i] = int32(n - 1 - i)
	}
	return c
}

// available is the number of blocks that no request uses.
func (c *cache) available() int { return len(c.blocks) - c.used }

// take gives an unused block to a request: a free one, else the one whose last
// use is longest ago, which is evicted and reported to the log. There must be an
// available block.
func (c *cache) take(log *eventLog) int32 {
	var b int32
	if n := len(c.free); n > 0 {
		b = c.free[n-1]
		c.free = c.free[:n-1]
	} else {
		b = c.oldest
		c.unlink(b)
		c.evict(b)
		log.removed(c.blocks[b].Sequence)
	}
	c.blocks[b].refs = 1
	c.used++
	return b
}

// use adds a request to a cached block.
func (c *cache) use(b int32) {
	x := &c.blocks[b]
	if x.refs == 0 {
		c.unlink(b)
		c.used++
	}
	x.refs++
}

// release takes a request from a block. The last one leaves it idle, or free if
// it caches nothing.
func (c *cache) release(b int32) {
	x := &c.blocks[b]
	x.refs--
	if x.refs > 0 {
		return
	}
	c.used--
	if x.cached {
		c.link(b)
	} else {
		c.free = append(c.free, b)
	}
}

// enter caches a block that a request uses under its hashes.
func (c *cache) enter(b int32, content protocol.Block) {
	x := &c.blocks[b]
	x.Block, x.cached = content, true
	c.index.insert(content.Sequence, b)
	c.checksum += protocol.EntryChecksum(content, protocol.TierDevice)
}

func (c *cache) evict(b int32) {
	x := &c.blocks[b]
	c.index.remove(x.Sequence)
	x.cached = false
	c.checksum -= protocol.EntryChecksum(x.Block, protocol.TierDevice)
}

func (c *cache) state() protocol.HeldState {
	return protocol.HeldState{Blocks: uint64(c.index.count), Checksum: c.checksum}
}

// link appends a block to the idle ones.
func (c *cache) link(b int32) {
	x := &c.blocks[b]
	x.prev, x.next = c.newest, none
	if c.newest == none {
		c.oldest = b
	} else {
		c.blocks[c.newest].next = b
	}
	c.newest = b
}

func (c *cache) unlink(b int32) {
	x := &c.blocks[b]
	if x.prev == none {
		c.oldest = x.next
	} else {
		c.blocks[x.prev].next = x.next
	}
	if x.next == none {
		c.newest = x.prev
	} else {
		c.blocks[x.next].prev = x.prev
	}
}
