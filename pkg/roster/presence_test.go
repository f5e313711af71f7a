package roster

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestPresence(t *testing.T) {
	p, now, revision := newPresence(), time.Unix(0, 0), uint64(0)
	wait := func(d time.Duration) {
		for range d / time.Second {
			now = now.Add(time.Second)
			p.tick(now)
		}
	}
	say := func(router string, o op) {
		revision++
		p.record(now, record{key: router, revision: revision, op: o})
	}
	expect := func(want ...string) {
		t.Helper()
		if got := p.list(); !slices.Equal(got, want) {
			t.Errorf("routers %v, want %v", got, want)
		}
	}
	p.whole(now, born, tableTTL, []record{{key: "r2"}, {key: "r1"}, {key: "no.token"}, {key: "gone", op: opDeleted}})
	expect("r1", "r2")
	wait(5 * time.Second)
	say("r1", opPut)
	wait(5 * time.Second)
	expect("r1")
	say("r3", opPut)
	say("r1", opDeleted)
	expect("r3")
	p.contact.lost(now)
	wait(time.Minute)
	p.whole(now, born, tableTTL, nil)
	say("r3", opExpired)
	expect("r3")
	wait(29 * time.Second)
	expect("r3")
	wait(time.Second)
	expect()
	full := false
	for i := range maxRouters + 1 {
		revision++
		full = p.record(now, record{key: fmt.Sprintf("x%d", i), revision: revision})
	}
	if !full || len(p.routers) != maxRouters {
		t.Errorf("%d routers, full %v, want %d", len(p.routers), full, maxRouters)
	}
}
