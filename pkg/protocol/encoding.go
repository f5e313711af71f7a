package protocol

// Encoding is how a body is written.
type Encoding uint8

// The encodings of the wire contract.
const (
	EncodingJSON Encoding = iota
	EncodingMsgpack
)

func (e Encoding) String() string {
	if e == EncodingJSON {
		return "JSON"
	}
	return "msgpack"
}

// DetectEncoding looks at a body's first byte: `{` or `[` is JSON, any other msgpack.
// An empty body is taken for JSON.
func DetectEncoding(body []byte) Encoding {
	if len(body) == 0 || body[0] == '{' || body[0] == '[' {
		return EncodingJSON
	}
	return EncodingMsgpack
}
