package embedded

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rs/zerolog"
)

// ListenNone keeps the server inside the process.
const ListenNone = "none"

// Defaults of Config.
const (
	DefaultListen       = "127.0.0.1:4222"
	DefaultSyncInterval = time.Second
	DefaultMaxPayload   = 1 << 20
)

// Bounds of Config.MaxPayload: a registration must fit, and NATS advises
// against more than 8 MiB.
const (
	minPayload = 64 << 10
	maxPayload = 8 << 20
)

// Config configures a Server. Only Store has no default.
type Config struct {
	// Store is the folder of the log; it is made if absent. Required, since
	// NATS's own default is one folder shared by every server of the machine.
	// [DefaultStore] is the one of a user's own router.
	Store string
	// Listen is `host:port`; port 0 picks a free one, ListenNone listens
	// nowhere. Empty: DefaultListen.
	Listen string
	// MaxPayload bounds a message in bytes, 64 KiB to 8 MiB. 0: 1 MiB.
	MaxPayload int
	// MaxStore bounds what JetStream keeps on disk in bytes. 0: three quarters
	// of what is free when the server starts.
	MaxStore int64
	// SyncInterval is how often the log is flushed to the disk itself; a killed
	// process loses nothing either way, a machine that loses power loses up to
	// this much. 0: 1 s.
	SyncInterval time.Duration
	// Log takes the server's warnings and errors. The zero value drops them.
	Log zerolog.Logger
}

// Validate reports every fault of the configuration.
func (c Config) Validate() error {
	var faults []error
	if c.Store == "" {
		faults = append(faults, errors.New("store: must name a folder"))
	}
	if _, _, err := c.address(); err != nil {
		faults = append(faults, err)
	}
	if c.MaxPayload != 0 && (c.MaxPayload < minPayload || c.MaxPayload > maxPayload) {
		faults = append(faults, fmt.Errorf("max payload: %d bytes, must be %d to %d", c.MaxPayload, minPayload, maxPayload))
	}
	if c.MaxStore < 0 {
		faults = append(faults, errors.New("max store: must not be negative"))
	}
	if c.SyncInterval < 0 {
		faults = append(faults, errors.New("sync interval: must not be negative"))
	}
	return errors.Join(faults...)
}

// address is the host and port to listen on; the port is -1 for none and 0 to
// pick one.
func (c Config) address() (host string, port int, err error) {
	switch c.Listen {
	case ListenNone:
		return "", -1, nil
	case "":
		return splitAddress(DefaultListen)
	}
	return splitAddress(c.Listen)
}

func splitAddress(listen string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, fmt.Errorf("listen %q: must be host:port or %s", listen, ListenNone)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("listen %q: the port must be 0 to 65535", listen)
	}
	return host, int(number), nil
}

// DefaultStore is the folder of a user's own router: `routerd` in
// $XDG_STATE_HOME, or in ~/.local/state where that is not set.
func DefaultStore() (string, error) {
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "routerd"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the user's state folder: %w: name a folder with --store", err)
	}
	return filepath.Join(home, ".local", "state", "routerd"), nil
}
