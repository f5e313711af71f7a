package mocker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// servedWorker runs a fast worker behind HTTP until the test ends.
func servedWorker(t *testing.T, config WorkerConfig) (*Worker, *httptest.Server) {
	t.Helper()
	w, err := NewWorker(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	server := httptest.NewServer(w.Handler())
	t.Cleanup(func() {
		server.Close()
		cancel()
		group.Wait()
		http.DefaultClient.CloseIdleConnections()
	})
	<-w.Ready()
	return w, server
}

func fast() Timing { return Fixed{Prefill: time.Microsecond, Decode: time.Microsecond} }

// post sends a completion request and returns the status and the body.
func post(t *testing.T, server *httptest.Server, body string) (int, string) {
	t.Helper()
	response, err := http.Post(server.URL+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

func TestCompletion(t *testing.T) {
	w, server := servedWorker(t, WorkerConfig{Engine: Config{Timing: fast(), BlockSize: 4}, Model: "base"})
	ask := func(body string) completion {
		t.Helper()
		status, data := post(t, server, body)
		var c completion
		if err := json.Unmarshal([]byte(data), &c); err != nil || status != http.StatusOK {
			t.Fatalf("%s: status %d, %s", body, status, data)
		}
		return c
	}
	c := ask(`{"model":"base","prompt":[1,2,3,4,5,6],"max_tokens":7}`)
	if c.Object != "text_completion" || c.Model != "base" || !strings.HasPrefix(c.ID, "cmpl-") || c.Created == 0 {
		t.Errorf("answer %+v", c)
	}
	if len(c.Choices) != 1 || len(c.Choices[0].Text) != 7 || c.Choices[0].FinishReason == nil || *c.Choices[0].FinishReason != "length" {
		t.Errorf("choices %+v", c.Choices)
	}
	if c.Usage == nil || c.Usage.PromptTokens != 6 || c.Usage.CompletionTokens != 7 || c.Usage.TotalTokens != 13 || c.Usage.PromptDetails.CachedTokens != 0 {
		t.Errorf("usage %+v", c.Usage)
	}
	for _, test := range []struct {
		body           string
		prompt, cached int
	}{
		{`{"prompt":[1,2,3,4,5,6]}`, 6, 4},
		{`{"prompt":[ 1 , 2,3,4, 5 ],"model":null}`, 5, 4},
		{`{"prompt":[1,2,3,4,5,6],"model":"adapter"}`, 6, 0},
		{`{"prompt":[1,2,3,4,5,6],"model":"adapter"}`, 6, 4},
		{`{"prompt":[1,2,3,4,5,6],"cache_salt":"s"}`, 6, 0},
		{`{"prompt":"\u0001\u0002\u0003\u0004\u0005","temperature":0}`, 5, 4}, // a byte is a token
	} {
		c := ask(test.body)
		if c.Usage.PromptTokens != test.prompt || c.Usage.PromptDetails.CachedTokens != test.cached || c.Usage.CompletionTokens != 16 {
			t.Errorf("%s: usage %+v, want %d prompt tokens, %d cached, 16 generated", test.body, c.Usage, test.prompt, test.cached)
		}
	}
	if w.Counters().Steps == 0 {
		t.Error("no step was taken")
	}
}

func TestStreamedCompletion(t *testing.T) {
	_, server := servedWorker(t, WorkerConfig{Engine: Config{Timing: fast()}, Model: "base"})
	status, data := post(t, server, `{"prompt":"hello","max_tokens":9,"stream":true,"stream_options":{"include_usage":true}}`)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, data)
	}
	var pieces, finished, usages int
	last := ""
	scanner := bufio.NewScanner(strings.NewReader(data))
	for scanner.Scan() {
		line, ok := strings.CutPrefix(scanner.Text(), "data: ")
		if !ok || line == "[DONE]" {
			last = line
			continue
		}
		var c completion
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("event %s: %v", line, err)
		}
		if c.Usage != nil {
			usages++
			if len(c.Choices) != 0 || c.Usage.CompletionTokens != 9 || finished != 1 {
				t.Errorf("usage event %s after %d finished", line, finished)
			}
			continue
		}
		pieces += len(c.Choices[0].Text)
		if c.Choices[0].FinishReason != nil {
			finished++
		}
	}
	if pieces != 9 || finished != 1 || usages != 1 || !strings.HasSuffix(data, "data: [DONE]\n\n") {
		t.Errorf("%d letters, %d finished, %d usages, last line %q, in\n%s", pieces, finished, usages, last, data)
	}
	if _, data := post(t, server, `{"prompt":"hello","stream":true}`); strings.Contains(data, "usage") {
		t.Errorf("usage without being asked for: %s", data)
	}
}

