// Package seal holds the rules of a receipt: what a statement needs, and what it must agree with.
package seal

import (
	"bytes"
	"encoding/base64"
	"io"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/receipt"
)

// Words of a countersignature's `verified`; docs/receipt.md explains them.
const (
	Signature  = "signature"
	Executor   = "executor"
	Claimed    = "claim"
	Writ       = "writ"
	WritTime   = "writ_time"
	ClaimTaken = "claim_taken"
	Arguments  = "arguments"
	Result     = "result"
	Outcome    = "outcome"
)

// Need is what a receipt needs before it can be sealed.
type Need int

// What a receipt needs.
const (
	NeedsNothing Need = iota // a refusal, a provider's start
	NeedsClaim               // the token that Claim gave
	TakesClaim               // that nothing has claimed or ended the call
)

// NeedOf says what the statement's receipt needs. withToken tells whether a claim token was presented.
func NeedOf(f receipt.Facts, withToken bool) Need {
	if f.Kind != evidencev1.ReceiptKind_RECEIPT_KIND_CALL {
		return NeedsNothing
	}
	switch f.State {
	case commonv1.OutcomeState_OUTCOME_STATE_DENIED, commonv1.OutcomeState_OUTCOME_STATE_STALE:
		return TakesClaim
	case commonv1.OutcomeState_OUTCOME_STATE_CANCELLED:
		if !withToken && f.Begin.IsZero() {
			return TakesClaim
		}
	}
	return NeedsClaim
}

// Mismatch is a part of the statement that is not what it has to be. Got is the statement's.
type Mismatch struct {
	Field string
	Got   string
	Want  string
}

// Error is one sentence. It shows what stands in the statement and the request, both of which the peer sent.
func (m *Mismatch) Error() string {
	return m.Field + " is " + strconv.QuoteToASCII(m.Got) + ", not " + strconv.QuoteToASCII(m.Want)
}

// AgainstClaims compares a statement with the writ of its call.
func AgainstClaims(f receipt.Facts, c *writtoken.Claims) error {
	want := receipt.FromClaims(c)
	pairs := []Mismatch{
		{"predicate.namespace", f.Namespace, want.Namespace},
		{"predicate.call", f.Call, want.Call},
		{"predicate.turn", f.Turn, want.Turn},
		{"predicate.writ", f.WritID, want.WritID},
		{"predicate.agent", f.Agent, want.Agent},
		{"predicate.conversation", f.Conversation, want.Conversation},
		{"predicate.asserted_by", f.AssertedBy, want.AssertedBy},
		{"predicate.tool.tool", f.Tool.GetTool(), want.Tool.GetTool()},
		{"predicate.tool.wire_fingerprint", f.Tool.GetWireFingerprint(), want.Tool.GetWireFingerprint()},
		{"predicate.tool.provider", f.Tool.GetProvider(), want.Tool.GetProvider()},
		{"predicate.tool.provider_digest", f.Tool.GetProviderDigest(), want.Tool.GetProviderDigest()},
		{"predicate.class", f.Class.String(), want.Class.String()},
		{"predicate.decision.id", f.Decision.ID, want.Decision.ID},
		{"predicate.decision.cause", f.Decision.Cause, want.Decision.Cause},
		{"predicate.decision.card", f.Decision.Card, want.Decision.Card},
		{"predicate.decision.grant", f.Decision.Grant, want.Decision.Grant},
		{"predicate.arguments.mac", f.Arguments.MAC, base64.RawURLEncoding.EncodeToString(c.Args.MAC)},
		{"predicate.arguments.size", strconv.FormatInt(f.Arguments.Size, 10), strconv.FormatInt(c.Args.Size, 10)},
	}
	if want.TraceID != "" {
		pairs = append(pairs, Mismatch{"predicate.trace_id", f.TraceID, want.TraceID})
	}
	for i := range pairs {
		if pairs[i].Got != pairs[i].Want {
			return &pairs[i]
		}
	}
	same := func(a, b *commonv1.Principal) bool { return proto.Equal(a, b) }
	if !slices.EqualFunc(f.Principals, want.Principals, same) {
		return &Mismatch{"predicate.principals", names(f.Principals), names(want.Principals)}
	}
	return nil
}

func names(list []*commonv1.Principal) (s string) {
	for _, p := range list {
		s += p.GetKind().String() + ":" + p.GetId() + " "
	}
	return s
}

