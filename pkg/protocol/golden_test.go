package protocol

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// readGolden reads a file of recorded rows, one JSON object a line.
func readGolden[T any](t testing.TB, file string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "golden", file))
	if err != nil {
		t.Fatal(err)
	}
	var rows []T
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row T
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("%s, line %d: %v", file, len(rows)+1, err)
		}
		rows = append(rows, row)
	}
	if err := lines.Err(); err != nil || len(rows) == 0 {
		t.Fatalf("%s: %d rows, %v", file, len(rows), err)
	}
	return rows
}

// decimal is a 64-bit integer that a row has as a number or as text.
type decimal uint64

func (d *decimal) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseUint(string(bytes.Trim(b, `"`)), 10, 64)
	*d = decimal(v)
	return err
}

func decimals[T ~uint64](list []decimal) []T {
	out := make([]T, len(list))
	for i, v := range list {
		out[i] = T(v)
	}
	return out
}

// inMsgpack is a JSON body in the other encoding.
func inMsgpack(t testing.TB, body string) []byte {
	t.Helper()
	out := appendTranscoded(nil, []byte(body), EncodingJSON, EncodingMsgpack)
	if len(out) == 1 && out[0] == msgpackNil {
		t.Fatalf("%s is no JSON", body)
	}
	return out
}
