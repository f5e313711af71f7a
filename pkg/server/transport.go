package server

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/routerd/routerd/pkg/embedded"
)

// clusterCeiling is the size up to which streams grow on a cluster by default.
const clusterCeiling Size = 2 << 30

// transport is how this router reaches NATS: calls and control on one
// connection, the log on another, so that neither waits for the other.
type transport struct {
	cfg   *Config
	log   zerolog.Logger
	conn  *nats.Conn
	bulk  *nats.Conn
	url   string           // where others connect; "" if the embedded server has no listener
	local *embedded.Server // nil for a cluster
}

// openTransport starts the embedded server, or connects to the cluster.
func (s *Server) openTransport() (t *transport, err error) {
	t = &transport{cfg: &s.cfg, log: s.cfg.Logger.With().Str("component", "nats").Logger()}
	if s.cfg.NATS == "" {
		store := s.cfg.Store
		if store == "" {
			if store, err = embedded.DefaultStore(); err != nil {
				return nil, err
			}
		}
		t.local, err = embedded.Start(embedded.Config{Store: store, Listen: s.cfg.Listen, Log: t.log})
		if err != nil {
			return nil, err
		}
		t.url = t.local.ClientURL()
	} else {
		t.url = redactURLs(s.cfg.NATS)
	}
	if t.conn, err = t.connect(nats.Name("routerd " + s.token)); err == nil {
		t.bulk, err = t.connectBulk(nats.Name("routerd " + s.token + " log"))
	}
	if err != nil {
		_ = t.close(context.Background())
		return nil, err
	}
	return t, nil
}

// connect opens one more connection.
func (t *transport) connect(opts ...nats.Option) (*nats.Conn, error) {
	if t.local != nil {
		return t.local.Connect(opts...)
	}
	return embedded.Dial(embedded.DialConfig{
		URLs: t.cfg.NATS, Creds: t.cfg.NATSCreds, CA: t.cfg.NATSTLSCA, Cert: t.cfg.NATSTLSCert, Key: t.cfg.NATSTLSKey, Log: t.log,
	}, opts...)
}

func (t *transport) connectBulk(opts ...nats.Option) (*nats.Conn, error) {
	if t.local != nil {
		return t.local.ConnectBulk(opts...)
	}
	return t.connect(opts...)
}

// streamCeiling is the size up to which streams grow: as configured, or an eighth
// of the embedded server's store. A cluster does not say how large its store is.
func (t *transport) streamCeiling(cfg StreamConfig) Size {
	if cfg.MaxBytes > 0 {
		return cfg.MaxBytes
	}
	if t.local == nil {
		return max(cfg.Bytes, clusterCeiling)
	}
	return max(cfg.Bytes, Size(t.local.MaxStore()/8))
}

// close flushes what is written and ends the connections, then the embedded server.
func (t *transport) close(ctx context.Context) error {
	if t.local != nil {
		return t.local.Close(ctx)
	}
	var err error
	for _, conn := range []*nats.Conn{t.conn, t.bulk} {
		if conn == nil {
			continue
		}
		if failed := conn.FlushWithContext(ctx); failed != nil && conn == t.conn {
			err = fmt.Errorf("flush connection to NATS: %w", failed)
		}
		conn.Close()
	}
	return err
}

func redactURLs(urls string) string { return embedded.Redact(urls) }
