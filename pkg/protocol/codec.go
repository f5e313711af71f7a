package protocol

// PLACEHOLDER SIGNATURES: replaced by the protocol helper within the session.

func Marshal(v any, enc Encoding) ([]byte, error)                           { panic("todo") }
func Unmarshal(body []byte, v any) error                                    { panic("todo") }
func DecodeEventMessage(body []byte, rank uint16) (*EventMessage, error)    { panic("todo") }
func AppendEventMessage(dst []byte, m *EventMessage, enc Encoding) []byte   { panic("todo") }
func SummarizeSnapshot(events []Event) (blocks, checksum uint64, err error) { panic("todo") }
func DecodeRegistration(body []byte) (*Registration, error)                 { panic("todo") }
func DecodeRouteRequest(body []byte) (*RouteRequest, error)                 { panic("todo") }
func DecodeOverlapRequest(body []byte) (*OverlapRequest, error)             { panic("todo") }
func DecodeStatusRequest(body []byte) (*StatusRequest, error)               { panic("todo") }
func DecodeProgress(body []byte) (*ProgressReport, error)                   { panic("todo") }
func DecodeComplete(body []byte) (*CompleteReport, error)                   { panic("todo") }
func DecodeQuery(body []byte) (*Query, error)                               { panic("todo") }
func EncodeRouteRequest(r *RouteRequest, enc Encoding) ([]byte, error)      { panic("todo") }
func EncodeOverlapRequest(r *OverlapRequest, enc Encoding) ([]byte, error)  { panic("todo") }
