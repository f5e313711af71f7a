package protocol

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// DefaultPrefix begins every subject and bucket name.
const DefaultPrefix = "kvr"

// Verbs of the calls on `<prefix>.<pool>.<verb>`.
const (
	VerbRoute    = "route"
	VerbOverlap  = "overlap"
	VerbLoads    = "loads"
	VerbStatus   = "status"
	VerbProgress = "progress" // under `lease.`
	VerbComplete = "complete" // under `lease.`
)

// Names makes the names of subjects, streams, buckets and keys under one
// prefix. The zero value uses DefaultPrefix.
type Names struct{ prefix string }

// NewNames checks a prefix: 1 to 32 of [a-z0-9].
func NewNames(prefix string) (Names, error) {
	if prefix == "" || len(prefix) > 32 {
		return Names{}, fmt.Errorf("prefix %q: must be 1 to 32 of [a-z0-9]", prefix)
	}
	for _, c := range []byte(prefix) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return Names{}, fmt.Errorf("prefix %q: must be 1 to 32 of [a-z0-9]", prefix)
		}
	}
	return Names{prefix}, nil
}

// Prefix is the prefix in force.
func (n Names) Prefix() string {
	if n.prefix == "" {
		return DefaultPrefix
	}
	return n.prefix
}

// Stream is the name of a pool's stream: `KVR_<pool>`.
func (n Names) Stream(pool string) string {
	return strings.ToUpper(n.Prefix()) + "_" + Escape(pool)
}

// StreamPool is the pool of a stream's name, false for another's stream.
func (n Names) StreamPool(stream string) (string, bool) {
	token, ok := strings.CutPrefix(stream, strings.ToUpper(n.Prefix())+"_")
	if !ok {
		return "", false
	}
	pool, err := Unescape(token)
	return pool, err == nil
}

// Events is the subject of one rank's events.
func (n Names) Events(pool string, w Worker) string {
	return n.Prefix() + "." + Escape(pool) + ".events." + rankTokens(w)
}

// PoolEvents matches the events of all ranks of a pool.
func (n Names) PoolEvents(pool string) string {
	return n.Prefix() + "." + Escape(pool) + ".events.>"
}

// Query is the subject on which one rank answers queries.
func (n Names) Query(pool string, w Worker) string {
	return n.Prefix() + "." + Escape(pool) + ".query." + rankTokens(w)
}

// Call is the subject of a call: `<prefix>.<pool>.<verb>`.
func (n Names) Call(pool, verb string) string {
	return n.Prefix() + "." + Escape(pool) + "." + verb
}

// Lease is the subject of lease reports: `<prefix>.<pool>.lease.<verb>`.
func (n Names) Lease(pool, verb string) string {
	return n.Prefix() + "." + Escape(pool) + ".lease." + verb
}

// EveryPool is the subject of a call or report of any pool.
func (n Names) EveryPool(rest string) string { return n.Prefix() + ".*." + rest }

// WorkersBucket holds the roster of workers.
func (n Names) WorkersBucket() string { return n.Prefix() + "-workers" }

// RoutersBucket holds the roster of routers.
func (n Names) RoutersBucket() string { return n.Prefix() + "-routers" }

// DrainsBucket holds the operator's drains.
func (n Names) DrainsBucket() string { return n.Prefix() + "-drains" }

// WorkerKey is a rank's key in the roster: `<pool>.<worker>.<rank>`.
func WorkerKey(pool string, w Worker) string { return Escape(pool) + "." + rankTokens(w) }

// DrainKey is a drain's key: `<pool>.<worker>` or `<pool>.<worker>.<rank>`.
func DrainKey(pool, worker string, rank *uint16) string {
	key := Escape(pool) + "." + Escape(worker)
	if rank != nil {
		key += "." + strconv.Itoa(int(*rank))
	}
	return key
}

// ParseWorkerKey reads a roster key.
func ParseWorkerKey(key string) (pool string, w Worker, err error) {
	tokens := strings.Split(key, ".")
	if len(tokens) != 3 {
		return "", Worker{}, fmt.Errorf("key %q: want <pool>.<worker>.<rank>", key)
	}
	if pool, err = Unescape(tokens[0]); err != nil {
		return "", Worker{}, fmt.Errorf("pool in key %q: %w", key, err)
	}
	w, err = parseRankTokens(tokens[1], tokens[2])
	return pool, w, err
}

