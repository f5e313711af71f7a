package mocker

import (
	"fmt"
	"math"
	"time"
)

// Timing says how long the two parts of a step take, in milliseconds. Each part
// is asked for only if some request of the step takes part in it; a step's time
// is their sum.
type Timing interface {
	// PrefillMS is the time to compute tokens of prompts, summed over the
	// requests that prefill.
	PrefillMS(tokens float64) float64
	// DecodeMS is the time to generate one token for each decoding request,
	// whose contexts fill the fraction used of the worker's blocks, 0 to 1.
	DecodeMS(used float64) float64
	// Validate reports whether the settings can be used.
	Validate() error
}

// Polynomial is the default timing: polynomials fitted to a real engine on one
// GPU, the same that NVIDIA Dynamo's simulated engine uses, so that figures of
// both can stand in one table.
type Polynomial struct{}

// PrefillMS is quadratic in the tokens: attention grows with the square.
func (Polynomial) PrefillMS(tokens float64) float64 {
	return 4.209989e-7*tokens*tokens + 0.01518344*tokens + 16.50142
}

// DecodeMS is quadratic in the used part of the worker, at least 1.
func (Polynomial) DecodeMS(used float64) float64 {
	return max(1, -25.74*used*used+54.01*used+5.74)
}

// Validate never fails.
func (Polynomial) Validate() error { return nil }

// Fixed gives every prefill and every decode the same time.
type Fixed struct {
	Prefill, Decode time.Duration // 0 or more
}

// PrefillMS is Prefill.
func (f Fixed) PrefillMS(float64) float64 { return milliseconds(f.Prefill) }

// DecodeMS is Decode.
func (f Fixed) DecodeMS(float64) float64 { return milliseconds(f.Decode) }

// Validate refuses negative times.
func (f Fixed) Validate() error {
	if f.Prefill < 0 || f.Decode < 0 {
		return fmt.Errorf("fixed timing %v prefill, %v decode: must not be negative", f.Prefill, f.Decode)
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// duration rounds to the nanosecond, which is the resolution of simulated time.
func duration(ms float64) time.Duration {
	return time.Duration(math.Round(ms * float64(time.Millisecond)))
}
