package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"buf.build/go/protovalidate"
	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
)

// Chain is the interceptors of a server, the same for sockets and for the in-process channel.
type Chain struct {
	opts  Options
	gate  *auth.Gate
	calls *calls
	// inner tells that calls come from the process itself: one that went well is a line for debugging, since the call over
	// the socket that it serves has a line of its own.
	inner bool
}

// NewChain makes the interceptors. peer knows peers without a token (see auth.GateOptions), and may be nil.
func NewChain(opts Options, peer func(context.Context) (auth.Credential, bool)) (*Chain, error) {
	if err := opts.defaults(); err != nil {
		return nil, err
	}
	gate, err := auth.NewGate(auth.GateOptions{Authenticator: opts.Authenticator, Peer: peer, Overrides: opts.Overrides, Files: opts.Files})
	if err != nil {
		return nil, err
	}
	return &Chain{opts: opts, gate: gate, calls: newCalls(), inner: peer != nil}, nil
}

// Unary returns the unary interceptors, the outermost first.
func (c *Chain) Unary() []grpc.UnaryServerInterceptor {
	return []grpc.UnaryServerInterceptor{
		c.finishUnary,
		recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(recovered)),
		c.calls.unary,
		c.gate.UnaryServerInterceptor(),
		c.checkUnary,
	}
}

// Stream returns the stream interceptors, the outermost first.
func (c *Chain) Stream() []grpc.StreamServerInterceptor {
	return []grpc.StreamServerInterceptor{
		c.finishStream,
		recovery.StreamServerInterceptor(recovery.WithRecoveryHandlerContext(recovered)),
		c.calls.stream,
		c.gate.StreamServerInterceptor(),
		c.checkStream,
	}
}

// Report logs the methods of a registered service that nobody may call, for want of an access rule.
func (c *Chain) Report(desc *grpc.ServiceDesc) (missing []string) {
	info := grpc.ServiceInfo{}
	for _, m := range desc.Methods {
		info.Methods = append(info.Methods, grpc.MethodInfo{Name: m.MethodName})
	}
	for _, m := range desc.Streams {
		info.Methods = append(info.Methods, grpc.MethodInfo{Name: m.StreamName})
	}
	missing = c.gate.Missing(desc.ServiceName, info)
	for _, m := range missing {
		c.opts.Logger.Error("method without an access rule: every call of it will be refused", "method", m)
	}
	return missing
}

// Stop refuses new calls, ends streams with SHUTTING_DOWN, and waits for the calls in progress until ctx ends; then it
// cancels them. It returns whether all had ended by themselves.
func (c *Chain) Stop(ctx context.Context) bool { return c.calls.stop(ctx) }

// recovered turns a panic into an error whose text and stack go to the log only.
func recovered(_ context.Context, p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

// checkUnary holds a request against its size and the rules of its contract, and the answer against its size.
func (c *Chain) checkUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	note(ctx, req)
	if err := c.check(req); err != nil {
		return nil, err
	}
	resp, err := handler(ctx, req)
	if err == nil {
		err = c.size(resp)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (c *Chain) checkStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	note(ss.Context(), nil)
	return handler(srv, &checkedStream{ServerStream: ss, chain: c})
}

type checkedStream struct {
	grpc.ServerStream
	chain *Chain
}

func (s *checkedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	note(s.Context(), m)
	return s.chain.check(m)
}

func (s *checkedStream) SendMsg(m any) error {
	if err := s.chain.size(m); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

func (c *Chain) size(m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return nil
	}
	if n := proto.Size(msg); n > c.opts.MaxMessageBytes {
		return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "message_max_bytes", int64(c.opts.MaxMessageBytes), int64(n),
			"Send less at a time; what is large travels as a stream or as a blob.")
	}
	return nil
}

func (c *Chain) check(m any) error {
	if err := c.size(m); err != nil {
		return err
	}
	msg, ok := m.(proto.Message)
	if !ok {
		return nil
	}
	return Invalid(c.opts.Validator.Validate(msg))
}

// Invalid turns what protovalidate found into FIELD_INVALID with a BadRequest; other errors stay what they are.
func Invalid(err error) error {
	var found *protovalidate.ValidationError
	if !errors.As(err, &found) {
		return err
	}
	violations := make([]errs.Violation, 0, len(found.Violations))
	for _, v := range found.Violations {
		violations = append(violations, errs.Violation{
			Field: protovalidate.FieldPathString(v.Proto.GetField()), Problem: v.Proto.GetMessage(), Rule: v.Proto.GetRuleId(),
		})
	}
	return errs.FieldViolations(commonv1.ErrorReason_ERROR_REASON_FIELD_INVALID, violations,
		"Correct the request; the rules stand in the contract beside the field.")
}

// finishUnary makes the error that a client sees and writes the call's line of log.
func (c *Chain) finishUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, r := begin(ctx, info.FullMethod)
	resp, err := handler(ctx, req)
	return resp, r.finish(ctx, c.opts.Logger, c.inner, err)
}

func (c *Chain) finishStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, r := begin(ss.Context(), info.FullMethod)
	err := handler(srv, &middleware.WrappedServerStream{ServerStream: ss, WrappedContext: ctx})
	return r.finish(ctx, c.opts.Logger, c.inner, err)
}

func levelOf(code codes.Code) slog.Level {
	switch code {
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	case codes.Unavailable, codes.ResourceExhausted:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
