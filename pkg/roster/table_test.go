package roster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/routerd/routerd/pkg/protocol"
)

const tableTTL = 10 * time.Second

// script drives a table with a time of its own, ticking once a second.
type script struct {
	t     *testing.T
	table *table
	now   time.Time
	last  uint64 // revision
	heard []string
}

func newScript(t *testing.T) *script {
	s := &script{t: t, table: newTable(), now: time.Unix(0, 0), last: 1000}
	s.whole()
	return s
}

// born is when the bucket of these tests was made.
var born = time.Unix(-100, 0)

func (s *script) whole(records ...record) {
	s.table.whole(s.now, born, tableTTL, records)
	s.listen()
}

// listen writes the changes down: `+a/0@7` accepted in life 7, `-a/0` left,
// `!a/0 conflict` refused, `~a/0` restless; a drained worker has a `d`.
func (s *script) listen() {
	for _, c := range s.table.take() {
		switch {
		case c.accepted != nil:
			text := fmt.Sprintf("+%s@%d", c.accepted.Registration.Target(), c.accepted.Epoch)
			if c.accepted.Drain {
				text += "d"
			}
			s.heard = append(s.heard, text)
		case c.left != nil:
			s.heard = append(s.heard, "-"+c.left.worker.String())
		case c.refused != nil:
			s.heard = append(s.heard, fmt.Sprintf("!%s %s", c.refused.worker, string(c.refused.reason)))
		case c.restless != nil:
			s.heard = append(s.heard, "~"+c.restless.worker.String())
		}
	}
}

func (s *script) expect(want ...string) {
	s.t.Helper()
	if !slices.Equal(s.heard, want) {
		s.t.Errorf("heard %v, want %v", s.heard, want)
	}
	s.heard = nil
}

func (s *script) wait(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(min(time.Second, end.Sub(s.now)))
		s.table.tick(s.now)
	}
	s.listen()
}

// value is a registration; more is added as it is, in JSON.
func value(worker string, blockSize int, more string) string {
	return fmt.Sprintf(`{"v":1,"pool":"p","worker":%q,"block_size":%d%s}`, worker, blockSize, more)
}

func key(worker string) string {
	return protocol.WorkerKey("p", protocol.Worker{ID: worker})
}

func (s *script) record(worker, text string) record {
	s.last++
	return record{key: key(worker), revision: s.last, value: []byte(text)}
}

// put returns the revision.
func (s *script) put(worker string, blockSize int, more string) uint64 {
	s.table.record(s.now, s.record(worker, value(worker, blockSize, more)))
	s.listen()
	return s.last
}

func (s *script) mark(worker string, o op) {
	r := s.record(worker, "")
	r.op = o
	s.table.record(s.now, r)
	s.listen()
}

func epoch(e uint64) string { return fmt.Sprintf(`,"epoch":%d`, e) }

func (s *script) counts(want map[protocol.Refusal]uint64) {
	s.t.Helper()
	if got := s.table.pools["p"].counts; !maps.Equal(got, want) {
		s.t.Errorf("counts %v, want %v", got, want)
	}
}

func TestLife(t *testing.T) {
	s := newScript(t)
	first := s.put("a", 16, "")
	s.expect("+a/0@1001")
	s.put("a", 16, epoch(first))
	s.expect("+a/0@1001")
	s.wait(9 * time.Second)
	s.put("a", 16, epoch(first))
	s.wait(9 * time.Second)
	s.expect("+a/0@1001")
	s.wait(time.Second)
	s.expect("-a/0")
	if len(s.table.pools) != 0 || s.table.ranks != 0 {
		t.Errorf("%d pools and %d ranks are left", len(s.table.pools), s.table.ranks)
	}
	s.put("a", 16, epoch(first)) // after an expiry the life goes on
	s.expect("+a/0@1001")
	s.mark("a", opDeleted)
	s.expect("-a/0")
	s.mark("a", opDeleted)
	s.expect()
}

func TestEpochs(t *testing.T) {
	s := newScript(t)
	first := s.put("a", 16, "")
	second := s.put("a", 16, "")
	s.expect("+a/0@1001", "+a/0@1002")
	s.put("a", 16, epoch(first)) // a resumed predecessor
	s.expect()
	s.put("a", 16, epoch(second))
	s.expect("+a/0@1002")
	s.put("a", 16, epoch(0))
	s.expect("+a/0@0")
	s.put("a", 16, epoch(first)) // the latest put decides
	s.expect("+a/0@1001")
	s.put("a", 16, epoch(1<<40)) // the bucket has not reached it
	s.expect("!a/0 future_epoch")
	s.counts(map[protocol.Refusal]uint64{protocol.RefusedOldEpoch: 1, protocol.RefusedFutureEpoch: 1})
	s.put("a", 16, epoch(first))
	s.expect("+a/0@1001")
	if got := s.table.pools["p"].refusals(); len(got) != 0 {
		t.Errorf("still refused: %v", got)
	}
}

