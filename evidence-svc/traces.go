package evidence

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/writ-dev/writ/evidence-svc/internal/claim"
	"github.com/writ-dev/writ/evidence-svc/internal/span"
	"github.com/writ-dev/writ/evidence-svc/internal/store"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/receipt"
)

// Bounds of the trace store.
const (
	spanBatch      = 512                    // spans in one commit
	spanDelay      = 100 * time.Millisecond // how long a span waits for company
	droppedTraces  = 1024                   // traces whose dropped spans are told apart
	namesPerTrace  = 64
	receiptsLooked = 100 // receipts of a trace that are looked at for one of the caller's
)

// spanQueue stands between who sends spans and the disk. Nobody waits for it: what doesn't fit is dropped and counted.
type spanQueue struct {
	server *Server
	traces *store.Traces
	queue  chan store.Span
	lost   atomic.Int64 // spans that were dropped, for the log

	mu      sync.Mutex
	dropped map[string]int64 // by trace, since the last commit
}

func (s *Server) openSpans(ctx context.Context, path string) (*spanQueue, error) {
	traces, err := store.OpenTraces(ctx, path, store.TraceLimits{
		SpansPerTrace: int(s.limits.TraceSpansMax), Traces: int(s.limits.TracesMax), NamesPerTrace: namesPerTrace,
	})
	if err != nil {
		return nil, err
	}
	return &spanQueue{server: s, traces: traces, queue: make(chan store.Span, s.limits.TraceQueueMax), dropped: map[string]int64{}}, nil
}

func (q *spanQueue) add(sp store.Span) {
	select {
	case q.queue <- sp:
	default:
		q.drop(sp.TraceID, 1)
	}
}

func (q *spanQueue) drop(traceID string, n int64) {
	q.lost.Add(n)
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, known := q.dropped[traceID]; known || len(q.dropped) < droppedTraces {
		q.dropped[traceID] += n
	}
}

// run stores what comes until ctx ends.
func (q *spanQueue) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-q.queue:
			q.store(ctx, q.gather(ctx, first))
		}
	}
}

