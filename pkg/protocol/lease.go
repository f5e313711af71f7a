package protocol

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/google/uuid"
	"github.com/zeebo/xxh3"
)

// LeaseID names a lease.
type LeaseID = uuid.UUID

// Lease is one admitted request on one worker, with what it charges.
type Lease struct {
	ID           LeaseID
	RequestID    string // not part of the lease string
	Attempt      uint32
	Worker       Worker
	PromptTokens int
	CachedTokens int // of the prompt, at admission
	Blocks       int // whole blocks of the prompt
}

// PrefillTokens is what is left to compute at admission.
func (l *Lease) PrefillTokens() int { return max(l.PromptTokens-l.CachedTokens, 0) }

const leaseVersion = 1

// String is the lease's compact form, at most MaxLeaseBytes: what a frontend
// holds, and what a router that never heard the admission rebuilds it from.
func (l *Lease) String() string {
	buf := make([]byte, 0, 192)
	buf = append(buf, leaseVersion)
	buf = append(buf, l.ID[:]...)
	buf = binary.AppendUvarint(buf, uint64(l.Attempt))
	buf = binary.AppendUvarint(buf, uint64(l.Worker.Rank))
	buf = binary.AppendUvarint(buf, uint64(l.PromptTokens))
	buf = binary.AppendUvarint(buf, uint64(l.CachedTokens))
	buf = binary.AppendUvarint(buf, uint64(l.Blocks))
	buf = append(buf, l.Worker.ID...)
	buf = binary.LittleEndian.AppendUint32(buf, uint32(xxh3.Hash(buf)))
	return base64.RawURLEncoding.EncodeToString(buf)
}

var errLease = errors.New("lease is not one that a router gave out")

// ParseLease reads a lease string; the result has no RequestID.
func ParseLease(s string) (Lease, error) {
	if len(s) > MaxLeaseBytes {
		return Lease{}, fmt.Errorf("lease is %d bytes long, at most %d are allowed", len(s), MaxLeaseBytes)
	}
	buf, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(buf) < 1+16+4 || buf[0] != leaseVersion {
		return Lease{}, errLease
	}
	body, sum := buf[:len(buf)-4], binary.LittleEndian.Uint32(buf[len(buf)-4:])
	if uint32(xxh3.Hash(body)) != sum {
		return Lease{}, errLease
	}
	l := Lease{ID: LeaseID(body[1:17])}
	body = body[17:]
	var n [5]uint64
	for i, limit := range [5]uint64{math.MaxUint32, MaxRank, MaxTokens, MaxTokens, MaxTokens} {
		v, size := binary.Uvarint(body)
		if size <= 0 || v > limit {
			return Lease{}, errLease
		}
		n[i], body = v, body[size:]
	}
	l.Attempt, l.Worker = uint32(n[0]), Worker{ID: string(body), Rank: uint16(n[1])}
	l.PromptTokens, l.CachedTokens, l.Blocks = int(n[2]), int(n[3]), int(n[4])
	if CheckName(l.Worker.ID) != nil {
		return Lease{}, errLease
	}
	return l, nil
}
