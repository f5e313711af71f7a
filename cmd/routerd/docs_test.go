package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"

	"github.com/routerd/routerd/pkg/server"
)

const root = "../../"

// readDocs has the text of every document for users by its path from the root.
func readDocs(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(root + "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	paths = append(paths, root+"README.md", root+"CONTRIBUTING.md", root+"CHANGELOG.md", root+"testdata/README.md")
	docs := map[string]string{}
	for _, path := range paths {
		docs[strings.TrimPrefix(filepath.ToSlash(path), root)] = readText(t, path)
	}
	return docs
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func model(t *testing.T) *kong.Application {
	t.Helper()
	parser, err := kong.New(&commands{}, kong.Vars{"trace_help": ""})
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model
}

var (
	commandLine = regexp.MustCompile(`(?m)(?:^|\x60|\$ |bin/|cmd/|exec router-1 )routerd ((?:[a-z]+ )?[a-z]+)\b([^|\x60\n]*)`)
	flagName    = regexp.MustCompile(`(?:^|\s)--([a-z][a-z0-9-]*)`)
	codeOnly    = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
)

// TestDocsCommands finds commands and flags in the documents that do not exist.
func TestDocsCommands(t *testing.T) {
	app := model(t)
	for path, text := range readDocs(t) {
		seen := 0
		for _, code := range codeOnly.FindAllString(text, -1) {
			for _, match := range commandLine.FindAllStringSubmatch(code, -1) {
				words, rest := strings.Fields(match[1]), match[2]
				command := find(app.Node, words[0])
				if command == nil {
					t.Errorf("%s: `%s`: there is no command %q", path, strings.TrimSpace(match[0]), words[0])
					continue
				}
				if len(words) > 1 {
					if sub := find(command, words[1]); sub != nil {
						command = sub
					}
				}
				seen++
				for _, flag := range flagName.FindAllStringSubmatch(rest, -1) {
					if !hasFlag(command, flag[1]) {
						t.Errorf("%s: `%s`: %s has no flag --%s", path, strings.TrimSpace(match[0]), command.Name, flag[1])
					}
				}
			}
		}
		if path == "docs/operating.md" && seen < 10 {
			t.Errorf("%s: only %d commands found: does this test still see them?", path, seen)
		}
	}
}

func find(node *kong.Node, name string) *kong.Node {
	at := slices.IndexFunc(node.Children, func(child *kong.Node) bool { return child.Name == name })
	if at < 0 {
		return nil
	}
	return node.Children[at]
}

// hasFlag looks at a command, and at the subcommand that stands for it.
func hasFlag(command *kong.Node, name string) bool {
	for _, node := range []*kong.Node{command, command.DefaultCmd} {
		if node == nil {
			continue
		}
		for _, flag := range node.Flags {
			if flag.Name == name {
				return true
			}
		}
	}
	return name == "help"
}

// TestDocsConfiguration checks that operating.md has every key, flag and
// environment variable of serve, and every command.
func TestDocsConfiguration(t *testing.T) {
	text := readText(t, root+"docs/operating.md")
	cfg, err := server.DefaultConfig().YAML()
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(cfg, &tree); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys("", tree) {
		if !strings.Contains(text, "\n| `"+key+"` |") {
			t.Errorf("docs/operating.md: the table of configuration lacks `%s`", key)
		}
	}
	app := model(t)
	for _, flag := range find(app.Node, "serve").Flags {
		if flag.Name == "help" {
			continue
		}
		if !strings.Contains(text, "`--"+flag.Name+"`") {
			t.Errorf("docs/operating.md: the table of configuration lacks `--%s`", flag.Name)
		}
		for _, env := range flag.Envs {
			if !strings.Contains(text, "`"+env+"`") {
				t.Errorf("docs/operating.md: the table of configuration lacks `%s`", env)
			}
		}
	}
	for _, command := range app.Children {
		if !strings.Contains(text, "\n| `routerd "+command.Name) {
			t.Errorf("docs/operating.md: the table of commands lacks `routerd %s`", command.Name)
		}
	}
}

// keys are the dotted names of a tree's leaves.
func keys(prefix string, tree map[string]any) (names []string) {
	for name, value := range tree {
		if below, ok := value.(map[string]any); ok {
			names = append(names, keys(prefix+name+".", below)...)
		} else {
			names = append(names, prefix+name)
		}
	}
	return names
}

// TestDocsNames checks that the tables have every metric, reason and code that
// the sources have, and no metric that they have not.
func TestDocsNames(t *testing.T) {
	operating, wire, concepts := readText(t, root+"docs/operating.md"), readText(t, root+"docs/wire.md"), readText(t, root+"docs/concepts.md")
	for _, check := range []struct {
		what, source, pattern, document, text string
	}{
		{"metric", "pkg/server/metrics.go", `"(routerd_[a-z_]+)"`, "docs/operating.md", operating},
		{"refusal", "pkg/protocol/words.go", `Refusal = "([a-z_]+)"`, "docs/operating.md", operating},
		{"refusal", "pkg/roster/roster.go", `protocol\.Refusal = "([a-z_]+)"`, "docs/operating.md", operating},
		{"trust", "pkg/protocol/words.go", `Trust = "([a-z_]+)"`, "docs/concepts.md", concepts},
		{"policy", "pkg/protocol/calls.go", `Policy = "([a-z-]+)"`, "docs/concepts.md", concepts},
		{"error", "pkg/protocol/errors.go", `Code = "([a-z_]+)"`, "docs/wire.md", wire},
		{"reason", "pkg/protocol/calls.go", `Reason = "([a-z_]+)"`, "docs/wire.md", wire},
		{"zero overlap", "pkg/protocol/calls.go", `ZeroOverlap = "([a-z_]+)"`, "docs/wire.md", wire},
		{"answer to a query", "pkg/protocol/calls.go", `QueryKind = "([a-z_]+)"`, "docs/wire.md", wire},
		{"field", "pkg/protocol/calls.go", `json:"([a-z_]+)`, "docs/wire.md", wire},
		{"field", "pkg/protocol/registration.go", `json:"([a-z_]+)`, "docs/wire.md", wire},
	} {
		found := regexp.MustCompile(check.pattern).FindAllStringSubmatch(readText(t, root+check.source), -1)
		if len(found) == 0 {
			t.Errorf("%s has no %s: does this test still see them?", check.source, check.what)
		}
		for _, match := range found {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(match[1]) + `\b`).MatchString(check.text) {
				t.Errorf("%s lacks %s `%s` of %s", check.document, check.what, match[1], check.source)
			}
		}
	}
	source := readText(t, root+"pkg/server/metrics.go")
	for _, name := range regexp.MustCompile("`(routerd_[a-z_]+)`").FindAllStringSubmatch(operating, -1) {
		if !strings.Contains(source, `"`+name[1]+`"`) {
			t.Errorf("docs/operating.md names the metric %s, which does not exist", name[1])
		}
	}
}

// TestDocsPrograms checks that Go programs in the documents are those of
// examples, which are built and vetted like all else.
func TestDocsPrograms(t *testing.T) {
	program := regexp.MustCompile("(?s)```go\n(// Command ([a-z]+) .*?)```")
	shown := 0
	for path, text := range readDocs(t) {
		if n := strings.Count(text, "```go\n"); n != len(program.FindAllString(text, -1)) {
			t.Errorf("%s has a Go block that is no whole program: begin it with `// Command NAME` as in examples/NAME/main.go", path)
		}
		for _, match := range program.FindAllStringSubmatch(text, -1) {
			shown++
			if match[1] != readText(t, root+"examples/"+match[2]+"/main.go") {
				t.Errorf("%s: its program differs from examples/%s/main.go: change both", path, match[2])
			}
		}
	}
	examples, err := os.ReadDir(root + "examples")
	if err != nil {
		t.Fatal(err)
	}
	if shown != len(examples) {
		t.Errorf("%d programs are shown in the documents, examples has %d", shown, len(examples))
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// TestDocsLinks follows every link between files of the repository.
func TestDocsLinks(t *testing.T) {
	docs := readDocs(t)
	for path, text := range docs {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := path
			if target != "" {
				file = filepath.ToSlash(filepath.Join(filepath.Dir(path), target))
			}
			if _, err := os.Stat(root + file); err != nil {
				t.Errorf("%s: link to %s: %v", path, match[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(docs[file]), anchor) {
				t.Errorf("%s: link to %s: %s has no such heading", path, match[1], file)
			}
		}
	}
}

// anchors are the names that a hosting site gives to the headings of a text.
func anchors(text string) (names []string) {
	for _, match := range heading.FindAllStringSubmatch(text, -1) {
		var name strings.Builder
		for _, c := range strings.ToLower(match[1]) {
			switch {
			case unicode.IsLetter(c), unicode.IsDigit(c), c == '-', c == '_':
				name.WriteRune(c)
			case c == ' ':
				name.WriteByte('-')
			}
		}
		base := name.String()
		for n := 1; slices.Contains(names, name.String()); n++ {
			name.Reset()
			fmt.Fprintf(&name, "%s-%d", base, n)
		}
		names = append(names, name.String())
	}
	return names
}
