package trace

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const conversation = "../../testdata/conversation_trace.jsonl"

func readAll(t testing.TB, text string) ([]Request, error) {
	t.Helper()
	reader := NewReader(strings.NewReader(text), "trace.jsonl")
	var all []Request
	for {
		request, err := reader.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, request)
	}
}

func TestReadConversationTrace(t *testing.T) {
	requests, err := ReadFile(conversation, 0)
	if err != nil {
		t.Fatal(err)
	}
	tokens := 0
	for i := range requests {
		tokens += requests[i].InputLength
	}
	if len(requests) != 12031 || tokens != 144793823 {
		t.Errorf("got %d requests with %d prompt tokens, want 12031 with 144793823", len(requests), tokens)
	}
	first := requests[0]
	if first.Timestamp != 0 || first.InputLength != 6758 || first.OutputLength != 500 || len(first.HashIDs) != 14 || first.HashIDs[13] != 13 {
		t.Errorf("first request is %+v", first)
	}
	if last := requests[len(requests)-1].Timestamp; last < 58*time.Minute || last > time.Hour {
		t.Errorf("last request arrives at %v, want about an hour", last)
	}
}

func TestReadFirstRequests(t *testing.T) {
	requests, err := ReadFile(conversation, 100)
	if err != nil || len(requests) != 100 {
		t.Errorf("got %d requests, %v, want 100", len(requests), err)
	}
	// What follows the last request asked for does not matter.
	path := filepath.Join(t.TempDir(), "cut.jsonl")
	text := `{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1]}` + "\n{broken"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if requests, err := ReadFile(path, 1); err != nil || len(requests) != 1 {
		t.Errorf("got %d requests, %v, want 1", len(requests), err)
	}
	if _, err := ReadFile(path, 0); err == nil || !strings.HasPrefix(err.Error(), "cut.jsonl:2: ") {
		t.Errorf("got error %v, want one that names cut.jsonl:2", err)
	}
}

func TestReadEmptyOrMissingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "empty.jsonl")
	if err := os.WriteFile(path, []byte("\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path, 0); err == nil || !strings.Contains(err.Error(), "has no requests") {
		t.Errorf("empty file: got error %v", err)
	}
	if _, err := ReadFile(path+".none", 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: got error %v", err)
	}
}

