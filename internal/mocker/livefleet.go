package mocker

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/routerd/routerd/pkg/protocol"
)

type LiveConfig struct {
	Conn    *nats.Conn
	Names   protocol.Names
	Pool    string
	Workers int
	Log     zerolog.Logger
}
type LiveFleet struct{}

func NewLiveFleet(LiveConfig) (*LiveFleet, error)   { return &LiveFleet{}, nil }
func (*LiveFleet) Run(ctx context.Context) error { <-ctx.Done(); return nil }
