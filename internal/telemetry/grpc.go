package telemetry

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/writ-dev/writ/internal/errs"
)

// Scope is the name of the instrumentation scope of the kit's own spans.
const Scope = "github.com/writ-dev/writ/internal/telemetry"

// Providers finds the tracer provider of a service by its short name, the second part of a contract's package:
// "registry" of writ.registry.v1. Telemetry.Provider is one.
type Providers func(service string) trace.TracerProvider

// Quiet tells whether calls of a method are kept out of traces: probes, which say nothing, and the hand-over of spans,
// which would never end.
func Quiet(fullMethod string) bool {
	return strings.HasPrefix(fullMethod, "/grpc.health.v1.") || strings.HasPrefix(fullMethod, "/opentelemetry.proto.collector.")
}

// ServiceOf is the short name of the service that a full method belongs to, "" for a third party's.
func ServiceOf(fullMethod string) string {
	rest, ok := strings.CutPrefix(fullMethod, "/writ.")
	if !ok {
		return ""
	}
	service, _, _ := strings.Cut(rest, ".")
	return service
}

// carrier lets the propagator read and write gRPC metadata.
type carrier metadata.MD

func (c carrier) Get(key string) string {
	if v := metadata.MD(c).Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}
func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }
func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}

func startServer(ctx context.Context, providers Providers, fullMethod string) (context.Context, trace.Span) {
	if Quiet(fullMethod) {
		return Suppress(ctx), noop.Span{}
	}
	md, _ := metadata.FromIncomingContext(ctx)
	ctx = Propagator().Extract(ctx, carrier(md))
	return start(ctx, providers(ServiceOf(fullMethod)), trace.SpanKindServer, fullMethod)
}

func startClient(ctx context.Context, provider trace.TracerProvider, fullMethod string) (context.Context, trace.Span) {
	if Quiet(fullMethod) || suppressed(ctx) {
		return ctx, noop.Span{}
	}
	ctx, span := start(ctx, provider, trace.SpanKindClient, fullMethod)
	md, _ := metadata.FromOutgoingContext(ctx)
	md = md.Copy()
	Propagator().Inject(ctx, carrier(md))
	return metadata.NewOutgoingContext(ctx, md), span
}

func start(ctx context.Context, provider trace.TracerProvider, kind trace.SpanKind, fullMethod string) (context.Context, trace.Span) {
	method := strings.TrimPrefix(fullMethod, "/")
	return provider.Tracer(Scope).Start(ctx, method, trace.WithSpanKind(kind),
		trace.WithAttributes(RPCSystemName.String("grpc"), RPCMethod.String(method), NetworkTransport.String("inproc")))
}

// finish ends an RPC span. A client's span is an error whatever went wrong; a server's only where the server is to
// blame, as the conventions have it.
func finish(span trace.Span, err error, client bool) {
	if !span.IsRecording() {
		span.End()
		return
	}
	c := status.Code(err)
	span.SetAttributes(RPCResponseStatusCode.String(code.Code(c).String()))
	if err != nil {
		if reason := errs.ReasonOf(err); reason != "" {
			span.SetAttributes(ErrorType.String(reason), Reason.String(reason))
		} else {
			span.SetAttributes(ErrorType.String(code.Code(c).String()))
		}
		if client || serverFault(c) {
			span.SetStatus(codes.Error, "")
		}
	}
	span.End()
}

func serverFault(c grpccodes.Code) bool {
	switch c {
	case grpccodes.Unknown, grpccodes.DeadlineExceeded, grpccodes.Unimplemented, grpccodes.Internal, grpccodes.Unavailable, grpccodes.DataLoss:
		return true
	}
	return false
}

// UnaryServerInterceptor makes the server span of a call over the in-process channel. Sockets use otelgrpc's stats
// handler instead.
func UnaryServerInterceptor(providers Providers) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		ctx, span := startServer(ctx, providers, info.FullMethod)
		resp, err := handler(ctx, req)
		finish(span, err, false)
		return resp, err
	}
}

// StreamServerInterceptor is UnaryServerInterceptor for streams; the span lasts as long as the stream.
func StreamServerInterceptor(providers Providers) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, span := startServer(ss.Context(), providers, info.FullMethod)
		err := handler(srv, &middleware.WrappedServerStream{ServerStream: ss, WrappedContext: ctx})
		finish(span, err, false)
		return err
	}
}

// Invoke makes the client span around a unary call over the in-process channel.
func Invoke(ctx context.Context, provider trace.TracerProvider, fullMethod string, invoke func(context.Context) error) error {
	ctx, span := startClient(ctx, provider, fullMethod)
	err := invoke(ctx)
	finish(span, err, true)
	return err
}

// NewStream makes the client span around a stream over the in-process channel. It ends with the stream.
func NewStream(ctx context.Context, provider trace.TracerProvider, desc *grpc.StreamDesc, fullMethod string, open func(context.Context) (grpc.ClientStream, error)) (grpc.ClientStream, error) {
	ctx, span := startClient(ctx, provider, fullMethod)
	cs, err := open(ctx)
	if err != nil {
		finish(span, err, true)
		return nil, err
	}
	s := &clientStream{ClientStream: cs, span: span, single: !desc.ServerStreams}
	s.unwatch = context.AfterFunc(cs.Context(), func() { s.finish(status.FromContextError(context.Cause(cs.Context())).Err()) })
	return s, nil
}

// clientStream ends its span once: at the stream's end, at its error, or with its context, whichever is first.
type clientStream struct {
	grpc.ClientStream
	span    trace.Span
	single  bool // one response only
	once    sync.Once
	unwatch func() bool
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case errors.Is(err, io.EOF):
		s.finish(nil)
		s.unwatch()
	case err != nil || s.single:
		s.finish(err)
		s.unwatch()
	}
	return err
}

func (s *clientStream) finish(err error) {
	s.once.Do(func() { finish(s.span, err, true) })
}
