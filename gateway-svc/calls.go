package gateway

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/writ-dev/writ/gateway-svc/internal/conduct"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/ids"
	"github.com/writ-dev/writ/internal/toolname"
)

// CallTool makes a call, or finds the same call again, and streams its events.
func (s *Server) CallTool(req *gatewayv1.CallToolRequest, out grpc.ServerStreamingServer[gatewayv1.CallToolResponse]) error {
	ctx := out.Context()
	id, err := identity(ctx)
	if err != nil {
		return err
	}
	ask, err := s.ask(id, req)
	if err != nil {
		return err
	}
	call, err := s.set.Start(ctx, ask)
	if err != nil {
		return statusError(err, ask.Name())
	}
	err = call.Watch(ctx, 0, func(e *gatewayv1.CallEvent) error {
		if e.GetOutcome() != nil {
			if err := call.Answers(ctx, ask); err != nil {
				return err
			}
		}
		return out.Send(&gatewayv1.CallToolResponse{Event: e})
	})
	return statusError(err, ask.Name())
}

// ask checks a request before the call exists.
func (s *Server) ask(id auth.Identity, req *gatewayv1.CallToolRequest) (conduct.Ask, error) {
	a := conduct.Ask{
		Key:       conduct.Key{Namespace: id.Namespace(), Turn: req.GetTurn(), Call: req.GetCall()},
		Principal: id.Subject, AssertedBy: id.AssertedBy, Tool: req.GetTool(), Arguments: req.GetArguments(), Given: true,
	}
	if a.Call == "" {
		a.Call, a.Given = ids.At("c_", s.now(), rand.Reader), false
	}
	if len(a.Arguments) == 0 {
		a.Arguments = []byte("{}")
	}
	switch {
	case !toolname.ValidCallID(a.Turn):
		return a, field("turn", "is not a turn's id", "Send the id that OpenTurn gave, without \"turns/\".")
	case !toolname.ValidCallID(a.Call):
		return a, field("call", "is not 1 to 128 of A-Z a-z 0-9 . _ -", "Send another id, or none.")
	case a.Tool == "" || len(a.Tool) > 256:
		return a, field("tool", "is empty or longer than 256 bytes", "Send a tool's id or alias as the turn has it.")
	}
	return a, checkArguments(a.Arguments, s.limits)
}

// AttachCall streams the events of a call that is conducted here, that goes on elsewhere, or that the record knows.
func (s *Server) AttachCall(req *gatewayv1.AttachCallRequest, out grpc.ServerStreamingServer[gatewayv1.AttachCallResponse]) error {
	ctx := out.Context()
	id, key, err := named(ctx, req.GetName())
	if err != nil {
		return err
	}
	send := func(e *gatewayv1.CallEvent) error { return out.Send(&gatewayv1.AttachCallResponse{Event: e}) }
	call, ok := s.set.Get(key, id.Subject)
	if !ok {
		f, err := s.find(ctx, key, asOwner(s, id))
		if err != nil {
			return statusError(err, req.GetName())
		}
		if f.recorded != nil {
			return replay(key, f, send)
		}
		if call, err = s.set.Start(ctx, f.ask); err != nil {
			return statusError(notYours(err), req.GetName())
		}
	}
	return statusError(call.Watch(ctx, req.GetAfterSequence(), send), req.GetName())
}

// replay tells a recorded call as events.
func replay(key conduct.Key, f found, send func(*gatewayv1.CallEvent) error) error {
	sealed := timestamppb.New(f.recorded.Sealed)
	accepted := f.message(key, false)
	if err := send(&gatewayv1.CallEvent{Sequence: 1, Time: sealed, Event: &gatewayv1.CallEvent_Accepted{Accepted: accepted}}); err != nil {
		return err
	}
	return send(&gatewayv1.CallEvent{Sequence: 2, Time: sealed, Event: &gatewayv1.CallEvent_Outcome{Outcome: f.recorded.Outcome}})
}

// CancelCall asks a call to stop; its outcome comes on its stream.
func (s *Server) CancelCall(ctx context.Context, req *gatewayv1.CancelCallRequest) (*gatewayv1.CancelCallResponse, error) {
	id, key, err := named(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	call, ok := s.set.Get(key, id.Subject)
	if !ok {
		f, err := s.find(ctx, key, asOwner(s, id))
		if err != nil {
			return nil, statusError(err, req.GetName())
		}
		if f.recorded != nil {
			return &gatewayv1.CancelCallResponse{Call: f.message(key, false)}, nil
		}
		// Somebody has to see it to its end: from here on that is this gateway.
		if call, err = s.set.Start(ctx, f.ask); err != nil {
			return nil, statusError(notYours(err), req.GetName())
		}
	}
	if err := call.Cancel(ctx, req.GetReason()); err != nil {
		return nil, statusError(err, req.GetName())
	}
	return &gatewayv1.CancelCallResponse{Call: call.View(false).Call}, nil
}

// GetCall returns a call as it stands.
func (s *Server) GetCall(ctx context.Context, req *gatewayv1.GetCallRequest) (*gatewayv1.GetCallResponse, error) {
	id, key, err := named(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	if call, ok := s.set.Get(key, id.Subject); ok {
		return &gatewayv1.GetCallResponse{Call: call.View(true).Call}, nil
	}
	look := asOwner(s, id)
	if overseer(id) {
		if call, ok := s.set.Get(key, nil); ok {
			return &gatewayv1.GetCallResponse{Call: call.View(false).Call}, nil // the result is its principal's
		}
		look = asOverseer(s, id)
	}
	f, err := s.find(ctx, key, look)
	if err != nil {
		return nil, statusError(err, req.GetName())
	}
	return &gatewayv1.GetCallResponse{Call: f.message(key, true)}, nil
}

// identity is who stands behind a request. A service that acts for itself has no namespace, and so no calls.
func identity(ctx context.Context) (auth.Identity, error) {
	id, ok := auth.FromContext(ctx)
	if !ok || id.Subject == nil || id.Namespace() == "" {
		return id, errs.New(codes.Unauthenticated, commonv1.ErrorReason_ERROR_REASON_UNAUTHENTICATED, "",
			"nobody with a namespace stands behind the call", "Send the token of a caller, or act on behalf of somebody.")
	}
	return id, nil
}

func named(ctx context.Context, name string) (auth.Identity, conduct.Key, error) {
	id, err := identity(ctx)
	if err != nil {
		return id, conduct.Key{}, err
	}
	turn, call, ok := toolname.ParseCall(name)
	if !ok {
		return id, conduct.Key{}, field("name", "is not turns/{turn}/calls/{call}", "Send the name that the first event gave.")
	}
	return id, conduct.Key{Namespace: id.Namespace(), Turn: turn, Call: call}, nil
}

// overseer tells whether the credential may look at the calls of others in its namespace.
func overseer(id auth.Identity) bool {
	return !id.Delegated() &&
		(id.Credential.Has(commonv1.Role_ROLE_APPROVER) || id.Credential.Has(commonv1.Role_ROLE_OPERATOR))
}

// notYours hides that another principal's call exists.
func notYours(err error) error {
	if err == conduct.ErrTurnNotFound {
		return conduct.ErrNotFound
	}
	return err
}

func turnOf(name string) string {
	turn, _, _ := toolname.ParseCall(name)
	return turn
}

func itoa(n int) string { return strconv.Itoa(n) }

func callIn(turn, name string) bool {
	return turn == "" || strings.HasPrefix(name, toolname.Turn(turn)+"/")
}
