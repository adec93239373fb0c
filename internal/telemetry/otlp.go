package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// part is one request's worth of spans.
type part struct {
	spans []*tracepb.ResourceSpans
	count int
}

// split turns spans into OTLP, in requests of at most maxBytes (a single larger span goes alone).
func split(batch []sdktrace.ReadOnlySpan, maxBytes int) (parts []part) {
	var b builder
	for _, s := range batch {
		span := toSpan(s)
		size := proto.Size(span) + 16
		if b.count > 0 && b.bytes+size > maxBytes {
			parts = append(parts, b.part)
			b = builder{}
		}
		b.add(s, span, size)
	}
	if b.count > 0 {
		parts = append(parts, b.part)
	}
	return parts
}

type builder struct {
	part
	bytes  int
	scopes map[scopeKey]*tracepb.ScopeSpans
	byRes  map[attribute.Distinct]*tracepb.ResourceSpans
}

type scopeKey struct {
	resource attribute.Distinct
	name     string
	version  string
}

func (b *builder) add(s sdktrace.ReadOnlySpan, span *tracepb.Span, size int) {
	if b.scopes == nil {
		b.scopes, b.byRes = map[scopeKey]*tracepb.ScopeSpans{}, map[attribute.Distinct]*tracepb.ResourceSpans{}
	}
	res := s.Resource()
	scope := s.InstrumentationScope()
	key := scopeKey{res.Equivalent(), scope.Name, scope.Version}
	ss, ok := b.scopes[key]
	if !ok {
		rs, ok := b.byRes[key.resource]
		if !ok {
			rs = &tracepb.ResourceSpans{Resource: &resourcepb.Resource{Attributes: toAttributes(res.Attributes())}, SchemaUrl: res.SchemaURL()}
			b.byRes[key.resource] = rs
			b.spans = append(b.spans, rs)
			b.bytes += proto.Size(rs)
		}
		ss = &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: scope.Name, Version: scope.Version}, SchemaUrl: scope.SchemaURL}
		b.scopes[key] = ss
		rs.ScopeSpans = append(rs.ScopeSpans, ss)
		b.bytes += proto.Size(ss)
	}
	ss.Spans = append(ss.Spans, span)
	b.count++
	b.bytes += size
}

func toSpan(s sdktrace.ReadOnlySpan) *tracepb.Span {
	sc := s.SpanContext()
	tid, sid := sc.TraceID(), sc.SpanID()
	span := &tracepb.Span{
		TraceId: tid[:], SpanId: sid[:], TraceState: sc.TraceState().String(), Flags: flags(sc, s.Parent().IsRemote()),
		Name: s.Name(), Kind: toKind(s.SpanKind()),
		StartTimeUnixNano: uint64(max(0, s.StartTime().UnixNano())), EndTimeUnixNano: uint64(max(0, s.EndTime().UnixNano())),
		Attributes: toAttributes(s.Attributes()), DroppedAttributesCount: uint32(s.DroppedAttributes()),
		DroppedEventsCount: uint32(s.DroppedEvents()), DroppedLinksCount: uint32(s.DroppedLinks()),
		Status: toStatus(s.Status()),
	}
	if p := s.Parent(); p.SpanID().IsValid() {
		pid := p.SpanID()
		span.ParentSpanId = pid[:]
	}
	for _, e := range s.Events() {
		span.Events = append(span.Events, &tracepb.Span_Event{
			Name: e.Name, TimeUnixNano: uint64(max(0, e.Time.UnixNano())), Attributes: toAttributes(e.Attributes),
			DroppedAttributesCount: uint32(e.DroppedAttributeCount),
		})
	}
	for _, l := range s.Links() {
		ltid, lsid := l.SpanContext.TraceID(), l.SpanContext.SpanID()
		span.Links = append(span.Links, &tracepb.Span_Link{
			TraceId: ltid[:], SpanId: lsid[:], TraceState: l.SpanContext.TraceState().String(),
			Flags: flags(l.SpanContext, l.SpanContext.IsRemote()), Attributes: toAttributes(l.Attributes),
			DroppedAttributesCount: uint32(l.DroppedAttributeCount),
		})
	}
	return span
}

// flags are the W3C flags, and whether the parent is in another process, as OTLP packs them.
func flags(sc trace.SpanContext, remote bool) uint32 {
	f := uint32(sc.TraceFlags()) | uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
	if remote {
		f |= uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
	}
	return f
}

func toKind(k trace.SpanKind) tracepb.Span_SpanKind {
	switch k {
	case trace.SpanKindServer:
		return tracepb.Span_SPAN_KIND_SERVER
	case trace.SpanKindClient:
		return tracepb.Span_SPAN_KIND_CLIENT
	case trace.SpanKindProducer:
		return tracepb.Span_SPAN_KIND_PRODUCER
	case trace.SpanKindConsumer:
		return tracepb.Span_SPAN_KIND_CONSUMER
	default:
		return tracepb.Span_SPAN_KIND_INTERNAL
	}
}

func toStatus(s sdktrace.Status) *tracepb.Status {
	out := &tracepb.Status{Message: s.Description}
	switch s.Code {
	case codes.Ok:
		out.Code = tracepb.Status_STATUS_CODE_OK
	case codes.Error:
		out.Code = tracepb.Status_STATUS_CODE_ERROR
	}
	return out
}

func toAttributes(kvs []attribute.KeyValue) []*commonpb.KeyValue {
	out := make([]*commonpb.KeyValue, 0, len(kvs))
	for _, kv := range kvs {
		out = append(out, &commonpb.KeyValue{Key: string(kv.Key), Value: toValue(kv.Value)})
	}
	return out
}

func toValue(v attribute.Value) *commonpb.AnyValue {
	switch v.Type() {
	case attribute.BOOL:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v.AsBool()}}
	case attribute.INT64:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: v.AsInt64()}}
	case attribute.FLOAT64:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: v.AsFloat64()}}
	case attribute.STRINGSLICE:
		return list(v.AsStringSlice(), attribute.StringValue)
	case attribute.INT64SLICE:
		return list(v.AsInt64Slice(), attribute.Int64Value)
	case attribute.FLOAT64SLICE:
		return list(v.AsFloat64Slice(), attribute.Float64Value)
	case attribute.BOOLSLICE:
		return list(v.AsBoolSlice(), attribute.BoolValue)
	default:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: text(v)}}
	}
}

func list[T any](values []T, one func(T) attribute.Value) *commonpb.AnyValue {
	a := &commonpb.ArrayValue{}
	for _, v := range values {
		a.Values = append(a.Values, toValue(one(v)))
	}
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: a}}
}
