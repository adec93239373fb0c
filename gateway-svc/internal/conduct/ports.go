// Package conduct takes a call from the request to its outcome across permission, an executor and evidence, and lets
// any number of callers watch. It holds nothing that it cannot lose: what counts stands in the card, the claim and the
// receipt, and a call that this process forgot is found there again.
package conduct

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/toolname"
)

// Key names a call in its tenant.
type Key struct{ Namespace, Turn, Call string }

// Name is the call's resource name.
func (k Key) Name() string { return toolname.Call(k.Turn, k.Call) }

// Ask is what somebody wants to be called.
type Ask struct {
	Key
	// Principal is who acts; every request to another service is made on its behalf.
	Principal *commonv1.Principal
	// AssertedBy is the service that vouches for the principal, where one does.
	AssertedBy string
	// Tool is the canonical id or the alias.
	Tool string
	// Arguments are the exact bytes.
	Arguments []byte
	// Given says that the id is the caller's own, so that the record may know the call already.
	Given bool
	// Card is the card from which the call is resumed, nil for a new one.
	Card *permissionv1.Card
	// Claim is the open claim under which the call runs already, nil for a new one.
	Claim *Claim
}

// Claim is the at-most-once mark of a call, as evidence has it.
type Claim struct {
	Sealed   bool
	Durable  bool // false: a read, which may be claimed again while it is not sealed
	Tool     string
	Executor string
	// Matches tells whether the arguments are those that were claimed. Nil where that can't be told.
	Matches func(arguments []byte) bool
}

// Recorded is a receipt with what it answers.
type Recorded struct {
	Receipt string
	// Refusal is true for an attempt that an executor did not accept: it takes no claim, so the call may be made again.
	Refusal      bool
	Tool         string
	Conversation string
	TraceID      string
	Card         string
	Sealed       time.Time
	Outcome      *commonv1.Outcome
	// Arguments are the recorded bytes; HasArguments is false where the opening was erased.
	Arguments    []byte
	HasArguments bool
}

// same holds a request against the record. Where the opening was erased only the tool can be compared.
func (r Recorded) same(a Ask) error {
	if r.Tool != "" && !sameTool(a.Tool, r.Tool) || r.HasArguments && !bytes.Equal(r.Arguments, a.Arguments) {
		return ErrChanged
	}
	return nil
}

// Ending is what ends in the gateway itself, to be sealed by it.
type Ending struct {
	Ask       Ask
	Canonical string // the tool's canonical id where it is known
	Writ      string // the last writ, empty where none was given
	Card      *permissionv1.Card
	TraceID   string
	Outcome   *commonv1.Outcome
}

// Permission is permission-svc.
type Permission interface {
	Authorize(ctx context.Context, a Ask) (*permissionv1.AuthorizeResponse, error)
	// WatchDecision calls each with every state of the card; nil after the stream's own end.
	WatchDecision(ctx context.Context, a Ask, each func(*permissionv1.Card)) error
	CancelCards(ctx context.Context, a Ask, reason string) error
}

// Executor is mcp-host-svc or exec-svc. Both streams return nil after their own end.
type Executor interface {
	Execute(ctx context.Context, a Ask, writ string, each func(*commonv1.ExecutionEvent)) error
	Attach(ctx context.Context, a Ask, after int64, each func(*commonv1.ExecutionEvent)) error
	Cancel(ctx context.Context, a Ask, reason string) (cancelled bool, err error)
}

// Record is evidence-svc.
type Record interface {
	Claim(ctx context.Context, k Key) (Claim, error)
	// Recorded is the receipt of a call, for the principal that acts or acted.
	Recorded(ctx context.Context, k Key, p *commonv1.Principal) (Recorded, error)
	// Seal seals an ending of the gateway's and returns the receipt's id.
	Seal(ctx context.Context, e Ending) (string, error)
}

// Writ is what a conductor reads from a writ. It is not verified here: who executes does that.
type Writ struct {
	Tool, Conversation string
	Effect             bool
	Expiry             time.Time
}

// Span is the call's own span or a part of it.
type Span interface {
	TraceID() string
	Tool(canonical string)
	Card(id string)
	// End ends it. state and reason are those of the outcome; err is set where there is none.
	End(state, reason, receipt string, err error)
}

// Tracer begins spans. The wait for a person has none here: it is permission-svc's.
type Tracer interface {
	// Call begins the span of a conductor. The context that it returns lives as long as base and belongs to the trace
	// of caller; of a resumed call it belongs to a new trace that links to the card's.
	Call(base, caller context.Context, a Ask) (context.Context, Span)
}

// Kind is how a peer failed.
type Kind int

// Kinds.
const (
	Away    Kind = iota // no answer, or the stream broke: nobody knows what it did
	Refused             // an answer: the peer does not do it
	Missing             // an answer: there is no such thing
	Taken               // an answer: the call is claimed
)

// PeerError is a failed request to another service.
type PeerError struct {
	Peer string
	Kind Kind
	Err  error
}

// Error is the cause with the peer's name.
func (e *PeerError) Error() string { return e.Peer + ": " + e.Err.Error() }

// Unwrap is the cause.
func (e *PeerError) Unwrap() error { return e.Err }

func kindOf(err error) Kind {
	var p *PeerError
	if errors.As(err, &p) {
		return p.Kind
	}
	return Away
}

// Errors that the root package turns into statuses.
var (
	// ErrNotFound is a call that is not there, or not the asker's.
	ErrNotFound = errors.New("no such call")
	// ErrTurnNotFound is a turn that is not the asker's.
	ErrTurnNotFound = errors.New("no such turn")
	// ErrChanged is a call that was made before with another tool or other arguments.
	ErrChanged = errors.New("the call was made with another tool or other arguments")
	// ErrStopping ends every watch when the process stops; the calls go on.
	ErrStopping = errors.New("the gateway is stopping")
)

// UnavailableError is a peer that did not answer for so long that the conductor gave up watching. The call, if it had
// begun, goes on; the record will have its outcome.
type UnavailableError struct {
	Peer string
	Err  error
}

// Error names the peer.
func (e *UnavailableError) Error() string { return e.Peer + " does not answer" }

// Unwrap is the last failure.
func (e *UnavailableError) Unwrap() error { return e.Err }

// TooManyError is a limit on calls.
type TooManyError struct {
	Limit string
	Max   int
}

// Error names the limit.
func (e *TooManyError) Error() string { return e.Limit }

// ExecutorError is an ending before the claim because the executor can't be reached or is not known here.
type ExecutorError struct {
	Name string
	Err  error
}

// Error names the executor.
func (e *ExecutorError) Error() string { return "executor " + e.Name + " can't be reached" }

// Unwrap is the last failure.
func (e *ExecutorError) Unwrap() error { return e.Err }

// CancelledError is a call that was cancelled before it began.
type CancelledError struct{ Name, Reason string }

// Error names the call.
func (e *CancelledError) Error() string { return e.Name + " was cancelled before it began" }

// StatusOf turns an error into what an outcome says.
type StatusOf func(error) *statuspb.Status

func samePrincipal(a, b *commonv1.Principal) bool {
	return a.GetId() == b.GetId() && a.GetKind() == b.GetKind() && a.GetNamespace() == b.GetNamespace()
}

// sameTool tells whether a request means the canonical tool, by its id or its alias.
func sameTool(requested, canonical string) bool {
	if requested == canonical {
		return true
	}
	if server, tool, ok := toolname.Split(canonical); ok {
		return requested == toolname.Alias(server, tool)
	}
	return !strings.HasPrefix(canonical, "mcp.") && requested == toolname.Alias("", canonical)
}