// TestIgnoredPutsDoNotRefresh shows that what is refused keeps nobody alive.
func TestIgnoredPutsDoNotRefresh(t *testing.T) {
	s := newScript(t)
	old := s.put("a", 16, "")
	s.put("a", 16, "")
	s.wait(6 * time.Second)
	s.put("a", 16, epoch(old))
	s.table.record(s.now, s.record("a", "no registration"))
	s.listen()
	s.wait(3 * time.Second)
	s.expect("+a/0@1001", "+a/0@1002", "!a/0 undecodable")
	s.wait(time.Second)
	s.expect("-a/0")
	s.wait(6 * time.Second)
	if len(s.table.pools) != 0 {
		t.Error("the refused registration did not expire")
	}
}

func TestRefreshWithoutEpoch(t *testing.T) {
	s := newScript(t)
	for range 6 {
		s.put("a", 16, "")
		s.wait(3 * time.Second)
	}
	s.expect("+a/0@1001", "+a/0@1002", "+a/0@1003", "~a/0", "+a/0@1004", "+a/0@1005", "+a/0@1006")
	s.counts(map[protocol.Refusal]uint64{protocol.RefusedNoEpoch: 3})
	s.wait(3 * time.Second) // the sixth life lasts
	for range 4 {
		s.put("a", 16, "")
	}
	s.expect("+a/0@1007", "+a/0@1008", "+a/0@1009", "~a/0", "+a/0@1010")
}

func TestBlockSizeConflict(t *testing.T) {
	s := newScript(t)
	a := s.put("a", 16, "")
	b := s.put("b", 32, "")
	s.put("c", 64, "")
	d := s.put("d", 32, "")
	s.put("e", 16, "")
	s.expect("+a/0@1001", "!b/0 conflict", "!c/0 conflict", "!d/0 conflict", "+e/0@1005")
	s.put("d", 32, epoch(d)) // a refresh does not make it younger or older
	s.put("b", 32, epoch(b))
	if got := s.table.pools["p"].refusals(); len(got) != 3 || !strings.Contains(got[0].Message, "32") || got[0].Registration == nil {
		t.Errorf("refused: %+v", got)
	}
	s.mark("e", opDeleted)
	s.expect("-e/0")
	s.mark("a", opDeleted)
	s.expect("-a/0", "+b/0@1002", "+d/0@1004")
	if got := s.table.pools["p"].blockSize; got != 32 {
		t.Errorf("block size %d, want 32", got)
	}
	s.put("a", 16, epoch(a))
	s.expect("!a/0 conflict")
	s.wait(tableTTL) // all of them
	s.expect("-b/0", "-d/0")
	if len(s.table.pools) != 0 {
		t.Error("the pool is still there")
	}
}

// TestPromotionIsNoRefresh shows that a registration promoted late expires with
// its last put.
func TestPromotionIsNoRefresh(t *testing.T) {
	s := newScript(t)
	s.put("a", 16, "")
	s.wait(5 * time.Second)
	s.put("b", 32, "")
	s.wait(5 * time.Second)
	s.expect("+a/0@1001", "!b/0 conflict", "-a/0", "+b/0@1002")
	s.wait(5 * time.Second)
	s.expect("-b/0")
}

func TestOwnBlockSizeChanges(t *testing.T) {
	s := newScript(t)
	s.put("a", 16, "")
	s.put("a", 32, "")
	s.expect("+a/0@1001", "-a/0", "!a/0 conflict", "+a/0@1002")
	s.put("b", 32, "")
	s.put("a", 16, "")
	s.expect("+b/0@1003", "-a/0", "!a/0 conflict")
	s.put("a", 32, epoch(1002)) // the life before
	s.expect()
	s.put("a", 32, epoch(1004))
	s.expect("+a/0@1004")
}

func TestKeyConflict(t *testing.T) {
	s := newScript(t)
	s.put("a", 16, "")
	for _, text := range []string{
		value("b", 16, ""),
		value("a", 16, `,"rank":1`),
		`{"v":1,"pool":"q","worker":"a","block_size":16}`,
	} {
		s.table.record(s.now, s.record("a", text))
	}
	s.listen()
	s.expect("+a/0@1001", "!a/0 conflict")
	s.counts(map[protocol.Refusal]uint64{RefusedConflict: 3})
	s.table.record(s.now, s.record("x", value("a", 16, "")))
	s.mark("a", opDeleted)
	s.listen()
	s.expect("!x/0 conflict", "-a/0") // no block size can make it right
	if s.table.pools["p"].blockSize != 0 {
		t.Error("a refused registration set the block size")
	}
	for _, bad := range []string{"p.a", "p.a.0.0", "p.a.65536", "p..0", "=ff.a.0"} {
		s.last++
		s.table.record(s.now, record{key: bad, revision: s.last, value: []byte(value("a", 16, ""))})
	}
	if got := s.table.stray[protocol.RefusedUndecodable]; got != 5 {
		t.Errorf("%d stray keys counted, want 5", got)
	}
}

