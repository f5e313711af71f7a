package protocol

import "math"

// The decoders below return, as DecodeRouteRequest does, an *Error with
// CodeInvalidRequest whose message names the field.

// DecodeStatusRequest reads the body of a status call; an empty one asks for all.
func DecodeStatusRequest(body []byte) (*StatusRequest, error) {
	q := &StatusRequest{}
	if len(body) == 0 {
		return q, nil
	}
	r := newReader(body)
	r.object(func(name []byte) {
		switch string(name) {
		case "after":
			q.After = r.after()
		case "at":
			q.At = StreamSeq(r.id())
		}
	})
	return result(q, r)
}

// DecodeProgress reads a progress report.
func DecodeProgress(body []byte) (*ProgressReport, error) {
	r := newReader(body)
	p := &ProgressReport{Attempt: 1}
	r.object(func(name []byte) {
		switch string(name) {
		case "lease":
			p.Lease = r.text(MaxLeaseBytes)
		case "request_id":
			p.RequestID = r.text(MaxTextBytes)
		case "attempt":
			p.Attempt = uint32(r.uint(1, math.MaxUint32))
		case "output_tokens":
			p.OutputTokens = int(r.uint(0, maxCount))
		case "elapsed_ms":
			p.ElapsedMS = r.nonNegative()
		}
	})
	if p.Lease == "" {
		r.failField("lease", "is missing")
	}
	return result(p, r)
}

// DecodeComplete reads a completion report. It has a lease, or a request id and
// an attempt.
func DecodeComplete(body []byte) (*CompleteReport, error) {
	r := newReader(body)
	c := &CompleteReport{Attempt: 1}
	r.object(func(name []byte) {
		switch string(name) {
		case "lease":
			c.Lease = r.text(MaxLeaseBytes)
		case "request_id":
			c.RequestID = r.text(MaxTextBytes)
		case "attempt":
			c.Attempt = uint32(r.uint(1, math.MaxUint32))
		case "cached_tokens":
			cached := int(r.uint(0, maxCount))
			c.CachedTokens = &cached
		case "error":
			c.Error = r.text(MaxTextBytes)
		}
	})
	if c.Lease == "" && c.RequestID == "" {
		r.failField("lease", "is missing, and so is request_id")
	}
	return result(c, r)
}

// DecodeQuery reads a query to a worker.
func DecodeQuery(body []byte) (*Query, error) {
	r := newReader(body)
	q := &Query{Version: messageVersion}
	r.object(func(name []byte) {
		switch string(name) {
		case "v":
			r.version()
		case "epoch":
			q.Epoch = Epoch(r.id())
		case "from":
			q.From = EventID(r.id())
		}
	})
	return result(q, r)
}

// version reads the version of a body, of which one is known.
func (r *reader) version() {
	if n, ok := r.number(); ok && (n.isFloat || n.negative || n.integer != messageVersion) {
		r.fail("must be %d, the version that is understood here", messageVersion)
	}
}
