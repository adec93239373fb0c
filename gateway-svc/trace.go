package gateway

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/writ-dev/writ/gateway-svc/internal/conduct"
	"github.com/writ-dev/writ/internal/telemetry"
)

// scope names the instrumentation.
const scope = "github.com/writ-dev/writ/gateway-svc"

// tracer makes the conductors' spans.
type tracer struct{ tracer trace.Tracer }

// Call begins the conductor's span in the caller's trace. Nothing else of the caller's context goes with it: neither its
// deadline, nor its end, nor its metadata.
func (t tracer) Call(base, caller context.Context, a conduct.Ask) (context.Context, conduct.Span) {
	ctx := base
	if sc := trace.SpanContextFromContext(caller); sc.IsValid() {
		ctx = trace.ContextWithSpanContext(base, sc)
	}
	opts := []trace.SpanStartOption{trace.WithAttributes(
		telemetry.Namespace.String(a.Namespace), telemetry.Principal.String(a.Principal.GetId()),
		telemetry.Turn.String(a.Turn), telemetry.Call.String(a.Name()), telemetry.Tool.String(a.Tool),
		telemetry.ArgumentsSize.Int(len(a.Arguments)),
	)}
	if a.Card != nil {
		if link, ok := telemetry.LinkTo(a.Card.GetTraceparent(), ""); ok {
			opts = append(opts, trace.WithLinks(link))
		}
	}
	ctx, s := t.tracer.Start(ctx, telemetry.SpanConduct, opts...)
	return ctx, span{s}
}

type span struct{ trace.Span }

func (s span) TraceID() string {
	if sc := s.SpanContext(); sc.HasTraceID() {
		return sc.TraceID().String()
	}
	return ""
}

func (s span) Tool(canonical string) { s.SetAttributes(telemetry.Tool.String(canonical)) }
func (s span) Card(id string)        { s.SetAttributes(telemetry.Card.String(id)) }

func (s span) End(state, reason, receipt string, err error) {
	set := func(k attribute.Key, v string) {
		if v != "" {
			s.SetAttributes(k.String(v))
		}
	}
	if err == nil && state != "" {
		set(telemetry.Outcome, strings.TrimPrefix(state, "OUTCOME_STATE_"))
	}
	set(telemetry.Reason, reason)
	set(telemetry.Receipt, receipt)
	telemetry.End(s.Span, statusError(err, ""))
}
