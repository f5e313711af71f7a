package mocker

import "slices"

// queue is the waiting requests, first in, first out, with preempted ones put
// back at the front. All but remove cost O(1), amortised.
type queue struct {
	front []*task // preempted, the next one last
	back  []*task // arrived, the next one at head
	head  int
}

func (q *queue) len() int { return len(q.front) + len(q.back) - q.head }

func (q *queue) pushBack(t *task) { q.back = append(q.back, t) }

func (q *queue) pushFront(t *task) { q.front = append(q.front, t) }

// peek is the next request; the queue must not be empty.
func (q *queue) peek() *task {
	if n := len(q.front); n > 0 {
		return q.front[n-1]
	}
	return q.back[q.head]
}

// pop takes the next request out.
func (q *queue) pop() {
	if n := len(q.front); n > 0 {
		q.front[n-1] = nil
		q.front = q.front[:n-1]
		return
	}
	q.back[q.head] = nil
	q.head++
	if 2*q.head >= len(q.back) { // half is gone: move the rest down
		q.back = slices.Delete(q.back, 0, q.head)
		q.head = 0
	}
}

// remove takes a request out wherever it stands, or returns nil.
func (q *queue) remove(id RequestID) *task {
	same := func(t *task) bool { return t.ID == id }
	if i := slices.IndexFunc(q.front, same); i >= 0 {
		t := q.front[i]
		q.front = slices.Delete(q.front, i, i+1)
		return t
	}
	if i := slices.IndexFunc(q.back[q.head:], same); i >= 0 {
		t := q.back[q.head+i]
		q.back = slices.Delete(q.back, q.head+i, q.head+i+1)
		return t
	}
	return nil
}