// ParseDrainKey reads a drain's key; rank is nil if it names a whole worker.
func ParseDrainKey(key string) (pool, worker string, rank *uint16, err error) {
	tokens := strings.Split(key, ".")
	if len(tokens) != 2 && len(tokens) != 3 {
		return "", "", nil, fmt.Errorf("key %q: want <pool>.<worker>[.<rank>]", key)
	}
	if pool, err = Unescape(tokens[0]); err != nil {
		return "", "", nil, fmt.Errorf("pool in key %q: %w", key, err)
	}
	if len(tokens) == 2 {
		worker, err = Unescape(tokens[1])
		return pool, worker, nil, err
	}
	w, err := parseRankTokens(tokens[1], tokens[2])
	return pool, w.ID, &w.Rank, err
}

// ParseEvents reads the worker of an event subject of the pool.
func (n Names) ParseEvents(subject string) (Worker, error) {
	tokens := strings.Split(subject, ".")
	if len(tokens) != 5 || tokens[0] != n.Prefix() || tokens[2] != "events" {
		return Worker{}, fmt.Errorf("subject %q: want %s.<pool>.events.<worker>.<rank>", subject, n.Prefix())
	}
	return parseRankTokens(tokens[3], tokens[4])
}

// ParsePool reads the pool of any subject under the prefix.
func (n Names) ParsePool(subject string) (string, error) {
	tokens := strings.SplitN(subject, ".", 3)
	if len(tokens) != 3 || tokens[0] != n.Prefix() {
		return "", fmt.Errorf("subject %q: want %s.<pool>.…", subject, n.Prefix())
	}
	return Unescape(tokens[1])
}

func rankTokens(w Worker) string { return Escape(w.ID) + "." + strconv.Itoa(int(w.Rank)) }

func parseRankTokens(worker, rank string) (Worker, error) {
	id, err := Unescape(worker)
	if err != nil {
		return Worker{}, fmt.Errorf("worker %q: %w", worker, err)
	}
	n, err := strconv.ParseUint(rank, 10, 16)
	if err != nil || strconv.FormatUint(n, 10) != rank {
		return Worker{}, fmt.Errorf("rank %q: must be 0 to %d", rank, MaxRank)
	}
	return Worker{ID: id, Rank: uint16(n)}, nil
}

// CheckName reports whether a pool or worker name is 1 to 128 bytes of UTF-8
// text whose escaped form is at most 200 bytes.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("must not be empty")
	case len(name) > MaxNameBytes:
		return fmt.Errorf("is %d bytes long, at most %d are allowed", len(name), MaxNameBytes)
	case !utf8.ValidString(name):
		return errors.New("is not UTF-8 text")
	case len(Escape(name)) > MaxEscapedBytes:
		return fmt.Errorf("is %d bytes long once escaped, at most %d are allowed", len(Escape(name)), MaxEscapedBytes)
	}
	return nil
}

// Escape writes every byte outside [A-Za-z0-9_-] as =XX, which subjects, keys
// and stream names all allow.
func Escape(name string) string {
	plain := true
	for i := range len(name) {
		plain = plain && isPlain(name[i])
	}
	if plain {
		return name
	}
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, 3*len(name))
	for i := range len(name) {
		if c := name[i]; isPlain(c) {
			out = append(out, c)
		} else {
			out = append(out, '=', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}

// Unescape reads an escaped name. Only the form that Escape writes is accepted,
// so that one name has one subject.
func Unescape(token string) (string, error) {
	if len(token) > MaxEscapedBytes {
		return "", fmt.Errorf("escaped name is %d bytes long, at most %d are allowed", len(token), MaxEscapedBytes)
	}
	out := make([]byte, 0, len(token))
	for i := 0; i < len(token); i++ {
		c := token[i]
		if c != '=' {
			out = append(out, c)
			continue
		}
		if i+2 >= len(token) {
			return "", errors.New("escape is cut short")
		}
		b, err := strconv.ParseUint(token[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("escape %q is not =XX", token[i:i+3])
		}
		out = append(out, byte(b))
		i += 2
	}
	name := string(out)
	if Escape(name) != token {
		return "", errors.New("is not the escaped form of a name")
	}
	return name, CheckName(name)
}

func isPlain(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
