// Package receipt makes and reads what a receipt is made of: the statement of whoever ended a call, the
// countersignature of evidence-svc over it, and the DSSE envelopes that carry both. docs/receipt.md gives the form for
// other languages.
//
// A statement holds commitments, names of the contract and facts about the execution. It never holds arguments,
// results, salts, paths or free text of a tool; those stand in the opening, which can be erased.
package receipt

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"io"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/class"
	"github.com/writ-dev/writ/internal/toolname"
)

// Types of the in-toto statements.
const (
	StatementType            = "https://in-toto.io/Statement/v1"
	PredicateType            = "https://writ.dev/receipt/v1"
	CountersignPredicateType = "https://writ.dev/countersignature/v1"
)

// Limits of a statement. What is longer is refused, not cut, but for lists of survivors.
const (
	MaxStatement = 44 << 10 // bytes; its envelope then fits the 64 KiB of SealRequest
	MaxText      = 1024     // bytes of one text
	MaxList      = 64       // entries of mechanisms and degraded, principals
	MaxPIDs      = 256      // survivors that are listed; all are counted
)

// Facts is what a statement says. Zero values say nothing and stand in no statement.
type Facts struct {
	Kind      evidencev1.ReceiptKind
	Namespace string
	Call      string // "turns/{turn}/calls/{call}"; empty where no call is known
	Executor  string // the service that signs; evidence-svc compares it with the authenticated peer

	State      commonv1.OutcomeState
	Code       codes.Code // of the outcome's status
	Reason     string     // of the outcome's status; empty for COMPLETED
	WritReason string     // why a writ was refused, as writtoken.Reason

	Principals   []*commonv1.Principal // who acts, then on whose behalf, nearest first
	AssertedBy   string                // the service that vouched for who acts
	Agent        string
	Conversation string
	Turn         string // id
	TraceID      string // 32 hex digits

	Tool  *commonv1.ToolIdentity // for PROVIDER_START only provider and provider_digest
	Class commonv1.SecurityClass

	WritID   string // jti
	Decision Decision
	Card     CardTimes

	Arguments *Commitment // to the argument bytes as presented
	Result    *Commitment // to the result's bytes, inline or in a blob; nil where there is none

	Enforcement *commonv1.Enforcement // with the network
	Survivors   Survivors
	Credential  commonv1.CredentialFact
	Begin, End  time.Time // of the execution; zero where nothing ran
}

// Decision says why the call was allowed or denied.
type Decision struct {
	ID    string
	Cause string // "mode", "disposition", "grant", "policy", "card", or what a denial names
	Card  string // "k_…"
	Grant string // "g_…"
	Why   string // one sentence about the rule; nothing of the call's content
}

// CardTimes is when a card was asked, first shown and decided.
type CardTimes struct{ Asked, Shown, Decided time.Time }

// Commitment binds bytes without showing them. The salt stands in the opening.
type Commitment struct {
	MAC  string // HMAC-SHA256 under the salt, base64url without padding, as in a writ
	Size int64  // bytes
}

// Survivors counts the processes that outlived their command (R84, R105). Names and command lines are in the opening.
type Survivors struct {
	Total int64
	Ended int64   // of Total, ended and seen to have ended
	PIDs  []int64 // the first MaxPIDs
}

// Commit is the HMAC-SHA256 of b under the salt, as a writ and Commitment.MAC spell it.
func Commit(salt, b []byte) string { return writtoken.CommitArguments(salt, b) }

// Committed makes the commitment to b.
func Committed(salt, b []byte) *Commitment {
	return &Commitment{MAC: Commit(salt, b), Size: int64(len(b))}
}

// Committer makes a commitment to bytes that come in pieces. Write to it, then call Commitment.
type Committer struct {
	mac  hash.Hash
	size int64
}

// NewCommitter starts a commitment under the salt.
func NewCommitter(salt []byte) *Committer { return &Committer{mac: hmac.New(sha256.New, salt)} }

// Write never fails.
func (c *Committer) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	return c.mac.Write(p)
}

// Commitment is the commitment to everything that was written.
func (c *Committer) Commitment() *Commitment {
	return &Commitment{MAC: base64.RawURLEncoding.EncodeToString(c.mac.Sum(nil)), Size: c.size}
}

