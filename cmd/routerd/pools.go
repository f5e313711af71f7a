package main

import (
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
	"github.com/routerd/routerd/pkg/server"
)

// poolsCommand works on pools and their streams.
type poolsCommand struct {
	List   poolsListCommand   `cmd:"" default:"withargs" help:"List pools with their workers and streams."`
	Delete poolsDeleteCommand `cmd:"" help:"Delete a pool's stream, with all that is in it; the pool must have no worker."`
	Resize poolsResizeCommand `cmd:"" help:"Set the size and the replicas of a pool's stream."`
}

type poolsListCommand struct {
	connection `embed:""`
	JSON       bool `name:"json" help:"Print a JSON list."`
}

// poolRow is a pool as the command lists it.
type poolRow struct {
	Pool     string `json:"pool"`
	Workers  int    `json:"workers"`
	Stream   string `json:"stream"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	MaxBytes int64  `json:"max_bytes"`
	Replicas int    `json:"replicas"`
}

// Run implements the command.
func (c *poolsListCommand) Run(a *app) error {
	s, err := c.open(a)
	if err != nil {
		return err
	}
	defer s.close()
	workers, err := s.workersByPool(a.ctx)
	if err != nil {
		return err
	}
	rows := []poolRow{}
	streams := s.js.ListStreams(a.ctx)
	for info := range streams.Info() {
		pool, ok := s.names.StreamPool(info.Config.Name)
		if !ok {
			continue
		}
		rows = append(rows, poolRow{pool, workers[pool], info.Config.Name, info.State.Msgs, info.State.Bytes, info.Config.MaxBytes, info.Config.Replicas})
		delete(workers, pool)
	}
	if err := streams.Err(); err != nil {
		return fmt.Errorf("list streams: %w", err)
	}
	for pool, n := range workers { // registered, but no stream yet
		rows = append(rows, poolRow{Pool: pool, Workers: n})
	}
	slices.SortFunc(rows, func(a, b poolRow) int {
		return protocol.Worker{ID: a.Pool}.Compare(protocol.Worker{ID: b.Pool})
	})
	if c.JSON {
		return printJSON(a.stdout, rows)
	}
	if len(rows) == 0 {
		fmt.Fprintln(a.stdout, "no pools")
		return nil
	}
	t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POOL\tWORKERS\tMESSAGES\tBYTES\tMAX BYTES\tREPLICAS\tSTREAM")
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%d\t%s\n", row.Pool, row.Workers, row.Messages, row.Bytes, server.Size(row.MaxBytes), row.Replicas, row.Stream)
	}
	return t.Flush()
}

type poolsDeleteCommand struct {
	connection `embed:""`
	Pool       string `arg:"" help:"Pool whose stream to delete."`
}

// Run implements the command.
func (c *poolsDeleteCommand) Run(a *app) error {
	s, err := c.open(a)
	if err != nil {
		return err
	}
	defer s.close()
	workers, err := s.workersByPool(a.ctx)
	if err != nil {
		return err
	}
	if n := workers[c.Pool]; n > 0 {
		return fmt.Errorf("pool %q has %d registered workers: stop them first (a crashed one leaves after the roster's time to live)", c.Pool, n)
	}
	if err := s.js.DeleteStream(a.ctx, s.names.Stream(c.Pool)); err != nil {
		return s.streamError(c.Pool, "delete", err)
	}
	fmt.Fprintf(a.stdout, "deleted stream %s of pool %s\n", s.names.Stream(c.Pool), c.Pool)
	return nil
}

type poolsResizeCommand struct {
	connection  `embed:""`
	Pool        string `arg:"" help:"Pool whose stream to resize."`
	StreamBytes string `help:"New size of the stream, like 512MiB." placeholder:"SIZE"`
	Replicas    int    `help:"New number of replicas, 1 to 5." placeholder:"N"`
}

// Run implements the command.
func (c *poolsResizeCommand) Run(a *app) error {
	if c.StreamBytes == "" && c.Replicas == 0 {
		return usagef("give --stream-bytes, --replicas or both")
	}
	size, err := server.ParseSize(c.StreamBytes)
	if c.StreamBytes == "" {
		size, err = 0, nil
	}
	switch {
	case err != nil:
		return usagef("--stream-bytes: %w", err)
	case c.StreamBytes != "" && size < 1<<20:
		return usagef("--stream-bytes: must be at least 1MiB")
	case c.Replicas < 0 || c.Replicas > 5:
		return usagef("--replicas: must be 1 to 5")
	}
	s, err := c.open(a)
	if err != nil {
		return err
	}
	defer s.close()
	stream, err := s.js.Stream(a.ctx, s.names.Stream(c.Pool))
	if err != nil {
		return s.streamError(c.Pool, "open", err)
	}
	info := stream.CachedInfo()
	cfg := info.Config
	if size > 0 {
		if uint64(size) < info.State.Bytes {
			return fmt.Errorf("stream %s holds %d bytes, more than %s: choose a larger --stream-bytes", cfg.Name, info.State.Bytes, size)
		}
		cfg.MaxBytes = int64(size)
	}
	if c.Replicas > 0 {
		cfg.Replicas = c.Replicas
	}
	if _, err := s.js.UpdateStream(a.ctx, cfg); err != nil {
		return s.streamError(c.Pool, "resize", err)
	}
	fmt.Fprintf(a.stdout, "stream %s of pool %s: %s, %d replicas\n", cfg.Name, c.Pool, server.Size(cfg.MaxBytes), cfg.Replicas)
	return nil
}

func (s *session) streamError(pool, verb string, err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("pool %q has no stream: `routerd pools` lists those that have", pool)
	}
	return fmt.Errorf("%s stream of pool %q: %w", verb, pool, err)
}
