// Package trace reads request traces and turns their prompts into block hashes.
//
// A trace is JSON lines, one request a line, in the form in which Mooncake's
// traces are published:
//
//	{"timestamp": 27, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
//
// timestamp is the arrival in milliseconds from the start and never falls; the
// lengths are in tokens; hash_ids names the content of the prompt, one id for
// each 512 tokens, the last of which may be partly filled. Two requests share a
// prefix exactly as far as their ids agree. Other fields are ignored.
//
// The tokens themselves are not part of a trace and are never made: with a block
// size B that divides 512 an id stands for 512/B blocks, and a block's hash is a
// function of the id and the block's place in it. Prompts become hashes only
// when a caller asks, since a trace's hashes are many times its own size.
//
// Reading stops at the first bad line, with an error that names the line and the
// field: `trace.jsonl:17: output_length: must be at least 1`.
package trace
