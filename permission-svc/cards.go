package permission

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/telemetry"
	"github.com/writ-dev/writ/internal/toolname"
	"github.com/writ-dev/writ/permission-svc/internal/actor"
	"github.com/writ-dev/writ/permission-svc/internal/card"
	"github.com/writ-dev/writ/permission-svc/internal/grant"
	"github.com/writ-dev/writ/permission-svc/internal/store"
)

type cardService struct {
	permissionv1.UnimplementedCardServiceServer
	*Server
}

// GetCard implements the contract.
func (s *cardService) GetCard(ctx context.Context, req *permissionv1.GetCardRequest) (*permissionv1.GetCardResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	v := viewOf(id)
	c, err := s.store.Card(ctx, v.Namespace, req.GetCard())
	if errors.Is(err, store.ErrNotFound) || err == nil && !sees(v, c.Principal) {
		return nil, cardNotFound(req.GetCard())
	}
	if err != nil {
		return nil, err
	}
	return &permissionv1.GetCardResponse{Card: cardProto(c)}, nil
}

// ListCards implements the contract.
func (s *cardService) ListCards(ctx context.Context, req *permissionv1.ListCardsRequest) (*permissionv1.ListCardsResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	f := store.CardFilter{
		View: viewOf(id), State: req.GetState(), Turn: req.GetTurn(), Conversation: req.GetConversation(), Limit: pageSize(req.GetPageSize()), MaxBytes: s.cfg.Limits.PageBytes,
	}
	list := []any{"cards", f.Namespace, f.Principal.ID, f.State.String(), f.Turn, f.Conversation}
	if f.Before, err = readSeqToken(req.GetPageToken(), list...); err != nil {
		return nil, err
	}
	cards, more, err := s.store.Cards(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &permissionv1.ListCardsResponse{}
	for _, c := range cards {
		out.Cards = append(out.Cards, cardProto(c))
	}
	if more {
		out.NextPageToken = pageToken(strconv.FormatInt(cards[len(cards)-1].Seq, 10), list...)
	}
	return out, nil
}

// DecideCard implements the contract.
func (s *cardService) DecideCard(ctx context.Context, req *permissionv1.DecideCardRequest) (*permissionv1.DecideCardResponse, error) {
	person, err := human(ctx, commonv1.Role_ROLE_APPROVER, permissionv1.CardService_DecideCard_FullMethodName)
	if err != nil {
		return nil, err
	}
	if err := checkAnswer(req); err != nil {
		return nil, err
	}
	c, err := s.store.Card(ctx, person.Namespace, req.GetCard())
	if errors.Is(err, store.ErrNotFound) {
		return nil, cardNotFound(req.GetCard())
	}
	if err != nil {
		return nil, err
	}
	version, err := strconv.ParseInt(req.GetEtag(), 10, 64)
	if err != nil {
		version = -1 // no card has it; a decided card says who was first before that
	}
	a := store.Answer{
		Namespace: person.Namespace, Card: req.GetCard(), Version: version, Approve: req.GetAnswer() == permissionv1.Answer_ANSWER_APPROVE,
		Lifetime: req.GetLifetime(), Reason: req.GetReason(), By: person, At: s.now().UTC(), Check: func(c card.Card) error { return mayAnswer(c, req) },
	}
	if a.Approve {
		a.Grant = s.grantOf(c, a)
	}
	decided, released, err := s.store.Decide(ctx, a)
	switch {
	case errors.Is(err, store.ErrDecided):
		return nil, cardDecided(decided)
	case errors.Is(err, store.ErrNotFound):
		return nil, cardNotFound(req.GetCard())
	case err != nil:
		return nil, stored(err, "cards/"+req.GetCard())
	}
	s.changes.notify()
	for _, k := range append(released, decided) {
		s.waited(k)
	}
	return &permissionv1.DecideCardResponse{Card: cardProto(decided)}, nil
}

func checkAnswer(req *permissionv1.DecideCardRequest) error {
	switch a := req.GetAnswer(); {
	case a != permissionv1.Answer_ANSWER_APPROVE && a != permissionv1.Answer_ANSWER_DENY:
		return fieldInvalid("answer", "is no answer", "Send ANSWER_APPROVE or ANSWER_DENY.")
	case req.GetEtag() == "":
		return fieldInvalid("etag", "is missing", "Send the etag of the card that was read.")
	case a == permissionv1.Answer_ANSWER_APPROVE && req.GetLifetime() == permissionv1.Lifetime_LIFETIME_UNSPECIFIED:
		return fieldInvalid("lifetime", "is missing", "Send one of the card's lifetimes, or LIFETIME_ONCE.")
	case a == permissionv1.Answer_ANSWER_APPROVE && req.GetPreviewSha256() == "":
		return fieldInvalid("preview_sha256", "is missing", "Send the digest of the preview that was shown.")
	}
	return nil
}

// mayAnswer binds the answer to what was shown. It is asked inside the commit.
func mayAnswer(c card.Card, req *permissionv1.DecideCardRequest) error {
	if req.GetAnswer() != permissionv1.Answer_ANSWER_APPROVE {
		return nil
	}
	if c.Preview.SHA256 != req.GetPreviewSha256() {
		return errs.New(codes.FailedPrecondition, permissionv1.ErrorReason_ERROR_REASON_PREVIEW_MISMATCH, c.ID, "what was shown is not what this card shows", "Read the card again and show its preview.")
	}
	if !c.Preview.Complete {
		return errs.New(codes.FailedPrecondition, permissionv1.ErrorReason_ERROR_REASON_PREVIEW_INCOMPLETE, c.ID, "the call is too large to be shown whole, so it can't be approved",
			"Deny it, and make the call smaller.", errs.KeyLimitName, "preview_max_bytes")
	}
	if _, ok := c.Offered(req.GetLifetime()); !ok {
		var offered []string
		for _, o := range c.Offers {
			offered = append(offered, strings.TrimPrefix(o.Lifetime.String(), "LIFETIME_"))
		}
		return errs.New(codes.FailedPrecondition, permissionv1.ErrorReason_ERROR_REASON_LIFETIME_NOT_OFFERED, c.ID, "the card does not offer that lifetime",
			"Choose one of: "+strings.Join(offered, ", ")+".")
	}
	return nil
}

// grantOf is what an approval remembers; nil for this call only. It is for the provider, the definition, the principal and
// the agent that the person saw, and for nothing else.
func (s *Server) grantOf(c card.Card, a store.Answer) *grant.Grant {
	offer, ok := c.Offered(a.Lifetime)
	if !ok || a.Lifetime == permissionv1.Lifetime_LIFETIME_ONCE {
		return nil
	}
	scope := ""
	switch a.Lifetime {
	case permissionv1.Lifetime_LIFETIME_TURN:
		scope = c.Turn
	case permissionv1.Lifetime_LIFETIME_CONVERSATION:
		scope = c.Conversation
	}
	return &grant.Grant{
		ID: s.newID("g_"), Namespace: c.Namespace, Lifetime: a.Lifetime, Scope: scope, Tool: c.Tool.ID, CommandWord: offer.Word,
		ProviderDigest: c.Tool.ProviderDigest, Fingerprint: c.Tool.Fingerprint, Principal: c.Principal, Agent: c.Agent,
		By: a.By, CreateTime: a.At, Card: c.ID, Text: offer.Text,
	}
}

// CancelCards implements the contract.
func (s *cardService) CancelCards(ctx context.Context, req *permissionv1.CancelCardsRequest) (*permissionv1.CancelCardsResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	if req.GetTurn() == "" || req.GetCall() != "" && !toolname.ValidCallID(req.GetCall()) {
		return nil, fieldInvalid("turn", "a turn, and with it an optional call id, are needed", "Send the turn's id.")
	}
	namespace, err := s.mayCancel(ctx, id, req)
	if err != nil {
		return nil, err
	}
	cards, err := s.store.Cancel(ctx, store.Cancel{
		CallKey: store.CallKey{Namespace: namespace, Turn: req.GetTurn(), Call: req.GetCall()},
		By:      actor.From(id.Subject, id.Credential.ID), Reason: req.GetReason(), At: s.now().UTC(),
	})
	if err != nil {
		return nil, err
	}
	out := &permissionv1.CancelCardsResponse{}
	for _, c := range cards {
		s.waited(c)
		out.Cards = append(out.Cards, c.ID)
	}
	s.changes.notify()
	s.sealAll(ctx, cards...)
	return out, nil
}

// mayCancel lets a service cancel in any namespace that it serves, and everybody else in their own turns.
func (s *Server) mayCancel(ctx context.Context, id auth.Identity, req *permissionv1.CancelCardsRequest) (string, error) {
	namespace := id.Namespace()
	if !service(id) {
		return namespace, s.ownTurn(ctx, id, req.GetTurn(), namespace)
	}
	switch {
	case namespace == "" && req.GetNamespace() == "":
		return "", fieldInvalid("namespace", "is missing: cards of every namespace are here", "Send the namespace of the turn.")
	case namespace == "":
		return req.GetNamespace(), nil
	case req.GetNamespace() != "" && req.GetNamespace() != namespace:
		return "", turnNotFound(req.GetTurn())
	}
	return namespace, nil
}

// waited records the wait for the person as a span of its own, under the span that asked (R110).
func (s *Server) waited(c card.Card) {
	ctx := telemetry.WithTraceparent(context.Background(), c.Traceparent, c.Tracestate)
	_, span := s.tracer.Start(ctx, telemetry.SpanAwaitPerson, trace.WithTimestamp(c.AskTime), trace.WithAttributes(
		telemetry.Card.String(c.ID), telemetry.Call.String(toolname.Call(c.Turn, c.Call)), telemetry.Tool.String(c.Tool.ID),
		telemetry.Namespace.String(c.Namespace), telemetry.DecisionResult.String(stateWord(c.State)), telemetry.Grant.String(c.Grant)))
	span.End(trace.WithTimestamp(c.DecideTime))
}
