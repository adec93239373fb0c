package permission

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/class"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/toolname"
	"github.com/writ-dev/writ/permission-svc/internal/card"
	"github.com/writ-dev/writ/permission-svc/internal/decide"
)

// ending is why a call ends here.
type ending struct {
	state   commonv1.OutcomeState
	reason  permissionv1.ErrorReason
	cause   string // of a denial without a card
	why     string // the rule in words; nothing of the call's content
	changed string // what changed, for DECISION_STALE
}

// end seals that the call will not happen, remembers it on the card where there is one, and answers. Without a receipt
// there is no answer.
func (s *Server) end(ctx context.Context, c *call, k *card.Card, e ending) (*permissionv1.AuthorizeResponse, error) {
	full := card.Card{Content: c.content}
	if k != nil {
		full = *k
	}
	st := s.statusOf(c.content, full, e)
	id, err := s.seal(ctx, full, e, st)
	if err != nil {
		return nil, err
	}
	end := card.End{State: e.state, Reason: e.reason, Changed: e.changed, Receipt: id}
	if k != nil {
		if end, err = s.remember(ctx, *k, end); err != nil {
			return nil, err
		}
	}
	a := denied(st, end)
	a.GetDenied().Why = e.why
	return a, nil
}

// remember records the end on the card; the first one that was recorded counts.
func (s *Server) remember(ctx context.Context, k card.Card, end card.End) (card.End, error) {
	after, err := s.store.EndCard(ctx, k.Namespace, k.ID, end, s.now().UTC())
	if err != nil {
		return end, err
	}
	if after.Version != k.Version {
		s.waited(after)
		s.changes.notify()
	}
	return after.End, nil
}

func denied(st *status.Status, end card.End) *permissionv1.AuthorizeResponse {
	return &permissionv1.AuthorizeResponse{Decision: &permissionv1.AuthorizeResponse_Denied{Denied: &permissionv1.Denied{
		Status: st, Receipt: end.Receipt, Why: st.GetMessage(), Stale: end.State == stale, Cancelled: end.State == cancelledState,
	}}}
}

// endStatus is the status of an end that was recorded before.
func (s *Server) endStatus(content card.Content, k card.Card, end card.End) *status.Status {
	return s.statusOf(content, k, ending{state: end.State, changed: end.Changed, reason: end.Reason})
}

// statusOf is the status of an end. It is the same each time that it is asked for, so that sealing twice seals the same.
func (s *Server) statusOf(content card.Content, k card.Card, e ending) *status.Status {
	name := toolname.Call(content.Turn, content.Call)
	answer := func(code codes.Code, name, message, next string, kv ...string) *status.Status {
		return errs.Status(errs.New(code, e.reason, name, message, next, kv...)).Proto()
	}
	switch e.reason {
	case permissionv1.ErrorReason_ERROR_REASON_CARD_DENIED:
		return answer(codes.PermissionDenied, k.ID, k.DecidedBy.ID+" said no", "Do without this call, or ask the person.", "by", k.DecidedBy.ID)
	case permissionv1.ErrorReason_ERROR_REASON_CALL_CANCELLED:
		return answer(codes.Canceled, name, "the call was cancelled before it began", "Nothing ran.")
	case permissionv1.ErrorReason_ERROR_REASON_DECISION_STALE:
		return answer(codes.FailedPrecondition, name, "what was settled no longer holds: "+e.changed+" changed", staleNext(e.changed), "changed", e.changed)
	case permissionv1.ErrorReason_ERROR_REASON_TOOL_BLOCKED:
		return answer(codes.PermissionDenied, content.Tool.ID, "the tool is blocked, or its provider is disabled", "Do without it; a person can change that in the settings.")
	case permissionv1.ErrorReason_ERROR_REASON_TOOL_UNCLASSIFIED:
		return answer(codes.PermissionDenied, content.Tool.ID, "the tool has no class", "A tool that nobody classified and no rule covers is not available.")
	case permissionv1.ErrorReason_ERROR_REASON_MODE_NOT_ALLOWED:
		return answer(codes.PermissionDenied, decide.ModeWord(content.Mode), "the turn's mode is switched off", "Open a turn in another mode.", "by", "settings")
	}
	return answer(codes.PermissionDenied, content.Tool.ID, "the mode "+decide.ModeWord(content.Mode)+" refuses the class "+decide.ClassWord(content.Class),
		"Open a turn in another mode, if a person allows it.", "mode", decide.ModeWord(content.Mode), "class", decide.ClassWord(content.Class))
}

