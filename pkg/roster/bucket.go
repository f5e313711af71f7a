package roster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

// callLimit bounds one call to JetStream's API.
const callLimit = 2 * time.Second

// drainMarkTTL is how long the mark of a lifted drain stays. Whoever misses it
// reads the bucket whole anyway.
const drainMarkTTL = time.Minute

// Headers with which a key-value bucket says what became of a key.
const (
	headerOperation = "KV-Operation"
	headerMarker    = "Nats-Marker-Reason"
)

// spec is how a bucket is made.
type spec struct {
	bucket      string
	description string
	ttl         time.Duration // of its keys; 0: none
	markTTL     time.Duration // of delete marks
	replicas    int
	growing     bool // revisions begin at the time
}

func workersSpec(names protocol.Names, ttl time.Duration, replicas int) spec {
	return spec{names.WorkersBucket(), "roster of workers", ttl, ttl, replicas, true}
}

func routersSpec(names protocol.Names, ttl time.Duration, replicas int) spec {
	return spec{names.RoutersBucket(), "roster of routers", ttl, ttl, replicas, false}
}

func drainsSpec(names protocol.Names, replicas int) spec {
	return spec{names.DrainsBucket(), "workers that the operator drains", 0, drainMarkTTL, replicas, false}
}

// streamName is the stream under a bucket.
func streamName(bucket string) string { return "KV_" + bucket }

// keySubject is the subject of a key; key `>` is all of them.
func keySubject(bucket, key string) string { return "$KV." + bucket + "." + key }

// config is the bucket's stream, with the settings that a client gives a bucket:
// the clients' own call cannot set where revisions begin.
func (s spec) config(now time.Time) jetstream.StreamConfig {
	duplicates := 2 * time.Minute
	if s.ttl > 0 {
		duplicates = min(duplicates, s.ttl)
	}
	config := jetstream.StreamConfig{
		Name:                   streamName(s.bucket),
		Description:            s.description,
		Subjects:               []string{keySubject(s.bucket, ">")},
		Storage:                jetstream.FileStorage,
		Replicas:               s.replicas,
		Discard:                jetstream.DiscardNew,
		MaxMsgsPerSubject:      1,
		MaxAge:                 s.ttl,
		MaxMsgs:                -1,
		MaxBytes:               -1,
		MaxMsgSize:             maxValue,
		MaxConsumers:           -1,
		Duplicates:             duplicates,
		AllowRollup:            true,
		DenyDelete:             true,
		AllowDirect:            true,
		AllowMsgTTL:            true,
		SubjectDeleteMarkerTTL: s.markTTL,
	}
	if s.growing {
		config.FirstSeq = uint64(now.UnixMicro())
	}
	return config
}

// open finds the bucket or makes it. Of several routers that make it at once one
// succeeds, and the others find it.
func (s spec) open(ctx context.Context, js jetstream.JetStream) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	stream, err := js.Stream(ctx, streamName(s.bucket))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = js.CreateStream(ctx, s.config(time.Now()))
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			stream, err = js.Stream(ctx, streamName(s.bucket))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", s.bucket, err)
	}
	return stream, nil
}

// differences names the settings of an existing bucket that are not as this
// router would have made them and that matter.
func (s spec) differences(has jetstream.StreamConfig) []string {
	want := s.config(time.Time{})
	var names []string
	note := func(differs bool, name string) {
		if differs {
			names = append(names, name)
		}
	}
	note(has.Storage != want.Storage, "storage")
	note(has.Replicas != want.Replicas, "replicas")
	note(has.MaxMsgsPerSubject != want.MaxMsgsPerSubject, "history")
	note(has.MaxAge != want.MaxAge, "ttl")
	note(has.SubjectDeleteMarkerTTL == 0, "delete_marks")
	note(s.growing && has.FirstSeq <= 1, "first_seq")
	note(!slices.Equal(has.Subjects, want.Subjects), "subjects")
	return names
}

// op is what a record says of its key.
type op uint8

const (
	opPut     op = iota
	opDeleted    // by a client
	opExpired    // by the server
)

// record is the latest that a bucket says of one key.
type record struct {
	key      string
	revision uint64
	op       op
	value    []byte
}

// newRecord reads a message of the bucket. An oversized value becomes an empty
// one, which decodes as nothing.
func newRecord(bucket, subject string, header nats.Header, revision uint64, value []byte) record {
	r := record{key: subject[len(keySubject(bucket, "")):], revision: revision, value: value}
	if len(value) > maxValue {
		r.value = nil
	}
	switch {
	case header.Get(headerMarker) != "":
		r.op = opExpired
	case header.Get(headerOperation) != "":
		r.op = opDeleted
	}
	return r
}
