package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxConfigBytes bounds a configuration file.
const maxConfigBytes = 1 << 20

// LoadConfig reads a YAML file over the defaults. An unknown key is an error
// that names it and its line.
func LoadConfig(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("open configuration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	if len(text) > maxConfigBytes {
		return Config{}, fmt.Errorf("configuration %s is larger than %d bytes", path, maxConfigBytes)
	}
	cfg, err := ParseConfig(text)
	if err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return cfg, nil
}

// ParseConfig reads YAML over the defaults, strictly.
func ParseConfig(text []byte) (Config, error) {
	cfg := DefaultConfig()
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&cfg); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, errors.New(yaml.FormatError(err, false, true)) // an empty file is the defaults
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return Config{}, errors.New(yaml.FormatError(err, false, true))
	}
	for name := range cfg.Pools { // read again, now over what they override
		own := PoolConfig{Routing: cfg.Routing}
		if routing := find(file, "pools", name, "routing"); routing != nil {
			if err := yaml.NodeToValue(routing, &own.Routing, yaml.Strict()); err != nil {
				return Config{}, errors.New(yaml.FormatError(err, false, true))
			}
		}
		cfg.Pools[name] = own
	}
	return cfg, nil
}

// find is the value under a path of keys in the first document, or nil.
func find(file *ast.File, path ...string) ast.Node {
	var node ast.Node
	if len(file.Docs) > 0 {
		node = file.Docs[0].Body
	}
	for _, key := range path {
		mapping, ok := node.(ast.MapNode)
		if !ok {
			return nil
		}
		node = nil
		for entries := mapping.MapRange(); entries.Next(); {
			if entries.Key().GetToken().Value == key {
				node = entries.Value()
			}
		}
	}
	return node
}

// YAML is the configuration in force, as a file that gives the same. Passwords
// and tokens in URLs are left out.
func (c Config) YAML() ([]byte, error) {
	if c.NATS != "" {
		c.NATS = redactURLs(c.NATS)
	}
	return yaml.Marshal(c)
}
