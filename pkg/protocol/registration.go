package protocol

// Registration is a worker's roster value.
type Registration struct {
	Version             int               `json:"v"`
	Pool                string            `json:"pool"`
	Worker              string            `json:"worker"`
	Rank                uint16            `json:"rank"`
	Model               string            `json:"model,omitempty"`
	BlockSize           int               `json:"block_size"` // tokens, 1 .. 65,536
	Endpoint            string            `json:"endpoint,omitempty"`
	TotalKVBlocks       uint64            `json:"total_kv_blocks,omitempty"`
	MaxNumBatchedTokens uint64            `json:"max_num_batched_tokens,omitempty"`
	Events              bool              `json:"events"` // default true
	Eagle               bool              `json:"eagle,omitempty"`
	Taints              []string          `json:"taints,omitempty"`
	Attributes          map[string]string `json:"attributes,omitempty"`
	Drain               bool              `json:"drain,omitempty"`

	// Epoch is nil in the put that begins a life; 0 says that none is used.
	Epoch     *Epoch    `json:"epoch,omitempty"`
	LastID    EventID   `json:"last_id,omitempty"`
	StreamSeq StreamSeq `json:"stream_seq,omitempty"`
	Checksum  *uint64   `json:"checksum,omitempty"` // nil if the publisher keeps no state
	Unsent    uint64    `json:"unsent,omitempty"`
}

// Target is the worker and rank registered.
func (r *Registration) Target() Worker { return Worker{ID: r.Worker, Rank: r.Rank} }
