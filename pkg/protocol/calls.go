package protocol

// Prompt is a prompt as calls carry it: by tokens or by block hashes.
type Prompt struct {
	TokenIDs    []uint32    `json:"token_ids,omitempty"`
	BlockHashes []BlockHash `json:"block_hashes,omitempty"`
	ISLTokens   int         `json:"isl_tokens,omitempty"` // with BlockHashes: tokens of the prompt
	LoRA        string      `json:"lora_name,omitempty"`
	CacheSalt   string      `json:"cache_salt,omitempty"`

	// ByHash says that block_hashes was given, which may be an empty list.
	ByHash bool `json:"-"`
}

// Tokens is the length of the prompt in tokens.
func (p *Prompt) Tokens() int {
	if p.ByHash {
		return p.ISLTokens
	}
	return len(p.TokenIDs)
}

// Pin asks for one worker. Rank nil means the worker's only rank.
type Pin struct {
	Worker string  `json:"worker"`
	Rank   *uint16 `json:"rank,omitempty"`
}

// Overrides change the pool's routing settings for one request; nil keeps them.
type Overrides struct {
	OverlapScoreCredit    *float64 `json:"overlap_score_credit,omitempty"`
	PrefillLoadScale      *float64 `json:"prefill_load_scale,omitempty"`
	Temperature           *float64 `json:"router_temperature,omitempty"`
	AssumeKVReuse         *bool    `json:"assume_kv_reuse,omitempty"`
	TrackPrefillTokens    *bool    `json:"track_prefill_tokens,omitempty"`
	SharedCacheMultiplier *float64 `json:"shared_cache_multiplier,omitempty"`
}

// RouteRequest is the body of a routing call.
type RouteRequest struct {
	RequestID string `json:"request_id,omitempty"`
	Attempt   uint32 `json:"attempt,omitempty"` // default 1
	TimeoutMS int64  `json:"timeout_ms,omitempty"`
	Prompt
	ExpectedOutputTokens int                `json:"expected_output_tokens,omitempty"`
	Priority             int                `json:"priority,omitempty"`
	StrictPriority       uint32             `json:"strict_priority,omitempty"`
	PolicyClass          string             `json:"policy_class,omitempty"`
	SessionID            string             `json:"session_id,omitempty"`
	Pinned               *Pin               `json:"pinned,omitempty"`
	Allowed              *[]string          `json:"allowed_workers,omitempty"` // nil: all
	Excluded             []string           `json:"excluded_workers,omitempty"`
	RequiredTaints       []string           `json:"required_taints,omitempty"`
	PreferredTaints      map[string]float64 `json:"preferred_taints,omitempty"`
	Overrides            Overrides          `json:"overrides,omitempty,omitzero"`
	QueryOnly            bool               `json:"query_only,omitempty"`
	Explain              bool               `json:"explain,omitempty"`
}

// Reason says why a worker was chosen.
type Reason string

// The reasons of a choice; the first that applies is given.
const (
	ReasonPinned       Reason = "pinned"
	ReasonSession      Reason = "session"
	ReasonOnlyEligible Reason = "only_eligible"
	ReasonLoadOnly     Reason = "load_only"
	ReasonSampled      Reason = "sampled"
	ReasonTie          Reason = "tie"
	ReasonLowestCost   Reason = "lowest_cost"
)

// ZeroOverlap says why the chosen worker holds nothing of the prompt.
type ZeroOverlap string

// The reasons of a zero overlap; the first that applies is given.
const (
	ZeroShorterThanBlock ZeroOverlap = "shorter_than_block"
	ZeroBlockSize        ZeroOverlap = "block_size"
	ZeroWorkerOff        ZeroOverlap = "worker_off"
	ZeroIndexBehind      ZeroOverlap = "index_behind"
	ZeroNonePublished    ZeroOverlap = "none_published"
	ZeroNoPrefix         ZeroOverlap = "no_prefix"
)

// Policy names a routing policy.
type Policy string

// The routing policies.
const (
	PolicyLatency    Policy = "latency"
	PolicyKV         Policy = "kv"
	PolicyLoad       Policy = "load"
	PolicyRandom     Policy = "random"
	PolicyRoundRobin Policy = "round-robin"
)

