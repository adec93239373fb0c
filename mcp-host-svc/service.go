package mcphost

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/toolname"

	"github.com/writ-dev/writ/mcp-host-svc/internal/execution"
)

// call is one presented writ on its way to an outcome.
type call struct {
	token     string
	arguments []byte
	namespace string            // of the peer, until a writ says it
	claims    *writtoken.Claims // once verified
	server    string            // the connector
	tool      string            // the server's own name of the tool
	claimed   bool
	log       *execution.Log[event]
}

func (c *call) key() execution.Key {
	return execution.Key{Namespace: c.claims.Namespace, Call: toolname.Call(c.claims.Turn, c.claims.Call)}
}

// Execute implements ExecutionService. The stream only watches: when it breaks, the call goes on.
func (s *Server) Execute(req *mcphostv1.ExecuteRequest, stream mcphostv1.ExecutionService_ExecuteServer) error {
	in := req.GetRequest()
	if n := len(in.GetArguments()); n > s.limits.ArgumentsMaxBytes {
		return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "arguments_max_bytes", int64(s.limits.ArgumentsMaxBytes), int64(n),
			"pass large data by a file in the workspace")
	}
	if !s.enter() {
		return errShutdown
	}
	c := &call{token: in.GetWrit(), arguments: in.GetArguments(), namespace: peerNamespace(stream.Context()), log: execution.NewLog[event](s.limits.ProgressMax)}
	detached := context.WithoutCancel(stream.Context())
	go func() {
		defer s.running.Done()
		s.conduct(detached, c)
	}()
	return c.log.Follow(stream.Context(), 0, func(e event) error { return stream.Send(&mcphostv1.ExecuteResponse{Event: e}) })
}

func peerNamespace(ctx context.Context) string {
	if id, ok := auth.FromContext(ctx); ok && id.Namespace() != "" {
		return id.Namespace()
	}
	return defaultNamespace
}

// Attach implements ExecutionService.
func (s *Server) Attach(req *mcphostv1.AttachRequest, stream mcphostv1.ExecutionService_AttachServer) error {
	in := req.GetRequest()
	r := s.runs.Find(execution.Key{Namespace: namespaceOf(stream.Context(), in.GetNamespace()), Call: in.GetCall()})
	if r == nil {
		return errs.New(codes.NotFound, mcphostv1.ErrorReason_ERROR_REASON_EXECUTION_NOT_FOUND, in.GetCall(),
			"no execution of that name runs or ended lately here", "read the call's receipt at evidence")
	}
	return r.Log.Follow(stream.Context(), in.GetAfterSequence(), func(e event) error { return stream.Send(&mcphostv1.AttachResponse{Event: e}) })
}

// cancelledError is the cause of a cancelled call's context.
type cancelledError struct{ why string }

func (e *cancelledError) Error() string { return "the call was cancelled: " + e.why }

// Cancel implements ExecutionService.
func (s *Server) Cancel(ctx context.Context, req *mcphostv1.CancelRequest) (*mcphostv1.CancelResponse, error) {
	in := req.GetRequest()
	key := execution.Key{Namespace: namespaceOf(ctx, in.GetNamespace()), Call: in.GetCall()}
	done := s.runs.Cancel(key, &cancelledError{why: in.GetReason()})
	return &mcphostv1.CancelResponse{Response: &commonv1.CancelResponse{Cancelled: done}}, nil
}

// conduct takes a presented writ to its outcome. ctx carries trace and identity and does not end with the caller's
// stream; it ends with Cancel and with Close.
func (s *Server) conduct(ctx context.Context, c *call) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.stop, func() { cancel(errShutdown) })()
	o, err := s.present(ctx, cancel, c)
	if err == nil {
		s.add(c, false, func(e event) { e.Event = &commonv1.ExecutionEvent_Outcome{Outcome: o} })
	}
	c.log.End(err)
}

// present verifies and runs the call, and returns its outcome, or the error that stands in for one.
func (s *Server) present(ctx context.Context, cancel context.CancelCauseFunc, c *call) (*commonv1.Outcome, error) {
	if err := s.verify(ctx, c); err != nil {
		return s.refuse(ctx, c, err)
	}
	r := &execution.Run[event]{Key: c.key(), Log: c.log}
	if err := s.admit(r, cancel); err != nil {
		return s.refuse(ctx, c, err)
	}
	o, err := s.runCall(ctx, c)
	r.Claimed = c.claimed
	s.runs.End(r) // before anybody hears of the end, so that a call after it finds it ended
	return o, err
}

func (s *Server) admit(r *execution.Run[event], cancel context.CancelCauseFunc) error {
	switch s.runs.Begin(r, s.limits.CallsMax, cancel) {
	case execution.Taken:
		return claimTaken(r.Key.Call, "", "it is running here")
	case execution.Full:
		return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "mcp_calls_max", int64(s.limits.CallsMax), int64(s.limits.CallsMax)+1,
			"call again when a call has ended")
	}
	return nil
}

// add appends an event.
func (s *Server) add(c *call, mayBeLost bool, fill func(event)) {
	c.log.Add(mayBeLost, func(sequence int64) event {
		e := &commonv1.ExecutionEvent{Sequence: sequence, Time: timestamppb.New(s.now())}
		fill(e)
		return e
	})
}

func claimTaken(call, receipt, why string) error {
	return errs.New(codes.FailedPrecondition, mcphostv1.ErrorReason_ERROR_REASON_CLAIM_TAKEN, call, "the call is taken: "+why+"; nothing ran again",
		"read the recorded outcome by the call's name", "receipt", receipt)
}

// causeOf prefers why a context ended over the fact that it did.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
		return cause
	}
	return err
}
