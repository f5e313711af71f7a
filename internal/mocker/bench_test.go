package mocker

import "testing"

// BenchmarkFleet simulates the whole conversation trace at load 6 on 8 workers.
func BenchmarkFleet(b *testing.B) {
	requests := readTrace(b, 0)
	b.ReportAllocs()
	for b.Loop() {
		runFleet(b, requests, 6, 8, Config{}, Hooks{Route: roundRobin(8)})
	}
}

// BenchmarkStep is one step of an engine with 256 decoding requests.
func BenchmarkStep(b *testing.B) {
	engine, err := NewEngine(Config{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 256 {
		if err := engine.Submit(Request{ID: RequestID(i), PromptTokens: 100, OutputTokens: 1 << 30}); err != nil {
			b.Fatal(err)
		}
	}
	for engine.Waiting() > 0 || engine.Counters().Steps < 8 {
		engine.Start()
		engine.Finish()
	}
	b.ReportAllocs()
	for b.Loop() {
		engine.Start()
		engine.Finish()
	}
}
