package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/client"
	"github.com/routerd/routerd/pkg/embedded"
	"github.com/routerd/routerd/pkg/protocol"
)

// connection is the flags of every command that talks to a running router.
type connection struct {
	NATS    string        `name:"nats" env:"ROUTERD_NATS" default:"nats://127.0.0.1:4222" help:"NATS servers, separated by commas."`
	Creds   string        `name:"nats-creds" env:"ROUTERD_NATS_CREDS" help:"NATS credentials file."`
	TLSCA   string        `name:"nats-tls-ca" env:"ROUTERD_NATS_TLS_CA" help:"PEM file of the authority that signed the servers' certificate."`
	TLSCert string        `name:"nats-tls-cert" env:"ROUTERD_NATS_TLS_CERT" help:"PEM file of the client certificate."`
	TLSKey  string        `name:"nats-tls-key" env:"ROUTERD_NATS_TLS_KEY" help:"PEM file of the client certificate's key."`
	Prefix  string        `env:"ROUTERD_PREFIX" default:"kvr" help:"Prefix of subjects and buckets."`
	Timeout time.Duration `env:"ROUTERD_TIMEOUT" default:"5s" help:"How long to wait for an answer."`
}

// session is an open connection.
type session struct {
	conn   *nats.Conn
	js     jetstream.JetStream
	names  protocol.Names
	client *client.Client
}

func (s *session) close() { s.conn.Close() }

// open connects to NATS.
func (c *connection) open(a *app) (*session, error) {
	names, err := protocol.NewNames(c.Prefix)
	if err != nil {
		return nil, usageError{err}
	}
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn)
	if err == nil {
		var cl *client.Client
		if cl, err = client.New(client.Config{Conn: conn, Names: names, Timeout: c.Timeout}); err == nil {
			return &session{conn, js, names, cl}, nil
		}
	}
	conn.Close()
	return nil, err
}

func (c *connection) dial() (*nats.Conn, error) {
	return embedded.Dial(embedded.DialConfig{
		URLs: c.NATS, Creds: c.Creds, CA: c.TLSCA, Cert: c.TLSCert, Key: c.TLSKey, Name: "routerd cli",
	})
}

// printJSON writes a value as indented JSON.
func printJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}
