package trace

import (
	"testing"

	"github.com/routerd/routerd/pkg/protocol"
)

func TestCheckBlockSize(t *testing.T) {
	for _, size := range []int{1, 16, 64, 512} {
		if err := CheckBlockSize(size); err != nil {
			t.Errorf("block size %d: %v", size, err)
		}
	}
	for _, size := range []int{0, -16, 3, 48, 1024} {
		if CheckBlockSize(size) == nil {
			t.Errorf("block size %d was taken", size)
		}
		r := Request{InputLength: 2048, HashIDs: []uint64{1, 2, 3, 4}}
		if got := r.AppendBlockHashes(nil, size); got != nil {
			t.Errorf("block size %d gives %d hashes", size, len(got))
		}
	}
}

func TestOnlyFullBlocksCount(t *testing.T) {
	for _, test := range []struct{ tokens, blockSize, want int }{
		{1, 16, 0}, {15, 16, 0}, {16, 16, 1}, {31, 16, 1}, {512, 16, 32}, {513, 16, 32}, {1023, 16, 63}, {700, 512, 1}, {700, 1, 700},
	} {
		r := Request{InputLength: test.tokens, HashIDs: make([]uint64, (test.tokens+511)/512)}
		if got := len(r.AppendBlockHashes(nil, test.blockSize)); got != test.want {
			t.Errorf("%d tokens in blocks of %d: %d hashes, want %d", test.tokens, test.blockSize, got, test.want)
		}
	}
}

func TestPrefixIsSharedAsFarAsIDsAgree(t *testing.T) {
	a := Request{InputLength: 3 * 512, HashIDs: []uint64{1, 2, 3}}
	b := Request{InputLength: 2*512 + 100, HashIDs: []uint64{1, 2, 4}}
	c := Request{InputLength: 512 + 40, HashIDs: []uint64{1, 2}} // ends inside what a and b share
	shared := func(x, y Request) int {
		hx, hy := x.AppendBlockHashes(nil, 16), y.AppendBlockHashes(nil, 16)
		n := 0
		for n < min(len(hx), len(hy)) && hx[n] == hy[n] {
			n++
		}
		return n
	}
	if got := shared(a, b); got != 64 {
		t.Errorf("two equal ids share %d blocks, want 64", got)
	}
	if got := shared(a, c); got != 34 {
		t.Errorf("a prompt that ends early shares %d blocks, want its 34 full ones", got)
	}
	// Within a prompt no two blocks are equal, so that no block stands for another.
	seen := map[protocol.BlockHash]bool{}
	for _, h := range a.AppendBlockHashes(nil, 16) {
		if seen[h] {
			t.Fatalf("hash %d appears twice", h)
		}
		seen[h] = true
	}
}

func TestAppendBlockHashesAppends(t *testing.T) {
	r := Request{InputLength: 512, HashIDs: []uint64{9}}
	dst := make([]protocol.BlockHash, 1, 64)
	dst[0] = 7
	got := r.AppendBlockHashes(dst, 16)
	if len(got) != 33 || got[0] != 7 {
		t.Errorf("got %d hashes beginning with %d, want 33 beginning with 7", len(got), got[0])
	}
	if n := testing.AllocsPerRun(100, func() { got = r.AppendBlockHashes(got[:0], 16) }); n != 0 {
		t.Errorf("%v allocations with room in dst, want none", n)
	}
}

func BenchmarkAppendBlockHashes(b *testing.B) {
	r := Request{InputLength: 12000, HashIDs: make([]uint64, 24)}
	var dst []protocol.BlockHash
	b.ReportAllocs()
	for b.Loop() {
		dst = r.AppendBlockHashes(dst[:0], 16)
	}
}

func BenchmarkReadFile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadFile(conversation, 0); err != nil {
			b.Fatal(err)
		}
	}
}
