package mocker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
)

// MaxBodyBytes bounds the body of a completion request: enough for a prompt of
// protocol.MaxTokens token ids.
const MaxBodyBytes = 16 << 20

// Handler serves the worker in the form of an OpenAI-compatible engine, with the
// answers and errors that vLLM gives:
//
//	POST /v1/completions   prompt as text (a byte is a token) or token ids;
//	                       max_tokens, stream, stream_options, cache_salt; a model
//	                       other than the base model names a LoRA adapter
//	GET  /v1/models        the base model
//	GET  /health           200 while Run is running, else 503
//
// A full worker answers 503 with Retry-After. A request whose client goes away
// leaves the engine.
func (w *Worker) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", w.serveCompletion)
	mux.HandleFunc("GET /v1/models", w.serveModels)
	mux.HandleFunc("GET /health", w.serveHealth)
	return mux
}

func (w *Worker) serveHealth(rw http.ResponseWriter, _ *http.Request) {
	w.mu.Lock()
	running := w.running
	w.mu.Unlock()
	if !running {
		rw.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (w *Worker) serveModels(rw http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID          string `json:"id"`
		Object      string `json:"object"`
		OwnedBy     string `json:"owned_by"`
		Root        string `json:"root"`
		MaxModelLen int    `json:"max_model_len"`
	}
	writeJSON(rw, http.StatusOK, struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{"list", []model{{
		ID: w.config.Model, Object: "model", OwnedBy: "routerd", Root: w.config.Model, MaxModelLen: w.maxModelLen(),
	}}})
}

func (w *Worker) serveCompletion(rw http.ResponseWriter, r *http.Request) {
	body, refused := readCompletion(http.MaxBytesReader(rw, r.Body, MaxBodyBytes))
	if refused != nil {
		writeError(rw, refused)
		return
	}
	request, refused := w.checkCompletion(body)
	if refused != nil {
		writeError(rw, refused)
		return
	}
	answer := completion{
		ID: "cmpl-" + strings.ReplaceAll(uuid.NewString(), "-", ""), Object: "text_completion",
		Created: time.Now().Unix(), Model: body.model(w.config.Model),
	}
	if body.Stream {
		w.streamCompletion(rw, r, request, answer, body.StreamOptions.IncludeUsage)
		return
	}
	result, err := w.Generate(r.Context(), request, nil)
	if err != nil {
		writeError(rw, generateError(err))
		return
	}
	answer.Choices = []choice{{Text: text(result.OutputTokens), FinishReason: new(finishLength)}}
	answer.Usage = usageOf(&request, &result)
	writeJSON(rw, http.StatusOK, answer)
}

// streamCompletion sends a server-sent event for each piece of the output.
func (w *Worker) streamCompletion(rw http.ResponseWriter, r *http.Request, request GenerateRequest, answer completion, withUsage bool) {
	stream := eventStream{rw: rw, control: http.NewResponseController(rw)}
	left := w.outputTokens(&request)
	result, err := w.Generate(r.Context(), request, func(tokens []uint32) error {
		left -= len(tokens)
		piece := choice{Text: text(tokens)}
		if left == 0 {
			piece.FinishReason = new(finishLength)
		}
		answer.Choices = []choice{piece}
		return stream.send(answer)
	})
	switch {
	case err != nil && !stream.begun:
		writeError(rw, generateError(err))
		return
	case err != nil:
		// The status is sent; vLLM too reports a failure inside the stream.
		_ = stream.send(generateError(err).body())
	case withUsage:
		answer.Choices, answer.Usage = []choice{}, usageOf(&request, &result)
		_ = stream.send(answer)
	}
	stream.end() // a client that has gone away needs no end
}

// eventStream writes server-sent events.
type eventStream struct {
	rw      http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

func (s *eventStream) send(v any) error {
	if !s.begun {
		s.begun = true
		s.rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		s.rw.Header().Set("Cache-Control", "no-cache")
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode stream event: %w", err)
	}
	return s.write(data)
}

func (s *eventStream) end() { _ = s.write([]byte("[DONE]")) }

func (s *eventStream) write(data []byte) error {
	if _, err := fmt.Fprintf(s.rw, "data: %s\n\n", data); err != nil {
		return fmt.Errorf("write stream event: %w", err)
	}
	if err := s.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("flush stream event: %w", err)
	}
	return nil
}

func writeJSON(rw http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_, _ = rw.Write(data) // fails only if the client has gone away
}

func writeError(rw http.ResponseWriter, err *requestError) {
	if err.status == http.StatusServiceUnavailable {
		rw.Header().Set("Retry-After", "1")
	}
	writeJSON(rw, err.status, err.body())
}
