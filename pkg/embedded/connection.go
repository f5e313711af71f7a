package embedded

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// connOptions are those of every connection of a router: it reconnects for
// ever, soon and with jitter; it notices a half-open link within half a minute
// instead of four; and a call made while the link is down fails at once instead
// of waiting in a buffer until it times out.
func connOptions(log zerolog.Logger) []nats.Option {
	return []nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(150*time.Millisecond, 400*time.Millisecond),
		nats.PingInterval(10 * time.Second),
		nats.ReconnectBufSize(-1),
		nats.PermissionErrOnSubscribe(true),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			event := log.Warn().Err(err)
			if sub != nil {
				event = event.Str("subject", sub.Subject)
			}
			event.Msg("NATS reports an error")
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil: closed on purpose
				log.Warn().Err(err).Msg("connection to NATS is lost, reconnecting")
			}
		}),
		nats.ReconnectHandler(func(conn *nats.Conn) {
			log.Info().Str("server", conn.ConnectedServerName()).Msg("connected to NATS again")
		}),
		nats.LameDuckModeHandler(func(conn *nats.Conn) {
			log.Info().Str("server", conn.ConnectedServerName()).Msg("NATS server is going away")
		}),
	}
}
