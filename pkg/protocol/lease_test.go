package protocol

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

func TestLeaseString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Lease{
			ID:      LeaseID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")),
			Attempt: rapid.Uint32().Draw(t, "attempt"),
			Worker: Worker{
				ID:   rapid.StringN(1, -1, MaxNameBytes).Filter(func(s string) bool { return CheckName(s) == nil }).Draw(t, "worker"),
				Rank: rapid.Uint16().Draw(t, "rank"),
			},
			PromptTokens: rapid.IntRange(0, MaxTokens).Draw(t, "prompt"),
			CachedTokens: rapid.IntRange(0, MaxTokens).Draw(t, "cached"),
			Blocks:       rapid.IntRange(0, MaxTokens).Draw(t, "blocks"),
		}
		s := want.String()
		if len(s) > MaxLeaseBytes {
			t.Fatalf("%d bytes", len(s))
		}
		got, err := ParseLease(s)
		if err != nil || got != want {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	})
}

func TestLongestLease(t *testing.T) {
	l := Lease{
		ID: uuid.Max, Attempt: math.MaxUint32, Worker: Worker{strings.Repeat("a", MaxNameBytes), MaxRank},
		PromptTokens: MaxTokens, CachedTokens: MaxTokens, Blocks: MaxTokens,
	}
	if s := l.String(); len(s) > MaxLeaseBytes {
		t.Errorf("%d bytes", len(s))
	}
}

func TestParseLeaseRefuses(t *testing.T) {
	l := Lease{ID: uuid.Max, Attempt: 1, Worker: Worker{"w", 0}, PromptTokens: 10, Blocks: 2}
	good := l.String()
	for i := range good { // no flipped character goes unnoticed
		bad := []byte(good)
		if bad[i]++; !isPlain(bad[i]) {
			bad[i] = 'A'
		}
		if got, err := ParseLease(string(bad)); err == nil && got != l {
			t.Errorf("%q gives %+v", bad, got)
		}
	}
	for n := range good {
		if _, err := ParseLease(good[:n]); err == nil {
			t.Errorf("%q is accepted", good[:n])
		}
	}
	empty := append([]byte{leaseVersion}, make([]byte, 16)...)
	for _, s := range []string{
		"", "x", "not a lease", good + "AA", strings.Repeat("A", MaxLeaseBytes+1),
		sealed(append([]byte{leaseVersion + 1}, "0123456789abcdef\x01\x00\x00\x00\x00w"...)), // another version
		sealed(append(slices.Clip(empty), "\x01\x00\x00\x00\x00"...)),                        // no worker
		sealed(append(slices.Clip(empty), "\x01\x00\x00\x00\xff"...)),                        // a number cut short
		sealed(append(slices.Clip(empty), "\x01\x00\x00\x00\x00\xff"...)),                    // a worker that is no text
		sealed(append(slices.Clip(empty), "\x01\xff\xff\x7f\x00\x00\x00w"...)),               // a rank too large
	} {
		if got, err := ParseLease(s); err == nil {
			t.Errorf("%q gives %+v", s, got)
		}
	}
}

// sealed gives bytes the checksum of a lease string.
func sealed(buf []byte) string {
	buf = binary.LittleEndian.AppendUint32(buf, uint32(xxh3.Hash(buf)))
	return base64.RawURLEncoding.EncodeToString(buf)
}

func TestPrefillTokens(t *testing.T) {
	for _, test := range []struct{ prompt, cached, want int }{{10, 4, 6}, {10, 10, 0}, {10, 12, 0}} {
		l := Lease{PromptTokens: test.prompt, CachedTokens: test.cached}
		if got := l.PrefillTokens(); got != test.want {
			t.Errorf("%+v leaves %d", test, got)
		}
	}
}
