package evidence_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/writ-dev/writ/clients/go/writtoken"
	evidence "github.com/writ-dev/writ/evidence-svc"
	"github.com/writ-dev/writ/evidence-svc/evidencetest"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/testkit"
)

func attr(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

// export sends n spans of a trace as a service.
func export(t testing.TB, s *evidencetest.Server, service, traceID string, n int, attrs ...*commonpb.KeyValue) {
	t.Helper()
	id, err := hex.DecodeString(traceID)
	if err != nil {
		t.Fatal(err)
	}
	var spans []*tracepb.Span
	for i := range n {
		at := uint64(time.Now().UnixNano()) + uint64(i)
		spans = append(spans, &tracepb.Span{
			TraceId: id, SpanId: fmt.Appendf(nil, "%08d", i), Name: "tools/call x", Kind: tracepb.Span_SPAN_KIND_CLIENT,
			StartTimeUnixNano: at, EndTimeUnixNano: at + 1000, Attributes: attrs, Status: &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "m"},
		})
	}
	_, err = collectorpb.NewTraceServiceClient(s.As(service)).Export(t.Context(), &collectorpb.ExportTraceServiceRequest{
		ResourceSpans: []*tracepb.ResourceSpans{{
			Resource:   &resourcepb.Resource{Attributes: []*commonpb.KeyValue{attr("service.name", "claimed-name")}},
			ScopeSpans: []*tracepb.ScopeSpans{{Spans: spans}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryNameLeadsToTheTrace(t *testing.T) { // R110
	s := tenants(t)
	c := newCall(t, func(c *writtoken.Claims) { c.Decision.Cause, c.Decision.Card = "card", "k_card" })
	r := run(t, s, c)
	id := receipt.TraceID(c.claims.Trace)
	export(t, s, "gateway", id, 3, attr("writ.call", c.name), attr("writ.card", "k_card"), attr("writ.namespace", "default"))
	export(t, s, "exec", id, 1)
	trace := func(token, name string) (*evidencev1.GetTraceResponse, error) {
		return evidencev1.NewTraceServiceClient(s.Channel.WithToken(token)).GetTrace(t.Context(), &evidencev1.GetTraceRequest{Name: name})
	}
	testkit.WaitFor(t, 5*time.Second, func() bool { got, err := trace("caller", id); return err == nil && len(got.GetSpans()) == 4 })
	for _, name := range []string{id, r.GetId(), "k_card", c.name} {
		got, err := trace("caller", name)
		if err != nil || got.GetTraceId() != id {
			t.Fatalf("%s: %v %v", name, got, err)
		}
		emitters := map[string]int{}
		for _, sp := range got.GetSpans() {
			emitters[sp.GetEmitter()]++
			if sp.GetService() != "claimed-name" || !sp.GetError() || sp.GetKind() != "client" {
				t.Errorf("span %v", sp)
			}
		}
		if emitters["gateway"] != 3 || emitters["exec"] != 1 {
			t.Errorf("emitters %v", emitters)
		}
		for _, token := range []string{"mate", "stranger", "boss"} {
			_, err := trace(token, name)
			wantReason(t, err, "TRACE_NOT_FOUND")
		}
		if _, err := trace("approver", name); err != nil {
			t.Error(err)
		}
	}
}

func TestATraceIsSeenWhileItsCallRuns(t *testing.T) { // R110
	s := start(t)
	c := newCall(t, nil)
	claimed(t, s, c)
	id := receipt.TraceID(c.claims.Trace)
	export(t, s, "exec", id, 1)
	client := evidencev1.NewTraceServiceClient(s.Channel.WithToken("caller"))
	testkit.WaitFor(t, 5*time.Second, func() bool {
		got, err := client.GetTrace(t.Context(), &evidencev1.GetTraceRequest{Name: c.name})
		return err == nil && len(got.GetSpans()) == 1
	})
}

func TestTwoTenantsWithOneTraceIDSeeTheirOwnSpans(t *testing.T) {
	s := tenants(t)
	id := strings.Repeat("5a", 16)
	same := func(ns, who string) func(*writtoken.Claims) {
		return func(c *writtoken.Claims) {
			c.Trace, c.Namespace, c.Subject.ID = "00-"+id+"-00f067aa0ba902b7-01", ns, who
		}
	}
	run(t, s, newCall(t, same("default", "caller")))
	run(t, s, newCall(t, same("other", "stranger")))
	export(t, s, "exec", id, 2, attr("writ.namespace", "default"))
	export(t, s, "mcp-host", id, 3, attr("writ.namespace", "other"))
	for token, want := range map[string]int{"caller": 2, "stranger": 3} {
		client := evidencev1.NewTraceServiceClient(s.Channel.WithToken(token))
		testkit.WaitFor(t, 5*time.Second, func() bool {
			got, err := client.GetTrace(t.Context(), &evidencev1.GetTraceRequest{Name: id})
			return err == nil && len(got.GetSpans()) == want
		})
	}
}

func TestSpansOverTheBoundAreCounted(t *testing.T) { // R110
	s := evidencetest.New(t, evidence.Config{Limits: evidence.Limits{TraceSpansMax: 10, TraceQueueMax: 64}}, nil)
	c := newCall(t, nil)
	run(t, s, c)
	id := receipt.TraceID(c.claims.Trace)
	export(t, s, "exec", id, 500)
	client := evidencev1.NewTraceServiceClient(s.Channel.WithToken("caller"))
	var got *evidencev1.GetTraceResponse
	testkit.WaitFor(t, 5*time.Second, func() bool {
		// Spans that the queue dropped are told with the next that is stored.
		export(t, s, "gateway", id, 1)
		var err error
		got, err = client.GetTrace(t.Context(), &evidencev1.GetTraceRequest{Name: id})
		return err == nil && got.GetDropped() >= 490
	})
	if len(got.GetSpans()) != 10 {
		t.Errorf("%d spans", len(got.GetSpans()))
	}
}

func TestOnlyServicesSendSpans(t *testing.T) {
	s := start(t)
	_, err := collectorpb.NewTraceServiceClient(s.Channel.WithToken("caller")).Export(t.Context(), &collectorpb.ExportTraceServiceRequest{})
	wantReason(t, err, "ACCESS_DENIED")
}
