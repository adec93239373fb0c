package gatewaytest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/ids"
	"github.com/writ-dev/writ/internal/telemetry"
	"github.com/writ-dev/writ/internal/toolname"
)

type authorization struct {
	permissionv1.UnimplementedAuthorizationServiceServer
	p *Plane
}

// Authorize knows a handful of tools and one rule for each.
func (s authorization) Authorize(ctx context.Context, req *permissionv1.AuthorizeRequest) (*permissionv1.AuthorizeResponse, error) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.goneLocked("permission"); err != nil {
		return nil, err
	}
	turn := p.turns[req.GetTurn()]
	if turn == nil || turn.GetPrincipal().GetId() != subject(ctx).GetId() {
		return nil, notFound(permissionv1.ErrorReason_ERROR_REASON_TURN_NOT_FOUND, req.GetTurn())
	}
	name := toolname.Call(req.GetTurn(), req.GetCall())
	tool := canonical(req.GetTool())
	switch {
	case tool == "":
		return nil, notFound(permissionv1.ErrorReason_ERROR_REASON_TOOL_NOT_FOUND, req.GetTool())
	case p.cancelled[name] || turn.GetState() == registryv1.TurnState_TURN_STATE_CANCELLED:
		return p.denied(name, permissionv1.ErrorReason_ERROR_REASON_CALL_CANCELLED, true), nil
	case turn.GetState() != registryv1.TurnState_TURN_STATE_OPEN:
		return nil, errs.New(codes.FailedPrecondition, permissionv1.ErrorReason_ERROR_REASON_TURN_ENDED, turn.GetId(), "the turn ended", "")
	case tool == Deny:
		return p.denied(name, permissionv1.ErrorReason_ERROR_REASON_TOOL_BLOCKED, false), nil
	}
	card := p.cardOf(name)
	if tool == Write {
		if card == nil {
			card = p.ask(ctx, turn, req, tool)
		}
		switch card.GetState() {
		case permissionv1.CardState_CARD_STATE_PENDING:
			return &permissionv1.AuthorizeResponse{Decision: &permissionv1.AuthorizeResponse_Pending{Pending: &permissionv1.Pending{Card: card}}}, nil
		case permissionv1.CardState_CARD_STATE_DENIED:
			return p.denied(name, permissionv1.ErrorReason_ERROR_REASON_CARD_DENIED, false), nil
		case permissionv1.CardState_CARD_STATE_CANCELLED:
			return p.denied(name, permissionv1.ErrorReason_ERROR_REASON_CALL_CANCELLED, true), nil
		}
	}
	traceparent, _ := telemetry.Traceparent(ctx)
	writ, expiry, err := p.mint(turn, req.GetCall(), tool, traceparent, req.GetArguments())
	if err != nil {
		return nil, err
	}
	stamp := now()
	stamp.Seconds, stamp.Nanos = expiry.Unix(), 0
	return &permissionv1.AuthorizeResponse{Decision: &permissionv1.AuthorizeResponse_Allowed{Allowed: &permissionv1.Allowed{
		Writ: writ, ExpireTime: stamp, Executor: executorOf(tool), Why: "the test says so", Card: card.GetId(),
	}}}, nil
}

func canonical(tool string) string {
	for _, t := range []string{Read, Write, Slow, Deny, Chatty, Command} {
		server, name, _ := toolname.Split(t)
		if t == tool || server != "" && toolname.Alias(server, name) == tool {
			return t
		}
	}
	return ""
}

func (p *Plane) denied(name string, reason permissionv1.ErrorReason, stopped bool) *permissionv1.AuthorizeResponse {
	state := commonv1.OutcomeState_OUTCOME_STATE_DENIED
	if stopped {
		state = commonv1.OutcomeState_OUTCOME_STATE_CANCELLED
	}
	st := errs.Status(errs.New(codes.PermissionDenied, reason, name, "no", "")).Proto()
	r := p.seal(name, "permission", &commonv1.Outcome{State: state, Status: st})
	return &permissionv1.AuthorizeResponse{Decision: &permissionv1.AuthorizeResponse_Denied{
		Denied: &permissionv1.Denied{Status: st, Receipt: r.receipt.GetId(), Cancelled: stopped},
	}}
}

func (p *Plane) ask(ctx context.Context, turn *registryv1.Turn, req *permissionv1.AuthorizeRequest, tool string) *permissionv1.Card {
	sum := sha256.Sum256(req.GetArguments())
	traceparent, _ := telemetry.Traceparent(ctx)
	c := &permissionv1.Card{
		Id: ids.New("k_", rand.Reader), Etag: "1", State: permissionv1.CardState_CARD_STATE_PENDING, Turn: turn.GetId(),
		Call: req.GetCall(), Conversation: turn.GetConversation(), Principal: turn.GetPrincipal(), Tool: identity(tool),
		AskTime: now(), Arguments: req.GetArguments(), ArgumentsSha256: hex.EncodeToString(sum[:]),
		TraceId: telemetry.TraceID(ctx), Traceparent: traceparent,
	}
	p.cards = append(p.cards, c)
	p.log = append(p.log, c)
	p.wake()
	return c
}

func (p *Plane) cardOf(call string) *permissionv1.Card {
	for i := len(p.cards) - 1; i >= 0; i-- {
		if toolname.Call(p.cards[i].GetTurn(), p.cards[i].GetCall()) == call {
			return p.cards[i]
		}
	}
	return nil
}

