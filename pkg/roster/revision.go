package roster

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

// SeenRevision is the highest revision of the workers' bucket that this router
// has read: a lower bound of LastRevision that costs nothing.
func (w *Watcher) SeenRevision() protocol.Epoch { return protocol.Epoch(w.seen.Load()) }

// LastRevision asks the server for the last revision that the workers' bucket
// has given out; no life is newer. It blocks for at most 2 s.
func (w *Watcher) LastRevision(ctx context.Context) (protocol.Epoch, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	stream, err := w.workersStream(ctx)
	if err != nil {
		return 0, err
	}
	return protocol.Epoch(stream.CachedInfo().State.LastSeq), nil
}

// CurrentEpoch asks the server for the life that a rank's registration is in,
// whether accepted or not; false if it has none. A cluster may answer from a
// replica that lags. It blocks for at most 2 s.
func (w *Watcher) CurrentEpoch(ctx context.Context, pool string, worker protocol.Worker) (protocol.Epoch, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	stream, err := w.workersStream(ctx)
	if err != nil {
		return 0, false, err
	}
	bucket := w.cfg.Names.WorkersBucket()
	msg, err := stream.GetLastMsgForSubject(ctx, keySubject(bucket, protocol.WorkerKey(pool, worker)))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, false, nil
	} else if err != nil {
		return 0, false, fmt.Errorf("read bucket %s: %w", bucket, err)
	}
	r := newRecord(bucket, msg.Subject, msg.Header, msg.Sequence, msg.Data)
	if r.op != opPut {
		return 0, false, nil
	}
	reg, err := protocol.DecodeRegistration(r.value)
	if err != nil {
		return 0, false, fmt.Errorf("read registration: %w", err)
	}
	if reg.Epoch != nil {
		return *reg.Epoch, true, nil
	}
	return protocol.Epoch(r.revision), true, nil
}

func (w *Watcher) workersStream(ctx context.Context) (jetstream.Stream, error) {
	bucket := w.cfg.Names.WorkersBucket()
	stream, err := w.cfg.JetStream.Stream(ctx, streamName(bucket))
	if err != nil {
		return nil, fmt.Errorf("read bucket %s: %w", bucket, err)
	}
	return stream, nil
}