// Opens reports whether the commitment is to exactly the bytes of r under the salt. It reads r to its end.
func (c *Commitment) Opens(salt []byte, r io.Reader) (bool, error) {
	other := NewCommitter(salt)
	if _, err := io.Copy(other, r); err != nil {
		return false, err
	}
	return c.Equal(other.Commitment()), nil
}

// Equal compares two commitments.
func (c *Commitment) Equal(other *Commitment) bool {
	if c == nil || other == nil {
		return c == other
	}
	return c.Size == other.Size && hmac.Equal([]byte(c.MAC), []byte(other.MAC))
}

// FromClaims starts the facts of a call with everything that its writ says. Kind is CALL; state, executor, result and
// what happened are still to be filled in. Of the tool the semantic fingerprint is not in a writ.
func FromClaims(c *writtoken.Claims) Facts {
	kind, _ := class.Parse(c.Class)
	f := Facts{
		Kind: evidencev1.ReceiptKind_RECEIPT_KIND_CALL, Namespace: c.Namespace, Call: toolname.Call(c.Turn, c.Call),
		Principals: []*commonv1.Principal{principalOf(c.Namespace, c.Subject)},
		AssertedBy: c.AssertedBy, Agent: c.Agent, Conversation: c.Conversation, Turn: c.Turn,
		Tool: &commonv1.ToolIdentity{
			Tool: c.Tool, WireFingerprint: c.Fingerprint, Provider: c.Provider, ProviderDigest: c.ProviderDigest,
		},
		Class: kind, WritID: c.ID,
		Decision: Decision{ID: c.Decision.ID, Cause: c.Decision.Cause, Card: c.Decision.Card, Grant: c.Decision.Grant},
		Arguments: &Commitment{
			MAC: base64.RawURLEncoding.EncodeToString(c.Args.MAC), Size: c.Args.Size,
		},
		TraceID: TraceID(c.Trace),
	}
	for _, p := range c.Chain {
		f.Principals = append(f.Principals, principalOf(c.Namespace, p))
	}
	return f
}

func principalOf(namespace string, p writtoken.Principal) *commonv1.Principal {
	return &commonv1.Principal{Id: p.ID, Kind: principalKind(p.Kind), Namespace: namespace}
}

// TraceID is the trace id of a W3C traceparent, "" where it is none.
func TraceID(traceparent string) string {
	const shape = "00-00000000000000000000000000000000-0000000000000000-00"
	if len(traceparent) < len(shape) || traceparent[2] != '-' || traceparent[35] != '-' || !isHex(traceparent[3:35], 32) {
		return ""
	}
	return traceparent[3:35]
}

// SetOutcome copies from the outcome what a statement says about it: state, code, reason, enforcement, survivors,
// credential and times. Foreign text of the status stays in the opening.
func (f *Facts) SetOutcome(o *commonv1.Outcome) {
	f.State, f.Code, f.Reason = o.GetState(), codes.Code(o.GetStatus().GetCode()), StatusReason(o)
	f.Enforcement, f.Credential = o.GetEnforcement(), o.GetCredential()
	f.Survivors = Survivors{}
	for _, s := range o.GetSurvivors() {
		f.Survivors.Total++
		if s.GetEnded() {
			f.Survivors.Ended++
		}
		if len(f.Survivors.PIDs) < MaxPIDs {
			f.Survivors.PIDs = append(f.Survivors.PIDs, s.GetPid())
		}
	}
	f.Begin, f.End = time.Time{}, time.Time{}
	if o.GetBeginTime() != nil {
		f.Begin = o.GetBeginTime().AsTime()
	}
	if o.GetEndTime() != nil {
		f.End = o.GetEndTime().AsTime()
	}
}

// StatusReason is the reason in the ErrorInfo of an outcome's status, "" where there is none.
func StatusReason(o *commonv1.Outcome) string {
	for _, d := range o.GetStatus().GetDetails() {
		info := &errdetails.ErrorInfo{}
		if d.MessageIs(info) && d.UnmarshalTo(info) == nil {
			return info.GetReason()
		}
	}
	return ""
}

// Error is a fact or a part of a statement or envelope that is not what it has to be.
type Error struct {
	Field   string // "predicate.tool.wire_fingerprint", "envelope.signatures"
	Problem string
}

// Error is one sentence.
func (e *Error) Error() string { return e.Field + ": " + e.Problem }

func bad(field, problem string) *Error { return &Error{Field: field, Problem: problem} }
