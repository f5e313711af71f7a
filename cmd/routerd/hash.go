package main

import (
	"fmt"

	"github.com/routerd/routerd/pkg/protocol"
)

// hashCommand computes block hashes; it needs no server.
type hashCommand struct {
	BlockSize  int    `required:"" help:"Tokens of a block."`
	Tokens     string `xor:"prompt" help:"Token ids of the prompt, separated by commas." placeholder:"1,2,3"`
	TokensFile string `xor:"prompt" type:"path" help:"File with one JSON array of token ids; - is standard input." placeholder:"FILE"`
	LoRA       string `name:"lora" help:"LoRA adapter of the request."`
	Salt       string `help:"Cache salt of the request."`
	Eagle      bool   `help:"Blocks overlap by one token, as under EAGLE."`
	JSON       bool   `name:"json" help:"Print JSON."`
}

// hashReport is what the command prints as JSON.
type hashReport struct {
	BlockSize      int                     `json:"block_size"`
	Tokens         int                     `json:"isl_tokens"`
	BlockHashes    []protocol.BlockHash    `json:"block_hashes"`
	SequenceHashes []protocol.SequenceHash `json:"sequence_hashes"`
}

// Run implements the command.
func (c *hashCommand) Run(a *app) error {
	if c.BlockSize < 1 || c.BlockSize > protocol.MaxBlockSize {
		return usagef("--block-size: must be 1 to %d", protocol.MaxBlockSize)
	}
	prompt := promptFlags{Tokens: c.Tokens, TokensFile: c.TokensFile}
	tokens, err := prompt.tokens(a)
	if err != nil {
		return err
	}
	if len(tokens) > protocol.MaxTokens {
		return usagef("the prompt has %d tokens, at most %d are allowed", len(tokens), protocol.MaxTokens)
	}
	report := hashReport{BlockSize: c.BlockSize, Tokens: len(tokens)}
	report.BlockHashes = protocol.BlockHashes([]protocol.BlockHash{}, tokens, protocol.HashOptions{
		BlockSize: c.BlockSize, LoRA: c.LoRA, Salt: c.Salt, Eagle: c.Eagle,
	})
	report.SequenceHashes = protocol.SequenceHashes([]protocol.SequenceHash{}, report.BlockHashes)
	if c.JSON {
		return printJSON(a.stdout, report)
	}
	for i, h := range report.BlockHashes {
		fmt.Fprintf(a.stdout, "%d\t%d\n", i, h)
	}
	if left := len(tokens) - len(report.BlockHashes)*c.BlockSize; left > 0 {
		fmt.Fprintf(a.stderr, "%d tokens fill no block and are not hashed\n", left)
	}
	return nil
}
