package roster

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/routerd/routerd/pkg/protocol"
)

// wholeWorker is a drainKey's rank when the drain is for all of them.
const wholeWorker = -1

// drainKey names what an operator drains.
type drainKey struct {
	pool, worker string
	rank         int
}

// drainSet is every drain of the operator.
type drainSet map[drainKey]struct{}

// holds says whether a rank is drained, by itself or with its worker.
func (s drainSet) holds(pool string, w protocol.Worker) bool {
	if len(s) == 0 {
		return false
	}
	_, worker := s[drainKey{pool, w.ID, wholeWorker}]
	_, rank := s[drainKey{pool, w.ID, int(w.Rank)}]
	return worker || rank
}

func parseDrain(key string) (drainKey, error) {
	pool, worker, rank, err := protocol.ParseDrainKey(key)
	if err != nil {
		return drainKey{}, err
	}
	if rank == nil {
		return drainKey{pool, worker, wholeWorker}, nil
	}
	return drainKey{pool, worker, int(*rank)}, nil
}

// SetDrain sets or lifts an operator's drain of a worker, or of one of its ranks.
// It lasts until it is lifted, whatever the worker does. Lifting the drain of a
// whole worker lifts those of its ranks too; lifting that of a rank whose whole
// worker is drained is an error. It needs no Watcher, but a router must have made
// the bucket once.
func SetDrain(ctx context.Context, js jetstream.JetStream, names protocol.Names, pool, worker string, rank *uint16, on bool) error {
	if err := protocol.CheckName(pool); err != nil {
		return fmt.Errorf("pool %q: %w", pool, err)
	}
	if err := protocol.CheckName(worker); err != nil {
		return fmt.Errorf("worker %q: %w", worker, err)
	}
	bucket, err := js.KeyValue(ctx, names.DrainsBucket())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return fmt.Errorf("open bucket %s: %w: start a router first, it makes the bucket", names.DrainsBucket(), err)
	} else if err != nil {
		return fmt.Errorf("open bucket %s: %w", names.DrainsBucket(), err)
	}
	key := protocol.DrainKey(pool, worker, rank)
	switch {
	case on:
		if _, err := bucket.Put(ctx, key, []byte(`{"v":1}`)); err != nil {
			return fmt.Errorf("drain %s: %w", key, err)
		}
		return nil
	case rank == nil:
		return liftWorker(ctx, bucket, key)
	}
	whole := protocol.DrainKey(pool, worker, nil)
	if _, err := bucket.Get(ctx, whole); err == nil {
		return fmt.Errorf("worker %s is drained as a whole: lift that drain instead (without a rank)", worker)
	} else if !errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("read drain %s: %w", whole, err)
	}
	return lift(ctx, bucket, key)
}

// liftWorker removes a worker's drain and those of its ranks.
func liftWorker(ctx context.Context, bucket jetstream.KeyValue, key string) error {
	lister, err := bucket.ListKeysFiltered(ctx, key, key+".*")
	if err != nil {
		return fmt.Errorf("list drains of %s: %w", key, err)
	}
	var faults []error
	for found := range lister.Keys() {
		faults = append(faults, lift(ctx, bucket, found))
	}
	return errors.Join(faults...)
}

// lift leaves a mark that goes away by itself, since the bucket's keys do not.
func lift(ctx context.Context, bucket jetstream.KeyValue, key string) error {
	if err := bucket.Purge(ctx, key, jetstream.PurgeTTL(drainMarkTTL)); err != nil {
		return fmt.Errorf("lift drain %s: %w", key, err)
	}
	return nil
}
