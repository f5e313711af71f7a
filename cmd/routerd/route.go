package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/routerd/routerd/pkg/protocol"
)

// routeCommand makes a routing call.
type routeCommand struct {
	connection  `embed:""`
	promptFlags `embed:""`
	Pool        string   `required:"" help:"Pool to route in."`
	RequestID   string   `name:"request-id" help:"Id of the request; made if absent."`
	Attempt     uint32   `default:"1" help:"Attempt number of the request."`
	Pin         string   `help:"Worker to pin the request to." placeholder:"WORKER"`
	PinRank     int      `default:"-1" help:"Rank of the pinned worker; its only one by default."`
	Exclude     []string `help:"Workers not to use." placeholder:"WORKER"`
	QueryOnly   bool     `help:"Decide, but admit nothing."`
	Explain     bool     `help:"Show every candidate with its cost."`
	JSON        bool     `name:"json" help:"Print the reply as JSON."`
}

// Run implements the command.
func (c *routeCommand) Run(a *app) error {
	prompt, err := c.prompt(a)
	if err != nil {
		return err
	}
	request := &protocol.RouteRequest{
		RequestID: c.RequestID, Attempt: c.Attempt, Prompt: prompt, Excluded: c.Exclude,
		QueryOnly: c.QueryOnly, Explain: c.Explain, TimeoutMS: max(c.Timeout.Milliseconds(), 1),
	}
	if c.Pin != "" {
		request.Pinned = &protocol.Pin{Worker: c.Pin}
		if c.PinRank >= 0 {
			if c.PinRank > protocol.MaxRank {
				return usagef("--pin-rank: must be 0 to %d", protocol.MaxRank)
			}
			rank := uint16(c.PinRank)
			request.Pinned.Rank = &rank
		}
	}
	s, err := c.open(a)
	if err != nil {
		return err
	}
	defer s.close()
	reply, err := s.client.Route(a.ctx, c.Pool, request)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(a.stdout, reply)
	}
	return printRoute(a.stdout, reply)
}

func printRoute(w io.Writer, r *protocol.RouteReply) error {
	fmt.Fprintf(w, "worker %s rank %d", r.Worker, r.Rank)
	if r.Endpoint != "" {
		fmt.Fprintf(w, " at %s", r.Endpoint)
	}
	fmt.Fprintf(w, " (%s)\n", strings.ReplaceAll(string(r.Reason), "_", " "))
	fmt.Fprintf(w, "prompt %d tokens: %d cached, %d to compute", r.ISLTokens, r.CachedTokens, r.PrefillTokens)
	if r.ZeroOverlap != "" {
		fmt.Fprintf(w, " (%s)", strings.ReplaceAll(string(r.ZeroOverlap), "_", " "))
	}
	fmt.Fprintf(w, "\noverlap in blocks: %d device, %d host, %d disk, %d external; index %s at sequence %d\n",
		r.Overlap.Device, r.Overlap.Host, r.Overlap.Disk, r.Overlap.External, r.Trust, r.IndexSeq)
	fmt.Fprintf(w, "cost %s\n", costText(&r.Cost))
	if r.Lease != "" {
		fmt.Fprintf(w, "request %s attempt %d, lease %s\n", r.RequestID, r.Attempt, r.Lease)
	}
	if len(r.Candidates) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nWORKER\tRANK\tDEVICE\tHOST\tDISK\tEXTERNAL\tCACHED\tTRUST\tCOST")
	for _, c := range r.Candidates {
		cost := "not eligible: " + c.Why
		if c.Cost != nil {
			cost = costText(c.Cost)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", c.Worker, c.Rank,
			c.Overlap.Device, c.Overlap.Host, c.Overlap.Disk, c.Overlap.External, c.CachedTokens, c.Trust, cost)
	}
	return t.Flush()
}

// costText writes a cost with the terms of its policy.
func costText(c *protocol.Cost) string {
	var terms string
	switch c.Policy {
	case protocol.PolicyLatency:
		terms = fmt.Sprintf(" = queue %.2f + prefill %.2f + decode %.2f + memory %.2f ms", c.QueueMS, c.PrefillMS, c.DecodeMS, c.MemoryMS)
	case protocol.PolicyKV, protocol.PolicyLoad:
		terms = fmt.Sprintf(" = prefill %.2f + decode %.2f + requests %.2f blocks", c.PrefillBlocks, c.DecodeBlocks, c.RequestBlocks)
	}
	if c.Multiplier != 1 && terms != "" {
		terms += fmt.Sprintf(", times %.3f", c.Multiplier)
	}
	return fmt.Sprintf("%.2f%s (%s)", c.Total, terms, c.Policy)
}

// overlapCommand makes an overlap call.
type overlapCommand struct {
	connection  `embed:""`
	promptFlags `embed:""`
	Pool        string `required:"" help:"Pool to ask."`
	Explain     bool   `hidden:"" help:"Accepted for symmetry with route; the overlap call always lists every worker."`
	JSON        bool   `name:"json" help:"Print the reply as JSON."`
}

// Run implements the command.
func (c *overlapCommand) Run(a *app) error {
	prompt, err := c.prompt(a)
	if err != nil {
		return err
	}
	s, err := c.open(a)
	if err != nil {
		return err
	}
	defer s.close()
	reply, err := s.client.Overlap(a.ctx, c.Pool, &protocol.OverlapRequest{Prompt: prompt})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(a.stdout, reply)
	}
	fmt.Fprintf(a.stdout, "%d blocks of %d tokens; index at sequence %d\n", reply.Blocks, reply.BlockSize, reply.IndexSeq)
	t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WORKER\tRANK\tDEVICE\tHOST\tDISK\tEXTERNAL\tTRUST")
	for _, w := range reply.Workers {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%s\n", w.Worker, w.Rank, w.Device, w.Host, w.Disk, w.External, w.Trust)
	}
	return t.Flush()
}
