package indexer_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/indexer/indexertest"
	"github.com/routerd/routerd/pkg/protocol"
)

// A script of testdata/golden/index-scripts.jsonl: events as another router's
// workers send them, with what an exact index makes of each. The answers of
// other implementations, where they differ, are in the file and not read.
type script struct {
	Name  string       `json:"name"`
	Steps []scriptStep `json:"steps"`
}

type scriptStep struct {
	Op     string      `json:"op"`
	Event  routerEvent `json:"event"`
	Error  *string     `json:"error"`
	Worker string      `json:"worker"` // of remove_worker
	Hashes []hashText  `json:"hashes"` // of a query
	Scores []struct {
		Worker string `json:"worker"`
		Rank   uint16 `json:"rank"`
		Blocks int    `json:"blocks"`
	} `json:"scores"`
	Held [][3]json.RawMessage `json:"held_blocks"` // worker, rank, paths
}

type routerEvent struct {
	Worker uint64 `json:"worker_id"`
	Event  struct {
		Rank uint16          `json:"dp_rank"`
		Data json.RawMessage `json:"data"`
	} `json:"event"`
}

type routerEventData struct {
	Stored *struct {
		Parent *protocol.SequenceHash `json:"parent_hash"`
		Blocks []struct {
			Sequence protocol.SequenceHash `json:"block_hash"`
			Hash     protocol.BlockHash    `json:"tokens_hash"`
		} `json:"blocks"`
	} `json:"stored"`
	Removed *struct {
		Hashes []protocol.SequenceHash `json:"block_hashes"`
	} `json:"removed"`
}

// hashText is a block hash as decimal text.
type hashText protocol.BlockHash

func (h *hashText) UnmarshalJSON(text []byte) error {
	value, err := strconv.ParseUint(strings.Trim(string(text), `"`), 10, 64)
	*h = hashText(value)
	return err
}

func TestRecordedScripts(t *testing.T) {
	var scripts []script
	readLines(t, filepath.Join("..", "..", "testdata", "golden", "index-scripts.jsonl"), func(line []byte) error {
		var s script
		err := json.Unmarshal(line, &s)
		scripts = append(scripts, s)
		return err
	})
	if len(scripts) < 30 {
		t.Fatalf("got %d scripts", len(scripts))
	}
	for name, newIndex := range implementations {
		for _, s := range scripts {
			t.Run(name+"/"+s.Name, func(t *testing.T) { runScript(t, newIndex(), &s) })
		}
	}
}

func runScript(t *testing.T, index indexer.Index, s *script) {
	seen := map[protocol.Worker]bool{}
	for i, step := range s.Steps {
		switch step.Op {
		case "event":
			w := protocol.Worker{ID: fmt.Sprint(step.Event.Worker), Rank: step.Event.Event.Rank}
			seen[w] = true
			want := ""
			if step.Error != nil {
				want = *step.Error
			}
			if got := applyRouterEvent(t, index, w, step.Event.Event.Data); got != want {
				t.Fatalf("step %d: got error %q, want %q", i, got, want)
			}
		case "remove_worker":
			for w := range seen {
				if w.ID == step.Worker {
					index.Drop(w)
				}
			}
		case "query":
			var asked []protocol.BlockHash
			for _, h := range step.Hashes {
				asked = append(asked, protocol.BlockHash(h))
			}
			var want []string
			for _, score := range step.Scores {
				want = append(want, answer(score.Worker, score.Rank, score.Blocks))
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, answers(index, asked)); diff != "" {
				t.Fatalf("step %d (-want +got):\n%s", i, diff)
			}
		case "blocks", "dump":
			if step.Held != nil {
				checkHeld(t, index, seen, step.Held)
			}
		default:
			t.Fatalf("step %d: unknown op %q", i, step.Op)
		}
	}
}

// applyRouterEvent does one event and names its failure as the scripts do.
func applyRouterEvent(t *testing.T, index indexer.Index, w protocol.Worker, raw json.RawMessage) string {
	t.Helper()
	if string(raw) == `"cleared"` {
		index.Cleared(w)
		return ""
	}
	var data routerEventData
	if err := json.Unmarshal(raw, &data); err != nil {
		t.Fatal(err)
	}
	if data.Removed != nil {
		if index.Removed(w, protocol.TierDevice, data.Removed.Hashes) > 0 {
			return "block_not_found"
		}
		return ""
	}
	var parent protocol.SequenceHash
	if data.Stored.Parent != nil {
		parent = *data.Stored.Parent
	}
	var blocks []protocol.Block
	for _, b := range data.Stored.Blocks {
		blocks = append(blocks, protocol.Block{Sequence: b.Sequence, Hash: b.Hash})
	}
	switch err := index.Stored(w, protocol.TierDevice, data.Stored.Parent == nil, parent, blocks); {
	case err == nil:
		return ""
	case errors.Is(err, indexer.ErrParentNotHeld):
		return "parent_block_not_found"
	case errors.Is(err, indexer.ErrMalformedStore):
		return "invalid_block_sequence"
	default:
		return err.Error()
	}
}

