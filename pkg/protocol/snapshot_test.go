package protocol

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
)

const exampleSnapshot = `{"v":1,"epoch":42,"snapshot":{"id":"7f3a","through":1812,"seq":90188,"chunk":0,"chunks":1,"blocks":3,"checksum":1234567890,"exact":true},
 "events":[{"stored":{"parent":null,"blocks":[[1,2],[3,4]]}},{"stored":{"parent":3,"blocks":[[5,6]]}}]}`

func TestDecodeSnapshot(t *testing.T) {
	inBoth(t, exampleSnapshot, func(t *testing.T, body []byte, enc Encoding) {
		got, err := DecodeEventMessage(body, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := &EventMessage{
			Epoch:    42,
			Encoding: enc,
			Snapshot: &SnapshotHeader{ID: "7f3a", Through: 1812, Seq: 90188, Chunks: 1, Blocks: 3, Checksum: 1234567890},
			Events: []Event{
				{Kind: EventStored, Root: true, Blocks: []Block{{1, 2}, {3, 4}}},
				{Kind: EventStored, Parent: 3, Blocks: []Block{{5, 6}}},
			},
		}
		if diff := sameMessage(got, want); diff != "" {
			t.Error(diff)
		}
	})
}

func TestSnapshotHeader(t *testing.T) {
	const rest = `"through":1,"blocks":0,"checksum":0`
	tests := []struct {
		header string
		want   *SnapshotHeader // nil: refused
	}{
		{`{"id":"a",` + rest + `}`, &SnapshotHeader{ID: "a", Through: 1, Chunks: 1}},
		{`{"id":"a",` + rest + `,"exact":false,"chunk":999,"chunks":1000,"seq":"5","more":{}}`,
			&SnapshotHeader{ID: "a", Through: 1, Chunk: 999, Chunks: 1000, Seq: 5, Inexact: true}},
		{`{"id":"a","through":18446744073709551615,"blocks":1,"checksum":-1}`,
			&SnapshotHeader{ID: "a", Through: 1<<64 - 1, Chunks: 1, Blocks: 1, Checksum: 1<<64 - 1}},
		{`{` + rest + `}`, nil},
		{`{"id":"",` + rest + `}`, nil},
		{`{"id":7,` + rest + `}`, nil},
		{`{"id":"` + strings.Repeat("x", MaxTextBytes+1) + `",` + rest + `}`, nil},
		{`{"id":"a","blocks":0,"checksum":0}`, nil},
		{`{"id":"a","through":1,"checksum":0}`, nil},
		{`{"id":"a","through":1,"blocks":0}`, nil},
		{`{"id":"a",` + rest + `,"chunks":0}`, nil},
		{`{"id":"a",` + rest + `,"chunks":1001}`, nil},
		{`{"id":"a",` + rest + `,"chunk":1}`, nil},
		{`{"id":"a",` + rest + `,"chunk":2,"chunks":2}`, nil},
		{`{"id":"a",` + rest + `,"chunk":-1}`, nil},
		{`{"id":"a",` + rest + `,"exact":"yes"}`, nil},
		{`[]`, nil},
		{`"a"`, nil},
	}
	for _, test := range tests {
		for _, format := range []string{`{"snapshot":%s,"events":[]}`, `{"events":[],"snapshot":%s}`} {
			inBoth(t, fmt.Sprintf(format, test.header), func(t *testing.T, body []byte, enc Encoding) {
				got, err := DecodeEventMessage(body, 0)
				if test.want == nil {
					if err != RefusedSnapshot {
						t.Errorf("%s: %v, %v", test.header, got, err)
					}
					return
				}
				if err != nil {
					t.Fatalf("%s: %v", test.header, err)
				}
				if diff := sameMessage(got, &EventMessage{Encoding: enc, Snapshot: test.want}); diff != "" {
					t.Errorf("%s: %s", test.header, diff)
				}
			})
		}
	}
}

func TestSnapshotEvents(t *testing.T) {
	const header = `"snapshot":{"id":"a","through":1,"blocks":0,"checksum":0}`
	tests := []struct {
		events string
		want   error
	}{
		{`{"stored":{"blocks":[[1,2]]}},{"removed":{"blocks":[1]}},{"note":{}},{"cleared":{}}`, nil},
		{`{"id":5,"stored":{"blocks":[[1,2]]}}`, nil}, // the id says nothing
		{`{},{"later":{}}`, nil}, // kinds that are not known change nothing; the checksum tells if they should
		{`{"stored":{"blocks":[[1,2]],"tier":"moon"}}`, RefusedSnapshot},
		{`{"id":5,"stored":{"blocks":[[1,2]],"tier":"moon"}}`, RefusedSnapshot},
		{`{"stored":{"blocks":[[1,2],[1,2]]}}`, RefusedSnapshot},
		{`1`, RefusedSnapshot},
		{`{"note":"` + strings.Repeat("x", maxCopiedNote) + `"}`, RefusedSnapshot},
		{`{"note":"` + strings.Repeat("x", MaxNoteBytes) + `"}`, nil}, // a router's copy of a note may be longer
	}
	for _, test := range tests {
		for _, format := range []string{`{%s,"events":[%s]}`, `{"events":[%[2]s],%[1]s}`} {
			inBoth(t, fmt.Sprintf(format, header, test.events), func(t *testing.T, body []byte, _ Encoding) {
				m, err := DecodeEventMessage(body, 0)
				if !errors.Is(err, test.want) {
					t.Fatalf("%.80s: %v", test.events, err)
				}
				if err == nil {
					for _, e := range m.Events {
						if e.ID != 0 {
							t.Errorf("%.80s: id %d is kept", test.events, e.ID)
						}
					}
				}
			})
		}
	}
}

// A chunk of a snapshot is not bound by the blocks of a live message.
func TestLargeSnapshotChunk(t *testing.T) {
	m := &EventMessage{Snapshot: &SnapshotHeader{ID: "a", Chunks: 1}, Events: []Event{{Kind: EventStored, Root: true}}}
	for i := range 2 * MaxEventBlocks {
		m.Events[0].Blocks = append(m.Events[0].Blocks, Block{SequenceHash(i), BlockHash(i)})
	}
	for _, enc := range []Encoding{EncodingJSON, EncodingMsgpack} {
		got, err := DecodeEventMessage(AppendEventMessage(nil, m, enc), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got.BlockCount() != 2*MaxEventBlocks {
			t.Errorf("%v: %d blocks", enc, got.BlockCount())
		}
	}
}

func TestSummarizeSnapshot(t *testing.T) {
	sum := func(entries ...uint64) (total uint64) {
		for _, e := range entries {
			total += e
		}
		return total
	}
	store := func(tier Tier, parent SequenceHash, blocks ...Block) Event {
		return Event{Kind: EventStored, Tier: tier, Root: parent == 0, Parent: parent, Blocks: blocks}
	}
	remove := func(tier Tier, seq ...SequenceHash) Event {
		return Event{Kind: EventRemoved, Tier: tier, Removed: seq}
	}
	a, b, c := Block{1, 11}, Block{2, 12}, Block{3, 13}
	tests := map[string]struct {
		events   []Event
		blocks   uint64
		checksum uint64
	}{
		"nothing":          {nil, 0, 0},
		"a chain":          {[]Event{store(0, 0, a, b), store(0, 2, c)}, 3, sum(EntryChecksum(a, 0), EntryChecksum(b, 0), EntryChecksum(c, 0))},
		"stored again":     {[]Event{store(0, 0, a), store(0, 0, a)}, 1, EntryChecksum(a, 0)},
		"two tiers":        {[]Event{store(0, 0, a), store(TierDisk, 0, a)}, 2, sum(EntryChecksum(a, 0), EntryChecksum(a, TierDisk))},
		"parent on a tier": {[]Event{store(TierHost, 0, a), store(0, 1, b)}, 2, sum(EntryChecksum(a, TierHost), EntryChecksum(b, 0))},
		"missing inner":    {[]Event{store(0, 0, a, b, c), remove(0, 2)}, 2, sum(EntryChecksum(a, 0), EntryChecksum(c, 0))},
		"unknown removal":  {[]Event{store(0, 0, a), remove(0, 9), remove(TierHost, 1)}, 1, EntryChecksum(a, 0)},
		"moved":            {[]Event{store(0, 0, a), store(TierHost, 0, a), store(0, 0, b), store(0, 2, Block{1, 99})}, 3, sum(EntryChecksum(Block{1, 99}, 0), EntryChecksum(Block{1, 99}, TierHost), EntryChecksum(b, 0))},
		"cleared":          {[]Event{store(0, 0, a), {Kind: EventCleared}, store(0, 0, b)}, 1, EntryChecksum(b, 0)},
		"a note":           {[]Event{{Kind: EventNote, Note: []byte("1")}, {Kind: EventIgnored}}, 0, 0},
		"no blocks":        {[]Event{store(0, 77)}, 0, 0},
	}
	for name, test := range tests {
		blocks, checksum, err := SummarizeSnapshot(test.events)
		if err != nil || blocks != test.blocks || checksum != test.checksum {
			t.Errorf("%s: %d blocks, checksum %d, %v; want %d, %d", name, blocks, checksum, err, test.blocks, test.checksum)
		}
	}
	for name, test := range map[string]struct {
		events []Event
		want   Refusal
	}{
		"parent not held":     {[]Event{store(0, 5, a)}, RefusedSnapshot},
		"parent removed":      {[]Event{store(0, 0, a), remove(0, 1), store(0, 1, b)}, RefusedSnapshot},
		"repeats a hash":      {[]Event{store(0, 0, a, a)}, RefusedMalformedStore},
		"contains its parent": {[]Event{store(0, 0, a), store(0, 1, a)}, RefusedMalformedStore},
		"refused":             {[]Event{{Refusal: RefusedUndecodable}}, RefusedUndecodable},
	} {
		if _, _, err := SummarizeSnapshot(test.events); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEntryChecksum pins the layout of what is hashed.
func TestEntryChecksum(t *testing.T) {
	entry := []byte{1, 2, 3, 4, 5, 6, 7, 0x88, 9, 10, 11, 12, 13, 14, 15, 0x96, 2}
	b := Block{Sequence: 0x8807060504030201, Hash: 0x960f0e0d0c0b0a09}
	if got, want := EntryChecksum(b, TierDisk), xxh3.Hash(entry); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}
