package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

// statusCommand asks every router of a pool, or of all pools.
type statusCommand struct {
	connection `embed:""`
	Pool       string `help:"Pool to show; all if absent."`
	JSON       bool   `name:"json" help:"Print the routers' replies as a JSON list."`
}

// Run implements the command.
func (c *statusCommand) Run(a *app) error {
	s, err := c.open(a)
	if err != nil {
		return err
	}
	defer s.close()
	pools := []string{c.Pool}
	if c.Pool == "" {
		if pools, err = s.pools(a.ctx); err != nil {
			return err
		}
	}
	replies := []*protocol.StatusReply{}
	for _, pool := range pools {
		found, err := s.client.Status(a.ctx, pool, 0)
		if err != nil {
			if failure, ok := errors.AsType[*protocol.Error](err); ok && failure.Code == protocol.CodeUnknownPool && c.Pool == "" {
				continue // its last worker left since the list was made
			}
			return err
		}
		replies = append(replies, found...)
	}
	if c.JSON {
		return printJSON(a.stdout, replies)
	}
	if len(replies) == 0 {
		fmt.Fprintln(a.stdout, "no pool has a worker")
	}
	for _, reply := range replies {
		if err := printStatus(a.stdout, reply); err != nil {
			return err
		}
	}
	return nil
}

func printStatus(w io.Writer, r *protocol.StatusReply) error {
	fmt.Fprintf(w, "pool %s on router %s (%s; routers %s): blocks of %d tokens, log applied to %d of %d\n",
		r.Pool, r.Router, r.Phase, strings.Join(r.Routers, " "), r.BlockSize, r.StreamSeqApplied, r.StreamSeqKnown)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WORKER\tRANK\tTRUST\tEPOCH\tLAST EVENT\tBLOCKS\tCHECKSUM\tREPAIRS\tREFUSED\tNOTES")
	for _, row := range r.Ranks {
		checksum := "-"
		if row.Checksum != nil {
			checksum = fmt.Sprintf("%016x", *row.Checksum)
		}
		var notes []string
		if row.Drain {
			notes = append(notes, "draining")
		}
		if row.Conflict != "" {
			notes = append(notes, "conflict: "+row.Conflict)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\t%d\t%s\t%d\t%s\t%s\n", row.Worker, row.Rank, row.Trust, row.Epoch, row.LastID,
			row.Blocks, checksum, row.Repairs, countsText(row.Refused), strings.Join(notes, "; "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.RosterRefused) > 0 {
		fmt.Fprintf(w, "registrations refused: %s\n", countsText(r.RosterRefused))
	}
	fmt.Fprintln(w)
	return nil
}

// countsText writes counts as "name 3, other 1", or "-" for none.
func countsText[K ~string](counts map[K]uint64) string {
	var parts []string
	for name, n := range counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", string(name), n))
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// pools lists the pools that have a registration, in order.
func (s *session) pools(ctx context.Context) ([]string, error) {
	workers, err := s.workersByPool(ctx)
	if err != nil {
		return nil, err
	}
	pools := make([]string, 0, len(workers))
	for pool := range workers {
		pools = append(pools, pool)
	}
	slices.Sort(pools)
	return pools, nil
}

// workersByPool counts the registrations in the roster.
func (s *session) workersByPool(ctx context.Context) (map[string]int, error) {
	bucket, err := s.js.KeyValue(ctx, s.names.WorkersBucket())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("bucket %s does not exist: no router has run here with this --prefix; start one with `routerd serve`", s.names.WorkersBucket())
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", s.names.WorkersBucket(), err)
	}
	keys, err := bucket.ListKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("list bucket %s: %w", s.names.WorkersBucket(), err)
	}
	workers := map[string]int{}
	for key := range keys.Keys() {
		if pool, _, err := protocol.ParseWorkerKey(key); err == nil {
			workers[pool]++
		}
	}
	return workers, nil
}
