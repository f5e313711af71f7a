package protocol

import "math"

// Limits of a registration.
const (
	MaxBlockSize  = 1 << 16 // tokens of a block
	MaxAttributes = 256     // attributes of a worker
)

// DecodeRegistration reads a roster value. The error is an *Error with
// CodeInvalidRequest whose message names the field.
func DecodeRegistration(body []byte) (*Registration, error) {
	r := newReader(body)
	g := &Registration{Version: messageVersion, Events: true}
	r.object(func(name []byte) {
		switch string(name) {
		case "v":
			r.version()
		case "pool":
			g.Pool = r.name()
		case "worker":
			g.Worker = r.name()
		case "rank":
			g.Rank = r.rank()
		case "model":
			g.Model = r.text(MaxTextBytes)
		case "block_size":
			g.BlockSize = int(r.uint(1, MaxBlockSize))
		case "endpoint":
			g.Endpoint = r.text(MaxTextBytes)
		case "total_kv_blocks":
			g.TotalKVBlocks = r.uint(0, math.MaxInt64)
		case "max_num_batched_tokens":
			g.MaxNumBatchedTokens = r.uint(0, math.MaxInt64)
		case "events":
			g.Events = r.bool()
		case "eagle":
			g.Eagle = r.bool()
		case "taints":
			g.Taints = r.texts(MaxTaints)
		case "attributes":
			g.Attributes = r.attributes()
		case "drain":
			g.Drain = r.bool()
		default:
			r.registrationState(name, g)
		}
	})
	switch {
	case g.Pool == "":
		r.failField("pool", "is missing")
	case g.Worker == "":
		r.failField("worker", "is missing")
	case g.BlockSize == 0:
		r.failField("block_size", "is missing")
	}
	return result(g, r)
}

// registrationState reads the fields that change from refresh to refresh.
func (r *reader) registrationState(name []byte, g *Registration) {
	switch string(name) {
	case "epoch":
		epoch := Epoch(r.id())
		g.Epoch = &epoch
	case "last_id":
		g.LastID = EventID(r.id())
	case "stream_seq":
		g.StreamSeq = StreamSeq(r.id())
	case "checksum":
		sum := r.id()
		g.Checksum = &sum
	case "unsent":
		g.Unsent = r.uint(0, math.MaxInt64)
	}
}

func (r *reader) attributes() map[string]string {
	out := map[string]string{}
	r.object(func(name []byte) {
		key := r.fieldText(name)
		out[key] = r.text(MaxTextBytes)
		if len(out) > MaxAttributes {
			r.fail("is one attribute too many, at most %d are allowed", MaxAttributes)
		}
	})
	return out
}
