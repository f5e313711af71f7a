package protocol

import "encoding/binary"

// EncodeRouteRequest writes the body of a routing call. msgpack packs tokens and
// hashes. It fails for a number that is not finite in JSON.
func EncodeRouteRequest(q *RouteRequest, enc Encoding) ([]byte, error) {
	rest := *q
	rest.TokenIDs, rest.BlockHashes = nil, nil
	body, err := Marshal(&rest, enc)
	if err != nil {
		return nil, err
	}
	return withPrompt(body, &q.Prompt, enc), nil
}

// EncodeOverlapRequest writes the body of an overlap call as EncodeRouteRequest does.
func EncodeOverlapRequest(q *OverlapRequest, enc Encoding) ([]byte, error) {
	rest := *q
	rest.TokenIDs, rest.BlockHashes = nil, nil
	body, err := Marshal(&rest, enc)
	if err != nil {
		return nil, err
	}
	return withPrompt(body, &q.Prompt, enc), nil
}

// withPrompt adds the prompt's list, the long part, to the object that body is.
func withPrompt(body []byte, p *Prompt, enc Encoding) []byte {
	if enc == EncodingJSON {
		return withJSONPrompt(body, p)
	}
	s := &msgpackSyntax{body: body}
	fields, _ := s.open(kindObject) // our own encoder wrote it
	out := make([]byte, 0, len(body)+4*len(p.TokenIDs)+8*len(p.BlockHashes)+32)
	out = appendMapHeader(out, fields.left+1)
	if p.ByHash {
		out = appendPackedHashes(appendText(out, "block_hashes"), p.BlockHashes)
	} else {
		out = appendBinHeader(appendText(out, "token_ids"), 4*len(p.TokenIDs))
		for _, t := range p.TokenIDs {
			out = binary.LittleEndian.AppendUint32(out, t)
		}
	}
	return append(out, body[s.pos:]...)
}

func withJSONPrompt(body []byte, p *Prompt) []byte {
	const digits = 8 // of most tokens, with the comma
	out := make([]byte, 0, len(body)+digits*len(p.TokenIDs)+21*len(p.BlockHashes)+32)
	if p.ByHash {
		out = appendJSONUints(append(out, `{"block_hashes":`...), p.BlockHashes)
	} else {
		out = appendJSONUints(append(out, `{"token_ids":`...), p.TokenIDs)
	}
	if len(body) > len("{}") {
		out = append(out, ',')
	}
	return append(out, body[1:]...)
}