// Policies lists all policies, the default first.
var Policies = []Policy{PolicyLatency, PolicyKV, PolicyLoad, PolicyRandom, PolicyRoundRobin}

// Cost is what a choice weighed for one worker: blocks under kv and load,
// milliseconds under latency. Terms that a policy does not know are 0, as all are
// under random and round-robin.
type Cost struct {
	Policy Policy `json:"policy"`

	PrefillBlocks float64 `json:"prefill_blocks"`
	DecodeBlocks  float64 `json:"decode_blocks"`
	RequestBlocks float64 `json:"request_blocks"`

	QueueMS   float64 `json:"queue_ms"`
	PrefillMS float64 `json:"prefill_ms"`
	DecodeMS  float64 `json:"decode_ms"`
	MemoryMS  float64 `json:"memory_ms"`

	Multiplier float64 `json:"multiplier"`
	Total      float64 `json:"total"`
}

// Candidate is one roster entry of an explained reply.
type Candidate struct {
	Worker       string  `json:"worker"`
	Rank         uint16  `json:"rank"`
	Overlap      Overlap `json:"overlap"`
	CachedTokens int     `json:"cached_tokens"`
	Trust        Trust   `json:"trust"`
	Cost         *Cost   `json:"cost,omitempty"`
	Eligible     bool    `json:"eligible"`
	Why          string  `json:"why"`
}

// RouteReply answers a routing call.
type RouteReply struct {
	RequestID     string      `json:"request_id"`
	Lease         string      `json:"lease"`
	Attempt       uint32      `json:"attempt"`
	Worker        string      `json:"worker"`
	Rank          uint16      `json:"rank"`
	Endpoint      string      `json:"endpoint"`
	Overlap       Overlap     `json:"overlap"`
	CachedTokens  int         `json:"cached_tokens"`
	PrefillTokens int         `json:"prefill_tokens"`
	ISLTokens     int         `json:"isl_tokens"`
	Cost          Cost        `json:"cost"`
	Trust         Trust       `json:"trust"`
	IndexSeq      StreamSeq   `json:"index_seq"`
	QueuedMS      float64     `json:"queued_ms"`
	Reason        Reason      `json:"reason"`
	ZeroOverlap   ZeroOverlap `json:"zero_overlap"`
	Router        string      `json:"router"`
	Candidates    []Candidate `json:"candidates"`
	More          bool        `json:"more,omitempty"` // candidates were cut
}

// Target is the chosen worker and rank.
func (r *RouteReply) Target() Worker { return Worker{ID: r.Worker, Rank: r.Rank} }

// OverlapRequest is the body of an overlap call.
type OverlapRequest struct {
	Prompt
	After *After `json:"after,omitempty"`
}

// WorkerOverlap is one worker's row of an overlap reply.
type WorkerOverlap struct {
	Worker string `json:"worker"`
	Rank   uint16 `json:"rank"`
	Overlap
	Trust Trust `json:"trust"`
}

// OverlapReply answers an overlap call.
type OverlapReply struct {
	BlockSize int             `json:"block_size"`
	Blocks    int             `json:"blocks"`
	IndexSeq  StreamSeq       `json:"index_seq"`
	Workers   []WorkerOverlap `json:"workers"`
	More      bool            `json:"more,omitempty"`
}

// WorkerLoad is one worker's row of a loads reply.
type WorkerLoad struct {
	Worker              string `json:"worker"`
	Rank                uint16 `json:"rank"`
	ActivePrefillTokens int    `json:"active_prefill_tokens"`
	ActiveDecodeBlocks  int    `json:"active_decode_blocks"`
	ActiveRequests      int    `json:"active_requests"`
}

// QueueLoad is one policy class's row of a loads reply.
type QueueLoad struct {
	PolicyClass  string `json:"policy_class"`
	Requests     int    `json:"requests"`
	PromptTokens int    `json:"prompt_tokens"`
}

// LoadsReply answers a loads call.
type LoadsReply struct {
	Pool    string       `json:"pool"`
	Router  string       `json:"router"`
	Workers []WorkerLoad `json:"workers"`
	Queues  []QueueLoad  `json:"queues"`
}

// After continues a reply that was cut: rows after this worker and rank.
type After struct {
	Worker string `json:"worker"`
	Rank   uint16 `json:"rank"`
}

