package mocker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/routerd/routerd/pkg/protocol"
)

// defaultMaxTokens is OpenAI's default of max_tokens.
const defaultMaxTokens = 16

// completionRequest is the body of POST /v1/completions; other fields are ignored.
type completionRequest struct {
	Model         *string         `json:"model"`
	Prompt        json.RawMessage `json:"prompt"`
	MaxTokens     *int            `json:"max_tokens"`
	Stream        bool            `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	CacheSalt *string `json:"cache_salt"`
}

func (c *completionRequest) model(base string) string {
	if c.Model == nil || *c.Model == "" {
		return base
	}
	return *c.Model
}

// completion is an answer, or one event of a streamed one.
type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
}

type choice struct {
	Index        int       `json:"index"`
	Text         string    `json:"text"`
	Logprobs     *struct{} `json:"logprobs"`      // always null
	FinishReason *string   `json:"finish_reason"` // null until the last piece of a stream
	StopReason   *struct{} `json:"stop_reason"`   // always null
}

// finishLength is the only way in which a mock request ends.
const finishLength = "length"

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	TotalTokens      int `json:"total_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	PromptDetails    struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func usageOf(r *GenerateRequest, result *GenerateResult) *usage {
	u := &usage{PromptTokens: len(r.TokenIDs), CompletionTokens: len(result.OutputTokens)}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	u.PromptDetails.CachedTokens = result.CachedTokens
	return u
}

// requestError is a failure as the HTTP interface reports it.
type requestError struct {
	status  int
	kind    string
	field   string // of the request, "" if none is to blame
	message string
}

func (e *requestError) Error() string { return e.message }

func (e *requestError) body() any {
	type detail struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	}
	d := detail{Message: e.message, Type: e.kind, Code: e.status}
	if e.field != "" {
		d.Param = &e.field
	}
	return struct {
		Error detail `json:"error"`
	}{d}
}

// badField refuses a request because of one of its fields.
func badField(field, format string, args ...any) *requestError {
	return &requestError{
		status: http.StatusBadRequest, kind: "BadRequestError", field: field,
		message: field + ": " + fmt.Sprintf(format, args...),
	}
}

// generateError tells HTTP's answer to a failure of Generate.
func generateError(err error) *requestError {
	switch {
	case errors.Is(err, ErrQueueFull), errors.Is(err, ErrNotRunning):
		return &requestError{status: http.StatusServiceUnavailable, kind: "ServiceUnavailableError", message: err.Error()}
	case errors.Is(err, ErrPromptTooLarge):
		return badField("prompt", "%v", err)
	case errors.Is(err, context.Canceled):
		// The client has gone away; the status is for the server's own log.
		return &requestError{status: 499, kind: "ClientClosedRequest", message: err.Error()}
	default:
		return &requestError{status: http.StatusInternalServerError, kind: "InternalServerError", message: err.Error()}
	}
}

func readCompletion(body io.Reader) (*completionRequest, *requestError) {
	var c completionRequest
	data, err := io.ReadAll(body)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, &requestError{
			status: http.StatusRequestEntityTooLarge, kind: "BadRequestError",
			message: fmt.Sprintf("body is larger than %d bytes", tooLarge.Limit),
		}
	}
	if err != nil {
		return nil, &requestError{status: http.StatusBadRequest, kind: "BadRequestError", message: "read body: " + err.Error()}
	}
	err = json.Unmarshal(data, &c)
	if mistyped := (*json.UnmarshalTypeError)(nil); errors.As(err, &mistyped) && mistyped.Field != "" {
		return nil, badField(mistyped.Field, "must be %s, not %s", mistyped.Type, mistyped.Value)
	}
	if err != nil {
		return nil, &requestError{status: http.StatusBadRequest, kind: "BadRequestError", message: "body is no JSON object: " + err.Error()}
	}
	return &c, nil
}

// maxModelLen is the number of tokens, prompt and output, that a request may have.
func (w *Worker) maxModelLen() int { return min(w.config.Engine.capacity(), protocol.MaxTokens) }

// outputTokens is how many tokens a request will get.
func (w *Worker) outputTokens(r *GenerateRequest) int {
	return min(r.MaxTokens, w.config.Engine.capacity()-len(r.TokenIDs)+1)
}

func (w *Worker) checkCompletion(c *completionRequest) (GenerateRequest, *requestError) {
	r := GenerateRequest{MaxTokens: defaultMaxTokens}
	if name := c.model(w.config.Model); name != w.config.Model {
		r.LoRA = name
	}
	if len(r.LoRA) > protocol.MaxTextBytes {
		return r, badField("model", "is %d bytes long, at most %d are allowed", len(r.LoRA), protocol.MaxTextBytes)
	}
	if c.CacheSalt != nil {
		r.Salt = *c.CacheSalt
		if r.Salt == "" || len(r.Salt) > protocol.MaxTextBytes {
			return r, badField("cache_salt", "is %d bytes long, must be 1 to %d", len(r.Salt), protocol.MaxTextBytes)
		}
	}
	if c.MaxTokens != nil {
		r.MaxTokens = *c.MaxTokens
	}
	if r.MaxTokens < 1 {
		return r, badField("max_tokens", "must be at least 1, got %d", r.MaxTokens)
	}
	var err *requestError
	if r.TokenIDs, err = readPrompt(c.Prompt); err != nil {
		return r, err
	}
	switch limit := w.maxModelLen(); {
	case len(r.TokenIDs) > limit:
		return r, badField("prompt", "has %d tokens, the model's maximum context length is %d", len(r.TokenIDs), limit)
	case r.MaxTokens > limit-len(r.TokenIDs):
		return r, badField("max_tokens", "%d beside a prompt of %d tokens exceeds the model's maximum context length of %d",
			r.MaxTokens, len(r.TokenIDs), limit)
	}
	return r, nil
}

// readPrompt reads a prompt's tokens: a list of ids, or a text whose bytes are
// its tokens. The JSON is known to be valid.
func readPrompt(raw json.RawMessage) ([]uint32, *requestError) {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, badField("prompt", "is missing")
	case raw[0] == '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, badField("prompt", "%v", err)
		}
		if s == "" {
			return nil, badField("prompt", "is empty")
		}
		tokens := make([]uint32, len(s))
		for i := range len(s) {
			tokens[i] = uint32(s[i])
		}
		return tokens, nil
	case raw[0] != '[':
		return nil, badField("prompt", "must be a text or a list of token ids")
	}
	rest := bytes.TrimSpace(raw[1 : len(raw)-1])
	if len(rest) == 0 {
		return nil, badField("prompt", "is empty")
	}
	// Scanned, not reflected over: prompts are long.
	tokens := make([]uint32, 0, bytes.Count(rest, []byte{','})+1)
	for more := true; more; {
		var item []byte
		item, rest, more = bytes.Cut(rest, []byte{','})
		token, err := strconv.ParseUint(string(bytes.TrimSpace(item)), 10, 32)
		if err != nil {
			return nil, badField(fmt.Sprintf("prompt[%d]", len(tokens)), "must be a token id, 0 to 4294967295")
		}
		tokens = append(tokens, uint32(token))
	}
	return tokens, nil
}

// text writes output tokens, which are bytes, as text.
func text(tokens []uint32) string {
	b := make([]byte, len(tokens))
	for i, token := range tokens {
		b[i] = byte(token)
	}
	return string(b)
}