func TestExpiryMarks(t *testing.T) {
	s := newScript(t)
	s.put("a", 16, "")
	s.put("b", 16, "")
	s.mark("a", opExpired)
	s.expect("+a/0@1001", "+b/0@1002", "-a/0")
	s.table.lost(s.now)
	s.wait(time.Second)
	s.whole()
	s.mark("b", opExpired) // the server was away, so the worker could not refresh
	s.expect()
	s.wait(20 * time.Second)
	s.expect()
	s.wait(10 * time.Second)
	s.expect("-b/0")
}

// TestOutage shows that time without contact and two TTL after it do not count,
// and that the dead are gone three TTL after the return.
func TestOutage(t *testing.T) {
	s := newScript(t)
	s.put("alive", 16, "")
	s.put("dead", 16, "")
	s.wait(4 * time.Second)
	s.table.lost(s.now)
	s.wait(time.Hour)
	s.whole() // empty: removes nobody
	s.wait(15 * time.Second)
	s.put("alive", 16, epoch(1001))
	s.wait(5*time.Second + 6*time.Second - time.Nanosecond)
	s.expect("+alive/0@1001", "+dead/0@1002", "+alive/0@1001")
	s.wait(time.Nanosecond)
	s.expect("-dead/0")
	s.wait(4 * time.Second)
	s.expect("-alive/0")
}

// TestStall shows that a process that did not run removes nobody for it.
func TestStall(t *testing.T) {
	s := newScript(t)
	s.put("a", 16, "")
	s.now = s.now.Add(time.Minute)
	s.table.tick(s.now)
	s.wait(29 * time.Second)
	s.expect("+a/0@1001")
	s.wait(time.Second)
	s.expect("-a/0")
}

func TestWholeRead(t *testing.T) {
	s := newScript(t)
	s.put("a", 16, "")
	s.put("b", 16, "")
	s.expect("+a/0@1001", "+b/0@1002")
	same := record{key: key("a"), revision: 1001, value: []byte(value("a", 16, ""))}
	gone := s.record("b", "")
	gone.op = opDeleted
	s.whole(same, gone)
	s.expect("-b/0") // `a` was known
	// Another bucket under the same name: its revisions say nothing about the old.
	other := record{key: key("a"), revision: 1003, value: []byte(value("a", 16, epoch(1001)))}
	s.table.pools["p"].accepted[protocol.Worker{ID: "a"}].revision = 5000
	s.table.whole(s.now, born.Add(time.Minute), tableTTL, []record{other})
	s.listen()
	s.expect("+a/0@1001")
}

// TestFirstReadPrefersOldest shows that a router that starts later accepts the
// block size that others have accepted, whatever was refreshed last.
func TestFirstReadPrefersOldest(t *testing.T) {
	s := &script{t: t, table: newTable(), now: time.Unix(0, 0)}
	s.whole(
		record{key: key("young"), revision: 2000, value: []byte(value("young", 32, epoch(1500)))},
		record{key: key("old"), revision: 2001, value: []byte(value("old", 16, epoch(1400)))},
		record{key: key("none"), revision: 1999, value: []byte(value("none", 64, epoch(0)))},
	)
	s.expect("+old/0@1400", "!young/0 conflict", "!none/0 conflict")
}

func TestDrains(t *testing.T) {
	s := newScript(t)
	s.put("a", 16, "")
	s.put("b", 16, `,"drain":true`)
	s.expect("+a/0@1001", "+b/0@1002d")
	set := func(key string, o op) {
		s.table.setDrain(record{key: key, op: o})
		s.listen()
	}
	set("p.a", opPut)
	s.expect("+a/0@1001d")
	set("p.a.0", opPut)
	set("p.a", opDeleted)
	set("q.a", opPut)
	set("p.a.1", opPut)
	set("p.a.0.0", opPut) // no key of a drain
	s.expect()
	set("p.a.0", opDeleted)
	s.expect("+a/0@1001")
	set("p.b", opPut)
	set("p.b", opDeleted)
	s.expect("+b/0@1002d", "+b/0@1002d") // its own stays
	s.table.setDrains([]record{{key: "p.a"}, {key: "p.b", op: opDeleted}})
	s.listen()
	s.expect("+a/0@1001d")
	s.put("a", 16, epoch(1001))
	s.expect("+a/0@1001d")
	s.table.setDrains(nil)
	s.listen()
	s.expect("+a/0@1001")
}