// Target is the worker and rank that the last reply ended with.
func (a After) Target() Worker { return Worker{ID: a.Worker, Rank: a.Rank} }

// StatusRequest is the body of a status call; an empty body asks for all.
type StatusRequest struct {
	After *After    `json:"after,omitempty"`
	At    StreamSeq `json:"at,omitempty"` // report last_id and checksum as of this sequence
}

// Phase says how far a router is in its life.
type Phase string

// The phases of a router.
const (
	PhaseStarting Phase = "starting"
	PhaseRunning  Phase = "running"
	PhaseDraining Phase = "draining"
	PhaseStopping Phase = "stopping"
)

// RankStatus is one rank's row of a status reply.
type RankStatus struct {
	Worker    string             `json:"worker"`
	Rank      uint16             `json:"rank"`
	Endpoint  string             `json:"endpoint"`
	Trust     Trust              `json:"trust"`
	Events    bool               `json:"events"`
	Epoch     Epoch              `json:"epoch"`
	LastID    EventID            `json:"last_id"`
	StreamSeq StreamSeq          `json:"stream_seq"`
	Blocks    uint64             `json:"blocks"`
	Checksum  *uint64            `json:"checksum,omitempty"`
	Repairs   uint64             `json:"repairs"`
	Refused   map[Refusal]uint64 `json:"refused"`
	Conflict  string             `json:"conflict"`
	Drain     bool               `json:"drain,omitempty"`
}

// Target is the row's worker and rank.
func (r *RankStatus) Target() Worker { return Worker{ID: r.Worker, Rank: r.Rank} }

// ScopeStatus is one scope of the tree, see package scope.
type ScopeStatus struct {
	Name       string `json:"name"`
	Parent     string `json:"parent"`
	Goroutines int    `json:"goroutines"`
}

// StatusReply answers a status call. Every router of the pool sends one.
type StatusReply struct {
	Pool             string            `json:"pool"`
	Router           string            `json:"router"`
	Routers          []string          `json:"routers"`
	Phase            Phase             `json:"phase"`
	BlockSize        int               `json:"block_size"`
	StreamSeqApplied StreamSeq         `json:"stream_seq_applied"`
	StreamSeqKnown   StreamSeq         `json:"stream_seq_known"`
	Ranks            []RankStatus      `json:"ranks"`
	RosterRefused    map[string]uint64 `json:"roster_refused"`
	Scopes           []ScopeStatus     `json:"scopes"`
	More             bool              `json:"more"`
}

// ProgressReport says that a request is alive.
type ProgressReport struct {
	Lease        string  `json:"lease"`
	RequestID    string  `json:"request_id,omitempty"`
	Attempt      uint32  `json:"attempt,omitempty"` // default 1
	OutputTokens int     `json:"output_tokens"`
	ElapsedMS    float64 `json:"elapsed_ms,omitempty"` // since admission, on the frontend's clock
}

// CompleteReport says that a request has ended.
type CompleteReport struct {
	Lease        string `json:"lease,omitempty"`
	RequestID    string `json:"request_id,omitempty"`
	Attempt      uint32 `json:"attempt,omitempty"`       // default 1
	CachedTokens *int   `json:"cached_tokens,omitempty"` // as the engine reported
	Error        string `json:"error,omitempty"`
}

// Query asks a worker to publish what a router misses.
type Query struct {
	Version int     `json:"v"`
	Epoch   Epoch   `json:"epoch"`
	From    EventID `json:"from,omitempty"` // 0: a snapshot
}

// QueryKind says how a worker answered a query.
type QueryKind string

// The answers to a query.
const (
	QueryEvents     QueryKind = "events"
	QuerySnapshot   QueryKind = "snapshot"
	QueryTooNew     QueryKind = "too_new"
	QueryWrongEpoch QueryKind = "wrong_epoch"
	QueryError      QueryKind = "error"
)

// QueryReply answers a query, once the answer is in the log.
type QueryReply struct {
	Version   int       `json:"v"`
	Kind      QueryKind `json:"kind"`
	Through   EventID   `json:"through"`
	StreamSeq StreamSeq `json:"stream_seq"`
	Message   string    `json:"message"`
}
