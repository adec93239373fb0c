package permission

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/grpc"

	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/permission-svc/internal/card"
	"github.com/writ-dev/writ/permission-svc/internal/store"
)

// watchPage is how many changes are read at once.
const watchPage = 64

// cursorPrefix begins every cursor; behind it stands the number of a change.
const cursorPrefix = "cards."

func cursor(seq int64) string { return cursorPrefix + strconv.FormatInt(seq, 10) }

// readCursor is the inverse. A cursor from the future is of another store.
func (s *Server) readCursor(ctx context.Context, text string) (int64, error) {
	number, ok := strings.CutPrefix(text, cursorPrefix)
	seq, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || seq < 0 {
		return 0, cursorInvalid(text)
	}
	last, err := s.store.LastChange(ctx)
	if err != nil {
		return 0, err
	}
	if seq > last {
		return 0, cursorInvalid(text)
	}
	return seq, nil
}

// WatchCards implements the contract. There is one order of changes, the store's; every watcher reads it from its own
// place, so a slow one delays nobody.
func (s *cardService) WatchCards(req *permissionv1.WatchCardsRequest, stream grpc.ServerStreamingServer[permissionv1.WatchCardsResponse]) error {
	ctx := stream.Context()
	id, err := who(ctx)
	if err != nil {
		return err
	}
	send := func(c card.Card, seq int64) error {
		return stream.Send(&permissionv1.WatchCardsResponse{Card: cardProto(c), Cursor: cursor(seq)})
	}
	v := viewOf(id)
	var after int64
	if req.GetCursor() == "" {
		after, err = s.sendOpen(ctx, v, send)
	} else {
		after, err = s.readCursor(ctx, req.GetCursor())
	}
	if err != nil {
		return err
	}
	return s.follow(ctx, v, after, send)
}

// sendOpen sends the cards that are open now, in the order of their making. The cursor of each is its own place in the
// order of changes, so that a watcher who loses the stream here misses nothing.
func (s *Server) sendOpen(ctx context.Context, v store.View, send func(card.Card, int64) error) (int64, error) {
	upTo, err := s.store.LastChange(ctx)
	if err != nil {
		return 0, err
	}
	for after := int64(0); ; {
		open, err := s.store.Open(ctx, v, after, upTo, watchPage)
		if err != nil {
			return 0, err
		}
		if len(open) == 0 {
			return upTo, nil
		}
		for _, c := range open {
			if err := send(c, c.Seq); err != nil {
				return 0, err
			}
			after = c.Seq
		}
	}
}

// follow sends every change after one, and waits for more.
func (s *Server) follow(ctx context.Context, v store.View, after int64, send func(card.Card, int64) error) error {
	for {
		changed := s.changes.wait()
		changes, err := s.store.Changes(ctx, v, after, watchPage)
		if err != nil {
			return s.stopped(err)
		}
		for _, ch := range changes {
			if err := send(ch.Card, ch.Seq); err != nil {
				return err
			}
			after = ch.Seq
		}
		if len(changes) > 0 {
			continue
		}
		if err := s.await(ctx, changed); err != nil {
			return err
		}
	}
}

// await waits for a change, the caller's end or the server's.
func (s *Server) await(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stopping:
		return shuttingDown()
	}
}

// stopped says SHUTTING_DOWN for what fails because the server stops.
func (s *Server) stopped(err error) error {
	select {
	case <-s.stopping:
		return shuttingDown()
	default:
		return err
	}
}

// WatchDecision implements the contract.
func (s *authorizationService) WatchDecision(req *permissionv1.WatchDecisionRequest, stream grpc.ServerStreamingServer[permissionv1.WatchDecisionResponse]) error {
	ctx := stream.Context()
	id, err := who(ctx)
	if err != nil {
		return err
	}
	v := viewOf(id)
	key := store.CallKey{Namespace: id.Namespace(), Turn: req.GetTurn(), Call: req.GetCall()}
	for sent := int64(0); ; {
		changed := s.changes.wait()
		c, err := s.store.CardOfCall(ctx, key)
		if errors.Is(err, store.ErrNotFound) || err == nil && !sees(v, c.Principal) {
			return cardNotFound("turns/" + req.GetTurn() + "/calls/" + req.GetCall())
		}
		if err != nil {
			return s.stopped(err)
		}
		if c.Version != sent {
			sent = c.Version
			if err := stream.Send(&permissionv1.WatchDecisionResponse{Card: cardProto(c)}); err != nil {
				return err
			}
		}
		if c.State != permissionv1.CardState_CARD_STATE_PENDING {
			return nil
		}
		if err := s.await(ctx, changed); err != nil {
			return err
		}
	}
}
