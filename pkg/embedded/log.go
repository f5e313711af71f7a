package embedded

import (
	"fmt"
	"sync/atomic"

	"github.com/rs/zerolog"
)

// serverLog passes the NATS server's warnings and errors on. It implements the
// server's Logger.
type serverLog struct {
	log   zerolog.Logger
	fatal atomic.Pointer[string]
}

// Noticef drops what is of interest to nobody but the server's developers.
func (l *serverLog) Noticef(string, ...any) {}

// Warnf logs a warning.
func (l *serverLog) Warnf(format string, args ...any) {
	l.log.Warn().Str("detail", fmt.Sprintf(format, args...)).Msg("embedded NATS server warns")
}

// Errorf logs an error.
func (l *serverLog) Errorf(format string, args ...any) {
	l.log.Error().Str("detail", fmt.Sprintf(format, args...)).Msg("embedded NATS server reports an error")
}

// Fatalf keeps the first reason why the server cannot run, for the error that
// Start returns. It does not end the process.
func (l *serverLog) Fatalf(format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	l.fatal.CompareAndSwap(nil, &reason)
	l.log.Error().Str("detail", reason).Msg("embedded NATS server cannot run")
}

// Debugf drops the message.
func (l *serverLog) Debugf(string, ...any) {}

// Tracef drops the message.
func (l *serverLog) Tracef(string, ...any) {}