// decide puts a changed copy in the card's place.
func (p *Plane) decide(c *permissionv1.Card, state permissionv1.CardState) bool {
	if c.GetState() != permissionv1.CardState_CARD_STATE_PENDING {
		return false
	}
	changed := proto.CloneOf(c)
	changed.State, changed.Etag, changed.DecideTime = state, "2", now()
	for i := range p.cards {
		if p.cards[i] == c {
			p.cards[i] = changed
		}
	}
	p.log = append(p.log, changed)
	p.wake()
	return true
}

func (s authorization) WatchDecision(req *permissionv1.WatchDecisionRequest, out grpc.ServerStreamingServer[permissionv1.WatchDecisionResponse]) error {
	name, shown := toolname.Call(req.GetTurn(), req.GetCall()), ""
	for {
		s.p.mu.Lock()
		card, changed, err := s.p.cardOf(name), s.p.changed, s.p.goneLocked("permission")
		s.p.mu.Unlock()
		if err != nil {
			return err
		}
		if card == nil || card.GetPrincipal().GetId() != subject(out.Context()).GetId() {
			return notFound(permissionv1.ErrorReason_ERROR_REASON_CARD_NOT_FOUND, name)
		}
		if card.GetEtag() != shown {
			shown = card.GetEtag()
			if err := out.Send(&permissionv1.WatchDecisionResponse{Card: card}); err != nil {
				return err
			}
		}
		if card.GetState() != permissionv1.CardState_CARD_STATE_PENDING {
			return nil
		}
		select {
		case <-changed:
		case <-out.Context().Done():
			return out.Context().Err()
		}
	}
}

type cardService struct {
	permissionv1.UnimplementedCardServiceServer
	p *Plane
}

func (s cardService) GetCard(ctx context.Context, req *permissionv1.GetCardRequest) (*permissionv1.GetCardResponse, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	for _, c := range s.p.cards {
		if c.GetId() == req.GetCard() && sees(ctx, c.GetPrincipal().GetId()) {
			return &permissionv1.GetCardResponse{Card: c}, nil
		}
	}
	return nil, notFound(permissionv1.ErrorReason_ERROR_REASON_CARD_NOT_FOUND, req.GetCard())
}

// ListCards leaves the argument bytes out, as a list may.
func (s cardService) ListCards(ctx context.Context, req *permissionv1.ListCardsRequest) (*permissionv1.ListCardsResponse, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if err := s.p.goneLocked("permission"); err != nil {
		return nil, err
	}
	answer := &permissionv1.ListCardsResponse{}
	skip, _ := strconv.Atoi(req.GetPageToken())
	size := int(req.GetPageSize())
	if size == 0 {
		size = 50
	}
	for i := len(s.p.cards) - 1 - skip; i >= 0; i-- {
		skip++
		c := s.p.cards[i]
		if !sees(ctx, c.GetPrincipal().GetId()) || req.GetTurn() != "" && req.GetTurn() != c.GetTurn() ||
			req.GetState() != 0 && req.GetState() != c.GetState() || req.GetConversation() != "" && req.GetConversation() != c.GetConversation() {
			continue
		}
		short := proto.CloneOf(c)
		short.Arguments = nil
		if answer.Cards = append(answer.Cards, short); len(answer.Cards) == size {
			answer.NextPageToken = strconv.Itoa(skip)
			break
		}
	}
	return answer, nil
}

func (s cardService) WatchCards(req *permissionv1.WatchCardsRequest, out grpc.ServerStreamingServer[permissionv1.WatchCardsResponse]) error {
	s.p.mu.Lock()
	at := len(s.p.log)
	open := s.p.cards
	s.p.mu.Unlock()
	if req.GetCursor() != "" {
		open = nil
		at, _ = strconv.Atoi(req.GetCursor())
	}
	for _, c := range open {
		if c.GetState() == permissionv1.CardState_CARD_STATE_PENDING {
			if err := out.Send(&permissionv1.WatchCardsResponse{Card: c, Cursor: strconv.Itoa(at)}); err != nil {
				return err
			}
		}
	}
	for {
		s.p.mu.Lock()
		news, changed, err := s.p.log[at:], s.p.changed, s.p.goneLocked("permission")
		s.p.mu.Unlock()
		if err != nil {
			return err
		}
		for _, c := range news {
			at++
			if err := out.Send(&permissionv1.WatchCardsResponse{Card: c, Cursor: strconv.Itoa(at)}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-out.Context().Done():
			return out.Context().Err()
		}
	}
}

func (s cardService) CancelCards(ctx context.Context, req *permissionv1.CancelCardsRequest) (*permissionv1.CancelCardsResponse, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if err := s.p.goneLocked("permission"); err != nil {
		return nil, err
	}
	answer := &permissionv1.CancelCardsResponse{}
	name := toolname.Call(req.GetTurn(), req.GetCall())
	if c := s.p.cardOf(name); c != nil && sees(ctx, c.GetPrincipal().GetId()) && req.GetNamespace() == auth.DefaultNamespace && s.p.decide(c, permissionv1.CardState_CARD_STATE_CANCELLED) {
		s.p.cancelled[name] = true
		answer.Cards = []string{c.GetId()}
	}
	return answer, nil
}
