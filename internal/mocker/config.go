package mocker

import (
	"errors"
	"fmt"
	"math"
)

// Defaults of a Config.
const (
	DefaultBlocks      = 65536
	DefaultBlockSize   = 16
	DefaultMaxRunning  = 256
	DefaultTokenBudget = 8192
)

// Config says how large and how fast an engine is. The zero value is usable.
type Config struct {
	Blocks      int     // KV blocks of the worker; default 65,536, 1 to 2^26
	BlockSize   int     // tokens of a block; default 16, 1 to 65,536
	MaxRunning  int     // requests that run at once; default 256
	TokenBudget int     // tokens computed in one step; default 8,192
	Timing      Timing  // of steps; default Polynomial
	SpeedUp     float64 // divides the time of steps; default 1

	// NoChunkedPrefill admits a prompt only into a step that can compute it whole.
	// One beyond the token budget gets a step's whole budget to itself.
	NoChunkedPrefill bool
	// NoPrefixCache keeps no block beyond its request: no reuse, no KV events.
	NoPrefixCache bool

	// Seed enters the hashes of blocks of generated tokens. Engines that
	// differ in it never give the same hash to different output.
	Seed uint64
}

// Validate reports every fault of the configuration.
func (c Config) Validate() error {
	c = c.withDefaults()
	return errors.Join(
		within("blocks", c.Blocks, 1<<26),
		within("block size", c.BlockSize, 1<<16),
		within("running requests at most", c.MaxRunning, 1<<20),
		within("token budget", c.TokenBudget, 1<<26),
		c.validateSpeedUp(),
		c.Timing.Validate(),
	)
}

func (c Config) validateSpeedUp() error {
	if !(c.SpeedUp > 0) || math.IsInf(c.SpeedUp, 0) {
		return fmt.Errorf("speed-up %v: must be a finite number above 0", c.SpeedUp)
	}
	return nil
}

func within(what string, n, most int) error {
	if n < 1 || n > most {
		return fmt.Errorf("%s %d: must be 1 to %d", what, n, most)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Blocks == 0 {
		c.Blocks = DefaultBlocks
	}
	if c.BlockSize == 0 {
		c.BlockSize = DefaultBlockSize
	}
	if c.MaxRunning == 0 {
		c.MaxRunning = DefaultMaxRunning
	}
	if c.TokenBudget == 0 {
		c.TokenBudget = DefaultTokenBudget
	}
	if c.Timing == nil {
		c.Timing = Polynomial{}
	}
	if c.SpeedUp == 0 {
		c.SpeedUp = 1
	}
	return c
}

// capacity is the number of tokens whose keys and values the worker can hold.
func (c *Config) capacity() int { return c.Blocks * c.BlockSize }