func TestBadCompletions(t *testing.T) {
	_, server := servedWorker(t, WorkerConfig{Engine: Config{Timing: fast(), Blocks: 4}})
	long := strings.Repeat("x", 300)
	for _, test := range []struct {
		body   string
		status int
		param  string
	}{
		{``, 400, ""},
		{`{"prompt":`, 400, ""},
		{`[1]`, 400, ""},
		{`{}`, 400, "prompt"},
		{`{"prompt":null}`, 400, "prompt"},
		{`{"prompt":""}`, 400, "prompt"},
		{`{"prompt":[]}`, 400, "prompt"},
		{`{"prompt":7}`, 400, "prompt"},
		{`{"prompt":{"a":1}}`, 400, "prompt"},
		{`{"prompt":[1,-2]}`, 400, "prompt[1]"},
		{`{"prompt":[1.5]}`, 400, "prompt[0]"},
		{`{"prompt":[4294967296]}`, 400, "prompt[0]"},
		{`{"prompt":["a"]}`, 400, "prompt[0]"},
		{`{"prompt":[[1,2]]}`, 400, "prompt[0]"},
		{`{"prompt":"x","max_tokens":0}`, 400, "max_tokens"},
		{`{"prompt":"x","max_tokens":-1}`, 400, "max_tokens"},
		{`{"prompt":"x","max_tokens":1.5}`, 400, "max_tokens"},
		{`{"prompt":"x","max_tokens":"7"}`, 400, "max_tokens"},
		{`{"prompt":"x","max_tokens":64}`, 400, "max_tokens"},
		{`{"prompt":"` + long + `"}`, 400, "prompt"},
		{`{"prompt":"x","stream":1}`, 400, "stream"},
		{`{"prompt":"x","model":5}`, 400, "model"},
		{`{"prompt":"x","model":"` + long + `"}`, 400, "model"},
		{`{"prompt":"x","cache_salt":""}`, 400, "cache_salt"},
		{`{"prompt":"x","cache_salt":"` + long + `"}`, 400, "cache_salt"},
		{`{"prompt":"` + strings.Repeat("x", MaxBodyBytes) + `"}`, 413, ""},
	} {
		status, data := post(t, server, test.body)
		var answer struct {
			Error struct {
				Message, Type string
				Param         string
				Code          int
			}
		}
		if err := json.Unmarshal([]byte(data), &answer); err != nil {
			t.Errorf("%.60s: answer %s", test.body, data)
			continue
		}
		e := answer.Error
		if status != test.status || e.Code != status || e.Param != test.param || e.Message == "" || !strings.Contains(e.Message, test.param) {
			t.Errorf("%.60s: status %d, %s; want %d, param %q", test.body, status, data, test.status, test.param)
		}
	}
	if status, _ := post(t, server, `{"prompt":"x"}`); status != http.StatusOK {
		t.Errorf("afterwards: status %d", status)
	}
}

// A worker with one request refuses the second; when the first client goes away
// there is room again.
func TestFullWorkerAndLeavingClient(t *testing.T) {
	slow := Fixed{Prefill: time.Microsecond, Decode: time.Millisecond}
	_, server := servedWorker(t, WorkerConfig{Engine: Config{Timing: slow}, MaxRequests: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/completions",
		strings.NewReader(`{"prompt":"x","max_tokens":1000000,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if got := response.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		t.Errorf("content type %q", got)
	}
	if status, data := post(t, server, `{"prompt":"x"}`); status != http.StatusServiceUnavailable || !strings.Contains(data, ErrQueueFull.Error()) {
		t.Errorf("full worker: status %d, %s", status, data)
	}
	cancel()
	deadline := time.Now().Add(10 * time.Second)
	for {
		status, data := post(t, server, `{"prompt":"x","max_tokens":1}`)
		if status == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("10 s after the client left: status %d, %s", status, data)
		}
	}
}

func TestHealthAndModels(t *testing.T) {
	_, server := servedWorker(t, WorkerConfig{Model: "base"})
	get := func(path string) (int, string) {
		t.Helper()
		response, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		data, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(data)
	}
	if status, _ := get("/health"); status != http.StatusOK {
		t.Errorf("health: %d", status)
	}
	want := fmt.Sprintf(`{"object":"list","data":[{"id":"base","object":"model","owned_by":"routerd","root":"base","max_model_len":%d}]}`, 65536*16)
	if status, data := get("/v1/models"); status != http.StatusOK || data != want {
		t.Errorf("models: %d, %s, want %s", status, data, want)
	}
	if status, _ := get("/v1/completions"); status != http.StatusMethodNotAllowed {
		t.Errorf("GET of completions: %d", status)
	}
	idle, err := NewWorker(WorkerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	idle.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/health", nil))
	if recorder.Code != http.StatusServiceUnavailable {
		t.Errorf("health of a worker that does not run: %d", recorder.Code)
	}
}
