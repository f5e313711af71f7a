package protocol

import "fmt"

// Code names a failure of a call.
type Code string

// The failures of calls.
const (
	CodeInvalidRequest   Code = "invalid_request"
	CodeInvalidName      Code = "invalid_name"
	CodePinnedNotAllowed Code = "pinned_not_allowed"
	CodeUnknownPool      Code = "unknown_pool"
	CodeDuplicateRequest Code = "duplicate_request"
	CodeQueueRejected    Code = "queue_rejected"
	CodeOverloaded       Code = "overloaded"
	CodePinnedOverloaded Code = "pinned_overloaded"
	CodeNoWorkers        Code = "no_workers"
	CodeNotReady         Code = "not_ready"
	CodeShuttingDown     Code = "shutting_down"
	CodeInternal         Code = "internal"
)

var codes = map[Code]struct {
	number    int
	retryable bool
}{
	CodeInvalidRequest:   {400, false},
	CodeInvalidName:      {400, false},
	CodePinnedNotAllowed: {400, false},
	CodeUnknownPool:      {404, true},
	CodeDuplicateRequest: {409, false},
	CodeQueueRejected:    {529, true},
	CodeOverloaded:       {529, true},
	CodePinnedOverloaded: {529, true},
	CodeNoWorkers:        {503, true},
	CodeNotReady:         {503, true},
	CodeShuttingDown:     {503, true},
	CodeInternal:         {500, false},
}

// Number is the code's HTTP-like number.
func (c Code) Number() int {
	if known, ok := codes[c]; ok {
		return known.number
	}
	return codes[CodeInternal].number
}

// Retryable says whether the same call may succeed later.
func (c Code) Retryable() bool { return codes[c].retryable }

// Error is the failure of a call as it goes over the wire.
type Error struct {
	Code      Code           `json:"code"`
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable"`
	Details   map[string]any `json:"details"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// Errorf makes an Error of a code.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Retryable: code.Retryable(), Details: map[string]any{}}
}

// ErrorReply is the body of a failed call.
type ErrorReply struct {
	Error *Error `json:"error"`
}

// Headers of a failed call, as the NATS services convention has them.
const (
	HeaderErrorCode = "Nats-Service-Error-Code"
	HeaderError     = "Nats-Service-Error"
)
