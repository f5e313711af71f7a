package indexertest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/routerd/routerd/pkg/indexer"
	"github.com/routerd/routerd/pkg/protocol"
)

// shape is a kind of random run. Each is there for what it alone reaches.
type shape struct {
	name       string
	workers    int
	documents  int // prompts that are in use at once
	length     int // blocks of a prompt, at most
	alphabet   int // distinct block hashes
	run        int // blocks of one store, at most
	domains    int // ways to name the same blocks; a worker has its own and strays
	tiers      int
	interleave bool // prompts grow block by block in turn
	misplace   int  // one store in so many names blocks after another prompt; 0: none
	clear      int  // one operation in so many empties or drops a worker; 0: none

	name64 func(protocol.SequenceHash) protocol.SequenceHash // narrows sequence hashes; nil: as they are
}

var plainShape = shape{name: "plain", workers: 5, documents: 8, length: 12, alphabet: 4, run: 6, domains: 1, tiers: 1, clear: 60}

// shapes are the random runs of the contract.
func shapes() []shape {
	all := []shape{plainShape}
	add := func(name string, change func(*shape)) {
		s := plainShape
		s.name = name
		change(&s)
		all = append(all, s)
	}
	add("three domains with aliases", func(s *shape) { s.domains, s.workers, s.misplace = 3, 3, 50 })
	add("tiers", func(s *shape) { s.tiers, s.domains, s.workers, s.misplace = protocol.Tiers, 2, 4, 30 })
	add("40 sequence hashes", func(s *shape) {
		s.misplace = 4
		s.tiers = 2
		s.name64 = func(h protocol.SequenceHash) protocol.SequenceHash { return h % 40 }
	})
	add("equal low 48 bits", func(s *shape) {
		s.length = 20
		s.name64 = func(h protocol.SequenceHash) protocol.SequenceHash { return h<<48 | 7 }
	})
	add("long runs", func(s *shape) {
		s.workers, s.documents, s.length, s.alphabet, s.run, s.clear = 4, 3, 256, 1000, 256, 25
	})
	add("long runs on tiers", func(s *shape) {
		s.workers, s.documents, s.length, s.alphabet, s.run, s.tiers = 14, 2, 100, 1000, 100, 3
	})
	add("interleaved", func(s *shape) { s.documents, s.length, s.alphabet, s.run, s.interleave = 12, 60, 1000, 1, true })
	add("many workers", func(s *shape) { s.workers, s.documents, s.run = 40, 4, 12 })
	return all
}

// Random plays random operations on an index and on the Model. On a failure the
// message has the seed and what is left of the operations after reduction.
func Random(t *testing.T, newIndex func() indexer.Index, o Options) {
	seed := o.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for _, s := range shapes() {
		t.Run(strings.ReplaceAll(s.name, " ", "-"), func(t *testing.T) {
			for run := range uint64(o.runs()) {
				operations := generate(&s, seed+run, o.operations())
				err := play(newIndex, s.workers, operations)
				if err == nil {
					continue
				}
				operations, err = reduce(newIndex, s.workers, operations, err)
				t.Fatalf("seed %d (set Options.Seed to it): %v\n%d operations are left:\n%s",
					seed+run, err, len(operations), list(operations))
			}
		})
	}
}

func list(operations []operation) string {
	var b strings.Builder
	for i, o := range operations {
		fmt.Fprintf(&b, "\t%d %v\n", i, o)
	}
	return b.String()
}

// reduce leaves out operations, many at once first, while the rest still fails.
func reduce(newIndex func() indexer.Index, workers int, operations []operation, err error) ([]operation, error) {
	for chunk := len(operations) / 2; chunk > 0; chunk /= 2 {
		for at := 0; at+chunk <= len(operations); {
			fewer := append(append([]operation(nil), operations[:at]...), operations[at+chunk:]...)
			if e := play(newIndex, workers, fewer); e != nil {
				operations, err = fewer, e
			} else {
				at += chunk
			}
		}
	}
	return operations, err
}

// document is one prompt and the names of its blocks.
type document struct {
	hashes []protocol.BlockHash
	chain  []protocol.SequenceHash
	grown  int // blocks stored so far, if interleaved
}

type generator struct {
	shape     *shape
	rng       *rand.Rand
	documents []document
}

// generate makes the operations of one run; they depend on the arguments alone.
func generate(s *shape, seed uint64, n int) []operation {
	g := &generator{shape: s, rng: rand.New(rand.NewPCG(seed, uint64(len(s.name))))}
	for range s.documents {
		g.documents = append(g.documents, g.document())
	}
	operations := make([]operation, n)
	for i := range operations {
		operations[i] = g.operation()
	}
	return operations
}

// oneIn is true once in n times; never if n is 0.
func (g *generator) oneIn(n int) bool { return n > 0 && g.rng.IntN(n) == 0 }

