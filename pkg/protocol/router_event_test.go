package protocol

import (
	"encoding/hex"
	"testing"
)

// routerRow is a RouterEvent as NVIDIA Dynamo read it.
type routerRow struct {
	Name       string
	Step       string
	JSON       string  `json:"json"`
	MsgpackHex string  `json:"msgpack_hex"`
	Error      *string // Dynamo's
}

// TestRecordedRouterEvents checks how each recorded RouterEvent is taken here,
// which is not always what Dynamo does with it.
func TestRecordedRouterEvents(t *testing.T) {
	const maximal = 1<<64 - 1
	one := Event{ID: 3, Kind: EventStored, Root: true, Blocks: []Block{{maximal, 14643705804678351452}}}
	refused := EventMessage{Events: []Event{{ID: 3, Refusal: RefusedRouterEvent}}}
	want := map[string]EventMessage{
		"no start_position": {Events: []Event{one}},
		"no parent":         {Events: []Event{one}},
		"session":           {Events: []Event{one}},
		"no domain":         {Events: []Event{one}},
		"mm":                {Events: []Event{{ID: 4, Kind: EventStored, Root: true, Blocks: []Block{{1, 2}}}}},
		"no mm":             {Events: []Event{{ID: 1, Kind: EventStored, Parent: 5, Blocks: []Block{{1, 2}}}}},
		"domain null":       {Events: []Event{{ID: 3, Kind: EventIgnored}}},
		"tier null":         refused,
		"tier unknown":      refused,
		"data unknown":      {Events: []Event{{ID: 4, Refusal: RefusedRouterEvent}}},
		"worker string":     {Events: []Event{one}}, // the worker is the subject's
		"worker negative":   {Events: []Event{one}},
	}
	for _, row := range readGolden[routerRow](t, "router-events.jsonl") {
		t.Run(row.Step, func(t *testing.T) {
			bodies := map[Encoding][]byte{EncodingJSON: []byte(row.JSON), EncodingMsgpack: inMsgpack(t, row.JSON)}
			if row.MsgpackHex != "" {
				body, err := hex.DecodeString(row.MsgpackHex)
				if err != nil {
					t.Fatal(err)
				}
				bodies[EncodingMsgpack] = body
			}
			for enc, body := range bodies {
				got, err := DecodeEventMessage(body, 0)
				if row.Step == "no event" { // nothing tells it from any other object
					if err != RefusedUndecodable {
						t.Errorf("%v: %v", enc, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%v: %v", enc, err)
				}
				want, ok := want[row.Step]
				if !ok {
					t.Fatal("no expectation")
				}
				want.RouterEvents, want.Encoding = true, enc
				if diff := sameMessage(got, &want); diff != "" {
					t.Errorf("%v: %s", enc, diff)
				}
			}
		})
	}
}

// TestRecordedRouterEventLists reads what a Dynamo publisher sent.
func TestRecordedRouterEventLists(t *testing.T) {
	type row struct {
		Name       string
		PayloadHex string `json:"payload_hex"`
		Events     []struct {
			StorageTier string `json:"storage_tier"`
			Event       struct {
				EventID decimal `json:"event_id"`
				Data    any
				Rank    uint16 `json:"dp_rank"`
			}
		}
	}
	kinds := map[EventKind]int{}
	for _, row := range readGolden[row](t, "router-event-lists.jsonl") {
		payload, err := hex.DecodeString(row.PayloadHex)
		if err != nil {
			t.Fatal(err)
		}
		rank := row.Events[0].Event.Rank
		got, err := DecodeEventMessage(payload, rank)
		if err != nil || len(got.Events) != len(row.Events) || !got.RouterEvents || len(got.Lost) != 0 {
			t.Fatalf("%s: %+v, %v", row.Name, got, err)
		}
		for i, e := range got.Events {
			kinds[e.Kind]++
			if e.ID != EventID(row.Events[i].Event.EventID) || e.Refusal != "" {
				t.Errorf("%s: event %+v", row.Name, e)
			}
			switch data := row.Events[i].Event.Data.(type) {
			case string:
				if e.Kind != EventCleared {
					t.Errorf("%s: %s is of kind %d", row.Name, data, e.Kind)
				}
			case map[string]any:
				checkRouterData(t, row.Name, &e, data)
			}
		}
		if other, err := DecodeEventMessage(payload, rank+1); err != nil || len(other.Events) != 0 || other.Lost[RefusedOtherRank] != len(row.Events) {
			t.Errorf("%s: for another rank %+v, %v", row.Name, other, err)
		}
	}
	for _, kind := range []EventKind{EventStored, EventRemoved, EventCleared} {
		if kinds[kind] == 0 {
			t.Errorf("no event of kind %d", kind)
		}
	}
}

// checkRouterData compares a decoded change with the row's, which has all its
// integers as text.
func checkRouterData(t *testing.T, name string, e *Event, data map[string]any) {
	t.Helper()
	integer := func(v any) uint64 {
		n, ok := parseDigits([]byte(v.(string)))
		if !ok {
			t.Fatalf("%s: integer %v", name, v)
		}
		return n
	}
	if removed, ok := data["removed"].(map[string]any); ok {
		for i, h := range removed["block_hashes"].([]any) {
			if e.Removed[i] != SequenceHash(integer(h)) {
				t.Errorf("%s: removal %d of %+v", name, i, e)
			}
		}
		return
	}
	stored := data["stored"].(map[string]any)
	parent := stored["parent_hash"]
	if e.Root != (parent == nil) || parent != nil && e.Parent != SequenceHash(integer(parent)) {
		t.Errorf("%s: parent of %+v", name, e)
	}
	blocks := stored["blocks"].([]any)
	if len(blocks) != len(e.Blocks) {
		t.Fatalf("%s: %d blocks, want %d", name, len(e.Blocks), len(blocks))
	}
	for i, b := range blocks {
		b := b.(map[string]any)
		if want := (Block{SequenceHash(integer(b["block_hash"])), BlockHash(integer(b["tokens_hash"]))}); e.Blocks[i] != want {
			t.Errorf("%s: block %d is %v, want %v", name, i, e.Blocks[i], want)
		}
	}
}

func TestRouterEvents(t *testing.T) {
	const fixture = `{"worker_id":9,"storage_tier":"device","residency_domain":"worker","event":{"event_id":7,"data":{"stored":{"parent_hash":null,"start_position":null,
 "blocks":[{"block_hash":101,"tokens_hash":14643705804678351452,"mm_extra_info":null},{"block_hash":18446744073709551615,"tokens_hash":16777012769546811212,"mm_extra_info":null}]}},"dp_rank":0}}`
	one := func(e Event) EventMessage { return EventMessage{Events: []Event{e}} }
	lost := func(why Refusal) EventMessage { return EventMessage{Lost: map[Refusal]int{why: 1}} }
	tests := map[string]struct {
		body string
		rank uint16
		want EventMessage
	}{
		"fixture": {fixture, 0, one(Event{ID: 7, Kind: EventStored, Root: true, Blocks: []Block{{101, 14643705804678351452}, {1<<64 - 1, 16777012769546811212}}})},
		"signed hash": {`{"event":{"event_id":7,"data":{"removed":{"block_hashes":[-1,"3"]}}}}`, 0,
			one(Event{ID: 7, Kind: EventRemoved, Removed: []SequenceHash{1<<64 - 1, 3}})},
		"exact integers": {`{"event":{"event_id":9007199254740993,"data":{"removed":{"block_hashes":[9007199254740993]}}}}`, 0,
			one(Event{ID: 1<<53 + 1, Kind: EventRemoved, Removed: []SequenceHash{1<<53 + 1}})},
		"cleared":            {`{"event":{"event_id":7,"data":"cleared"}}`, 3, one(Event{ID: 7, Kind: EventCleared})},
		"cleared, a map":     {`{"event":{"event_id":7,"data":{"cleared":null}}}`, 3, one(Event{ID: 7, Kind: EventCleared})},
		"cleared on host":    {`{"storage_tier":"host_pinned","event":{"event_id":7,"data":"cleared"}}`, 3, one(Event{ID: 7, Kind: EventCleared})},
		"no blocks":          {`{"event":{"event_id":7,"data":{"stored":{"blocks":[]}}}}`, 0, one(Event{ID: 7, Kind: EventStored, Root: true})},
		"host_pinned":        {`{"storage_tier":"host_pinned","event":{"event_id":7,"data":{"removed":{"block_hashes":[1]}}}}`, 0, one(Event{ID: 7, Kind: EventRemoved, Tier: TierHost, Removed: []SequenceHash{1}})},
		"disk, tier last":    {`{"event":{"event_id":7,"data":{"removed":{"block_hashes":[1]}}},"storage_tier":"disk"}`, 0, one(Event{ID: 7, Kind: EventRemoved, Tier: TierDisk, Removed: []SequenceHash{1}})},
		"external":           {`{"storage_tier":"external","event":{"event_id":7,"data":{"removed":{"block_hashes":[]}}}}`, 0, one(Event{ID: 7, Kind: EventRemoved, Tier: TierExternal})},
		"host is not a name": {`{"storage_tier":"host","event":{"event_id":7,"data":"cleared"}}`, 0, one(Event{ID: 7, Refusal: RefusedRouterEvent})},
		"empty tier":         {`{"storage_tier":"","event":{"event_id":7,"data":"cleared"}}`, 0, one(Event{ID: 7, Refusal: RefusedRouterEvent})},
		"id 0":               {`{"event":{"event_id":0,"data":"cleared"}}`, 0, one(Event{Kind: EventCleared})},
		"rank of another":    {`{"event":{"event_id":7,"data":"cleared","dp_rank":1}}`, 0, lost(RefusedOtherRank)},
		"rank 0 of another":  {`{"event":{"dp_rank":0,"event_id":7,"data":"cleared"}}`, 1, lost(RefusedOtherRank)},
		"rank beyond any":    {`{"event":{"event_id":7,"data":"cleared","dp_rank":65536}}`, 0, lost(RefusedOtherRank)},
		"wrong and another":  {`{"event":{"event_id":7,"data":"gone","dp_rank":1}}`, 0, lost(RefusedOtherRank)},
		"rank unreadable":    {`{"event":{"event_id":7,"data":"cleared","dp_rank":"1"}}`, 0, one(Event{ID: 7, Refusal: RefusedRouterEvent})},
		"the subject's":      {`{"event":{"event_id":7,"data":"cleared","dp_rank":3}}`, 3, one(Event{ID: 7, Kind: EventCleared})},
		"galaxy":             {`{"residency_domain":"galaxy","event":{"event_id":7,"data":"cleared"}}`, 0, one(Event{ID: 7, Kind: EventIgnored})},
		"cache owner":        {`{"event":{"event_id":7,"data":"cleared"},"residency_domain":"cache_owner"}`, 0, one(Event{ID: 7, Kind: EventIgnored})},
		"domain a number":    {`{"residency_domain":5,"event":{"event_id":7,"data":"cleared"}}`, 0, one(Event{ID: 7, Kind: EventIgnored})},
		"wrong, elsewhere":   {`{"residency_domain":"cache_owner","event":{"event_id":7,"data":"gone"}}`, 0, one(Event{ID: 7, Kind: EventIgnored})},
		"no id":              {`{"event":{"data":"cleared"}}`, 0, lost(RefusedRouterEvent)},
		"unreadable id":      {`{"event":{"event_id":1.5,"data":"cleared"}}`, 0, lost(RefusedRouterEvent)},
		"no data":            {`{"event":{"event_id":7}}`, 0, one(Event{ID: 7, Refusal: RefusedRouterEvent})},
		"null data":          {`{"event":{"event_id":7,"data":null}}`, 0, one(Event{ID: 7, Refusal: RefusedRouterEvent})},
		"two changes":        {`{"event":{"event_id":7,"data":{"stored":{"blocks":[]},"removed":{"block_hashes":[]}}}}`, 0, one(Event{ID: 7, Refusal: RefusedRouterEvent})},
		"no block hash":      {`{"event":{"event_id":7,"data":{"stored":{"blocks":[{"tokens_hash":1}]}}}}`, 0, one(Event{ID: 7, Refusal: RefusedRouterEvent})},
		"no list of blocks":  {`{"event":{"event_id":7,"data":{"stored":{}}}}`, 0, one(Event{ID: 7, Refusal: RefusedRouterEvent})},
		"no list to remove":  {`{"event":{"event_id":7,"data":{"removed":{}}}}`, 0, one(Event{ID: 7, Refusal: RefusedRouterEvent})},
		"event no object":    {`{"event":5}`, 0, lost(RefusedRouterEvent)},
		"malformed store": {`{"event":{"event_id":7,"data":{"stored":{"parent_hash":1,"blocks":[{"block_hash":1,"tokens_hash":2}]}}}}`, 0,
			one(Event{ID: 7, Kind: EventStored, Parent: 1, Refusal: RefusedMalformedStore})},
		"empty list": {`[]`, 0, EventMessage{}},
		"a list": {`[{"event":{"event_id":7,"data":"cleared"}},5,{"worker_id":1},{"event":{"event_id":8,"data":"gone"}},{"event":{"event_id":9,"data":"cleared"}}]`, 0,
			EventMessage{Lost: map[Refusal]int{RefusedRouterEvent: 2}, Events: []Event{
				{ID: 7, Kind: EventCleared}, {ID: 8, Refusal: RefusedRouterEvent}, {ID: 9, Kind: EventCleared}}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBoth(t, test.body, func(t *testing.T, body []byte, enc Encoding) {
				got, err := DecodeEventMessage(body, test.rank)
				if err != nil {
					t.Fatal(err)
				}
				want := test.want
				want.RouterEvents, want.Encoding = true, enc
				if diff := sameMessage(got, &want); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// A message of the contract's own format is told by its fields, wherever they stand.
func TestNativeIsNoRouterEvent(t *testing.T) {
	for _, body := range []string{`{"event":{"event_id":1,"data":"cleared"},"events":[]}`, `{"event":1,"v":1,"events":[]}`} {
		if m, err := DecodeEventMessage([]byte(body), 0); err != nil || m.RouterEvents {
			t.Errorf("%s gives %+v, %v", body, m, err)
		}
	}
	if _, err := DecodeEventMessage([]byte(`{"event":{"event_id":1,"data":"cleared"}} x`), 0); err != RefusedUndecodable {
		t.Error(err)
	}
}
