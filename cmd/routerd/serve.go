package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"

	"github.com/routerd/routerd/internal/mocker"
	"github.com/routerd/routerd/pkg/scope"
	"github.com/routerd/routerd/pkg/server"
)

// serveCommand runs a router. A flag or its environment variable overrides the
// file, which overrides the defaults; nil means not given.
type serveCommand struct {
	Config         string         `env:"ROUTERD_CONFIG" type:"path" help:"YAML configuration file." placeholder:"FILE"`
	NATS           *string        `name:"nats" env:"ROUTERD_NATS" help:"NATS servers of a cluster, separated by commas; without it an embedded server runs."`
	Creds          *string        `name:"nats-creds" env:"ROUTERD_NATS_CREDS" help:"NATS credentials file." placeholder:"FILE"`
	TLSCA          *string        `name:"nats-tls-ca" env:"ROUTERD_NATS_TLS_CA" help:"PEM file of the authority that signed the servers' certificate." placeholder:"FILE"`
	TLSCert        *string        `name:"nats-tls-cert" env:"ROUTERD_NATS_TLS_CERT" help:"PEM file of the client certificate." placeholder:"FILE"`
	TLSKey         *string        `name:"nats-tls-key" env:"ROUTERD_NATS_TLS_KEY" help:"PEM file of the client certificate's key." placeholder:"FILE"`
	Listen         *string        `env:"ROUTERD_LISTEN" help:"Embedded server's listener (127.0.0.1:4222); port 0 picks one, none keeps it in this process." placeholder:"HOST:PORT"`
	Store          *string        `env:"ROUTERD_STORE" type:"path" help:"Embedded server's folder." placeholder:"DIR"`
	Admin          *string        `env:"ROUTERD_ADMIN" help:"Listener of /livez, /readyz and /metrics (127.0.0.1:9464); none opens none." placeholder:"HOST:PORT"`
	Prefix         *string        `env:"ROUTERD_PREFIX" help:"Prefix of subjects and buckets (kvr)."`
	StreamBytes    *server.Size   `env:"ROUTERD_STREAM_BYTES" help:"Size of a new pool's stream (256MiB)." placeholder:"SIZE"`
	StreamMaxBytes *server.Size   `env:"ROUTERD_STREAM_MAX_BYTES" help:"Size up to which streams double (an eighth of the store)." placeholder:"SIZE"`
	DrainTimeout   *time.Duration `env:"ROUTERD_DRAIN_TIMEOUT" help:"How long a shutdown waits for accepted requests (25s)." placeholder:"DURATION"`
	LogLevel       *string        `env:"ROUTERD_LOG_LEVEL" help:"trace, debug, info, warn or error (info)."`
	LogFormat      *string        `env:"ROUTERD_LOG_FORMAT" help:"auto, json or text (auto)."`
	MockWorkers    int            `env:"ROUTERD_MOCK_WORKERS" help:"Also run N simulated workers." placeholder:"N"`
	MockPool       string         `env:"ROUTERD_MOCK_POOL" default:"mock" help:"Pool of the simulated workers." placeholder:"NAME"`
	PrintConfig    bool           `help:"Print the configuration in force and exit."`
}

// maxMockWorkers bounds --mock-workers: each has a cache and a listener.
const maxMockWorkers = 1024

// Run implements the command.
func (c *serveCommand) Run(a *app) error {
	cfg, err := c.config()
	if err != nil {
		return usageError{err}
	}
	if c.PrintConfig {
		text, err := cfg.YAML()
		if err == nil {
			_, err = a.stdout.Write(text)
		}
		return err
	}
	if c.MockWorkers < 0 || c.MockWorkers > maxMockWorkers {
		return usagef("--mock-workers: must be 0 to %d", maxMockWorkers)
	}
	cfg.Logger = newLogger(a.stderr, cfg.Log)
	srv, err := server.New(cfg)
	if err != nil {
		return usageError{err}
	}
	if c.MockWorkers == 0 {
		return srv.Run(a.ctx)
	}
	return c.serveWithMocks(a, srv, cfg.Logger)
}

// serveWithMocks runs the server, and mock workers while it is up: they leave
// before the server goes down.
func (c *serveCommand) serveWithMocks(a *app, srv *server.Server, log zerolog.Logger) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(a.ctx))
	defer cancel(nil)
	mocks := scope.New(a.ctx, "mock workers")
	defer mocks.Close()
	mocks.Go(func(ctx context.Context) error {
		defer cancel(nil) // once the mock workers have left, the server may stop
		select {
		case <-srv.Ready():
		case <-ctx.Done():
			return nil
		}
		fleet, err := mocker.NewLiveFleet(mocker.LiveConfig{
			Conn: srv.Conn(), Names: srv.Names(), Pool: c.MockPool, Workers: c.MockWorkers, Log: log,
		})
		if err == nil {
			err = fleet.Run(ctx)
		}
		if err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("mock workers: %w", err))
		}
		return err
	})
	err := srv.Run(ctx)
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// config is the file with the flags laid over it, validated.
func (c *serveCommand) config() (server.Config, error) {
	cfg := server.DefaultConfig()
	if c.Config != "" {
		var err error
		if cfg, err = server.LoadConfig(c.Config); err != nil {
			return cfg, err
		}
	}
	override(&cfg.NATS, c.NATS)
	override(&cfg.NATSCreds, c.Creds)
	override(&cfg.NATSTLSCA, c.TLSCA)
	override(&cfg.NATSTLSCert, c.TLSCert)
	override(&cfg.NATSTLSKey, c.TLSKey)
	override(&cfg.Listen, c.Listen)
	override(&cfg.Store, c.Store)
	override(&cfg.Admin, c.Admin)
	override(&cfg.Prefix, c.Prefix)
	override(&cfg.Stream.Bytes, c.StreamBytes)
	override(&cfg.Stream.MaxBytes, c.StreamMaxBytes)
	override(&cfg.DrainTimeout, c.DrainTimeout)
	override(&cfg.Log.Level, c.LogLevel)
	override(&cfg.Log.Format, c.LogFormat)
	return cfg, cfg.Validate()
}

func override[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// newLogger writes to w as the configuration says; its level has been validated.
func newLogger(w io.Writer, cfg server.LogConfig) zerolog.Logger {
	level, _ := zerolog.ParseLevel(cfg.Level)
	text := cfg.Format == "text"
	if file, ok := w.(*os.File); ok && cfg.Format == "auto" {
		text = isatty.IsTerminal(file.Fd())
	}
	if text {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}
