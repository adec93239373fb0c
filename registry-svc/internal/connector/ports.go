package connector

import (
	"context"
	"time"

	"github.com/writ-dev/writ/registry-svc/internal/fault"
)

// Host is what the registry needs of mcp-host. Its errors are HostErrors.
type Host interface {
	// Apply tells the host what there is. It starts nothing.
	Apply(ctx context.Context, key Key, expanded Spec, enabled bool) (digest, problem string, err error)
	// Remove ends the sessions and makes the host forget. A server that is not known is no error.
	Remove(ctx context.Context, key Key) error
	// Discover lists the tools, for a session that works in workspace.
	Discover(ctx context.Context, key Key, refresh bool, workspace string) (Listing, error)
	// Open says which servers have an open session.
	Open(ctx context.Context) (map[Key]bool, error)
	// Logs returns the last lines of a server's standard error, and how many lines of its output were no protocol.
	Logs(ctx context.Context, key Key, lines int32) (last []string, noise int64, err error)
}

// HostError is a failure of the host or of the server behind it.
type HostError struct {
	Text                string // for a person: what, and what to do
	NeedsAuthentication bool   // the server wants a sign-in (R64)
	Cause               error  // as it came, with its reason
}

func (e *HostError) Error() string { return e.Text }

// Unwrap returns the error as it came.
func (e *HostError) Unwrap() error { return e.Cause }

// Store keeps connectors and what they listed last.
type Store interface {
	// InsertConnector adds one; a fault of kind ConnectorExists when the key is taken.
	InsertConnector(ctx context.Context, c Connector) error
	// Connectors returns all that were added by RPC, of every namespace, oldest first.
	Connectors(ctx context.Context) ([]Connector, error)
	// SetEnabled switches one.
	SetEnabled(ctx context.Context, key Key, enabled bool) error
	// SetAcceptedFor stores the provider digest for which a person accepted to go without isolation. It changes nothing
	// when the connector of that creation time is gone.
	SetAcceptedFor(ctx context.Context, key Key, created time.Time, digest string) error
	// DeleteConnector removes one and its listing.
	DeleteConnector(ctx context.Context, key Key) error
	// MarkHosted remembers that the host has been told of a key, or that it has forgotten it.
	MarkHosted(ctx context.Context, key Key, hosted bool) error
	// Hosted returns the keys that the host has been told of.
	Hosted(ctx context.Context) ([]Key, error)
	// SaveListing replaces what is remembered of a connector's tools.
	SaveListing(ctx context.Context, key Key, c *Catalogue) error
	// Summaries returns what is remembered of each listing.
	Summaries(ctx context.Context) ([]Summary, error)
	// ListedTools returns remembered tools by server and name, after the given position; server "" is every one.
	ListedTools(ctx context.Context, namespace, server string, after Position, limit int) ([]RememberedTool, error)
}

// Summary is a remembered listing without its tools.
type Summary struct {
	Key           Key
	Digest        string
	ServerVersion string
	Tools         int
	Hash          string
}

// Position is where a page of tools ended.
type Position struct{ Server, Name string }

// RememberedTool is a tool of a remembered listing.
type RememberedTool struct {
	Server string
	Digest string
	Tool
}

// hostMissing is the error where the registry runs without mcp-host.
func hostMissing(name string) error {
	return fault.New(fault.PeerUnavailable, "mcp-host", "the registry runs without mcp-host, so "+name+" can't be started or listed",
		"Give the registry an mcp-host.")
}
