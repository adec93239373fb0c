// Package telemetry makes the traces: one tracer provider per service over shared exporters, W3C propagation, and the
// names (attrs.go).
//
// Every span is recorded for evidence, whatever the caller's sampling flag says, and handed to a Sink. What is sampled
// also goes out by OTLP where OTEL_EXPORTER_OTLP_ENDPOINT says so. The flag itself is passed on unchanged.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options of a Telemetry. The zero value records for a Sink that is attached later.
type Options struct {
	// Version of the release, for service.version.
	Version string
	// Deployment is the deployment's id, for service.namespace.
	Deployment string
	// Sink gets every span. Nil: spans wait, up to the queue's bound, until Attach.
	Sink Sink
	// Exporters get sampled spans.
	Exporters []sdktrace.SpanExporter
	// Sampler decides the flag of new traces. Nil: OTEL_TRACES_SAMPLER, or every one.
	Sampler sdktrace.Sampler
	// Logger is told about spans that are lost. Nil: slog.Default.
	Logger *slog.Logger
}

// Telemetry is what the services of one process share. Shutdown ends it.
type Telemetry struct {
	opts     Options
	evidence *evidence
	exports  []sdktrace.SpanProcessor

	mu        sync.Mutex
	providers map[string]*sdktrace.TracerProvider
}

// New starts the exporters, with OTLP where the environment names an endpoint.
func New(ctx context.Context, opts Options) (*Telemetry, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Sampler == nil {
		s, err := samplerFromEnv()
		if err != nil {
			return nil, err
		}
		opts.Sampler = s
	}
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" {
		if p := os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"); p != "" && p != "grpc" {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: spans are exported by grpc only; unset it, or point the endpoint at a collector's grpc port", p)
		}
		otlp, err := otlptracegrpc.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("OTLP exporter: %w", err)
		}
		opts.Exporters = append(opts.Exporters, otlp)
	}
	t := &Telemetry{opts: opts, evidence: newEvidence(opts.Sink, opts.Logger), providers: map[string]*sdktrace.TracerProvider{}}
	for _, e := range opts.Exporters {
		t.exports = append(t.exports, sdktrace.NewBatchSpanProcessor(e))
	}
	return t, nil
}

// Provider is the tracer provider of a service, the same one each time. Its service.name is "writ-" and the name.
func (t *Telemetry) Provider(service string) trace.TracerProvider {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, ok := t.providers[service]; ok {
		return p
	}
	p := NewProvider(service, t.opts.Sampler, t.resource(), append([]sdktrace.SpanProcessor{t.evidence}, t.exports...)...)
	t.providers[service] = p
	return p
}

func (t *Telemetry) resource() []attribute.KeyValue {
	var kv []attribute.KeyValue
	if t.opts.Version != "" {
		kv = append(kv, attribute.String("service.version", t.opts.Version))
	}
	if t.opts.Deployment != "" {
		kv = append(kv, attribute.String("service.namespace", t.opts.Deployment))
	}
	return kv
}

// Attach gives the sink that Options left out. Spans that waited go to it first.
func (t *Telemetry) Attach(s Sink) { t.evidence.attach(s) }

// Dropped counts spans that evidence did not get because the queue was full or the sink failed.
func (t *Telemetry) Dropped() uint64 { return t.evidence.dropped.Load() }

// Flush hands over everything that has ended, or fails when ctx does.
func (t *Telemetry) Flush(ctx context.Context) error {
	err := t.evidence.ForceFlush(ctx)
	for _, p := range t.exports {
		err = errors.Join(err, p.ForceFlush(ctx))
	}
	return err
}

// Shutdown flushes and ends every goroutine. Spans that end later are not recorded.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	err := t.evidence.stop(ctx)
	for _, p := range t.exports {
		err = errors.Join(err, p.Shutdown(ctx))
	}
	return err
}

// NewProvider makes a tracer provider for one service over the given processors, which it does not shut down. A nil
// sampler samples every new trace.
func NewProvider(service string, sampler sdktrace.Sampler, res []attribute.KeyValue, processors ...sdktrace.SpanProcessor) *sdktrace.TracerProvider {
	if sampler == nil {
		sampler = sdktrace.ParentBased(sdktrace.AlwaysSample())
	}
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = 4096
	opts := []sdktrace.TracerProviderOption{
		sdktrace.WithSampler(recordAll{sampler}),
		sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithResource(resource.NewSchemaless(append(res, attribute.String("service.name", "writ-"+service))...)),
	}
	for _, p := range processors {
		opts = append(opts, sdktrace.WithSpanProcessor(p))
	}
	return sdktrace.NewTracerProvider(opts...)
}

// recordAll records what its inner sampler would drop, without the flag.
type recordAll struct{ inner sdktrace.Sampler }

func (r recordAll) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	res := r.inner.ShouldSample(p)
	if res.Decision == sdktrace.Drop {
		res.Decision = sdktrace.RecordOnly
	}
	return res
}

func (r recordAll) Description() string { return "RecordAll{" + r.inner.Description() + "}" }

func samplerFromEnv() (sdktrace.Sampler, error) {
	ratio := 1.0
	if arg := os.Getenv("OTEL_TRACES_SAMPLER_ARG"); arg != "" {
		r, err := strconv.ParseFloat(arg, 64)
		if err != nil || r < 0 || r > 1 {
			return nil, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q: a number from 0 to 1 is needed", arg)
		}
		ratio = r
	}
	switch name := os.Getenv("OTEL_TRACES_SAMPLER"); name {
	case "", "parentbased_always_on":
		return sdktrace.ParentBased(sdktrace.AlwaysSample()), nil
	case "parentbased_always_off":
		return sdktrace.ParentBased(sdktrace.NeverSample()), nil
	case "parentbased_traceidratio":
		return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio)), nil
	case "always_on":
		return sdktrace.AlwaysSample(), nil
	case "always_off":
		return sdktrace.NeverSample(), nil
	case "traceidratio":
		return sdktrace.TraceIDRatioBased(ratio), nil
	default:
		return nil, fmt.Errorf("OTEL_TRACES_SAMPLER is %q: the names of OpenTelemetry are always_on, always_off, traceidratio and the same after parentbased_", name)
	}
}

// exportTimeout bounds one hand-over to a sink.
const exportTimeout = 5 * time.Second
