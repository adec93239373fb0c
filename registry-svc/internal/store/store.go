// Package store keeps what registry-svc has to remember: connectors, listings and turns. There is one interface; every
// engine behind it passes one suite.
package store

import (
	"context"

	"github.com/writ-dev/writ/registry-svc/internal/connector"
	"github.com/writ-dev/writ/registry-svc/internal/turn"
)

// Store is the interface. Everything that returned without error is durable.
type Store interface {
	connector.Store
	turn.Store
	// Ping tells whether the store can be read.
	Ping(ctx context.Context) error
	// Close closes it.
	Close() error
}
