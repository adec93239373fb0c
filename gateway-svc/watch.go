package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/writ-dev/writ/gateway-svc/internal/conduct"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/errs"
)

// sweepEvery is how often ended calls are looked through for those that are kept for too long.
const sweepEvery = 30 * time.Second

// Run does what happens without a request, until ctx ends: approved cards that nobody conducts are conducted, the calls
// of cancelled turns are cancelled, ended calls are forgotten.
func (s *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { s.watchCards(ctx) })
	wg.Go(func() { s.watchTurns(ctx) })
	wg.Go(func() { s.sweep(ctx) })
	wg.Wait()
	return nil
}

// sweep looks again at what a watch may have missed: one that was opened may begin a moment later, and what happened in
// between is sent to nobody. It looks twice soon after a watch was opened, and from time to time.
func (s *Server) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	soon := time.NewTimer(s.limits.RetryMin)
	defer soon.Stop()
	for early := true; ; {
		select {
		case <-s.opened:
			early = true
			soon.Reset(4 * s.limits.RetryMin)
			continue
		case <-soon.C:
			if early {
				soon.Reset(s.limits.RetryMax)
			}
			s.lookAgain(ctx, early)
			early = false
		case <-tick.C:
			s.set.Sweep()
			s.lookAgain(ctx, false)
		case <-ctx.Done():
			return
		}
	}
}

// lookAgain asks for the turns of open calls and, after a watch began with nothing, for the approved cards.
func (s *Server) lookAgain(ctx context.Context, onceMore bool) {
	s.missedTurns(ctx)
	if s.fresh.Load() && s.conductApproved(ctx) == nil {
		s.fresh.Store(onceMore)
	}
}

// lookSoon has sweep look again.
func (s *Server) lookSoon() {
	select {
	case s.opened <- struct{}{}:
	default:
	}
}

// watchCards conducts cards that were approved while no conductor waited for them. The watch begins before the cards
// that are approved already are read, so that none falls between; which of them were executed long ago says the record.
func (s *Server) watchCards(ctx context.Context) {
	cursor, scanned := "", false // a watch that ended before it gave a cursor has to begin with reading the cards again
	s.keepTrying(ctx, "cards", func(ctx context.Context) error {
		err := drain(ctx, permissionName,
			func(ctx context.Context) (grpc.ServerStreamingClient[permissionv1.WatchCardsResponse], error) {
				stream, err := s.clients.Cards.WatchCards(ctx, &permissionv1.WatchCardsRequest{Cursor: cursor})
				if err != nil || scanned && cursor != "" {
					return stream, err
				}
				if err := s.conductApproved(ctx); err != nil {
					return nil, err
				}
				scanned = true
				s.fresh.Store(true)
				s.lookSoon()
				return stream, nil
			},
			func(m *permissionv1.WatchCardsResponse) {
				cursor = m.GetCursor()
				if m.GetCard().GetState() == permissionv1.CardState_CARD_STATE_APPROVED {
					s.adopt(ctx, m.GetCard(), nil)
				}
			})
		if errs.Is(err, commonv1.ErrorReason_ERROR_REASON_CURSOR_INVALID) {
			cursor, scanned = "", false // what happened meanwhile is read from the cards themselves
		}
		return err
	})
}

// conductApproved goes through the approved cards once.
func (s *Server) conductApproved(ctx context.Context) error {
	turns := map[string]bool{} // those known to be open or not
	req := &permissionv1.ListCardsRequest{State: permissionv1.CardState_CARD_STATE_APPROVED, PageSize: 500}
	for seen := 0; ; {
		answer, err := s.clients.Cards.ListCards(ctx, req)
		if err != nil {
			return err
		}
		for _, card := range answer.GetCards() {
			s.adopt(ctx, card, turns)
		}
		seen += len(answer.GetCards())
		if req.PageToken = answer.GetNextPageToken(); req.PageToken == "" || ctx.Err() != nil {
			return ctx.Err()
		}
		if seen >= s.limits.ApprovedCardsAtStart {
			s.log.ErrorContext(ctx, "not every approved card was looked at: attach to a call by its name to have it conducted",
				"limit_name", "approved_cards_scan_max", "limit", s.limits.ApprovedCardsAtStart)
			return nil
		}
	}
}

