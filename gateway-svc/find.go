package gateway

import (
	"context"
	"errors"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/writ-dev/writ/gateway-svc/internal/conduct"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/auth"
)

// viewer is how the record and the cards are read for somebody.
type viewer struct {
	receipts evidencev1.ReceiptServiceClient
	cards    permissionv1.CardServiceClient
	as       func(context.Context) context.Context
	// owned is asked before a running call without a receipt is shown.
	owned func(ctx context.Context, turn string) error
	// own is whose calls are conducted from what is found.
	own *commonv1.Principal
}

// asOwner sees what belongs to the one who asks.
func asOwner(s *Server, id auth.Identity) viewer {
	return viewer{
		receipts: s.clients.Receipts, cards: s.clients.Cards, own: id.Subject,
		as:    func(ctx context.Context) context.Context { return as(ctx, id.Subject) },
		owned: func(ctx context.Context, turn string) error { return s.turns.Owned(ctx, turn, id.Subject) },
	}
}

// asOverseer sees the namespace, with the asker's own credential.
func asOverseer(s *Server, id auth.Identity) viewer {
	if s.clients.CardsAsCaller == nil || s.clients.ReceiptsAsCaller == nil {
		return asOwner(s, id)
	}
	return viewer{
		receipts: s.clients.ReceiptsAsCaller, cards: s.clients.CardsAsCaller, own: id.Subject,
		as:    func(ctx context.Context) context.Context { return ctx },
		owned: func(context.Context, string) error { return nil },
	}
}

// found is a call that is not in memory: recorded, or to be conducted from its card or its claim.
type found struct {
	recorded *conduct.Recorded
	ask      conduct.Ask
}

// find looks for a call where it is durable: its claim, its card, its receipt.
func (s *Server) find(ctx context.Context, key conduct.Key, v viewer) (found, error) {
	claim, err := s.record.Claim(ctx, key)
	switch {
	case err == nil && claim.Sealed:
		return recordedOf(ctx, key, v)
	case err == nil:
		if err := v.owned(ctx, key.Turn); err != nil {
			return found{}, notYours(err)
		}
		return found{ask: conduct.Ask{Key: key, Principal: v.own, Tool: claim.Tool, Claim: &claim, Given: true}}, nil
	case !missing(err):
		return found{}, err
	}
	card, err := s.cardOf(ctx, key, v)
	if err != nil {
		return found{}, err
	}
	if card.GetState() == permissionv1.CardState_CARD_STATE_PENDING {
		return found{ask: askFrom(key, card)}, nil
	}
	// Without a claim the record can only hold refusals, and of an approved card the refusal is how it ended.
	f, err := recordedOf(ctx, key, v)
	if err != nil && errors.Is(err, conduct.ErrNotFound) && card != nil {
		return found{ask: askFrom(key, card)}, nil
	}
	return f, err
}

func recordedOf(ctx context.Context, key conduct.Key, v viewer) (found, error) {
	r, err := recordedCall(v.as(ctx), v.receipts, key)
	if missing(err) {
		return found{}, conduct.ErrNotFound
	}
	if err != nil {
		return found{}, err
	}
	return found{recorded: &r}, nil
}

// cardOf finds the open or approved card of a call, nil when there is none.
func (s *Server) cardOf(ctx context.Context, key conduct.Key, v viewer) (*permissionv1.Card, error) {
	req := &permissionv1.ListCardsRequest{Turn: key.Turn, PageSize: 100}
	for seen := 0; seen < s.limits.CardsPerTurnScan; {
		answer, err := v.cards.ListCards(v.as(ctx), req)
		if err != nil {
			if err = peerError(permissionName, err); missing(err) {
				return nil, nil
			}
			return nil, err
		}
		for _, card := range answer.GetCards() {
			if card.GetCall() == key.Call && card.GetTurn() == key.Turn && live(card) {
				return s.withArguments(v.as(ctx), v.cards, card)
			}
		}
		if req.PageToken = answer.GetNextPageToken(); req.PageToken == "" {
			return nil, nil
		}
		seen += max(1, len(answer.GetCards()))
	}
	return nil, nil
}

func live(card *permissionv1.Card) bool {
	st := card.GetState()
	return st == permissionv1.CardState_CARD_STATE_PENDING || st == permissionv1.CardState_CARD_STATE_APPROVED
}

// withArguments reads the card itself where a list left the bytes out. Arguments are never empty.
func (s *Server) withArguments(ctx context.Context, cards permissionv1.CardServiceClient, card *permissionv1.Card) (*permissionv1.Card, error) {
	if len(card.GetArguments()) > 0 {
		return card, nil
	}
	answer, err := cards.GetCard(ctx, &permissionv1.GetCardRequest{Card: card.GetId()})
	if err != nil {
		return nil, peerError(permissionName, err)
	}
	return answer.GetCard(), nil
}

// askFrom is the call that a card holds. namespace and principal are the card's.
func askFrom(key conduct.Key, card *permissionv1.Card) conduct.Ask {
	return conduct.Ask{
		Key: key, Principal: card.GetPrincipal(), Tool: card.GetTool().GetTool(), Arguments: card.GetArguments(),
		Given: true, Card: card,
	}
}

// message is the found call for its reader.
func (f found) message(key conduct.Key, whole bool) *gatewayv1.Call {
	m := &gatewayv1.Call{Name: key.Name(), Tool: f.ask.Tool}
	switch {
	case f.recorded != nil:
		r := f.recorded
		m.Tool, m.Conversation, m.TraceId = r.Tool, r.Conversation, r.TraceID
		m.State, m.Outcome = gatewayv1.CallState_CALL_STATE_ENDED, r.Outcome
		m.CreateTime, m.EndTime = timestamppb.New(r.Sealed), timestamppb.New(r.Sealed)
		if !whole {
			m.Outcome = conduct.WithoutResult(r.Outcome)
		}
	case f.ask.Claim != nil:
		m.State = gatewayv1.CallState_CALL_STATE_RUNNING
	default:
		card := f.ask.Card
		m = cardCall(key, card)
		if card.GetState() == permissionv1.CardState_CARD_STATE_APPROVED {
			m.State, m.Card = gatewayv1.CallState_CALL_STATE_AUTHORIZING, ""
		}
	}
	return m
}

// cardCall is a call that waits on its card.
func cardCall(key conduct.Key, card *permissionv1.Card) *gatewayv1.Call {
	return &gatewayv1.Call{
		Name: key.Name(), Tool: card.GetTool().GetTool(), State: gatewayv1.CallState_CALL_STATE_WAITING, Card: card.GetId(),
		TraceId: card.GetTraceId(), CreateTime: card.GetAskTime(), Conversation: card.GetConversation(),
		WaitMs: conduct.WaitMillis(card),
	}
}

func missing(err error) bool {
	var p *conduct.PeerError
	return errors.As(err, &p) && p.Kind == conduct.Missing
}