func TestBadLines(t *testing.T) {
	const good = `{"timestamp": 5, "input_length": 513, "output_length": 2, "hash_ids": [1, 2], "chat": "x"}`
	tests := []struct{ name, line, field, want string }{
		{"no JSON", `timestamp 5`, "", "is not a JSON object"},
		{"a list", `[1,2]`, "", "is not a JSON object"},
		{"null", `null`, "", "is not a JSON object"},
		{"cut off", good[:40], "", "is not one JSON object"},
		{"two objects", good + good, "", "is not one JSON object"},
		{"no timestamp", `{"input_length":1,"output_length":1,"hash_ids":[1]}`, "timestamp", "is missing"},
		{"no input", `{"timestamp":5,"output_length":1,"hash_ids":[1]}`, "input_length", "is missing"},
		{"no output field", `{"timestamp":5,"input_length":1,"hash_ids":[1]}`, "output_length", "is missing"},
		{"no ids field", `{"timestamp":5,"input_length":1,"output_length":1}`, "hash_ids", "is missing"},
		{"negative timestamp", `{"timestamp":-1,"input_length":1,"output_length":1,"hash_ids":[1]}`, "timestamp", "must be at least 0"},
		{"falling timestamp", `{"timestamp":4,"input_length":1,"output_length":1,"hash_ids":[1]}`, "timestamp", "falls from 5 to 4"},
		{"huge timestamp", `{"timestamp":99999999999999999999,"input_length":1,"output_length":1,"hash_ids":[1]}`, "timestamp", "must be at most"},
		{"fraction", `{"timestamp":5.5,"input_length":1,"output_length":1,"hash_ids":[1]}`, "timestamp", "5.5 is not an integer"},
		{"text", `{"timestamp":5,"input_length":"1","output_length":1,"hash_ids":[1]}`, "input_length", `"1" is not an integer`},
		{"null length", `{"timestamp":5,"input_length":null,"output_length":1,"hash_ids":[1]}`, "input_length", "null is not an integer"},
		{"empty prompt", `{"timestamp":5,"input_length":0,"output_length":1,"hash_ids":[]}`, "input_length", "must be at least 1"},
		{"huge prompt", `{"timestamp":5,"input_length":2000000000,"output_length":1,"hash_ids":[]}`, "input_length", "must be at most"},
		{"no output", `{"timestamp":5,"input_length":1,"output_length":0,"hash_ids":[1]}`, "output_length", "must be at least 1"},
		{"negative output", `{"timestamp":5,"input_length":1,"output_length":-3,"hash_ids":[1]}`, "output_length", "must be at least 1"},
		{"too few ids", `{"timestamp":5,"input_length":513,"output_length":1,"hash_ids":[1]}`, "hash_ids", "has 1 ids, a prompt of 513 tokens needs 2"},
		{"too many ids", `{"timestamp":5,"input_length":512,"output_length":1,"hash_ids":[1,2]}`, "hash_ids", "has 2 ids, a prompt of 512 tokens needs 1"},
		{"negative id", `{"timestamp":5,"input_length":1,"output_length":1,"hash_ids":[-1]}`, "hash_ids", "entry 0: -1 is not an unsigned integer"},
		{"fraction id", `{"timestamp":5,"input_length":513,"output_length":1,"hash_ids":[1, 2.5]}`, "hash_ids", "entry 1: 2.5 is not an unsigned integer"},
		{"nested ids", `{"timestamp":5,"input_length":1,"output_length":1,"hash_ids":[[1]]}`, "hash_ids", "entry 0: [1] is not an unsigned integer"},
		{"ids no list", `{"timestamp":5,"input_length":1,"output_length":1,"hash_ids":7}`, "hash_ids", "7 is not a list"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			all, err := readAll(t, good+"\n\n"+test.line+"\n"+good)
			var bad *Error
			if !errors.As(err, &bad) {
				t.Fatalf("got error %v, want an *Error", err)
			}
			if bad.Line != 3 || bad.Field != test.field || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q (line %d, field %q), want line 3, field %q, %q", err, bad.Line, bad.Field, test.field, test.want)
			}
			prefix := "trace.jsonl:3: "
			if test.field != "" {
				prefix += test.field + ": "
			}
			if !strings.HasPrefix(err.Error(), prefix) {
				t.Errorf("got %q, want it to begin with %q", err, prefix)
			}
			if len(all) != 1 {
				t.Errorf("read %d requests before the error, want 1", len(all))
			}
		})
	}
}

func TestLongLine(t *testing.T) {
	_, err := readAll(t, strings.Repeat(" ", maxLineBytes+1))
	if err == nil || !strings.HasPrefix(err.Error(), "trace.jsonl:1: is longer than ") {
		t.Errorf("got error %v, want one about a long line 1", err)
	}
}

func TestLargeIDs(t *testing.T) {
	all, err := readAll(t, `{"timestamp":1,"input_length":3,"output_length":1,"hash_ids":[18446744073709551615]}`)
	if err != nil || all[0].HashIDs[0] != 1<<64-1 {
		t.Errorf("got %v, %v, want the largest id unchanged", all, err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(`{"timestamp": 5, "input_length": 513, "output_length": 2, "hash_ids": [1, 2]}`)
	f.Add("{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[ 1 ]}\n{}")
	f.Add(`{"timestamp":1e3,"input_length":01,"output_length":-0,"hash_ids":[,]}`)
	f.Add("[]\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := readAll(t, text)
		var bad *Error
		if err != nil && !errors.As(err, &bad) {
			t.Fatalf("error %v does not name a line", err)
		}
		var last time.Duration
		for i := range all {
			r := &all[i]
			if r.Timestamp < last || r.InputLength < 1 || r.OutputLength < 1 ||
				len(r.HashIDs) != (r.InputLength+TokensPerID-1)/TokensPerID {
				t.Fatalf("request %d was taken: %+v", i, *r)
			}
			last = r.Timestamp
			if got := len(r.AppendBlockHashes(nil, 16)); got != r.InputLength/16 {
				t.Fatalf("request %d has %d blocks, want %d", i, got, r.InputLength/16)
			}
		}
		if err == nil && len(all) > strings.Count(text, "\n")+1 {
			t.Fatal("more requests than lines: " + strconv.Itoa(len(all)))
		}
	})
}
