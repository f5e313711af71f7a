package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
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

// fileConfig is a Config whose pools are read once the settings that they
// override are known.
type fileConfig struct {
	*Config `yaml:",inline"`
	Pools   map[string]struct {
		Routing ast.Node `yaml:"routing"`
	} `yaml:"pools"`
}

// ParseConfig reads YAML over the defaults, strictly.
func ParseConfig(text []byte) (Config, error) {
	cfg := DefaultConfig()
	file := fileConfig{Config: &cfg}
	err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&file)
	if err != nil && !errors.Is(err, io.EOF) { // an empty file is the defaults
		return Config{}, errors.New(yaml.FormatError(err, false, true))
	}
	for name, pool := range file.Pools {
		own := PoolConfig{Routing: cfg.Routing}
		if pool.Routing != nil {
			if err := yaml.NodeToValue(pool.Routing, &own.Routing, yaml.Strict()); err != nil {
				return Config{}, errors.New(yaml.FormatError(err, false, true))
			}
		}
		if cfg.Pools == nil {
			cfg.Pools = map[string]PoolConfig{}
		}
		cfg.Pools[name] = own
	}
	return cfg, nil
}

// YAML is the configuration in force, as a file that gives the same. Passwords
// and tokens in URLs are left out.
func (c Config) YAML() ([]byte, error) {
	if c.NATS != "" {
		c.NATS = redactURLs(c.NATS)
	}
	return yaml.Marshal(c)
}