// gather waits a little for more, so that the spans of a call share a commit.
func (q *spanQueue) gather(ctx context.Context, first store.Span) []store.Span {
	batch := []store.Span{first}
	timer := time.NewTimer(spanDelay)
	defer timer.Stop()
	for len(batch) < spanBatch {
		select {
		case sp := <-q.queue:
			batch = append(batch, sp)
		case <-timer.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

func (q *spanQueue) store(ctx context.Context, batch []store.Span) {
	q.mu.Lock()
	dropped := q.dropped
	q.dropped = map[string]int64{}
	q.mu.Unlock()
	// A batch that was taken is stored also when the server stops.
	if err := q.traces.Put(context.WithoutCancel(ctx), batch, dropped, q.server.now()); err != nil {
		for _, sp := range batch {
			q.drop(sp.TraceID, 1)
		}
		q.server.log.Warn("spans were lost", "spans", len(batch), "lost_in_all", q.lost.Load(), "error", err)
	}
}

// flush stores what is queued.
func (q *spanQueue) flush(ctx context.Context) {
	for {
		select {
		case first := <-q.queue:
			batch := []store.Span{first}
			for len(batch) < spanBatch && len(q.queue) > 0 {
				batch = append(batch, <-q.queue)
			}
			q.store(ctx, batch)
		default:
			return
		}
	}
}

// collector is OpenTelemetry's service, whose method names would collide with ours on one type.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	server *Server
}

// Export queues the spans and answers at once. Only who may not send is refused; a span that can't be kept is counted.
func (c collector) Export(ctx context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	id, ok := auth.FromContext(ctx)
	if !ok || !id.Credential.Has(commonv1.Role_ROLE_SERVICE) {
		return nil, errs.New(codes.PermissionDenied, commonv1.ErrorReason_ERROR_REASON_ACCESS_DENIED, collectorpb.TraceService_Export_FullMethodName,
			"only services send spans", "Send them to your own collector.", "needs", "service")
	}
	spans, invalid := span.Read(req.GetResourceSpans(), id.Peer.GetId())
	for _, sp := range spans {
		c.server.spans.add(sp)
	}
	answer := &collectorpb.ExportTraceServiceResponse{}
	if invalid > 0 {
		answer.PartialSuccess = &collectorpb.ExportTracePartialSuccess{
			RejectedSpans: int64(invalid), ErrorMessage: "spans without a trace id of 16 and a span id of 8 bytes",
		}
	}
	return answer, nil
}

// GetTrace implements TraceService.
func (s *Server) GetTrace(ctx context.Context, req *evidencev1.GetTraceRequest) (*evidencev1.GetTraceResponse, error) {
	v, err := viewerOf(ctx)
	if err != nil {
		return nil, err
	}
	missing := notFound(evidencev1.ErrorReason_ERROR_REASON_TRACE_NOT_FOUND, "trace", req.GetName())
	id, err := s.traceID(ctx, v, req.GetName())
	if err == nil && id == "" || errors.Is(err, store.ErrNotFound) {
		return nil, missing
	}
	if err != nil {
		return nil, storeError(err)
	}
	spans, dropped, known, err := s.spans.traces.Find(ctx, id)
	if err != nil {
		return nil, storeError(err)
	}
	visible, err := s.seesTrace(ctx, v, id, spans)
	if err != nil {
		return nil, storeError(err)
	}
	if !visible || !known {
		return nil, missing
	}
	return traceMessage(id, v.spans(spans), dropped)
}

// spans leaves out what names another namespace: two tenants may send the same trace id.
func (v viewer) spans(all []store.Span) []store.Span {
	if v.namespace == "" {
		return all
	}
	return slices.DeleteFunc(all, func(sp store.Span) bool { return sp.Namespace != "" && sp.Namespace != v.namespace })
}

// traceID finds the trace that a receipt, card or call belongs to.
func (s *Server) traceID(ctx context.Context, v viewer, name string) (string, error) {
	switch {
	case strings.HasPrefix(name, "r_"):
		r, err := s.store.Receipt(ctx, name)
		return r.TraceID, err
	case strings.HasPrefix(name, "k_"):
		list, err := s.store.ReceiptsOf(ctx, "card", name, 1)
		if err == nil && len(list) > 0 {
			return list[0].TraceID, nil
		}
		if err != nil {
			return "", err
		}
	case strings.HasPrefix(name, "turns/"):
		if e := s.book.Get(claim.Key{Namespace: v.namespace, Call: name}); e != nil {
			return receipt.TraceID(e.Claims.Trace), nil
		}
		r, err := s.store.ReceiptOfCall(ctx, v.namespace, name)
		if err == nil && r.TraceID != "" {
			return r.TraceID, nil
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return "", err
		}
	default:
		return strings.ToLower(name), nil
	}
	return s.spans.traces.Named(ctx, name, v.namespace)
}

// seesTrace: a service sees every trace that its credential's namespace is part of, an approver or operator those of
// the namespace, a caller those with a receipt or a running call of its own. A span's own word about its namespace
// counts for approvers only, who see no more by it than names and times.
func (s *Server) seesTrace(ctx context.Context, v viewer, id string, spans []store.Span) (bool, error) {
	if v.service && v.namespace == "" {
		return true, nil
	}
	receipts, err := s.store.ReceiptsOf(ctx, "trace", id, receiptsLooked)
	if err != nil {
		return false, err
	}
	for _, r := range receipts {
		if v.sees(r.Namespace, r.Principal) {
			return true, nil
		}
	}
	if s.book.OfTrace(id, func(e *claim.Entry) bool { return v.sees(e.Namespace, e.Claims.Subject.ID) }) {
		return true, nil
	}
	if v.principal == "" && len(receipts) == 0 {
		for _, sp := range spans {
			if sp.Namespace == v.namespace {
				return true, nil
			}
		}
	}
	return false, nil
}

// traceBytes keeps an answer below gRPC's message limit.
const traceBytes = 3 << 20

func traceMessage(id string, spans []store.Span, dropped int64) (*evidencev1.GetTraceResponse, error) {
	answer := &evidencev1.GetTraceResponse{TraceId: id, Dropped: dropped}
	size := 0
	for _, sp := range spans {
		if size += len(sp.Body); size > traceBytes {
			answer.Dropped++
			continue
		}
		m := &evidencev1.Span{}
		if err := proto.Unmarshal(sp.Body, m); err != nil {
			return nil, err
		}
		answer.Spans = append(answer.Spans, m)
	}
	return answer, nil
}
