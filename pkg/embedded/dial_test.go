package embedded

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

func TestRedact(t *testing.T) {
	for urls, want := range map[string]string{
		"nats://h:4222":             "nats://h:4222",
		"h:4222":                    "nats://h:4222",
		"nats://u:secret@h:4222":    "nats://***@h:4222",
		"nats://secrettoken@h:4222": "nats://***@h:4222",
		"u:secret@h":                "nats://***@h",
		"tls://u:se%40cret@h:1, nats://x:secret@i": "tls://***@h:1,nats://***@i",
		"wss://u:secret@h/path?token=secret":       "wss://***@h/path",
		"nats://u:se/cret@h:4222":                  "(not shown: not readable as a URL)",
		"nats://u:se cret%@h:4222":                 "(not shown: not readable as a URL)",
		"nats://u:sec#ret@h:4222":                  "(not shown: not readable as a URL)",
		"nats://u:sec?ret@h:4222":                  "(not shown: not readable as a URL)",
		"":                                         "(not shown: not readable as a URL)",
	} {
		got := Redact(urls)
		if got != want {
			t.Errorf("Redact(%q) = %q, want %q", urls, got, want)
		}
	}
}

func TestUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	_, err = Dial(DialConfig{URLs: "nats://u:secret@" + address})
	want := "cannot reach NATS at nats://***@" + address + ": start it, or check --nats, and --nats-tls-cert and --nats-tls-key if it demands a client certificate; " +
		"`routerd serve` without --nats runs a server of its own"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestUnreadableURL(t *testing.T) {
	for _, urls := range []string{"nats://u:se/cret@127.0.0.1:4222", "nats://u:secret%@127.0.0.1", "nats://127.0.0.1:1,", "nats://h:secretport"} {
		_, err := Dial(DialConfig{URLs: urls})
		if err == nil || !strings.HasPrefix(err.Error(), "cannot read the NATS URL ") || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "cret@") {
			t.Errorf("%s: got %v", urls, err)
		}
	}
}

func TestDialPlain(t *testing.T) {
	s := start(t, Config{Store: t.TempDir(), Listen: "127.0.0.1:0"})
	conn, err := Dial(DialConfig{URLs: s.ClientURL(), Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	publishTo(t, conn, "one")
}

func TestDialPassword(t *testing.T) {
	url := foreign(t, &server.Options{Username: "u", Password: "secret"})
	conn, err := Dial(DialConfig{URLs: strings.Replace(url, "://", "://u:secret@", 1)})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	_, err = Dial(DialConfig{URLs: strings.Replace(url, "://", "://u:wrongsecret@", 1)})
	if err == nil || !strings.Contains(err.Error(), "refused the credentials") || strings.Contains(err.Error(), "secret") {
		t.Errorf("wrong password: got %v", err)
	}
}

func TestDialTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	url := foreign(t, &server.Options{TLS: true, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}})
	conn, err := Dial(DialConfig{URLs: url, CA: cert, Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := Dial(DialConfig{URLs: url}); err == nil || !strings.Contains(err.Error(), "check --nats-tls-ca") {
		t.Errorf("without the CA: got %v", err)
	}
}

func TestDialFiles(t *testing.T) {
	dir := t.TempDir()
	cert, _ := certificate(t, dir)
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, cfg := range map[string]DialConfig{
		"--nats-creds":                     {Creds: filepath.Join(dir, "absent")},
		"--nats-tls-ca":                    {CA: filepath.Join(dir, "absent")},
		"holds no certificate":             {CA: empty},
		"go together":                      {Cert: cert},
		"--nats-tls-cert and":              {Cert: cert, Key: empty},
		"--nats-tls-cert and --nats-tls-k": {Key: cert},
	} {
		cfg.URLs = "nats://127.0.0.1:1"
		if _, err := Dial(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

// TestDialCreds joins a server that knows users by JWT.
func TestDialCreds(t *testing.T) {
	operator, account, user := key(t, nkeys.CreateOperator), key(t, nkeys.CreateAccount), key(t, nkeys.CreateUser)
	operatorClaims := jwt.NewOperatorClaims(public(t, operator))
	operatorJWT, err := operatorClaims.Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := jwt.DecodeOperatorClaims(operatorJWT)
	if err != nil {
		t.Fatal(err)
	}
	accountJWT, err := jwt.NewAccountClaims(public(t, account)).Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	userJWT, err := jwt.NewUserClaims(public(t, user)).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(userJWT, seed)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "user.creds")
	if err := os.WriteFile(file, creds, 0o600); err != nil {
		t.Fatal(err)
	}
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(public(t, account), accountJWT); err != nil {
		t.Fatal(err)
	}
	url := foreign(t, &server.Options{TrustedOperators: []*jwt.OperatorClaims{trusted}, AccountResolver: resolver})
	conn, err := Dial(DialConfig{URLs: url, Creds: file})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := Dial(DialConfig{URLs: url}); err == nil || !strings.Contains(err.Error(), "check --nats-creds") {
		t.Errorf("without creds: got %v", err)
	}
}

func key(t *testing.T, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	pair, err := create()
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func public(t *testing.T, pair nkeys.KeyPair) string {
	t.Helper()
	name, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// foreign runs a server that is not ours.
func foreign(t *testing.T, options *server.Options) string {
	t.Helper()
	options.Host, options.Port, options.NoSigs, options.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	srv, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { stop(srv) })
	if !srv.ReadyForConnections(limit) {
		t.Fatal("foreign server is not ready")
	}
	return srv.ClientURL()
}

// certificate writes one that signs itself, for servers and clients.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "routerd test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed}, key: {Type: "EC PRIVATE KEY", Bytes: encoded}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
