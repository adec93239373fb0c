// Package span makes what is stored of an OTLP span: bounded, as text, with the emitter that was authenticated.
package span

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/writ-dev/writ/evidence-svc/internal/store"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
)

// Limits of one span. What is over is left out.
const (
	maxAttributes = 64
	maxText       = 1024 // bytes
	maxName       = 256  // bytes
	maxLinks      = 16
)

// Attributes that lead from a card, a call or a namespace to the span.
const (
	namespaceKey = "writ.namespace"
	cardKey      = "writ.card"
	callKey      = "writ.call"
)

// Read turns what an emitter exported into spans to store. invalid counts those without proper ids.
func Read(batch []*tracepb.ResourceSpans, emitter string) (spans []store.Span, invalid int) {
	for _, resource := range batch {
		service := ""
		for _, kv := range resource.GetResource().GetAttributes() {
			if kv.GetKey() == "service.name" {
				service = clip(text(kv.GetValue()), maxName)
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				stored, ok := readOne(s, service, emitter)
				if !ok {
					invalid++
					continue
				}
				spans = append(spans, stored)
			}
		}
	}
	return spans, invalid
}

func readOne(s *tracepb.Span, service, emitter string) (store.Span, bool) {
	if len(s.GetTraceId()) != 16 || len(s.GetSpanId()) != 8 {
		return store.Span{}, false
	}
	start := timeOf(s.GetStartTimeUnixNano())
	out := &evidencev1.Span{
		SpanId: hex.EncodeToString(s.GetSpanId()), ParentSpanId: hex.EncodeToString(s.GetParentSpanId()),
		Name: clip(s.GetName(), maxName), Kind: kind(s.GetKind()), Service: service, Emitter: emitter,
		StartTime: timestamppb.New(start), EndTime: timestamppb.New(timeOf(s.GetEndTimeUnixNano())),
		Attributes: map[string]string{},
		Error:      s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR, StatusMessage: clip(s.GetStatus().GetMessage(), maxText),
	}
	for _, kv := range s.GetAttributes() {
		if len(out.Attributes) == maxAttributes {
			break
		}
		out.Attributes[clip(kv.GetKey(), maxName)] = clip(text(kv.GetValue()), maxText)
	}
	for _, l := range s.GetLinks() {
		if len(out.Links) < maxLinks && len(l.GetTraceId()) == 16 {
			out.Links = append(out.Links, hex.EncodeToString(l.GetTraceId()))
		}
	}
	body, err := proto.Marshal(out)
	if err != nil {
		return store.Span{}, false
	}
	return store.Span{
		TraceID: hex.EncodeToString(s.GetTraceId()), SpanID: out.GetSpanId(), Start: start, Emitter: emitter, Body: body,
		Namespace: out.Attributes[namespaceKey], Card: out.Attributes[cardKey], Call: out.Attributes[callKey],
	}, true
}

func timeOf(ns uint64) time.Time { return time.Unix(0, int64(ns&(1<<63-1))).UTC() }

func kind(k tracepb.Span_SpanKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "SPAN_KIND_"))
}

// text shows a value of any type as text; lists as JSON, maps as nothing.
func text(v *commonpb.AnyValue) string {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	case *commonpb.AnyValue_IntValue:
		return strconv.FormatInt(v.IntValue, 10)
	case *commonpb.AnyValue_DoubleValue:
		return strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)
	case *commonpb.AnyValue_BytesValue:
		return hex.EncodeToString(v.BytesValue[:min(len(v.BytesValue), maxText)])
	case *commonpb.AnyValue_ArrayValue:
		var list []string
		for _, e := range v.ArrayValue.GetValues()[:min(len(v.ArrayValue.GetValues()), maxAttributes)] {
			list = append(list, text(e))
		}
		b, err := json.Marshal(list)
		if err != nil {
			return ""
		}
		return string(b)
	}
	return ""
}

// clip makes foreign text valid UTF-8 of at most n bytes.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
		for len(s) > 0 {
			if r, size := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || size != 1 {
				break
			}
			s = s[:len(s)-1]
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
