package embedded

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// dialLimit bounds one attempt at one server.
const dialLimit = 5 * time.Second

// DialConfig says how to reach a cluster of the user's. Files are read again at
// every reconnect, so certificates may be renewed under a running router.
type DialConfig struct {
	URLs  string // one or several, separated by commas; required
	Name  string // shown by the server's connection list
	Creds string // file of a user's JWT and key
	CA    string // file of certificates that the servers' are checked against
	Cert  string // file of the client's certificate
	Key   string // file of its key
	Log   zerolog.Logger
}

// Dial connects to a cluster, with a router's options and then the caller's. It
// blocks for at most 5 s per URL. Its errors are one line that says what to do,
// and never hold a URL's password or token.
func Dial(cfg DialConfig, more ...nats.Option) (*nats.Conn, error) {
	for _, server := range splitURLs(cfg.URLs) {
		if _, err := parseURL(server); err != nil {
			// The parser's own message repeats the URL.
			return nil, fmt.Errorf("cannot read the NATS URL %s: write nats://host:port, with special characters of a password escaped as %%XX", Redact(server))
		}
	}
	secure, err := securityOptions(cfg)
	if err != nil {
		return nil, err
	}
	opts := append(connOptions(cfg.Log), nats.Name(cfg.Name), nats.Timeout(dialLimit))
	conn, err := nats.Connect(cfg.URLs, append(append(opts, secure...), more...)...)
	if err != nil {
		return nil, dialError(cfg.URLs, err)
	}
	return conn, nil
}

// securityOptions checks the files once, since the client would report a bad
// one as a failure to connect.
func securityOptions(cfg DialConfig) (opts []nats.Option, err error) {
	if cfg.Creds != "" {
		if err := readable(cfg.Creds); err != nil {
			return nil, fmt.Errorf("cannot read --nats-creds: %w", err)
		}
		opts = append(opts, nats.UserCredentials(cfg.Creds))
	}
	if cfg.CA != "" {
		pem, err := os.ReadFile(cfg.CA)
		if err != nil {
			return nil, fmt.Errorf("cannot read --nats-tls-ca: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("cannot read --nats-tls-ca: %s holds no certificate in PEM form", cfg.CA)
		}
		opts = append(opts, nats.RootCAs(cfg.CA))
	}
	if (cfg.Cert == "") != (cfg.Key == "") {
		return nil, errors.New("--nats-tls-cert and --nats-tls-key go together: set both or none")
	}
	if cfg.Cert != "" {
		if _, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key); err != nil {
			return nil, fmt.Errorf("cannot read --nats-tls-cert and --nats-tls-key: %w", err)
		}
		opts = append(opts, nats.ClientCert(cfg.Cert, cfg.Key))
	}
	return opts, nil
}

func readable(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	return f.Close()
}

func dialError(urls string, err error) error {
	where := Redact(urls)
	var unverified *tls.CertificateVerificationError
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return fmt.Errorf("NATS at %s refused the credentials: %w: check --nats-creds, or the user in --nats", where, err)
	case errors.As(err, &unverified), errors.Is(err, nats.ErrSecureConnRequired), errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("cannot agree on TLS with NATS at %s: %w: check --nats-tls-ca, --nats-tls-cert and --nats-tls-key", where, err)
	}
	const advice = "start it, or check --nats, and --nats-tls-cert and --nats-tls-key if it demands a client certificate; " +
		"`routerd serve` without --nats runs a server of its own"
	if errors.Is(err, nats.ErrNoServers) { // adds nothing
		return fmt.Errorf("cannot reach NATS at %s: %s", where, advice)
	}
	return fmt.Errorf("cannot reach NATS at %s: %w: %s", where, cause(err), advice)
}

// Redact is a list of NATS URLs as it may be shown: users, passwords and tokens
// are replaced by `***`.
func Redact(urls string) string {
	servers := splitURLs(urls)
	for i, server := range servers {
		u, err := parseURL(server)
		if err != nil {
			servers[i] = "(not shown: not readable as a URL)"
			continue
		}
		shown := u.Scheme + "://"
		if u.User != nil {
			shown += "***@"
		}
		servers[i] = shown + u.Host + u.Path
	}
	return strings.Join(servers, ",")
}

func splitURLs(urls string) []string {
	servers := strings.Split(urls, ",")
	for i := range servers {
		servers[i] = strings.TrimSpace(servers[i])
	}
	return servers
}

// parseURL reads a URL as the client does: the scheme may be left out. A URL
// whose host holds an `@` or a `/` too many is refused, because part of a
// password may have landed there.
func parseURL(server string) (*url.URL, error) {
	if !strings.Contains(server, "://") {
		server = "nats://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	if u.Host == "" || strings.Contains(u.Path, "@") || strings.Contains(u.RawQuery+u.Fragment, "@") {
		return nil, errors.New("no host, or special characters that are not escaped")
	}
	return u, nil
}
