package stack

import (
	"context"
	"errors"
	"io"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
)

// Done is a call as its caller saw it.
type Done struct {
	Name    string // "turns/…/calls/…"
	TraceID string
	Card    *permissionv1.Card
	Why     string // why it was allowed
	Events  []*gatewayv1.CallEvent
	Outcome *commonv1.Outcome
}

// Stream is what CallTool and AttachCall have in common.
type Stream interface {
	Next() (*gatewayv1.CallEvent, error)
}

type callStream struct {
	gatewayv1.CallService_CallToolClient
}

func (c callStream) Next() (*gatewayv1.CallEvent, error) {
	r, err := c.Recv()
	return r.GetEvent(), err
}

type attachStream struct {
	gatewayv1.CallService_AttachCallClient
}

func (c attachStream) Next() (*gatewayv1.CallEvent, error) {
	r, err := c.Recv()
	return r.GetEvent(), err
}

// Call makes a call and reads its events to the end; see gets each event as it comes and may be nil. The error is a
// status from before the call existed, or what broke the stream.
func (c *Client) Call(ctx context.Context, req *gatewayv1.CallToolRequest, see func(*gatewayv1.CallEvent)) (Done, error) {
	stream, err := c.Calls.CallTool(ctx, req)
	if err != nil {
		return Done{}, err
	}
	return read(callStream{stream}, see)
}

// Attach reads the events of a call from its begin.
func (c *Client) Attach(ctx context.Context, name string, see func(*gatewayv1.CallEvent)) (Done, error) {
	stream, err := c.Calls.AttachCall(ctx, &gatewayv1.AttachCallRequest{Name: name})
	if err != nil {
		return Done{}, err
	}
	return read(attachStream{stream}, see)
}

func read(stream Stream, see func(*gatewayv1.CallEvent)) (d Done, err error) {
	for {
		event, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return d, nil
		}
		if err != nil {
			return d, err
		}
		d.Events = append(d.Events, event)
		switch e := event.GetEvent().(type) {
		case *gatewayv1.CallEvent_Accepted:
			d.Name, d.TraceID = e.Accepted.GetName(), e.Accepted.GetTraceId()
		case *gatewayv1.CallEvent_Card:
			d.Card = e.Card
		case *gatewayv1.CallEvent_Authorized:
			d.Why = e.Authorized.GetWhy()
		case *gatewayv1.CallEvent_Outcome:
			d.Outcome = e.Outcome
		}
		if see != nil {
			see(event)
		}
	}
}

// Call makes a call as the caller and approves the card that it may raise, as the approver. It fails the test when the
// call ends in anything but want.
func (s *Stack) Call(turn *registryv1.Turn, tool, arguments string, want commonv1.OutcomeState) Done {
	s.t.Helper()
	d, err := s.TryCall(s.Context(), turn, tool, arguments)
	if err != nil {
		s.t.Fatalf("call %s %s: %v", tool, arguments, err)
	}
	if d.Outcome.GetState() != want {
		s.t.Fatalf("call %s %s ended in %v, want %v: %s %s", tool, arguments, d.Outcome.GetState(), want, d.Outcome.GetStatus().GetMessage(), Reason(d.Outcome))
	}
	return d
}

// TryCall is Call without a wish, for a context that may carry a trace.
func (s *Stack) TryCall(ctx context.Context, turn *registryv1.Turn, tool, arguments string) (Done, error) {
	s.t.Helper()
	return s.Client(Caller).Call(ctx, &gatewayv1.CallToolRequest{Turn: turn.GetId(), Tool: tool, Arguments: []byte(arguments)}, func(e *gatewayv1.CallEvent) {
		if k := e.GetCard(); k.GetState() == permissionv1.CardState_CARD_STATE_PENDING {
			s.Approve(k.GetId(), permissionv1.Lifetime_LIFETIME_ONCE)
		}
	})
}

// Approve answers a card with yes, as the person: it reads the card and sends back what was shown.
func (s *Stack) Approve(card string, lifetime permissionv1.Lifetime) *permissionv1.Card {
	s.t.Helper()
	return s.decide(card, permissionv1.Answer_ANSWER_APPROVE, lifetime)
}

// Deny answers a card with no.
func (s *Stack) Deny(card string) *permissionv1.Card {
	s.t.Helper()
	return s.decide(card, permissionv1.Answer_ANSWER_DENY, permissionv1.Lifetime_LIFETIME_UNSPECIFIED)
}

func (s *Stack) decide(card string, answer permissionv1.Answer, lifetime permissionv1.Lifetime) *permissionv1.Card {
	s.t.Helper()
	approver := s.Client(Approver)
	read, err := approver.Cards.GetCard(s.Context(), &permissionv1.GetCardRequest{Card: card})
	if err != nil {
		s.t.Fatalf("read card %s: %v", card, err)
	}
	decided, err := approver.Cards.DecideCard(s.Context(), &permissionv1.DecideCardRequest{
		Card: card, Etag: read.GetCard().GetEtag(), PreviewSha256: read.GetCard().GetPreview().GetSha256(), Answer: answer, Lifetime: lifetime,
	})
	if err != nil {
		s.t.Fatalf("decide card %s: %v", card, err)
	}
	return decided.GetCard()
}

// Info is the one ErrorInfo of an outcome's status.
func Info(o *commonv1.Outcome) *errdetails.ErrorInfo {
	for _, d := range o.GetStatus().GetDetails() {
		info := &errdetails.ErrorInfo{}
		if d.MessageIs(info) && d.UnmarshalTo(info) == nil {
			return info
		}
	}
	return nil
}

// Reason is the reason of an outcome, "" where there is none.
func Reason(o *commonv1.Outcome) string { return Info(o).GetReason() }
