package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/routerd/routerd/pkg/protocol"
)

// promptFlags say what the prompt is.
type promptFlags struct {
	Tokens     string `xor:"prompt" help:"Token ids of the prompt, separated by commas." placeholder:"1,2,3"`
	TokensFile string `xor:"prompt" type:"path" help:"File with one JSON array of token ids; - is standard input." placeholder:"FILE"`
	Hashes     string `xor:"prompt" help:"Block hashes instead of tokens, separated by commas; needs --isl-tokens." placeholder:"1,2,3"`
	ISLTokens  int    `name:"isl-tokens" help:"Length of the prompt in tokens, with --hashes."`
	LoRA       string `name:"lora" help:"LoRA adapter of the request."`
	Salt       string `help:"Cache salt of the request."`
}

// maxTokensFile bounds a tokens file: a million tokens of ten digits.
const maxTokensFile = 16 << 20

func (f *promptFlags) prompt(a *app) (protocol.Prompt, error) {
	p := protocol.Prompt{LoRA: f.LoRA, CacheSalt: f.Salt}
	var err error
	switch {
	case f.byHash():
		p.ByHash, p.ISLTokens = true, f.ISLTokens
		p.BlockHashes, err = parseHashes(f.Hashes)
	case f.ISLTokens != 0:
		err = usagef("--isl-tokens: goes with --hashes")
	default:
		p.TokenIDs, err = f.tokens(a)
	}
	return p, err
}

// byHash is true for --isl-tokens alone too: a prompt shorter than a block.
func (f *promptFlags) byHash() bool {
	return f.Hashes != "" || f.ISLTokens != 0 && f.Tokens == "" && f.TokensFile == ""
}

// tokens reads --tokens or --tokens-file.
func (f *promptFlags) tokens(a *app) ([]uint32, error) {
	if f.TokensFile == "" {
		if f.Tokens == "" {
			return nil, usagef("give the prompt with --tokens, --tokens-file or --hashes")
		}
		return parseTokens(f.Tokens)
	}
	in := a.stdin
	if f.TokensFile != "-" {
		file, err := os.Open(f.TokensFile)
		if err != nil {
			return nil, usagef("--tokens-file: %w", err)
		}
		defer file.Close()
		in = file
	}
	text, err := readLimited(in, maxTokensFile)
	if err != nil {
		return nil, usagef("--tokens-file: %w", err)
	}
	var tokens []uint32
	if err := json.Unmarshal(text, &tokens); err != nil {
		return nil, usagef("--tokens-file: %s must hold one JSON array of token ids from 0 to 4294967295: %w", f.TokensFile, err)
	}
	return tokens, nil
}

func parseTokens(list string) ([]uint32, error) {
	var tokens []uint32
	for i, part := range strings.Split(list, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(part), 10, 32)
		if err != nil {
			return nil, usagef("--tokens: entry %d, %q: must be 0 to 4294967295", i, part)
		}
		tokens = append(tokens, uint32(n))
	}
	return tokens, nil
}

func parseHashes(list string) ([]protocol.BlockHash, error) {
	hashes := []protocol.BlockHash{}
	if list == "" {
		return hashes, nil
	}
	for i, part := range strings.Split(list, ",") {
		part = strings.TrimSpace(part)
		n, err := strconv.ParseUint(part, 10, 64)
		if signed, signedErr := strconv.ParseInt(part, 10, 64); err != nil && signedErr == nil {
			n, err = uint64(signed), nil
		}
		if err != nil {
			return nil, usagef("--hashes: entry %d, %q: must be a 64-bit integer", i, part)
		}
		hashes = append(hashes, protocol.BlockHash(n))
	}
	return hashes, nil
}

// readLimited reads all of in, or fails beyond limit bytes.
func readLimited(in io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("is larger than %d bytes", limit)
	}
	return text, err
}
