package telemetry

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/writ-dev/writ/internal/errs"
)

type suppressKey struct{}

// Suppress makes Start and the interceptors leave ctx's work out of the trace: the hand-over of spans must not make
// spans.
func Suppress(ctx context.Context) context.Context {
	return context.WithValue(ctx, suppressKey{}, true)
}

func suppressed(ctx context.Context) bool { return ctx.Value(suppressKey{}) != nil }

// Start begins an internal span. End it with End.
func Start(ctx context.Context, tracer trace.Tracer, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	return StartKind(ctx, tracer, trace.SpanKindInternal, name, attrs...)
}

// StartKind is Start for a span of another kind.
func StartKind(ctx context.Context, tracer trace.Tracer, kind trace.SpanKind, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	if suppressed(ctx) {
		return ctx, noop.Span{}
	}
	return tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attrs...))
}

// End ends the span. An error is recorded by its reason and status, never by its text, which may hold what a span must
// not.
func End(span trace.Span, err error) {
	if err != nil {
		reason := errs.ReasonOf(errs.Status(err).Err())
		span.SetAttributes(ErrorType.String(reason), Reason.String(reason))
		span.SetStatus(codes.Error, reason)
	}
	span.End()
}

// text is a value as valid UTF-8: attributes may carry foreign names, and OTLP's strings must be valid.
func text(v attribute.Value) string { return strings.ToValidUTF8(v.Emit(), "\uFFFD") }

// Propagator carries W3C trace context, and nothing else: baggage is foreign data that nobody asked for.
func Propagator() propagation.TextMapPropagator { return propagation.TraceContext{} }

// TraceID is the id of ctx's trace, "" outside of one.
func TraceID(ctx context.Context) string {
	if sc := trace.SpanContextFromContext(ctx); sc.HasTraceID() {
		return sc.TraceID().String()
	}
	return ""
}

// Traceparent returns ctx's place in its trace as the W3C headers have it, for MCP's _meta, a child's environment and
// records. Both are empty outside of a trace.
func Traceparent(ctx context.Context) (traceparent, tracestate string) {
	c := propagation.MapCarrier{}
	Propagator().Inject(ctx, c)
	return c["traceparent"], c["tracestate"]
}

// WithTraceparent puts ctx into the trace that the headers name; headers that are not valid leave ctx as it is.
func WithTraceparent(ctx context.Context, traceparent, tracestate string) context.Context {
	return Propagator().Extract(ctx, propagation.MapCarrier{"traceparent": traceparent, "tracestate": tracestate})
}

// LinkTo is a link to the place that a traceparent names, for work that resumes in a trace of its own. It is false for
// a traceparent that is not valid.
func LinkTo(traceparent, tracestate string) (trace.Link, bool) {
	l := trace.LinkFromContext(WithTraceparent(context.Background(), traceparent, tracestate))
	return l, l.SpanContext.IsValid()
}
