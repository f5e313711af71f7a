package main

import (
	"fmt"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/roster"
)

// drainCommand sets an operator's drain, which outlives workers and routers.
type drainCommand struct {
	connection `embed:""`
	Pool       string `required:"" help:"Pool of the worker."`
	Worker     string `required:"" help:"Worker to take out of routing."`
	Rank       int    `default:"-1" help:"Only this rank; all ranks by default."`
	Off        bool   `help:"Put the worker back."`
}

// Run implements the command.
func (c *drainCommand) Run(a *app) error {
	for flag, name := range map[string]string{"--pool": c.Pool, "--worker": c.Worker} {
		if err := protocol.CheckName(name); err != nil {
			return usagef("%s: %w", flag, err)
		}
	}
	var rank *uint16
	if c.Rank >= 0 {
		if c.Rank > protocol.MaxRank {
			return usagef("--rank: must be 0 to %d", protocol.MaxRank)
		}
		n := uint16(c.Rank)
		rank = &n
	}
	s, err := c.open(a)
	if err != nil {
		return err
	}
	defer s.close()
	if err := roster.SetDrain(a.ctx, s.js, s.names, c.Pool, c.Worker, rank, !c.Off); err != nil {
		return err
	}
	state := "draining: it gets no new request"
	if c.Off {
		state = "back in routing"
	}
	_, err = fmt.Fprintf(a.stdout, "worker %s of pool %s is %s\n", c.Worker, c.Pool, state)
	return err
}