// Blobs opens a blob that the opening names, after checking that it is there as it is named.
type Blobs interface {
	OpenRef(ref *commonv1.BlobRef) (io.ReadCloser, error)
}

// AgainstOpening compares a statement with what it commits to, and returns the words for what was checked.
func AgainstOpening(f receipt.Facts, o *evidencev1.Opening, blobs Blobs) (verified []string, err error) {
	if f.Kind == evidencev1.ReceiptKind_RECEIPT_KIND_PROVIDER_START {
		return nil, nil
	}
	if o.GetOutcome() == nil {
		return nil, &Mismatch{"opening.outcome", "missing", "the outcome"}
	}
	if err := againstOutcome(f, o.GetOutcome()); err != nil {
		return nil, err
	}
	verified = append(verified, Outcome)
	opened, err := openArguments(f, o)
	if err != nil {
		return nil, err
	}
	if opened {
		verified = append(verified, Arguments)
	}
	opened, err = openResult(f, o, blobs)
	if err != nil {
		return nil, err
	}
	if opened {
		verified = append(verified, Result)
	}
	return verified, nil
}

// openArguments checks the argument bytes. They may be missing where nobody has them any more or nobody vouches for
// them: an executor that starts again has the writ only, and a refusal may be about bytes that are not kept.
func openArguments(f receipt.Facts, o *evidencev1.Opening) (bool, error) {
	if len(o.GetArguments()) == 0 && f.Arguments.Size > 0 &&
		(f.State == commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN || f.State == commonv1.OutcomeState_OUTCOME_STATE_REFUSED) {
		return false, nil
	}
	got := receipt.Committed(o.GetArgumentsSalt(), o.GetArguments())
	if !f.Arguments.Equal(got) {
		return false, &Mismatch{"predicate.arguments", commitment(f.Arguments), commitment(got)}
	}
	return true, nil
}

func openResult(f receipt.Facts, o *evidencev1.Opening, blobs Blobs) (bool, error) {
	inline, ref := o.GetOutcome().GetResult(), o.GetOutcome().GetResultBlob()
	switch {
	case len(inline) > 0 && ref != nil:
		return false, &Mismatch{"opening.outcome.result_blob", ref.GetHandle(), "none beside an inline result"}
	case f.Result == nil && (len(inline) > 0 || ref != nil):
		return false, &Mismatch{"predicate.result", "missing", "the commitment to the result"}
	case f.Result == nil:
		return false, nil
	}
	var from io.Reader = bytes.NewReader(inline)
	if ref != nil {
		file, err := blobs.OpenRef(ref)
		if err != nil {
			return false, err
		}
		defer file.Close()
		from = file
	}
	committer := receipt.NewCommitter(o.GetResultSalt())
	if _, err := io.Copy(committer, from); err != nil {
		return false, err
	}
	if got := committer.Commitment(); !f.Result.Equal(got) {
		return false, &Mismatch{"predicate.result", commitment(f.Result), commitment(got)}
	}
	return true, nil
}

func commitment(c *receipt.Commitment) string {
	return c.MAC + " over " + strconv.FormatInt(c.Size, 10) + " bytes"
}

func againstOutcome(f receipt.Facts, o *commonv1.Outcome) error {
	var want receipt.Facts
	want.SetOutcome(o)
	for _, m := range []Mismatch{
		{"predicate.state", f.State.String(), want.State.String()},
		{"predicate.code", f.Code.String(), want.Code.String()},
		{"predicate.reason", f.Reason, want.Reason},
		{"predicate.credential", f.Credential.String(), want.Credential.String()},
		{"predicate.begin", f.Begin.String(), want.Begin.String()},
		{"predicate.end", f.End.String(), want.End.String()},
		{"predicate.survivors.total", strconv.FormatInt(f.Survivors.Total, 10), strconv.FormatInt(want.Survivors.Total, 10)},
		{"predicate.survivors.ended", strconv.FormatInt(f.Survivors.Ended, 10), strconv.FormatInt(want.Survivors.Ended, 10)},
	} {
		if m.Got != m.Want {
			return &m
		}
	}
	if f.Enforcement != nil && want.Enforcement != nil && !proto.Equal(f.Enforcement, want.Enforcement) ||
		(f.Enforcement == nil) != (want.Enforcement == nil) {
		return &Mismatch{"predicate.enforcement", f.Enforcement.String(), want.Enforcement.String()}
	}
	return nil
}
