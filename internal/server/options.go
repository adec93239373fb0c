// Package server is the gRPC server that every service of Writ runs in: interceptors, listeners, health, reflection and
// a stop that ends.
//
// Each call passes, from the outside in: telemetry, one line of log when it ends, errors made fit for clients, recovery
// from panics, shutdown, authentication and the access table, size, and the contract's validation rules.
package server

import (
	"log/slog"
	"time"

	"buf.build/go/protovalidate"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/writ-dev/writ/internal/auth"
)

// Defaults of Options.
const (
	// DefaultMaxMessageBytes is gRPC's own limit. What is larger travels as a stream or as a blob.
	DefaultMaxMessageBytes = 4 << 20
	// DefaultStopTimeout is how long a stop waits for calls in progress.
	DefaultStopTimeout = 10 * time.Second
)

// Options of a server. The zero value works, and lets nobody in.
type Options struct {
	// Logger gets one line per call. Nil: slog.Default.
	Logger *slog.Logger
	// TracerProvider makes the spans of calls over sockets. Nil: none are made.
	TracerProvider trace.TracerProvider
	// Authenticator checks bearer tokens. Nil: no token is accepted.
	Authenticator auth.Authenticator
	// Overrides are the access rules of third-party services. Nil: auth.DefaultOverrides.
	Overrides map[string]auth.Rule
	// Files is where contracts are looked up. Nil: all that are linked.
	Files *protoregistry.Files
	// Validator holds requests against the rules of the contract. Nil: one is made.
	Validator protovalidate.Validator
	// MaxMessageBytes bounds one message, both ways. 0: DefaultMaxMessageBytes.
	MaxMessageBytes int
	// StopTimeout bounds the graceful part of a stop. 0: DefaultStopTimeout.
	StopTimeout time.Duration
}

func (o *Options) defaults() error {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Validator == nil {
		v, err := protovalidate.New()
		if err != nil {
			return err
		}
		o.Validator = v
	}
	if o.MaxMessageBytes == 0 {
		o.MaxMessageBytes = DefaultMaxMessageBytes
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = DefaultStopTimeout
	}
	return nil
}