// checkHeld compares how many paths each worker holds.
func checkHeld(t *testing.T, index indexer.Index, seen map[protocol.Worker]bool, held [][3]json.RawMessage) {
	t.Helper()
	want := map[protocol.Worker]int{}
	for _, row := range held {
		var w protocol.Worker
		var paths int
		if err := errors.Join(json.Unmarshal(row[0], &w.ID), json.Unmarshal(row[1], &w.Rank), json.Unmarshal(row[2], &paths)); err != nil {
			t.Fatal(err)
		}
		want[w] = paths
	}
	got := map[protocol.Worker]int{}
	for w := range seen {
		model := indexertest.NewModel()
		if err := model.Replace(w, index.Snapshot(w, 100)); err != nil {
			t.Fatal(err)
		}
		if n := model.Paths(w); n > 0 {
			got[w] = n
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("held paths (-want +got):\n%s", diff)
	}
}

// operationLine is one line of testdata/cases: small files on which indexes are
// known to differ. The .answers file beside has one line for each match:
// worker:rank:blocks, as a plain exact model gives them.
type operationLine struct {
	Op     string                 `json:"op"`
	Worker uint64                 `json:"worker"`
	Rank   uint16                 `json:"rank"`
	Parent *protocol.SequenceHash `json:"parent"`
	Blocks json.RawMessage        `json:"blocks"`
}

func TestRecordedCases(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "cases", "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no case files (error %v)", err)
	}
	for name, newIndex := range implementations {
		for _, file := range files {
			base := strings.TrimSuffix(file, ".jsonl")
			t.Run(name+"/"+filepath.Base(base), func(t *testing.T) {
				index := newIndex()
				var got []string
				readLines(t, file, func(line []byte) error {
					found, err := applyLine(index, line)
					got = append(got, found...)
					return err
				})
				var want []string
				readLines(t, base+".answers", func(line []byte) error {
					want = append(want, string(line))
					return nil
				})
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("answers (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// applyLine does one operation and returns a match's answer, if it is one.
func applyLine(index indexer.Index, line []byte) (found []string, err error) {
	var o operationLine
	if err := json.Unmarshal(line, &o); err != nil {
		return nil, err
	}
	w := protocol.Worker{ID: fmt.Sprint(o.Worker), Rank: o.Rank}
	switch o.Op {
	case "stored":
		var pairs [][2]uint64
		if err := json.Unmarshal(o.Blocks, &pairs); err != nil {
			return nil, err
		}
		var blocks []protocol.Block
		for _, p := range pairs {
			blocks = append(blocks, protocol.Block{Sequence: protocol.SequenceHash(p[0]), Hash: protocol.BlockHash(p[1])})
		}
		var parent protocol.SequenceHash
		if o.Parent != nil {
			parent = *o.Parent
		}
		err := index.Stored(w, protocol.TierDevice, o.Parent == nil, parent, blocks)
		if errors.Is(err, indexer.ErrParentNotHeld) {
			return nil, nil // the answers are those of an index that refuses it
		}
		return nil, err
	case "removed":
		var hashes []protocol.SequenceHash
		if err := json.Unmarshal(o.Blocks, &hashes); err != nil {
			return nil, err
		}
		index.Removed(w, protocol.TierDevice, hashes)
		return nil, nil
	case "cleared":
		index.Cleared(w)
		return nil, nil
	case "match":
		var asked []protocol.BlockHash
		err := json.Unmarshal(o.Blocks, &asked)
		return []string{strings.Join(answers(index, asked), ",")}, err
	}
	return nil, fmt.Errorf("unknown op %q", o.Op)
}

// answers is a match on device in the form of the answer files, sorted.
func answers(index indexer.Index, asked []protocol.BlockHash) []string {
	var all []string
	for _, m := range index.Match(nil, asked) {
		all = append(all, answer(m.Worker.ID, m.Worker.Rank, m.Overlap.Device))
	}
	slices.Sort(all)
	return all
}

func answer(worker string, rank uint16, blocks int) string {
	return fmt.Sprintf("%s:%d:%d", worker, rank, blocks)
}

func readLines(t *testing.T, file string, each func([]byte) error) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 8<<20)
	for n := 1; lines.Scan(); n++ {
		if err := each(lines.Bytes()); err != nil {
			t.Fatalf("%s:%d: %v", file, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}
