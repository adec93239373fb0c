// Package turn freezes what an agent may use while it makes one reply: the tools with their definitions, fingerprints,
// provider digests, classes and dispositions, and under which mode, for whom, in which workspace (R30-R32).
package turn

import (
	"context"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/registry-svc/internal/connector"
	"github.com/writ-dev/writ/registry-svc/internal/workspace"
)

// State is where a turn stands.
type State int

// The states.
const (
	Open State = iota + 1
	Ended
	Cancelled
)

// Principal is who opened a turn.
type Principal struct {
	ID        string
	Kind      commonv1.PrincipalKind
	Namespace string
}

// Turn is a frozen snapshot without its tools.
type Turn struct {
	ID            string
	State         State
	Principal     Principal
	AssertedBy    string
	Agent         string
	Conversation  string
	Project       string
	Mode          commonv1.Mode
	MaxMode       commonv1.Mode // of the credential
	Workspace     *workspace.Folder
	Parent        string
	OpenTime      time.Time
	EndTime       time.Time
	PolicyVersion string
	Toolset       string // names the frozen set of tools
	Problems      []Problem
}

// Problem is a provider, or a tool of it, that was left out. Status is a serialized google.rpc.Status.
type Problem struct {
	Provider string
	Status   []byte
}

// Tool is a tool as a turn froze it.
type Tool struct {
	ID             string // canonical
	Alias          string
	Name           string // the provider's own
	Lane           commonv1.Lane
	Provider       string
	ProviderDigest string
	Wire           string
	Semantic       string
	Definition     []byte
	Class          commonv1.SecurityClass
	Disposition    commonv1.Disposition
	AlwaysGate     bool
	Why            string

	destructive bool // the server's own hint, for the classification only
}

// Destructive is the server's own hint; it can only raise what a call needs.
func (t Tool) Destructive() bool { return t.destructive }

// Request asks for a turn. The caller of this package has checked credential, agent, mode and workspace.
type Request struct {
	Principal    Principal
	AssertedBy   string
	Agent        string
	Conversation string
	Project      string
	Mode         commonv1.Mode // UNSPECIFIED: what is allowed
	MaxMode      commonv1.Mode
	Workspace    *workspace.Folder
	Parent       string
	Tools        []string // patterns; none: every tool
	RequestID    string
	// InlineMax bounds the definitions that the answer has to carry, in bytes; 0: it carries none.
	InlineMax int64
}

// Agent is what an operator settled for an agent: patterns of canonical ids. A tool has to match one of Tools, where
// there are any, and none of Deny (R26).
type Agent struct {
	Tools []string
	Deny  []string
}

// Filter selects turns for a list.
type Filter struct {
	Namespace    string     // empty: every one
	Principal    *Principal // nil: everybody's
	Conversation string
	State        State  // 0: every state
	Before       string // only turns with a smaller id, which are older
	Limit        int
}

// Store keeps turns.
type Store interface {
	// InsertTurn stores an open turn with its tools, takes its conversation and its request id, all or nothing. It fails
	// with a fault ConversationTaken or TooManyTurns, or with ErrRequestKnown where the request id has a turn already.
	InsertTurn(ctx context.Context, t Turn, tools []Tool, req RequestKey, maxOpen int) error
	// TurnOfRequest finds the turn that a request id made.
	TurnOfRequest(ctx context.Context, key RequestKey) (turn, digest string, ok bool, err error)
	// ForgetRequests forgets the request ids of turns that were opened before.
	ForgetRequests(ctx context.Context, before time.Time) error
	// ConversationOwner returns who used a conversation first.
	ConversationOwner(ctx context.Context, namespace, conversation string) (Principal, bool, error)
	// Turn returns one; a fault TurnNotFound.
	Turn(ctx context.Context, id string) (Turn, error)
	// Tools returns a frozen set in its order.
	Tools(ctx context.Context, toolset string) ([]Tool, error)
	// ListTurns returns turns newest first.
	ListTurns(ctx context.Context, f Filter) ([]Turn, error)
	// EndTurn ends an open turn, or cancels one that has ended, and remembers that its cards are to be cancelled. ended is
	// false where nothing changed.
	EndTurn(ctx context.Context, id string, state State, at time.Time) (t Turn, ended bool, err error)
	// CardsCancelled forgets that the turn's cards are to be cancelled.
	CardsCancelled(ctx context.Context, id string) error
	// CardsToCancel returns turns whose cards are still to be cancelled.
	CardsToCancel(ctx context.Context, limit int) ([]Turn, error)
	// Touch stores when turns were used last; it never goes back.
	Touch(ctx context.Context, used map[string]time.Time) error
	// IdleTurns returns open turns that were used last before, by id, after the given one.
	IdleTurns(ctx context.Context, before time.Time, after string, limit int) ([]Turn, error)
}

// RequestKey is a request id with whom it belongs to and a digest of what was asked for.
type RequestKey struct {
	Principal Principal
	ID        string // empty: none
	Digest    string
}

// Connectors is what a turn needs of the connectors.
type Connectors interface {
	Enabled(namespace string) []connector.Key
	Discover(ctx context.Context, key connector.Key, refresh bool, workspace string) (*connector.Catalogue, error)
	Current(ctx context.Context, key connector.Key) (digest string, enabled bool, err error)
}

// Verdict is what permission says of one tool.
type Verdict struct {
	Tool        string
	Class       commonv1.SecurityClass
	Disposition commonv1.Disposition
	AlwaysGate  bool
	Why         string
}

// Classification is what permission says of a turn's tools, in the order in which they were given.
type Classification struct {
	Mode          commonv1.Mode
	PolicyVersion string
	Tools         []Verdict
}

// Classifier classifies the tools of a turn that is opened.
type Classifier interface {
	Classify(ctx context.Context, namespace string, mode, max commonv1.Mode, tools []Tool) (Classification, error)
}

// Cards is what a turn needs of the cards.
type Cards interface {
	// Cancel cancels the open cards of a turn.
	Cancel(ctx context.Context, t Turn, reason string) error
	// AnyOpen tells whether a turn has an open card.
	AnyOpen(ctx context.Context, t Turn) (bool, error)
}