func staleNext(changed string) string {
	if changed == "time" || changed == "grant" {
		return "Call again under a new call id; a person is asked again."
	}
	return "Open a new turn, so that the change is seen, and call again."
}

// seal has the end recorded and returns the receipt's id; "" where there is no receipt service. The same end of the same
// call gives the same bytes, so that a repetition after a lost answer finds the same receipt.
func (s *Server) seal(ctx context.Context, k card.Card, e ending, st *status.Status) (string, error) {
	if s.sealer == nil {
		return "", nil
	}
	facts := receipt.Facts{
		Kind: evidencev1.ReceiptKind_RECEIPT_KIND_CALL, Namespace: k.Namespace, Call: toolname.Call(k.Turn, k.Call),
		Principals: []*commonv1.Principal{k.Principal.Proto()}, AssertedBy: k.AssertedBy, Agent: k.Agent, Conversation: k.Conversation, Turn: k.Turn, TraceID: k.TraceID,
		Tool: &commonv1.ToolIdentity{
			Tool: k.Tool.ID, WireFingerprint: k.Tool.Fingerprint, SemanticFingerprint: k.Tool.Semantic, Provider: k.Tool.Provider, ProviderDigest: k.Tool.ProviderDigest,
		},
		Class: k.Class, Decision: receipt.Decision{ID: k.ID, Cause: decide.CauseCard, Card: k.ID, Grant: k.Grant, Why: e.why},
		Card: receipt.CardTimes{Asked: k.AskTime, Decided: k.DecideTime},
	}
	if class.Word(k.Class) == "" {
		facts.Class = 0 // one that nobody knows is none
	}
	if k.ID == "" {
		facts.Decision.ID, facts.Decision.Cause = s.newID("d_"), e.cause
		if e.cause == "" {
			facts.Decision.Cause = decide.CausePolicy
		}
	}
	opening := &evidencev1.Opening{Arguments: k.Arguments, ArgumentsSalt: k.Salt, Outcome: &commonv1.Outcome{State: e.state, Status: st}}
	r, err := s.sealer.Seal(ctx, facts, opening, "")
	if errs.Is(err, evidencev1.ErrorReason_ERROR_REASON_CLAIM_TAKEN) {
		return errs.Metadata(err)["receipt"], nil // the call ended, or began, before; that receipt says how
	}
	return r.GetId(), err
}

// sealUnended seals what was denied or cancelled while no caller was there to hear it.
func (s *Server) sealUnended(ctx context.Context) {
	for ctx.Err() == nil {
		cards, err := s.store.Unended(ctx, 64)
		if err != nil {
			s.log.Error("permission.store_unreadable", "error", err)
			return
		}
		for _, k := range cards {
			if err := s.sealDecided(ctx, k); err != nil {
				s.log.Warn("permission.receipt_not_sealed", "card", k.ID, "error", err)
				return // evidence will be asked again at the next change or minute
			}
		}
		if len(cards) == 0 {
			return
		}
	}
}

// sealDecided seals a card that a person denied or that was cancelled.
func (s *Server) sealDecided(ctx context.Context, k card.Card) error {
	e := ending{state: deniedState, reason: permissionv1.ErrorReason_ERROR_REASON_CARD_DENIED, why: "a person said no"}
	if k.State == permissionv1.CardState_CARD_STATE_CANCELLED {
		e = ending{state: cancelledState, reason: permissionv1.ErrorReason_ERROR_REASON_CALL_CANCELLED, why: "the call was cancelled"}
	}
	id, err := s.seal(ctx, k, e, s.statusOf(k.Content, k, e))
	if err != nil {
		return err
	}
	_, err = s.remember(ctx, k, card.End{State: e.state, Reason: e.reason, Receipt: id})
	return err
}

// sealAll seals cards now; what fails is sealed later by Run.
func (s *Server) sealAll(ctx context.Context, cards ...card.Card) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	for _, k := range cards {
		if err := s.sealDecided(ctx, k); err != nil {
			s.log.Warn("permission.receipt_not_sealed", "card", k.ID, "error", err)
			return
		}
	}
}
