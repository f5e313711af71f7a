package router

import (
	"slices"

	"github.com/routerd/routerd/pkg/protocol"
)

// What one row takes in a JSON reply at most, besides its texts.
const (
	overlapBytes   = 160
	candidateBytes = 640
	rankBytes      = 900
	replyBytes     = protocol.MaxReplyBytes - 16<<10 // what a reply has beside its rows
)

// fitting is how many of n rows go into one reply, at least one.
func fitting(n int, size func(i int) int) int {
	total := 0
	for i := range n {
		total += size(i)
		if total > replyBytes && i > 0 {
			return i
		}
	}
	return n
}

// written is what a text takes in a JSON reply at most, with its escapes.
func written(s string) int {
	n := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c == '<', c == '>', c == '&', c == 0x7f:
			n += len(`\u0000`)
		case c == '"', c == '\\', c >= 0x80:
			n += 2
		default:
			n++
		}
	}
	return n
}

// after are the workers behind the one that the last reply ended with.
func after(order []protocol.Worker, last *protocol.After) []protocol.Worker {
	if last == nil {
		return order
	}
	at, found := slices.BinarySearchFunc(order, last.Target(), protocol.Worker.Compare)
	if found {
		at++
	}
	return order[at:]
}

// PageRanks cuts status rows, in order, to what fits into one reply.
func PageRanks(rows []protocol.RankStatus, last *protocol.After) (page []protocol.RankStatus, more bool) {
	if last != nil {
		at, found := slices.BinarySearchFunc(rows, last.Target(), func(row protocol.RankStatus, w protocol.Worker) int {
			return row.Target().Compare(w)
		})
		if found {
			at++
		}
		rows = rows[at:]
	}
	n := fitting(len(rows), func(i int) int {
		return rankBytes + written(rows[i].Worker) + written(rows[i].Endpoint) + written(rows[i].Conflict)
	})
	return rows[:n], n < len(rows)
}
