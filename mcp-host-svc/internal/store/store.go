// Package store keeps what mcp-host-svc must know after a restart: the servers
// that it was told of, their last listings, and the era that each provider speaks.
package store

import (
	"context"
	"time"
)

// Server is a server as it was applied. Spec is opaque to the store.
type Server struct {
	Namespace, Name string
	Spec            []byte
}

// Tool is one definition, byte for byte.
type Tool struct {
	Name       string
	Definition []byte
}

// Listing is the last whole listing of a server.
type Listing struct {
	Namespace, Name string
	ProviderDigest  string
	ListTime        time.Time
	TTL             time.Duration // 0: the server did not say
	ServerVersion   string
	ProtocolVersion string
	Instructions    string
	Tools           []Tool // in the server's order
}

// Store is what an engine does. Writes are durable when they return.
type Store interface {
	PutServer(ctx context.Context, s Server) error
	// DeleteServer forgets the server and its listing; no error when unknown.
	DeleteServer(ctx context.Context, namespace, name string) error
	Servers(ctx context.Context) ([]Server, error)

	// PutListing replaces the server's listing as a whole.
	PutListing(ctx context.Context, l Listing) error
	Listings(ctx context.Context) ([]Listing, error)

	PutEra(ctx context.Context, providerDigest, era string) error
	Eras(ctx context.Context) (map[string]string, error)

	Close() error
}
