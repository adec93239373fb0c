package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/writ-dev/writ/gateway-svc/internal/conduct"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
)

// Phases of a list.
const (
	phaseOpen  = 0 // what is conducted here
	phaseCards = 1 // what waits for a person and is not conducted here
	phaseEnded = 2 // what is recorded
)

// cursor is where a list goes on.
type cursor struct {
	Phase  int       `json:"p"`
	Before time.Time `json:"b,omitzero"`  // phaseOpen: of the last one
	Name   string    `json:"n,omitempty"` // phaseOpen: of the last one
	Token  string    `json:"t,omitempty"` // the other phases: the peer's
	Filter string    `json:"f"`           // digest of who asks and for what
}

// ListCalls returns what runs or waits, then what is recorded, newest first.
func (s *Server) ListCalls(ctx context.Context, req *gatewayv1.ListCallsRequest) (*gatewayv1.ListCallsResponse, error) {
	id, err := identity(ctx)
	if err != nil {
		return nil, err
	}
	l := lister{s: s, id: id, req: req, look: asOwner(s, id), all: overseer(id)}
	if l.all {
		l.look = asOverseer(s, id)
	}
	if l.at, err = readCursor(req.GetPageToken(), filterOf(id, req)); err != nil {
		return nil, err
	}
	size := int(req.GetPageSize())
	if size <= 0 {
		size = s.limits.listDefault
	}
	size = min(size, s.limits.listLargest)
	more := true
	for more && len(l.calls) < size {
		if more, err = l.step(ctx, size-len(l.calls)); err != nil {
			return nil, statusError(err, "")
		}
	}
	answer := &gatewayv1.ListCallsResponse{Calls: l.calls}
	if more {
		answer.NextPageToken = l.at.text()
	}
	return answer, nil
}

// lister collects one page.
type lister struct {
	s     *Server
	id    auth.Identity
	req   *gatewayv1.ListCallsRequest
	look  viewer
	all   bool // everybody's of the namespace
	at    cursor
	calls []*gatewayv1.Call
}

// step adds at most room calls and moves the cursor. It is false at the end of the list.
func (l *lister) step(ctx context.Context, room int) (more bool, err error) {
	switch l.at.Phase {
	case phaseOpen:
		l.open(room)
		return true, nil
	case phaseCards:
		return true, l.cards(ctx, room)
	}
	return l.ended(ctx, room)
}

func (l *lister) open(room int) {
	for _, v := range conduct.Views(l.s.set.Open(func(a conduct.Ask) bool { return l.mine(a.Namespace, a.Principal) })) {
		if !v.Accepted || !l.at.after(v) || !l.wanted(v.Call.GetName(), v.Call.GetConversation()) {
			continue
		}
		if room == 0 {
			return
		}
		room--
		l.calls = append(l.calls, v.Call)
		l.at.Before, l.at.Name = v.Created, v.Call.GetName()
	}
	l.at = cursor{Phase: phaseCards, Filter: l.at.Filter}
}

func (l *lister) cards(ctx context.Context, room int) error {
	answer, err := l.look.cards.ListCards(l.look.as(ctx), &permissionv1.ListCardsRequest{
		PageSize: int32(room), PageToken: l.at.Token, State: permissionv1.CardState_CARD_STATE_PENDING,
		Turn: l.req.GetTurn(), Conversation: l.req.GetConversation(),
	})
	if err != nil {
		return tokenError(peerError(permissionName, err))
	}
	for _, card := range answer.GetCards() {
		key := conduct.Key{Namespace: l.id.Namespace(), Turn: card.GetTurn(), Call: card.GetCall()}
		if _, here := l.s.set.Get(key, nil); !here && l.mine(key.Namespace, card.GetPrincipal()) {
			l.calls = append(l.calls, cardCall(key, card))
		}
	}
	l.at.Token = answer.GetNextPageToken()
	if l.at.Token == "" {
		l.at.Phase = phaseEnded
	}
	return nil
}

func (l *lister) ended(ctx context.Context, room int) (more bool, err error) {
	answer, err := l.look.receipts.ListReceipts(l.look.as(ctx), &evidencev1.ListReceiptsRequest{
		PageSize: int32(room), PageToken: l.at.Token, Turn: l.req.GetTurn(), Conversation: l.req.GetConversation(),
	})
	if err != nil {
		return false, tokenError(peerError(evidenceName, err))
	}
	for _, r := range answer.GetReceipts() {
		if r.GetCall() != "" {
			l.calls = append(l.calls, receiptCall(r))
		}
	}
	l.at.Token = answer.GetNextPageToken()
	return l.at.Token != "", nil
}

// receiptCall is a recorded call as lists show it.
func receiptCall(r *evidencev1.Receipt) *gatewayv1.Call {
	return &gatewayv1.Call{
		Name: r.GetCall(), Tool: r.GetTool().GetTool(), State: gatewayv1.CallState_CALL_STATE_ENDED, TraceId: r.GetTraceId(),
		CreateTime: r.GetSealTime(), EndTime: r.GetSealTime(), Conversation: r.GetConversation(),
		Outcome: recordedOutcome(r, nil),
	}
}

func (l *lister) mine(namespace string, p *commonv1.Principal) bool {
	if namespace != l.id.Namespace() {
		return false
	}
	return l.all || p.GetId() == l.id.Subject.GetId() && p.GetKind() == l.id.Subject.GetKind()
}

func (l *lister) wanted(name, conversation string) bool {
	return callIn(l.req.GetTurn(), name) && (l.req.GetConversation() == "" || l.req.GetConversation() == conversation)
}

// after tells whether a call comes after the cursor, newest first, then by name.
func (c cursor) after(v conduct.View) bool {
	if c.Before.IsZero() {
		return true
	}
	if d := v.Created.Compare(c.Before); d != 0 {
		return d < 0
	}
	return v.Call.GetName() > c.Name
}

func (c cursor) text() string {
	b, err := json.Marshal(c)
	if err != nil {
		return "" // a cursor always marshals: numbers, texts and a time of this age
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func readCursor(token, filter string) (cursor, error) {
	if token == "" {
		return cursor{Filter: filter}, nil
	}
	var c cursor
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) > 8192 || json.Unmarshal(b, &c) != nil || c.Filter != filter || c.Phase < phaseOpen || c.Phase > phaseEnded {
		return c, badToken()
	}
	return c, nil
}

func badToken() error {
	return errs.New(codes.InvalidArgument, commonv1.ErrorReason_ERROR_REASON_PAGE_TOKEN_INVALID, "page_token",
		"the page token is not of this list", "Begin again without a token, with the filter that you want.")
}

// tokenError is a peer's complaint about its part of the token as one about ours.
func tokenError(err error) error {
	if errs.Is(err, commonv1.ErrorReason_ERROR_REASON_PAGE_TOKEN_INVALID) {
		return badToken()
	}
	return err
}

func filterOf(id auth.Identity, req *gatewayv1.ListCallsRequest) string {
	sum := sha256.New()
	for _, part := range []string{id.Namespace(), id.Subject.GetId(), id.Subject.GetKind().String(), req.GetTurn(), req.GetConversation()} {
		sum.Write([]byte(itoa(len(part)) + ":" + part))
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
