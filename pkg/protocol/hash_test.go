package protocol

import (
	"slices"
	"testing"

	"github.com/zeebo/xxh3"
)

// count is the tokens from first to last.
func count(first, last uint32) []uint32 {
	var out []uint32
	for t := first; t <= last; t++ {
		out = append(out, t)
	}
	return out
}

func TestHashFunction(t *testing.T) {
	if got := xxh3.HashStringSeed("test data", hashSeed); got != 13226331709069118873 {
		t.Errorf("hash of the test text is %d", got)
	}
}

func TestBlockHashes(t *testing.T) {
	tests := map[string]struct {
		tokens []uint32
		o      HashOptions
		want   []BlockHash
	}{
		"three blocks":        {count(1, 12), HashOptions{BlockSize: 4}, []BlockHash{14643705804678351452, 16777012769546811212, 483935686894639516}},
		"from 0":              {count(0, 3), HashOptions{BlockSize: 4}, []BlockHash{9143094415614847814}},
		"16":                  {count(0, 31), HashOptions{BlockSize: 16}, []BlockHash{15310707395893867146, 15292316782987903195}},
		"32":                  {count(0, 31), HashOptions{BlockSize: 32}, []BlockHash{5756925433886871916}},
		"64":                  {count(0, 63), HashOptions{BlockSize: 64}, []BlockHash{3480597578098033343}},
		"128":                 {count(0, 127), HashOptions{BlockSize: 128}, []BlockHash{9509643624113304476}},
		"largest tokens":      {[]uint32{0xffffffff, 0, 0xffffffff, 0}, HashOptions{BlockSize: 4}, []BlockHash{11465178506253652583}},
		"lora":                {count(0, 3), HashOptions{BlockSize: 4, LoRA: "adapter-a"}, []BlockHash{6665157333201000639}},
		"salt":                {count(0, 3), HashOptions{BlockSize: 4, Salt: "tenant-a"}, []BlockHash{17009624042690211646}},
		"lora named as salt":  {count(0, 3), HashOptions{BlockSize: 4, LoRA: "tenant-a"}, []BlockHash{582854293518545300}},
		"lora and salt":       {count(0, 3), HashOptions{BlockSize: 4, LoRA: "adapter-a", Salt: "tenant-a"}, []BlockHash{8269515957840517240}},
		"plain pair":          {count(0, 1), HashOptions{BlockSize: 2}, []BlockHash{10918435022357402928}},
		"one object":          {count(0, 1), HashOptions{BlockSize: 2, Multimodal: [][]uint64{{42}}}, []BlockHash{6100948656312251355}},
		"two objects":         {count(0, 3), HashOptions{BlockSize: 4, Multimodal: [][]uint64{{42, 7}}}, []BlockHash{4581426371996505827}},
		"two objects, turned": {count(0, 3), HashOptions{BlockSize: 4, Multimodal: [][]uint64{{7, 42}}}, []BlockHash{4581426371996505827}},
		"no objects":          {count(0, 3), HashOptions{BlockSize: 4, Multimodal: [][]uint64{{}}}, []BlockHash{9143094415614847814}},
		"eagle":               {count(0, 4), HashOptions{BlockSize: 2, Eagle: true}, []BlockHash{11646242937812223497, 9948816348502404300}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := BlockHashes(nil, test.tokens, test.o); !slices.Equal(got, test.want) {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestSeed(t *testing.T) {
	tests := []struct {
		o    HashOptions
		want uint64
	}{
		{HashOptions{}, hashSeed},
		{HashOptions{LoRA: "adapter-a"}, 8842669519798868182},
		{HashOptions{Salt: "tenant-a"}, 1948188790972764086},
		{HashOptions{LoRA: "tenant-a"}, 7159698576361520314},
		{HashOptions{LoRA: "adapter-a", Salt: "tenant-a"}, 10790858310771630931},
	}
	for _, test := range tests {
		if got := test.o.Seed(); got != test.want {
			t.Errorf("seed of %+v is %d, want %d", test.o, got, test.want)
		}
	}
}

func TestSequenceHashes(t *testing.T) {
	tests := []struct {
		blocks []BlockHash
		want   []SequenceHash
	}{
		{nil, nil},
		{[]BlockHash{14643705804678351452, 16777012769546811212, 483935686894639516},
			[]SequenceHash{14643705804678351452, 4945711292740353085, 12583592247330656132}},
		{[]BlockHash{15310707395893867146, 15292316782987903195}, []SequenceHash{15310707395893867146, 13769157705258532664}},
		{[]BlockHash{1, 2, 3}, []SequenceHash{1, 16740963408272063728, 5417695437591212399}},
		{[]BlockHash{11, 22, 33}, []SequenceHash{11, 750553365844651409, 3257565445809651757}},
	}
	for _, test := range tests {
		if got := SequenceHashes(nil, test.blocks); !slices.Equal(got, test.want) {
			t.Errorf("chain over %d is %d, want %d", test.blocks, got, test.want)
		}
	}
}

func TestWholeBlocks(t *testing.T) {
	tests := []struct {
		tokens, size int
		eagle        bool
		want         int
	}{
		{7, 4, false, 1}, {3, 4, false, 0}, {8, 4, false, 2}, {7, 0, false, 0}, {0, 4, false, 0}, {7, -1, false, 0},
		{4, 2, true, 1}, {5, 2, true, 2}, {0, 2, true, 0}, {1, 2, true, 0}, {7, 0, true, 0},
	}
	for _, test := range tests {
		if got := WholeBlocks(test.tokens, test.size, test.eagle); got != test.want {
			t.Errorf("%+v gives %d", test, got)
		}
		o := HashOptions{BlockSize: test.size, Eagle: test.eagle}
		if got := BlockHashes(nil, make([]uint32, test.tokens), o); len(got) != test.want {
			t.Errorf("%+v gives %d hashes", test, len(got))
		}
	}
}

// TestRecordedHashes compares with what NVIDIA Dynamo computed.
func TestRecordedHashes(t *testing.T) {
	type row struct {
		Name, Kind     string
		Tokens         []uint32
		BlockSize      int         `json:"block_size"`
		LoRA           string      `json:"lora"`
		Namespace      string      `json:"namespace"`
		MM             [][]decimal `json:"mm"`
		Eagle          bool
		Local, Seq     []decimal
		MMHash         decimal `json:"mm_hash"`
		PadToken       uint32  `json:"pad_token"`
		Identifier     string
		RequestMMHash  *decimal `json:"request_mm_hash"`
		ExtraKeyMMHash *decimal `json:"extra_key_mm_hash"`
	}
	seen := map[string]int{}
	for _, row := range readGolden[row](t, "hashes.jsonl") {
		seen[row.Kind]++
		local := decimals[BlockHash](row.Local)
		switch row.Kind {
		case "tokens":
			o := HashOptions{BlockSize: row.BlockSize, LoRA: row.LoRA, Salt: row.Namespace, Eagle: row.Eagle}
			for _, objects := range row.MM {
				o.Multimodal = append(o.Multimodal, decimals[uint64](objects))
			}
			if got := BlockHashes(nil, row.Tokens, o); !slices.Equal(got, local) {
				t.Errorf("%s: block hashes %d, want %d", row.Name, got, local)
			}
			fallthrough
		case "chain":
			if got, want := SequenceHashes(nil, local), decimals[SequenceHash](row.Seq); !slices.Equal(got, want) {
				t.Errorf("%s: chain %d, want %d", row.Name, got, want)
			}
		case "pad":
			if got := PadToken(uint64(row.MMHash)); got != row.PadToken {
				t.Errorf("%s: pad token %d, want %d", row.Name, got, row.PadToken)
			}
		case "mm_identifier":
			checkHash(t, row.Name+" in a request", MultimodalHash, row.Identifier, row.RequestMMHash)
			checkHash(t, row.Name+" as an extra key", ExtraKeyHash, row.Identifier, row.ExtraKeyMMHash)
		default:
			t.Errorf("%s: unknown kind %q", row.Name, row.Kind)
		}
	}
	for _, kind := range []string{"tokens", "chain", "pad", "mm_identifier"} {
		if seen[kind] == 0 {
			t.Errorf("no row of kind %s", kind)
		}
	}
}

func checkHash(t *testing.T, what string, hash func(string) (uint64, bool), identifier string, want *decimal) {
	t.Helper()
	got, ok := hash(identifier)
	if ok != (want != nil) || ok && got != uint64(*want) {
		t.Errorf("%s: hash %d, %t; want %v", what, got, ok, want)
	}
}