// adopt conducts an approved card, unless somebody does, or did, or its turn is over. It tries until it knows.
func (s *Server) adopt(ctx context.Context, card *permissionv1.Card, turns map[string]bool) {
	key := conduct.Key{Namespace: card.GetPrincipal().GetNamespace(), Turn: card.GetTurn(), Call: card.GetCall()}
	for pause := s.limits.RetryMin; ; pause = min(2*pause, s.limits.RetryMax) {
		wanted, err := s.unclaimed(ctx, key, card, turns)
		if err == nil && !wanted {
			return
		}
		if err == nil {
			card, err = s.withArguments(ctx, s.clients.Cards, card)
		}
		if err == nil {
			_, err = s.set.StartResumed(ctx, askFrom(key, card))
		}
		if err == nil || errors.Is(err, conduct.ErrStopping) || errors.Is(err, conduct.ErrChanged) || ctx.Err() != nil {
			return
		}
		s.log.WarnContext(ctx, "an approved card waits to be conducted", "card", card.GetId(), "call", key.Name(), "error", err)
		if rest(ctx, pause) != nil {
			return
		}
	}
}

// unclaimed tells whether an approved card still has to be conducted.
func (s *Server) unclaimed(ctx context.Context, key conduct.Key, card *permissionv1.Card, turns map[string]bool) (bool, error) {
	if _, here := s.set.Get(key, nil); here {
		return false, nil
	}
	place := key.Namespace + "/" + key.Turn
	open, known := turns[place]
	if !known {
		turn, err := s.turns.turn(ctx, key.Turn, card.GetPrincipal())
		if err != nil && !missing(err) {
			return false, err
		}
		open = turn.GetState() == registryv1.TurnState_TURN_STATE_OPEN
		if turns != nil {
			turns[place] = open
		}
	}
	if !open {
		return false, nil
	}
	if _, err := s.record.Claim(ctx, key); !missing(err) {
		return false, err
	}
	if _, err := s.record.Recorded(ctx, key, card.GetPrincipal()); !missing(err) {
		return false, err // it was refused, and who asked may ask again
	}
	return true, nil
}

// watchTurns cancels the running calls of turns that are cancelled. A turn that ends lets its calls finish.
func (s *Server) watchTurns(ctx context.Context) {
	s.keepTrying(ctx, "turns", func(ctx context.Context) error {
		return drain(ctx, registryName,
			func(ctx context.Context) (grpc.ServerStreamingClient[registryv1.WatchTurnsResponse], error) {
				stream, err := s.clients.Turns.WatchTurns(ctx, &registryv1.WatchTurnsRequest{})
				if err == nil {
					s.missedTurns(ctx)
					s.lookSoon()
				}
				return stream, err
			},
			func(m *registryv1.WatchTurnsResponse) { s.turnEnded(m.GetNamespace(), m.GetTurn()) })
	})
}

func (s *Server) turnEnded(namespace string, turn *registryv1.Turn) {
	if namespace == "" {
		namespace = turn.GetPrincipal().GetNamespace()
	}
	if turn.GetState() == registryv1.TurnState_TURN_STATE_CANCELLED {
		s.set.CancelTurn(namespace, turn.GetId(), "the turn was cancelled")
	}
}

// missedTurns asks for the turns of the calls that are open here: what was cancelled while nobody watched is not sent.
func (s *Server) missedTurns(ctx context.Context) {
	asked := map[string]bool{}
	for _, c := range s.set.Open(func(conduct.Ask) bool { return true }) {
		v := c.View(false)
		place := v.Key.Namespace + "/" + v.Key.Turn
		if asked[place] || ctx.Err() != nil {
			continue
		}
		asked[place] = true
		turn, err := s.turns.turn(ctx, v.Key.Turn, v.Principal)
		if err != nil {
			s.log.WarnContext(ctx, "a turn could not be looked at", "turn", v.Key.Turn, "error", err)
			continue
		}
		s.turnEnded(v.Key.Namespace, turn)
	}
}

// keepTrying watches again whenever a watch ends, with a pause that grows while it fails at once.
func (s *Server) keepTrying(ctx context.Context, what string, watch func(context.Context) error) {
	pause := s.limits.RetryMin
	for ctx.Err() == nil {
		began := s.now()
		err := watch(ctx)
		if ctx.Err() != nil {
			return
		}
		if s.now().Sub(began) > s.limits.RetryMax {
			pause = s.limits.RetryMin
		}
		s.log.DebugContext(ctx, "a watch ended and is opened again", "what", what, "error", err)
		if rest(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, s.limits.RetryMax)
	}
}

func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
