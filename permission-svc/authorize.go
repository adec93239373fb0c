package permission

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/ids"
	"github.com/writ-dev/writ/internal/telemetry"
	"github.com/writ-dev/writ/internal/toolname"
	"github.com/writ-dev/writ/permission-svc/internal/card"
	"github.com/writ-dev/writ/permission-svc/internal/decide"
	"github.com/writ-dev/writ/permission-svc/internal/store"
	"github.com/writ-dev/writ/permission-svc/internal/table"
)

type authorizationService struct {
	permissionv1.UnimplementedAuthorizationServiceServer
	*Server
}

// maxLooks bounds how often a decision is taken again because a grant or a cancellation came in between.
const maxLooks = 4

// Authorize implements the contract.
func (s *authorizationService) Authorize(ctx context.Context, req *permissionv1.AuthorizeRequest) (*permissionv1.AuthorizeResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	if !toolname.ValidCallID(req.GetCall()) {
		return nil, fieldInvalid("call", "is no call id", "Use 1 to 128 of A-Z a-z 0-9 . _ -")
	}
	if err := s.checkArguments(req.GetArguments()); err != nil {
		return nil, err
	}
	for look := 1; ; look++ {
		c, err := s.resolve(ctx, id, req)
		if err != nil {
			return nil, err
		}
		sit, err := s.store.Situation(ctx, c.key(), c.facts)
		if err != nil {
			return nil, err
		}
		answer, err := s.answer(ctx, c, sit)
		again := errors.Is(err, store.ErrGranted) || errors.Is(err, store.ErrCancelled)
		if !again || look == maxLooks {
			return answer, err
		}
	}
}

// answer gives the answer for a call in its situation. What was said once about a call is said again.
func (s *Server) answer(ctx context.Context, c *call, sit store.Situation) (*permissionv1.AuthorizeResponse, error) {
	if sit.Card != nil {
		if err := c.sameAs(*sit.Card); err != nil {
			return nil, err
		}
		c.adopt(*sit.Card)
		if sit.Card.End.State != 0 {
			return denied(s.endStatus(c.content, *sit.Card, sit.Card.End), sit.Card.End), nil
		}
	}
	if end, ok := endedBefore(c, sit); ok {
		return s.end(ctx, c, sit.Card, end)
	}
	if c.turn.GetState() != registryv1.TurnState_TURN_STATE_OPEN {
		if sit.Card == nil {
			return nil, turnEnded(c.turn.GetId())
		}
		return s.end(ctx, c, sit.Card, ending{state: stale, reason: permissionv1.ErrorReason_ERROR_REASON_DECISION_STALE, changed: "turn", why: "the turn ended before the call was made"})
	}
	d := s.decide(ctx, c, sit)
	if d.Verdict == table.Refuse {
		return s.end(ctx, c, sit.Card, refused(d, sit.Card))
	}
	if sit.Card != nil && sit.Card.State == permissionv1.CardState_CARD_STATE_APPROVED {
		return s.approved(ctx, c, *sit.Card)
	}
	if d.Verdict == table.Allow {
		return s.mint(ctx, c, writtoken.Decision{ID: s.newID("d_"), Cause: d.Cause, Grant: d.Grant}, d.Why)
	}
	if sit.Card == nil {
		return s.ask(ctx, c, d)
	}
	return &permissionv1.AuthorizeResponse{Decision: &permissionv1.AuthorizeResponse_Pending{Pending: &permissionv1.Pending{Card: cardProto(*sit.Card)}}}, nil
}

func (s *Server) decide(ctx context.Context, c *call, sit store.Situation) decide.Decision {
	_, span := telemetry.Start(ctx, s.tracer, telemetry.SpanDecide, telemetry.Call.String(c.name()), telemetry.Tool.String(c.facts.Tool),
		telemetry.Class.String(decide.ClassWord(c.facts.Class)), telemetry.Mode.String(decide.ModeWord(c.facts.Mode)))
	d := decide.Decide(c.facts, sit.Settled)
	span.SetAttributes(telemetry.DecisionResult.String(d.Verdict.String()), telemetry.Cause.String(d.Cause))
	telemetry.End(span, nil)
	return d
}

// endedBefore finds calls that can't happen any more, whatever the table says.
func endedBefore(c *call, sit store.Situation) (ending, bool) {
	cancelled := ending{state: cancelledState, reason: permissionv1.ErrorReason_ERROR_REASON_CALL_CANCELLED, why: "the call was cancelled"}
	inTurn := cancelled
	inTurn.why = "the turn was cancelled"
	switch {
	case sit.Card != nil && sit.Card.State == permissionv1.CardState_CARD_STATE_DENIED:
		return ending{state: deniedState, reason: permissionv1.ErrorReason_ERROR_REASON_CARD_DENIED, why: "a person said no"}, true
	case sit.Card != nil && sit.Card.State == permissionv1.CardState_CARD_STATE_CANCELLED, sit.CallCancelled:
		return cancelled, true
	case c.turn.GetState() == registryv1.TurnState_TURN_STATE_CANCELLED, sit.TurnCancelled && c.turn.GetState() == registryv1.TurnState_TURN_STATE_OPEN:
		return inTurn, true
	}
	return ending{}, false
}