func TestTableBounds(t *testing.T) {
	s := newScript(t)
	add := func(worker string, blockSize int) {
		s.last++
		s.table.put(s.now, &put{
			pool: "p", worker: protocol.Worker{ID: worker}, revision: s.last, epoch: protocol.Epoch(s.last),
			reg: &protocol.Registration{Pool: "p", Worker: worker, BlockSize: blockSize},
		})
	}
	add("sizes", 16)
	for i := range maxRefused + 10 {
		add(fmt.Sprintf("refused%d", i), 32)
	}
	p := s.table.pools["p"]
	if len(p.refused) != maxRefused || p.counts[RefusedConflict] != maxRefused+10 {
		t.Errorf("%d listed of %d counted, want %d of %d", len(p.refused), p.counts[RefusedConflict], maxRefused, maxRefused+10)
	}
	for i := range maxPoolRanks + 10 {
		add(fmt.Sprintf("w%d", i), 16)
	}
	if len(p.accepted) != maxPoolRanks || p.counts[RefusedLimit] != 11 {
		t.Errorf("%d accepted, %d beyond the limit, want %d and 11", len(p.accepted), p.counts[RefusedLimit], maxPoolRanks)
	}
	for i := range maxPools + 10 {
		s.last++
		s.table.record(s.now, record{key: fmt.Sprintf("pool%d.w.0", i), revision: s.last})
	}
	if len(s.table.pools) != maxPools || s.table.stray[RefusedLimit] != 11 {
		t.Errorf("%d pools, %d beyond the limit, want %d and 11", len(s.table.pools), s.table.stray[RefusedLimit], maxPools)
	}
	full := false
	for i := range maxDrains + 1 {
		full = s.table.setDrain(record{key: fmt.Sprintf("q.x%d", i)})
	}
	if !full || len(s.table.drains) != maxDrains {
		t.Errorf("%d drains, full %v, want %d", len(s.table.drains), full, maxDrains)
	}
}

// TestRandomTable checks what must hold after any sequence of records.
func TestRandomTable(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newScript(t)
	present := map[string]bool{}
	for step := range 5000 {
		worker := fmt.Sprintf("w%d", random.IntN(6))
		switch random.IntN(12) {
		case 0:
			s.mark(worker, opDeleted)
		case 1:
			s.mark(worker, opExpired)
		case 2:
			s.table.lost(s.now)
		case 3:
			s.whole()
		case 4:
			s.table.record(s.now, s.record(worker, "?"))
			s.listen()
		case 5, 6:
			s.wait(time.Duration(random.Int64N(int64(tableTTL))))
		case 7:
			s.put(worker, 16<<random.IntN(3), epoch(s.last-uint64(random.IntN(30))))
		default:
			s.put(worker, 16<<random.IntN(2), "")
		}
		for _, what := range s.heard {
			id := strings.SplitN(what[1:], "/", 2)[0]
			switch {
			case what[0] == '+':
				present[id] = true
			case what[0] == '-' && !present[id]:
				t.Fatalf("step %d: %s left without having been there", step, id)
			case what[0] == '-':
				delete(present, id)
			}
		}
		s.heard = nil
		checkTable(t, step, s.table, present)
	}
}

func checkTable(t *testing.T, step int, table *table, present map[string]bool) {
	t.Helper()
	p := table.pools["p"]
	if p == nil {
		if len(present) != 0 || table.ranks != 0 {
			t.Fatalf("step %d: no pool, but %v were told of", step, present)
		}
		return
	}
	if len(p.accepted) != len(present) || table.ranks != len(present) {
		t.Fatalf("step %d: %d accepted, %d told of", step, len(p.accepted), len(present))
	}
	for w, m := range p.accepted {
		if !present[w.ID] || m.entry.Registration.BlockSize != p.blockSize {
			t.Fatalf("step %d: %s is accepted with block size %d of %d", step, w, m.entry.Registration.BlockSize, p.blockSize)
		}
	}
	for w, r := range p.refused {
		if r.sizeOnly() && (p.accepted[w] != nil || p.blockSize == 0 || r.put.reg.BlockSize == p.blockSize) {
			t.Fatalf("step %d: %s is refused for its block size %d in a pool of %d", step, w, r.put.reg.BlockSize, p.blockSize)
		}
	}
	if (p.blockSize == 0) != (len(p.accepted) == 0) {
		t.Fatalf("step %d: block size %d with %d accepted", step, p.blockSize, len(p.accepted))
	}
}
