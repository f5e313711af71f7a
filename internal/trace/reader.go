package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Bounds of one line. They keep a damaged file from taking all memory and sums
// of lengths from overflowing; a real prompt is far below them.
const (
	maxLineBytes = 4 << 20
	maxLength    = 1 << 30 // tokens of a prompt or an output
	maxTimestamp = 1 << 43 // ms, so that nanoseconds fit 64 bits
)

// Error is a line that cannot be used.
type Error struct {
	File  string
	Line  int    // from 1
	Field string // empty if the line as a whole is wrong
	Err   error
}

func (e *Error) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s:%d: %s: %v", e.File, e.Line, e.Field, e.Err)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Reader reads a trace request by request. It is not safe for concurrent use.
type Reader struct {
	scanner *bufio.Scanner
	file    string
	line    int
	last    time.Duration
}

// NewReader reads a trace from r; errors call it by the name of file.
func NewReader(r io.Reader, file string) *Reader {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 64<<10), maxLineBytes)
	return &Reader{scanner: scanner, file: file}
}

// ReadFile reads the first limit requests of a trace file, or all if limit is 0.
// A bad line after them is not looked at. An *Error says which line is wrong.
func ReadFile(path string, limit int) ([]Request, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open trace: %w", err)
	}
	defer f.Close()
	reader := NewReader(f, filepath.Base(path))
	var requests []Request
	for limit == 0 || len(requests) < limit {
		request, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		requests = append(requests, request)
	}
	if len(requests) == 0 {
		return nil, fmt.Errorf("trace %s has no requests", path)
	}
	return requests, nil
}

// Next returns the next request, io.EOF after the last, or an *Error for a line
// that is no request. Blank lines are passed over.
func (r *Reader) Next() (Request, error) {
	for r.scanner.Scan() {
		r.line++
		line := bytes.TrimSpace(r.scanner.Bytes())
		if len(line) == 0 {
			continue
		}
		request, err := r.parse(line)
		if err != nil {
			return Request{}, err
		}
		r.last = request.Timestamp
		return request, nil
	}
	err := r.scanner.Err()
	switch {
	case err == nil:
		return Request{}, io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		r.line++
		return Request{}, r.fail("", fmt.Errorf("is longer than %d bytes", maxLineBytes))
	default:
		return Request{}, fmt.Errorf("read trace %s: %w", r.file, err)
	}
}

func (r *Reader) parse(line []byte) (Request, error) {
	var fields struct {
		Timestamp    json.RawMessage `json:"timestamp"`
		InputLength  json.RawMessage `json:"input_length"`
		OutputLength json.RawMessage `json:"output_length"`
		HashIDs      json.RawMessage `json:"hash_ids"`
	}
	if line[0] != '{' {
		return Request{}, r.fail("", fmt.Errorf("%q is not a JSON object", clip(line)))
	}
	if err := json.Unmarshal(line, &fields); err != nil {
		return Request{}, r.fail("", fmt.Errorf("is not one JSON object: %w", err))
	}
	timestamp, err := integer(fields.Timestamp, 0, maxTimestamp)
	if err != nil {
		return Request{}, r.fail("timestamp", err)
	}
	at := time.Duration(timestamp) * time.Millisecond
	if at < r.last {
		return Request{}, r.fail("timestamp", fmt.Errorf("falls from %d to %d", r.last.Milliseconds(), timestamp))
	}
	input, err := integer(fields.InputLength, 1, maxLength)
	if err != nil {
		return Request{}, r.fail("input_length", err)
	}
	output, err := integer(fields.OutputLength, 1, maxLength)
	if err != nil {
		return Request{}, r.fail("output_length", err)
	}
	ids, err := hashIDs(fields.HashIDs)
	if err != nil {
		return Request{}, r.fail("hash_ids", err)
	}
	if want := (int(input) + TokensPerID - 1) / TokensPerID; len(ids) != want {
		return Request{}, r.fail("hash_ids", fmt.Errorf("has %d ids, a prompt of %d tokens needs %d (one per %d tokens)",
			len(ids), input, want, TokensPerID))
	}
	return Request{Timestamp: at, InputLength: int(input), OutputLength: int(output), HashIDs: ids}, nil
}

func (r *Reader) fail(field string, err error) error {
	return &Error{File: r.file, Line: r.line, Field: field, Err: err}
}

// integer reads a JSON value that must be a whole number of a range.
func integer(raw json.RawMessage, low, high int64) (int64, error) {
	if raw == nil {
		return 0, errors.New("is missing")
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("must be at most %d", high)
	case err != nil:
		return 0, fmt.Errorf("%s is not an integer", clip(raw))
	case n < low:
		return 0, fmt.Errorf("must be at least %d", low)
	case n > high:
		return 0, fmt.Errorf("must be at most %d", high)
	}
	return n, nil
}

// hashIDs reads a JSON array of unsigned integers.
func hashIDs(raw json.RawMessage) ([]uint64, error) {
	if raw == nil {
		return nil, errors.New("is missing")
	}
	if raw[0] != '[' {
		return nil, fmt.Errorf("%s is not a list", clip(raw))
	}
	body := bytes.TrimSpace(raw[1 : len(raw)-1])
	ids := make([]uint64, 0, bytes.Count(body, []byte{','})+1)
	for more := len(body) > 0; more; {
		var item []byte
		item, body, more = bytes.Cut(body, []byte{','})
		item = bytes.TrimSpace(item)
		id, err := strconv.ParseUint(string(item), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %s is not an unsigned integer", len(ids), clip(item))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// clip keeps an error short whatever the value was.
func clip(raw []byte) string {
	const most = 40
	if len(raw) > most {
		return string(raw[:most]) + "…"
	}
	return string(raw)
}
