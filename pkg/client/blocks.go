package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/routerd/routerd/pkg/protocol"
)

const (
	maxBlockSize = 1 << 16 // tokens
	maxLearned   = 1024    // pools whose blocks are kept; past it one of them is asked for again
)

// Blocks is how a pool cuts prompts into blocks.
type Blocks struct {
	Size  int  // tokens, 1 to 65,536
	Eagle bool // blocks overlap by one token
}

// hashed is a prompt's form by block hashes.
func (b Blocks) hashed(p *protocol.Prompt) protocol.Prompt {
	return protocol.Prompt{
		BlockHashes: protocol.BlockHashes(nil, p.TokenIDs, protocol.HashOptions{
			BlockSize: b.Size, Eagle: b.Eagle, LoRA: p.LoRA, Salt: p.CacheSalt,
		}),
		ISLTokens: len(p.TokenIDs), ByHash: true, LoRA: p.LoRA, CacheSalt: p.CacheSalt,
	}
}

// callWithPrompt sends a call that holds a prompt, with the prompt as block
// hashes where the message would be too large otherwise. encode writes the body
// of the request that prompt is part of.
func (c *Client) callWithPrompt(ctx context.Context, pool, verb string, prompt *protocol.Prompt, reply any, encode func() ([]byte, error)) error {
	subject := c.cfg.Names.Call(pool, verb)
	body, err := encode()
	if err != nil {
		return fmt.Errorf("call %s: %w", subject, err)
	}
	if c.fits(body) {
		return c.call(ctx, subject, body, reply)
	}
	if prompt.ByHash {
		return c.tooLarge(subject, len(body))
	}
	tokens := *prompt
	for asked := false; ; asked = true {
		blocks, fresh, err := c.blocks(ctx, pool)
		if err != nil {
			return fmt.Errorf("ask for the block size of pool %q: %w", pool, err)
		}
		*prompt = blocks.hashed(&tokens)
		if body, err = encode(); err != nil {
			return fmt.Errorf("call %s: %w", subject, err)
		}
		if !c.fits(body) {
			return c.tooLarge(subject, len(body))
		}
		err = c.call(ctx, subject, body, reply)
		failure, refused := errors.AsType[*protocol.Error](err)
		if !refused || failure.Code != protocol.CodeInvalidRequest || fresh || asked {
			return err
		}
		c.forget(pool) // its block size may be another by now
	}
}

// fits says whether the server takes a body. Before the first connection the
// limit is unknown and the server's default counts.
func (c *Client) fits(body []byte) bool {
	const unknown = 1 << 20
	limit := c.cfg.Conn.MaxPayload()
	if limit <= 0 {
		limit = unknown
	}
	return int64(len(body)) <= limit
}

func (c *Client) tooLarge(subject string, size int) error {
	return fmt.Errorf("call %s: the body has %d bytes even with the prompt as block hashes, the server takes %d: raise its max_payload",
		subject, size, c.cfg.Conn.MaxPayload())
}

// blocks are those of a pool: as configured, as learned, or as the routers say
// now (fresh).
func (c *Client) blocks(ctx context.Context, pool string) (b Blocks, fresh bool, err error) {
	if b, ok := c.cfg.Blocks[pool]; ok {
		return b, true, nil
	}
	c.mu.Lock()
	b, ok := c.learned[pool]
	c.mu.Unlock()
	if ok {
		return b, false, nil
	}
	if b, err = c.ask(ctx, pool); err != nil {
		return b, true, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.learned) >= maxLearned {
		for other := range c.learned {
			delete(c.learned, other)
			break
		}
	}
	c.learned[pool] = b
	return b, true, nil
}

func (c *Client) forget(pool string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.learned, pool)
}

// ask learns a pool's blocks from two overlap calls: the reply to any prompt has
// the block size, and a prompt of just that many tokens has one hash, unless
// blocks overlap; then it has none, and a call with one is refused.
func (c *Client) ask(ctx context.Context, pool string) (Blocks, error) {
	subject := c.cfg.Names.Call(pool, protocol.VerbOverlap)
	overlap := func(p protocol.Prompt) (*protocol.OverlapReply, error) {
		body, err := protocol.EncodeOverlapRequest(&protocol.OverlapRequest{Prompt: p}, c.encoding)
		if err != nil {
			return nil, err
		}
		reply := new(protocol.OverlapReply)
		return reply, c.call(ctx, subject, body, reply)
	}
	reply, err := overlap(protocol.Prompt{TokenIDs: []uint32{0}})
	if err != nil {
		return Blocks{}, err
	}
	b := Blocks{Size: reply.BlockSize}
	if b.Size < 1 || b.Size > maxBlockSize {
		return Blocks{}, fmt.Errorf("a router says that it is %d tokens, must be 1 to %d", b.Size, maxBlockSize)
	}
	_, err = overlap(protocol.Prompt{BlockHashes: []protocol.BlockHash{0}, ISLTokens: b.Size, ByHash: true})
	if failure, ok := errors.AsType[*protocol.Error](err); ok && failure.Code == protocol.CodeInvalidRequest {
		b.Eagle, err = true, nil
	}
	return b, err
}
