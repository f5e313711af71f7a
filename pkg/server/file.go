package server

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"time"

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

// ParseConfig reads YAML over the defaults, strictly: an unknown key is an error.
// Errors name the line. A key without a value keeps its default.
func ParseConfig(text []byte) (Config, error) {
	cfg := DefaultConfig()
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return Config{}, fileError(err)
	}
	if len(file.Docs) == 0 || isNull(file.Docs[0].Body) {
		return cfg, nil
	}
	body := file.Docs[0].Body
	dropNulls(body)
	if err := yaml.NodeToValue(body, &cfg, yaml.Strict()); err != nil {
		return Config{}, fileError(err)
	}
	// A pool's settings are read again, over those of all pools.
	var again struct {
		Pools map[string]struct {
			Routing ast.Node `yaml:"routing"`
		} `yaml:"pools"`
	}
	if err := yaml.NodeToValue(body, &again); err != nil {
		return Config{}, fileError(err)
	}
	for name, pool := range again.Pools {
		own := PoolConfig{Routing: cfg.Routing}
		if pool.Routing != nil {
			if err := yaml.NodeToValue(pool.Routing, &own.Routing, yaml.Strict()); err != nil {
				return Config{}, fileError(err)
			}
		}
		cfg.Pools[name] = own
	}
	return cfg, nil
}

func isNull(node ast.Node) bool { return node == nil || node.Type() == ast.NullType }

// dropNulls removes the keys without a value, which would be read as zeros.
func dropNulls(node ast.Node) {
	mapping, ok := node.(*ast.MappingNode)
	if !ok {
		return
	}
	mapping.Values = slices.DeleteFunc(mapping.Values, func(v *ast.MappingValueNode) bool { return isNull(v.Value) })
	for _, v := range mapping.Values {
		dropNulls(v.Value)
	}
}

// fileError is a fault of a file in one line.
func fileError(err error) error {
	fault, ok := errors.AsType[yaml.Error](err)
	if !ok || fault.GetToken() == nil {
		return err
	}
	at, message := fault.GetToken(), fault.GetMessage()
	wrongType, isType := errors.AsType[*yaml.TypeError](err)
	if isType {
		message = fmt.Sprintf("%q is not %s", at.Value, kindName(wrongType.DstType))
	}
	if colon := at.Prev; colon != nil && colon.Value == ":" && colon.Prev != nil {
		message = colon.Prev.Value + ": " + message // the key of the value
	}
	return fmt.Errorf("line %d: %s", at.Position.Line, message)
}

func kindName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration like 25s"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a text"
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		return "a list of settings"
	case t.Kind() == reflect.Float64:
		return "a number"
	default:
		return "a whole number"
	}
}

// YAML is the configuration in force, as a file that gives the same. Passwords
// and tokens in URLs are left out.
func (c Config) YAML() ([]byte, error) {
	if c.NATS != "" {
		c.NATS = redactURLs(c.NATS)
	}
	return yaml.Marshal(c)
}
