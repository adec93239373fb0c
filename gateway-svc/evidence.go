package gateway

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/writ-dev/writ/clients/go/writtoken"
	"github.com/writ-dev/writ/gateway-svc/internal/conduct"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/class"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/rawjson"
	"github.com/writ-dev/writ/internal/receipt"
)

// evidencePeer is evidence-svc for the conductors.
type evidencePeer struct {
	claims   evidencev1.ClaimServiceClient
	receipts evidencev1.ReceiptServiceClient
	sealer   *receipt.Sealer
}

// readWrit reads what a conductor needs to know of a writ, and no more: it stands on the path of every call. Nothing is
// decided on it; executors read and verify the whole.
func readWrit(writ string) (conduct.Writ, bool) {
	_, rest, _ := strings.Cut(writ, ".")
	middle, _, ok := strings.Cut(rest, ".")
	payload, err := base64.RawURLEncoding.DecodeString(middle)
	if !ok || err != nil || len(writ) > writtoken.MaxTokenBytes {
		return conduct.Writ{}, false
	}
	w := conduct.Writ{Effect: true}
	for m, err := range rawjson.Members(payload) {
		if err != nil {
			return conduct.Writ{}, false
		}
		switch m.Name {
		case "tool":
			w.Tool, err = rawjson.String(m.Value)
		case "conversation":
			w.Conversation, err = rawjson.String(m.Value)
		case "class":
			var word string
			word, err = rawjson.String(m.Value)
			k, _ := class.Parse(word)
			w.Effect = class.HasEffect(k)
		case "exp":
			var seconds int64
			seconds, err = rawjson.Int64(m.Value)
			w.Expiry = time.Unix(seconds, 0)
		}
		if err != nil {
			return conduct.Writ{}, false
		}
	}
	return w, w.Tool != "" && !w.Expiry.IsZero()
}

// Claim asks as the gateway itself: a claim is nobody's until its receipt says whose.
func (e *evidencePeer) Claim(ctx context.Context, k conduct.Key) (conduct.Claim, error) {
	answer, err := e.claims.GetClaim(ctx, &evidencev1.GetClaimRequest{Call: k.Name(), Namespace: k.Namespace})
	if err != nil {
		return conduct.Claim{}, peerError(evidenceName, err)
	}
	c := answer.GetClaim()
	claim := conduct.Claim{
		Sealed: c.GetState() == evidencev1.ClaimState_CLAIM_STATE_SEALED, Durable: c.GetDurable(),
		Tool: c.GetTool(), Executor: c.GetExecutor(),
	}
	if _, claims, err := writtoken.Unverified(c.GetWrit()); err == nil {
		claim.Matches = func(arguments []byte) bool { return claims.CheckArguments(arguments) == nil }
	}
	return claim, nil
}

func (e *evidencePeer) Recorded(ctx context.Context, k conduct.Key, p *commonv1.Principal) (conduct.Recorded, error) {
	return recordedCall(as(ctx, p), e.receipts, k)
}

// recordedCall reads a call's receipt through a client that says who asks.
func recordedCall(ctx context.Context, receipts evidencev1.ReceiptServiceClient, k conduct.Key) (conduct.Recorded, error) {
	answer, err := receipts.GetReceipt(ctx, &evidencev1.GetReceiptRequest{Name: k.Name(), WithOpening: true})
	if err != nil {
		return conduct.Recorded{}, peerError(evidenceName, err)
	}
	r, o := answer.GetReceipt(), answer.GetOpening()
	return conduct.Recorded{
		Receipt: r.GetId(), Refusal: r.GetKind() == evidencev1.ReceiptKind_RECEIPT_KIND_REFUSAL,
		Tool: r.GetTool().GetTool(), Conversation: r.GetConversation(), TraceID: r.GetTraceId(), Card: r.GetCard(),
		Sealed: r.GetSealTime().AsTime(), Outcome: recordedOutcome(r, o),
		Arguments: o.GetArguments(), HasArguments: len(o.GetArguments()) > 0,
	}, nil
}

// recordedOutcome is the outcome as it was answered; where the opening is gone or not the asker's, what the receipt says.
func recordedOutcome(r *evidencev1.Receipt, o *evidencev1.Opening) *commonv1.Outcome {
	if answered := o.GetOutcome(); answered != nil {
		whole := proto.CloneOf(answered)
		whole.Receipt = r.GetId()
		return whole
	}
	return &commonv1.Outcome{
		State: r.GetState(), Status: statusFromReason(r.GetReason()), Enforcement: r.GetEnforcement(), Receipt: r.GetId(),
	}
}

func statusFromReason(reason string) *statuspb.Status {
	if reason == "" {
		return &statuspb.Status{}
	}
	st := &statuspb.Status{Code: int32(code.Code_UNKNOWN), Message: reason}
	if info, err := anypb.New(&errdetails.ErrorInfo{Reason: reason, Domain: errs.Domain}); err == nil {
		st.Details = []*anypb.Any{info}
	}
	return st
}

// Seal signs what ended in the gateway and has it recorded.
func (e *evidencePeer) Seal(ctx context.Context, end conduct.Ending) (string, error) {
	opening := &evidencev1.Opening{Arguments: end.Ask.Arguments, Outcome: end.Outcome, Writ: end.Writ}
	r, err := e.sealer.Seal(as(ctx, end.Ask.Principal), factsOf(end, opening), opening, "")
	if err != nil {
		return "", peerError(evidenceName, err)
	}
	return r.GetId(), nil
}

func factsOf(end conduct.Ending, opening *evidencev1.Opening) receipt.Facts {
	a := end.Ask
	f := receipt.Facts{
		Kind: evidencev1.ReceiptKind_RECEIPT_KIND_CALL, Namespace: a.Namespace, Call: a.Name(), Turn: a.Turn,
		Principals: []*commonv1.Principal{a.Principal}, AssertedBy: a.AssertedBy,
	}
	if end.Canonical != "" {
		f.Tool = &commonv1.ToolIdentity{Tool: end.Canonical}
	}
	if card := end.Card; card != nil {
		f.Agent, f.Conversation, f.Tool, f.Class = card.GetAgent(), card.GetConversation(), card.GetTool(), card.GetClass()
		f.Decision = receipt.Decision{Cause: "card", Card: card.GetId()}
		f.Card = receipt.CardTimes{Asked: card.GetAskTime().AsTime()}
		if card.GetDecideTime() != nil {
			f.Card.Decided = card.GetDecideTime().AsTime()
		}
	}
	if _, c, err := writtoken.Unverified(end.Writ); err == nil {
		f = receipt.FromClaims(c)
		opening.ArgumentsSalt = c.Args.Salt
	}
	if f.TraceID == "" {
		f.TraceID = end.TraceID
	}
	return f
}