func refused(d decide.Decision, c *card.Card) ending {
	e := ending{state: deniedState, reason: d.Reason, cause: d.Cause, why: d.Why, changed: d.Changed}
	if c != nil && c.State == permissionv1.CardState_CARD_STATE_APPROVED && d.Changed != "" {
		e.state = stale
	}
	return e
}

// approved mints for a call that a person approved, if what would run is still what the person saw.
func (s *Server) approved(ctx context.Context, c *call, k card.Card) (*permissionv1.AuthorizeResponse, error) {
	changed := ""
	switch {
	case s.now().Sub(k.DecideTime) > s.cfg.DecisionMaxAge:
		changed = "time"
	case k.Tool.ID != c.facts.Tool || k.Tool.Fingerprint != c.facts.Fingerprint:
		changed = "fingerprint"
	case k.Tool.ProviderDigest != c.facts.ProviderDigest:
		changed = "provider"
	case k.Grant != "":
		g, err := s.store.Grant(ctx, k.Namespace, k.Grant)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if err != nil || !g.RevokeTime.IsZero() {
			changed = "grant"
		}
	}
	if changed != "" {
		return s.end(ctx, c, &k, ending{state: stale, reason: permissionv1.ErrorReason_ERROR_REASON_DECISION_STALE, changed: changed, why: staleWhy(changed)})
	}
	return s.mint(ctx, c, writtoken.Decision{ID: k.ID, Cause: decide.CauseCard, Card: k.ID}, "approved by "+k.DecidedBy.ID)
}

func staleWhy(changed string) string {
	switch changed {
	case "time":
		return "the answer is too old"
	case "grant":
		return "the grant was revoked"
	}
	return "the " + changed + " changed after the answer"
}

// ask stores the card.
func (s *Server) ask(ctx context.Context, c *call, d decide.Decision) (*permissionv1.AuthorizeResponse, error) {
	k := s.question(ctx, c, d)
	k, err := s.store.CreateCard(ctx, k, decide.Call(c.facts), store.Caps{PerTurn: s.cfg.Limits.OpenCardsPerTurn, PerPrincipal: s.cfg.Limits.OpenCardsPerPrincipal})
	if err != nil {
		return nil, stored(err, c.name())
	}
	if err := c.sameAs(k); err != nil {
		return nil, err // two with the same call id at the same time
	}
	s.changes.notify()
	return &permissionv1.AuthorizeResponse{Decision: &permissionv1.AuthorizeResponse_Pending{Pending: &permissionv1.Pending{Card: cardProto(k)}}}, nil
}

// mint signs the writ. Everything that it says was looked up in this very call.
func (s *Server) mint(ctx context.Context, c *call, d writtoken.Decision, why string) (_ *permissionv1.AuthorizeResponse, err error) {
	ctx, span := telemetry.Start(ctx, s.tracer, telemetry.SpanMint, telemetry.Call.String(c.name()), telemetry.Cause.String(d.Cause), telemetry.Decision.String(d.ID))
	defer func() { telemetry.End(span, err) }()
	salt := c.content.Salt
	if len(salt) == 0 {
		if salt, err = writtoken.NewSalt(rand.Reader); err != nil {
			return nil, err
		}
	}
	traceparent, _ := telemetry.Traceparent(ctx)
	if traceparent == "" {
		traceparent = c.content.Traceparent
	}
	claims := s.claims(c, salt, d, traceparent)
	key, kid := s.keys.Signer()
	token, err := writtoken.Mint(key, kid, claims)
	if err != nil {
		return nil, err
	}
	span.SetAttributes(telemetry.WritID.String(claims.ID))
	return &permissionv1.AuthorizeResponse{Decision: &permissionv1.AuthorizeResponse_Allowed{Allowed: &permissionv1.Allowed{
		Writ: token, ExpireTime: timestamppb.New(claims.Expiry), Executor: c.executor, Why: why, Card: d.Card,
	}}}, nil
}

// ListKeys implements the contract.
func (s *authorizationService) ListKeys(context.Context, *permissionv1.ListKeysRequest) (*permissionv1.ListKeysResponse, error) {
	out := &permissionv1.ListKeysResponse{Issuer: s.Issuer()}
	for _, k := range s.keys.Keys() {
		key := &permissionv1.Key{Kid: k.KID, PublicKey: k.Public, NotBefore: timestamppb.New(k.NotBefore)}
		if !k.RetireTime.IsZero() {
			key.RetireTime = timestamppb.New(k.RetireTime)
		}
		out.Keys = append(out.Keys, key)
	}
	return out, nil
}

func (s *Server) newID(prefix string) string { return ids.At(prefix, s.now(), rand.Reader) }

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Ends of a call that happen here.
const (
	deniedState    = commonv1.OutcomeState_OUTCOME_STATE_DENIED
	cancelledState = commonv1.OutcomeState_OUTCOME_STATE_CANCELLED
	stale          = commonv1.OutcomeState_OUTCOME_STATE_STALE
)
