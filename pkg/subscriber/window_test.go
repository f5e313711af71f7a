package subscriber

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

func TestWindowMarksWhatIsDoneInOrder(t *testing.T) {
	w := newWindow(100)
	add := func(seq protocol.StreamSeq) uint64 {
		n, err := w.add(t.Context(), seq, 10)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	at := func(want protocol.StreamSeq) {
		t.Helper()
		if got := w.mark(); got != want {
			t.Errorf("mark %d, want %d", got, want)
		}
	}
	w.pass(3)
	at(3)
	a, b := add(5), add(9)
	w.pass(12)
	w.finish(b)
	at(3)
	w.finish(a)
	at(12)
	add(14)
	w.withdraw()
	at(12)
	w.pass(13)
	at(13)
	w.restart()
	at(0)
}

func TestWindowBoundsBytes(t *testing.T) {
	w := newWindow(100)
	first, err := w.add(t.Context(), 1, 1000) // alone it may be of any size
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := w.add(ctx, 2, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("added beyond the limit: %v", err)
	}
	w.finish(first)
	if _, err := w.add(t.Context(), 2, 1); err != nil {
		t.Error(err)
	}
}

// While messages finish in any order, nobody is told that a message is done before
// it and all before it are.
func TestWindowUnderRace(t *testing.T) {
	const messages, workers = 20000, 4
	w := newWindow(1 << 10)
	type slot struct {
		number uint64
		seq    protocol.StreamSeq
	}
	queue := make(chan slot, 64)
	var done [messages + 1]bool
	var mu sync.Mutex
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for s := range queue {
				mu.Lock()
				done[s.seq] = true
				mu.Unlock()
				w.finish(s.number)
			}
		})
	}
	for range workers {
		group.Go(func() {
			for seq := protocol.StreamSeq(1); seq <= messages; seq += protocol.StreamSeq(1 + rand.IntN(500)) {
				if err := w.wait(t.Context(), nil, seq); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				ok := done[seq]
				mu.Unlock()
				if !ok || w.mark() < seq {
					t.Errorf("%d is said to be done", seq)
				}
			}
		})
	}
	for seq := protocol.StreamSeq(1); seq <= messages; seq++ {
		n, err := w.add(t.Context(), seq, 1+rand.IntN(100))
		if err != nil {
			t.Fatal(err)
		}
		queue <- slot{n, seq}
	}
	close(queue)
	group.Wait()
	if w.mark() != messages || w.bytes != 0 || len(w.waiters) != 0 {
		t.Errorf("mark %d, %d bytes, %d waiters", w.mark(), w.bytes, len(w.waiters))
	}
}
