// Package arrows checks which packages of this module import which: every
// package is listed here with those it may use, so that a new arrow is a decision
// and not an accident. It looks at the files themselves and needs nothing but Go.
package arrows

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/routerd/routerd"

// arrows lists every package with the packages of this module that its files,
// those of tests excepted, may import. Arrows only point down this list. Beside
// these, anything but pkg/protocol may import pkg/clock.
//
// Where a package needs another to its side it declares a small interface, and
// pkg/server joins the two.
var arrows = []struct {
	name string
	uses []string
}{
	{"cmd/routerd", []string{"internal/replay", "internal/mocker", "internal/trace", "pkg/server", "pkg/client", "pkg/roster", "pkg/embedded", "pkg/publisher", "pkg/scope", "pkg/protocol"}},
	{"examples/router", []string{"pkg/server", "pkg/protocol"}},
	{"examples/frontend", []string{"pkg/client", "pkg/protocol"}},
	{"examples/worker", []string{"pkg/publisher", "pkg/protocol"}},
	{"internal/replay", []string{"internal/mocker", "internal/trace", "pkg/server", "pkg/publisher", "pkg/client", "pkg/scope", "pkg/protocol"}},
	{"pkg/routerdtest", []string{"internal/mocker", "pkg/server", "pkg/client", "pkg/scope", "pkg/protocol"}},
	{"internal/mocker", []string{"pkg/publisher", "pkg/protocol"}},
	{"internal/trace", []string{"pkg/protocol"}},
	{"pkg/server", []string{"pkg/router", "pkg/embedded", "pkg/roster", "pkg/scheduler", "pkg/lease", "pkg/subscriber", "pkg/workerquery", "pkg/indexer", "pkg/scope", "pkg/protocol"}},
	{"pkg/router", []string{"pkg/scheduler", "pkg/lease", "pkg/protocol"}},
	{"pkg/publisher", []string{"pkg/protocol"}},
	{"pkg/client", []string{"pkg/protocol"}},
	{"pkg/roster", []string{"pkg/protocol"}},
	{"pkg/scheduler", []string{"pkg/protocol"}},
	{"pkg/lease", []string{"pkg/protocol"}},
	{"pkg/subscriber", []string{"pkg/protocol"}},
	{"pkg/workerquery", []string{"pkg/protocol"}},
	{"pkg/indexer/indexertest", []string{"pkg/indexer", "pkg/protocol"}},
	{"pkg/indexer", []string{"pkg/protocol"}},
	{"pkg/protocol", nil},
	{"pkg/embedded", nil},
	{"pkg/scope", nil},
	{"pkg/clock", nil},
	{"internal/natstest", nil}, // and only test files import it
	{"internal/arrows", nil},
}

const (
	clockPackage = "pkg/clock"
	natsTest     = "internal/natstest"
)

// pure lists what decides and remembers without I/O, and what it must not import.
var (
	pure      = []string{"pkg/indexer", "pkg/scheduler", "pkg/protocol", "pkg/clock", "pkg/scope", "internal/trace"}
	effectful = []string{"net", "net/http", "github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2/server"}
)

// imports is what a package imports outside of its tests: each path with the
// files that do.
type imports map[string][]string

func TestArrows(t *testing.T) {
	packages := readPackages(t)
	for name, imported := range packages {
		at := place(name)
		if at < 0 {
			t.Errorf("package %s is not listed: add it to the table in internal/arrows/arrows_test.go with the packages that it may import, and to the one in CONTRIBUTING.md", name)
			continue
		}
		for path, files := range imported {
			used, ours := strings.CutPrefix(path, module+"/")
			switch {
			case !ours, slices.Contains(arrows[at].uses, used), used == clockPackage && name != "pkg/protocol":
			case used == natsTest:
				t.Errorf("%s imports %s outside of tests: start servers with pkg/embedded there", files[0], natsTest)
			default:
				t.Errorf("%s imports %s, which %s may not: declare the small interface that it needs and let pkg/server join the two; if the arrow is right, add it to the table in internal/arrows/arrows_test.go",
					files[0], used, name)
			}
		}
	}
}

// TestPure keeps I/O out of the packages that work without it.
func TestPure(t *testing.T) {
	packages := readPackages(t)
	for _, name := range pure {
		for _, path := range effectful {
			if files := packages[name][path]; len(files) > 0 {
				t.Errorf("%s imports %s, but package %s does no I/O: do it in a package that may, such as pkg/subscriber or pkg/server", files[0], path, name)
			}
		}
	}
}

// TestTable checks the table itself: arrows point down it, to packages that are
// there.
func TestTable(t *testing.T) {
	packages := readPackages(t)
	for i, row := range arrows {
		if packages[row.name] == nil {
			t.Errorf("package %s is listed and does not exist: take it out of the table in internal/arrows/arrows_test.go", row.name)
		}
		for _, used := range row.uses {
			if j := place(used); j <= i {
				t.Errorf("the table lets %s import %s, which does not stand below it: move the lines or drop the arrow", row.name, used)
			}
		}
	}
}

// TestContributing keeps the table of packages for readers complete.
func TestContributing(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range arrows {
		if !strings.Contains(string(text), "| `"+row.name+"` |") {
			t.Errorf("CONTRIBUTING.md: the table of packages lacks `%s`: add a line that says its duty", row.name)
		}
	}
}

// place is a package's line in the table, -1 if it has none.
func place(name string) int {
	for i := range arrows {
		if arrows[i].name == name {
			return i
		}
	}
	return -1
}

// readPackages reads the import lines of every Go file of the module.
func readPackages(t *testing.T) map[string]imports {
	t.Helper()
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatalf("find the module: %v", err)
	}
	packages := map[string]imports{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return readFile(packages, path, filepath.ToSlash(name))
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// readFile adds a file's imports to its package.
func readFile(packages map[string]imports, path, name string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		return err
	}
	folder := name[:max(strings.LastIndexByte(name, '/'), 0)]
	if packages[folder] == nil {
		packages[folder] = imports{}
	}
	if strings.HasSuffix(name, "_test.go") {
		return nil
	}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		packages[folder][imported] = append(packages[folder][imported], name)
	}
	return nil
}
