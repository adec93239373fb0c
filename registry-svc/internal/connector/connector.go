// Package connector knows the MCP servers that were added by hand: from mcp.json and by RPC. It keeps mcp-host in step
// with them and remembers what they listed last.
package connector

import (
	"maps"
	"slices"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
)

// The transports.
const (
	Stdio = "stdio"
	HTTP  = "http"
)

// Key names a connector.
type Key struct{ Namespace, Name string }

// Source is where a connector comes from, in the order in which registrations win (ruling 8).
type Source int

// The sources of connectors.
const (
	FromFile Source = iota // mcp.json; read-only over RPC
	ByRPC                  // added by an operator
)

func (s Source) String() string {
	if s == FromFile {
		return "mcp.json"
	}
	return "rpc"
}

// Spec is what is started or dialled, as it was written: references to variables stand in it unexpanded.
type Spec struct {
	Transport     string            `json:"transport"`
	Command       string            `json:"command,omitempty"`
	Args          []string          `json:"args,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
	WorkingFolder string            `json:"working_folder,omitempty"`
	URL           string            `json:"url,omitempty"`
	// IdleSeconds: 0 stands for the default of 300, -1 for never.
	IdleSeconds int32 `json:"idle_seconds,omitempty"`
	// AcceptHost: a person accepted that it runs without isolation. It holds for the provider digest AcceptedFor, which is
	// the first digest that mcp-host gave.
	AcceptHost  bool   `json:"accept_host,omitempty"`
	AcceptedFor string `json:"accepted_for,omitempty"`
}

// Clone copies a spec deeply.
func (s Spec) Clone() Spec {
	s.Args, s.Env = slices.Clone(s.Args), maps.Clone(s.Env)
	return s
}

// Connector is a registered MCP server.
type Connector struct {
	Key
	Spec    Spec
	Enabled bool
	Source  Source
	// Place is file and key of a connector that a file configures.
	Place string
	// Broken says why an entry of a file is kept out; empty: it is not.
	Broken     string
	CreatedBy  *commonv1.Principal
	CreateTime time.Time
}

// State is what is known of a connector.
type State int

// The states.
const (
	Unknown State = iota // not looked at
	Disabled
	Ready
	Connected
	Failed
	NeedsAuthentication
)

// View is a connector with what is known of it.
type View struct {
	Connector
	State         State
	Problem       string
	ToolCount     int
	Digest        string
	ServerVersion string
}

// Issue is something that is wrong with a spec.
type Issue struct {
	Field    string // "command", "env.TOKEN", "args[2]"
	Problem  string // what is wrong
	Next     string // what to do
	Variable string // the variable that nobody bound, empty for other issues
}

func (i Issue) String() string { return i.Field + ": " + i.Problem + " " + i.Next }