// document makes a prompt: new, or one that leaves an earlier one somewhere and
// then has other blocks or, after one other block, the same.
func (g *generator) document() document {
	hashes := make([]protocol.BlockHash, 1+g.rng.IntN(g.shape.length))
	for i := range hashes {
		hashes[i] = protocol.BlockHash(1 + g.rng.IntN(g.shape.alphabet))
	}
	if len(g.documents) > 0 && !g.oneIn(4) {
		base := g.documents[g.rng.IntN(len(g.documents))].hashes
		cut := g.rng.IntN(len(base) + 1)
		copy(hashes, base[:cut])
		if cut < len(base) && g.oneIn(2) {
			copy(hashes[min(cut+1, len(hashes)):], base[cut+1:])
		}
	}
	return document{hashes: hashes, chain: protocol.SequenceHashes(nil, hashes)}
}

// name is the sequence hash of a document's block in a domain.
func (g *generator) name(d *document, i, domain int) protocol.SequenceHash {
	h := d.chain[i]
	for range domain {
		h = protocol.NextSequenceHash(h, protocol.BlockHash(domain))
	}
	if g.shape.name64 != nil {
		h = g.shape.name64(h)
	}
	return h
}

// domain is mostly the worker's own.
func (g *generator) domain(worker int) int {
	if g.oneIn(5) {
		return g.rng.IntN(g.shape.domains)
	}
	return worker % g.shape.domains
}

func (g *generator) operation() operation {
	if g.oneIn(40) {
		at := g.rng.IntN(len(g.documents))
		g.documents[at] = g.document()
	}
	o := operation{
		worker: g.rng.IntN(g.shape.workers),
		tier:   protocol.Tier(g.rng.IntN(g.shape.tiers)),
		from:   g.rng.IntN(g.shape.workers),
		max:    1 + g.rng.IntN(20),
	}
	d := &g.documents[g.rng.IntN(len(g.documents))]
	if g.oneIn(g.shape.clear) {
		o.kind = opCleared + kind(g.rng.IntN(4))
		if o.kind == opBadStore {
			g.store(&o, d)
			o.parent, o.root = 1<<60+1, false
		}
		return o
	}
	switch draw := g.rng.IntN(100); {
	case draw < 45:
		g.store(&o, d)
	case draw < 70:
		g.remove(&o, d)
	case draw < 97:
		o.kind, o.prompt = opMatch, g.prompt(d)
	default:
		o.kind = opSnapshot
	}
	return o
}

// store fills in a store of some of a document's blocks below what precedes them.
func (g *generator) store(o *operation, d *document) {
	first := g.rng.IntN(len(d.hashes))
	switch {
	case g.shape.interleave:
		first = d.grown % len(d.hashes)
		d.grown++
	case g.oneIn(2):
		first = 0
	}
	last := min(first+1+g.rng.IntN(g.shape.run), len(d.hashes))
	domain := g.domain(o.worker)
	o.kind, o.root = opStored, first == 0
	if !o.root {
		o.parent = g.name(d, first-1, g.domain(o.worker))
	}
	for i := first; i < last; i++ {
		o.blocks = append(o.blocks, protocol.Block{Sequence: g.name(d, i, domain), Hash: d.hashes[i]})
	}
	if g.oneIn(g.shape.misplace) {
		other := &g.documents[g.rng.IntN(len(g.documents))]
		o.root, o.parent = g.oneIn(4), g.name(other, g.rng.IntN(len(other.hashes)), g.domain(o.worker))
	}
	if g.oneIn(100) { // names a block twice, or its own parent
		o.blocks[len(o.blocks)-1].Sequence = o.parent
	}
	if g.oneIn(100) {
		o.blocks = o.blocks[:0]
	}
}

// remove fills in a removal: of a tail from its end, or of any blocks.
func (g *generator) remove(o *operation, d *document) {
	o.kind = opRemoved
	domain := g.domain(o.worker)
	if g.oneIn(2) {
		from := g.rng.IntN(len(d.hashes))
		for i := len(d.hashes) - 1; i >= from; i-- {
			o.hashes = append(o.hashes, g.name(d, i, domain))
		}
		return
	}
	for range 1 + g.rng.IntN(4) {
		o.hashes = append(o.hashes, g.name(d, g.rng.IntN(len(d.hashes)), domain))
	}
}

// prompt is a document, at times cut, changed or continued.
func (g *generator) prompt(d *document) []protocol.BlockHash {
	prompt := append([]protocol.BlockHash(nil), d.hashes...)
	switch g.rng.IntN(6) {
	case 0:
		prompt = prompt[:g.rng.IntN(len(prompt)+1)]
	case 1:
		prompt[g.rng.IntN(len(prompt))]++
	case 2:
		prompt = append(prompt, g.documents[0].hashes...)
	}
	return prompt
}
