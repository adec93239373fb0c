package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// Bounds of the way to evidence.
const (
	queueSpans  = 4096                   // ended spans that wait; more are dropped and counted
	batchSpans  = 512                    // spans in one hand-over
	batchBytes  = 2 << 20                // and their encoded size, below gRPC's limit
	gatherDelay = 100 * time.Millisecond // how long a batch gathers
)

// Sink takes spans in OTLP's own form: evidence-svc, over whatever way leads to it.
type Sink interface {
	Export(ctx context.Context, spans []*tracepb.ResourceSpans) error
}

// ServiceSink is a Sink that sends to an OTLP trace service.
func ServiceSink(c coltracepb.TraceServiceClient) Sink { return serviceSink{c} }

type serviceSink struct{ client coltracepb.TraceServiceClient }

func (s serviceSink) Export(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	_, err := s.client.Export(ctx, &coltracepb.ExportTraceServiceRequest{ResourceSpans: spans})
	return err
}

// evidence is the span processor that hands every ended span to the sink. It never makes a caller wait.
type evidence struct {
	queue    chan sdktrace.ReadOnlySpan
	full     chan struct{} // a batch is together before its time
	flush    chan chan struct{}
	attached chan Sink
	stopping chan struct{}
	stopped  chan struct{}
	once     sync.Once
	closed   atomic.Bool
	dropped  atomic.Uint64
	log      *slog.Logger
}

func newEvidence(sink Sink, log *slog.Logger) *evidence {
	e := &evidence{
		queue: make(chan sdktrace.ReadOnlySpan, queueSpans), full: make(chan struct{}, 1), flush: make(chan chan struct{}),
		attached: make(chan Sink, 1), stopping: make(chan struct{}), stopped: make(chan struct{}), log: log,
	}
	go e.run(sink)
	return e
}

func (e *evidence) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd queues a span, sampled or not.
func (e *evidence) OnEnd(s sdktrace.ReadOnlySpan) {
	if e.closed.Load() {
		return
	}
	select {
	case e.queue <- s:
	default:
		e.dropped.Add(1)
	}
	if len(e.queue) >= batchSpans {
		select {
		case e.full <- struct{}{}:
		default:
		}
	}
}

// Shutdown does nothing: the queue is shared by the providers of all services, and Telemetry ends it.
func (e *evidence) Shutdown(context.Context) error { return nil }

// ForceFlush returns when all that ended before is handed over, or when ctx ends. Without a sink there is nothing to do.
func (e *evidence) ForceFlush(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case e.flush <- done:
	case <-e.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *evidence) attach(s Sink) {
	select {
	case e.attached <- s:
	case <-e.stopped:
	}
}

func (e *evidence) stop(ctx context.Context) error {
	e.closed.Store(true)
	e.once.Do(func() { close(e.stopping) })
	select {
	case <-e.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run gathers and hands over. Until a sink is there it leaves the spans in the queue.
func (e *evidence) run(sink Sink) {
	defer close(e.stopped)
	for {
		queue := e.queue
		if sink == nil {
			queue = nil
		}
		select {
		case s := <-queue:
			batch, waiting := e.gather(s)
			e.export(sink, batch)
			if waiting != nil {
				e.drain(sink)
				close(waiting)
			}
		case sink = <-e.attached:
		case done := <-e.flush:
			e.drain(sink)
			close(done)
		case <-e.stopping:
			select {
			case sink = <-e.attached:
			default:
			}
			e.drain(sink)
			return
		}
	}
}

// gather waits a moment for more spans, so that one hand-over carries many. They lie in the queue meanwhile: receiving
// each as it comes would wake this goroutine for every span of every call. A flush cuts the wait short; whoever asked for
// it is answered when the batch and what is queued behind it are out.
func (e *evidence) gather(first sdktrace.ReadOnlySpan) (batch []sdktrace.ReadOnlySpan, waiting chan struct{}) {
	timer := time.NewTimer(gatherDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.full:
	case waiting = <-e.flush:
	case <-e.stopping:
	}
	return e.take([]sdktrace.ReadOnlySpan{first}), waiting
}

// take adds what is queued, until the batch is full.
func (e *evidence) take(batch []sdktrace.ReadOnlySpan) []sdktrace.ReadOnlySpan {
	for len(batch) < batchSpans {
		select {
		case s := <-e.queue:
			batch = append(batch, s)
		default:
			return batch
		}
	}
	return batch
}

func (e *evidence) drain(sink Sink) {
	if sink == nil {
		return
	}
	for {
		batch := e.take(nil)
		if len(batch) == 0 {
			return
		}
		e.export(sink, batch)
	}
}

func (e *evidence) export(sink Sink, batch []sdktrace.ReadOnlySpan) {
	for _, part := range split(batch, batchBytes) {
		ctx, cancel := context.WithTimeout(Suppress(context.Background()), exportTimeout)
		err := sink.Export(ctx, part.spans)
		cancel()
		if err != nil {
			lost := e.dropped.Add(uint64(part.count))
			e.log.Warn("spans did not reach evidence", "spans", part.count, "lost_so_far", lost, "error", err)
		}
	}
}
