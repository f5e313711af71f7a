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

// BenchmarkStep is one step of an engine with 256 running requests of 100 prompt
// and 1,000 output tokens; each that ends is followed by another.
func BenchmarkStep(b *testing.B) {
	engine := newTestEngine(b, Config{})
	next := RequestID(0)
	follow := func() {
		submit(b, engine, next, 100, 1000, nil)
		next++
	}
	step := func() {
		engine.Start()
		for range engine.Finish().Completed {
			follow()
		}
	}
	for i := range 256 {
		follow()
		if i%8 == 0 { // spread their ends
			step()
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
}
