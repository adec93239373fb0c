package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/telemetry"
	"github.com/writ-dev/writ/internal/testkit"
)

const (
	traceID   = "4bf92f3577b34da6a3ce929d0e0e4736"
	unsampled = "00-" + traceID + "-00f067aa0ba902b7-00"
	sampled   = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// A span of an unsampled trace reaches evidence and nobody else; a sampled one reaches both. The flag goes on unchanged.
func TestEvidenceGetsEverySpan(t *testing.T) {
	for parent, exported := range map[string]int{unsampled: 0, sampled: 1} {
		sink, otlp := testkit.NewSink(t), tracetest.NewInMemoryExporter()
		tel, err := telemetry.New(t.Context(), telemetry.Options{Sink: sink, Exporters: []sdktrace.SpanExporter{otlp}, Logger: testkit.Quiet()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, span := telemetry.Start(telemetry.WithTraceparent(t.Context(), parent, "a=b"), tel.Provider("exec").Tracer("t"), telemetry.SpanRun)
		got, state := telemetry.Traceparent(ctx)
		if got[len(got)-2:] != parent[len(parent)-2:] || state != "a=b" || telemetry.TraceID(ctx) != traceID {
			t.Errorf("passed on %s %s", got, state)
		}
		telemetry.End(span, nil)
		if err := tel.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(otlp.GetSpans()); n != exported {
			t.Errorf("flag %s: %d exported", parent[len(parent)-2:], n)
		}
		if err := tel.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		spans := sink.Spans(t)
		if len(spans) != 1 || spans[0].Service != "writ-exec" || spans[0].GetName() != telemetry.SpanRun {
			t.Fatalf("evidence got %v", spans)
		}
	}
}

// What evidence stores is what the span said, in OTLP's form.
func TestSpansKeepWhatTheySay(t *testing.T) {
	sink := testkit.NewSink(t)
	link, ok := telemetry.LinkTo(sampled, "")
	if !ok {
		t.Fatal("no link")
	}
	ctx := telemetry.WithTraceparent(t.Context(), unsampled, "")
	_, span := sink.Provider("registry").Tracer("scope", trace.WithInstrumentationVersion("1")).Start(ctx, "n",
		trace.WithSpanKind(trace.SpanKindClient), trace.WithLinks(link), trace.WithAttributes(
			telemetry.Tool.String("bad\xff"), attribute.Int64("i", 9007199254740993), attribute.Bool("b", true),
			attribute.Float64("f", 0.5), attribute.StringSlice("s", []string{"x", "y"})))
	span.AddEvent("e", trace.WithAttributes(attribute.Int("n", 1)))
	telemetry.End(span, errs.New(codes.NotFound, commonv1.ErrorReason_ERROR_REASON_FIELD_INVALID, "secret name", "secret text", ""))
	got := sink.Spans(t)[0]
	if fmt.Sprintf("%x", got.GetTraceId()) != traceID || fmt.Sprintf("%x", got.GetParentSpanId()) != "00f067aa0ba902b7" || got.GetKind() != tracepb.Span_SPAN_KIND_CLIENT {
		t.Errorf("%v", got)
	}
	if got.GetFlags() != uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK|tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK) {
		t.Errorf("flags %x", got.GetFlags())
	}
	if len(got.GetLinks()) != 1 || len(got.GetEvents()) != 1 || got.GetEndTimeUnixNano() < got.GetStartTimeUnixNano() {
		t.Errorf("%v", got)
	}
	if got.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || got.Attr("writ.reason") != "FIELD_INVALID" || got.GetStatus().GetMessage() != "FIELD_INVALID" {
		t.Errorf("an error is its reason: %v", got.GetStatus())
	}
	values := map[string]*commonpb.AnyValue{}
	for _, kv := range got.GetAttributes() {
		values[kv.GetKey()] = kv.GetValue()
	}
	if values["i"].GetIntValue() != 9007199254740993 || !values["b"].GetBoolValue() || values["f"].GetDoubleValue() != 0.5 ||
		len(values["s"].GetArrayValue().GetValues()) != 2 || values["writ.tool"].GetStringValue() != "bad\uFFFD" {
		t.Errorf("%v", values)
	}
	if _, err := proto.Marshal(got.Span); err != nil {
		t.Errorf("can't be sent: %v", err)
	}
}

// slow is a sink that blocks until it is let go.
type slow struct {
	release chan struct{}
	mu      sync.Mutex
	got     int
	largest int
}

func (s *slow) Export(_ context.Context, rs []*tracepb.ResourceSpans) error {
	<-s.release
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rs {
		s.largest = max(s.largest, proto.Size(r))
		for _, scope := range r.GetScopeSpans() {
			s.got += len(scope.GetSpans())
		}
	}
	return nil
}

// A sink that hangs makes nobody wait: the queue is bounded and what does not fit is counted.
func TestASlowSinkNeverBlocks(t *testing.T) {
	testkit.NoLeaks(t)
	s := &slow{release: make(chan struct{})}
	tel, err := telemetry.New(t.Context(), telemetry.Options{Sink: s, Logger: testkit.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	tracer := tel.Provider("exec").Tracer("t")
	const n = 8000
	for range n {
		_, span := tracer.Start(t.Context(), "s")
		span.End()
	}
	if tel.Dropped() == 0 {
		t.Error("nothing was dropped")
	}
	close(s.release)
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.got+int(tel.Dropped()) != n {
		t.Errorf("%d arrived, %d dropped, of %d", s.got, tel.Dropped(), n)
	}
	_, late := tracer.Start(t.Context(), "late")
	late.End()
}

// Large spans travel in requests that gRPC takes.
func TestHandOversAreBounded(t *testing.T) {
	s := &slow{release: make(chan struct{})}
	close(s.release)
	tel, err := telemetry.New(t.Context(), telemetry.Options{Sink: s, Logger: testkit.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	big := string(make([]byte, 100_000)) // cut to 4 KiB by the limits
	for range 400 {
		_, span := tel.Provider("exec").Tracer("t").Start(t.Context(), "s")
		for i := range 8 {
			span.SetAttributes(attribute.String(fmt.Sprint(i), big))
		}
		span.End()
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.got != 400 || s.largest > 3<<20 {
		t.Errorf("%d spans, the largest hand-over has %d bytes", s.got, s.largest)
	}
}

type broken struct{}

func (broken) Export(context.Context, []*tracepb.ResourceSpans) error { return errors.New("down") }

func TestLostSpansAreCounted(t *testing.T) {
	tel, err := telemetry.New(t.Context(), telemetry.Options{Sink: broken{}, Logger: testkit.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	_, span := tel.Provider("exec").Tracer("t").Start(t.Context(), "s")
	span.End()
	if err := tel.Flush(t.Context()); err != nil || tel.Dropped() != 1 {
		t.Errorf("%v, %d dropped", err, tel.Dropped())
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// Spans that end before evidence is up wait for it.
func TestASinkMayComeLater(t *testing.T) {
	testkit.NoLeaks(t)
	tel, err := telemetry.New(t.Context(), telemetry.Options{Logger: testkit.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	_, span := tel.Provider("gateway").Tracer("t").Start(t.Context(), "early")
	span.End()
	s := &slow{release: make(chan struct{})}
	close(s.release)
	tel.Attach(s)
	testkit.WaitFor(t, 5*time.Second, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.got == 1
	})
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// What hands spans over makes none.
func TestSuppressedWorkLeavesNoSpan(t *testing.T) {
	sink := testkit.NewSink(t)
	ctx, span := telemetry.Start(telemetry.Suppress(t.Context()), sink.Provider("exec").Tracer("t"), "n")
	telemetry.End(span, errors.New("x"))
	if telemetry.TraceID(ctx) != "" || len(sink.Spans(t)) != 0 {
		t.Error("a span was made")
	}
	if !telemetry.Quiet("/opentelemetry.proto.collector.trace.v1.TraceService/Export") || telemetry.Quiet("/writ.evidence.v1.TraceService/GetTrace") {
		t.Error("Quiet")
	}
}

func TestAForgedTraceparentIsIgnored(t *testing.T) {
	for _, tp := range []string{"", "00-0-0-01", "00-" + "00000000000000000000000000000000" + "-00f067aa0ba902b7-01", "garbage\x00"} {
		if id := telemetry.TraceID(telemetry.WithTraceparent(t.Context(), tp, "")); id != "" {
			t.Errorf("%q is taken for trace %s", tp, id)
		}
		if _, ok := telemetry.LinkTo(tp, ""); ok {
			t.Errorf("%q is linked", tp)
		}
	}
}

// collector is an OTLP backend.
type collector struct {
	coltracepb.UnimplementedTraceServiceServer
	names chan string
}

func (c *collector) Export(_ context.Context, r *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	c.names <- r.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0].GetName()
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

// A collector is one setting away (R110).
func TestOTLPByTheStandardVariable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	backend, c := grpc.NewServer(), &collector{names: make(chan string, 1)}
	coltracepb.RegisterTraceServiceServer(backend, c)
	go backend.Serve(l)
	t.Cleanup(backend.Stop)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	tel, err := telemetry.New(t.Context(), telemetry.Options{Logger: testkit.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	_, span := tel.Provider("exec").Tracer("t").Start(t.Context(), "over the wire")
	span.End()
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-c.names; got != "over the wire" {
		t.Error(got)
	}
}

func TestWrongTelemetrySettingsAreErrors(t *testing.T) {
	for name, value := range map[string]string{"OTEL_TRACES_SAMPLER": "sometimes", "OTEL_TRACES_SAMPLER_ARG": "7"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if _, err := telemetry.New(t.Context(), telemetry.Options{Logger: testkit.Quiet()}); err == nil {
				t.Error("accepted")
			}
		})
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	if _, err := telemetry.New(t.Context(), telemetry.Options{Logger: testkit.Quiet()}); err == nil {
		t.Error("a protocol that is not spoken is accepted")
	}
}
