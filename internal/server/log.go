package server

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"

	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/telemetry"
)

// maxLogged bounds an id from a request in a line of log. Bytes.
const maxLogged = 256

// record gathers what a call's one line of log says. The line names ids, never payloads or tokens.
type record struct {
	method string
	start  time.Time

	mu         sync.Mutex
	credential string
	subject    string
	namespace  string
	turn, call string
}

type recordKey struct{}

func begin(ctx context.Context, method string) (context.Context, *record) {
	if telemetry.Quiet(method) {
		ctx = telemetry.Suppress(ctx)
	}
	r := &record{method: method, start: time.Now()}
	return context.WithValue(ctx, recordKey{}, r), r
}

// note adds who calls, and which turn and call the request is about, to the line of log and to the span.
func note(ctx context.Context, req any) {
	r, ok := ctx.Value(recordKey{}).(*record)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var attrs []attribute.KeyValue // set at once: each setting of attributes copies those before it
	if id, ok := auth.FromContext(ctx); ok && r.credential == "" {
		r.credential, r.subject, r.namespace = id.Credential.ID, id.Subject.GetId(), id.Namespace()
		attrs = append(make([]attribute.KeyValue, 0, 5), telemetry.Principal.String(r.subject), telemetry.Namespace.String(r.namespace))
		if id.Delegated() {
			attrs = append(attrs, telemetry.AssertedBy.String(id.AssertedBy))
		}
	}
	if m, ok := req.(interface{ GetTurn() string }); ok && m.GetTurn() != "" {
		r.turn = bounded(m.GetTurn())
		attrs = append(attrs, telemetry.Turn.String(r.turn))
	}
	if m, ok := req.(interface{ GetCall() string }); ok && m.GetCall() != "" {
		r.call = bounded(m.GetCall())
		attrs = append(attrs, telemetry.Call.String(r.call))
	}
	if len(attrs) > 0 {
		trace.SpanFromContext(ctx).SetAttributes(attrs...)
	}
}

func bounded(id string) string {
	return strings.ToValidUTF8(id[:min(len(id), maxLogged)], "\uFFFD")
}

// finish returns what the client gets, and logs the call. Text that is hidden from the client is logged under the id
// that the client sees.
func (r *record) finish(ctx context.Context, log *slog.Logger, inner bool, err error) error {
	st, hiddenID := errs.Public(err)
	code, public := codes.OK, error(nil)
	if st != nil {
		code, public = st.Code(), st.Err()
	}
	level := levelOf(code)
	if code == codes.OK && (inner || telemetry.Quiet(r.method)) {
		level = slog.LevelDebug
	}
	if !log.Enabled(ctx, level) {
		return public
	}
	attrs := append(make([]slog.Attr, 0, 12),
		slog.String("method", strings.TrimPrefix(r.method, "/")), slog.String("code", code.String()),
		slog.Duration("duration", time.Since(r.start)))
	if id := telemetry.TraceID(ctx); id != "" {
		attrs = append(attrs, slog.String("trace", id))
	}
	attrs = append(attrs, r.attrs()...)
	if public != nil {
		attrs = append(attrs, slog.String("reason", errs.ReasonOf(public)), slog.String("message", st.Message()))
	}
	if hiddenID != "" {
		attrs = append(attrs, slog.String("id", hiddenID), slog.String("error", err.Error()))
	} else if cause := errs.Cause(err); cause != nil {
		attrs = append(attrs, slog.String("error", cause.Error()))
	}
	log.LogAttrs(ctx, level, "call", attrs...)
	return public
}

func (r *record) attrs() (attrs []slog.Attr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.credential != "" {
		attrs = append(attrs, slog.String("credential", r.credential), slog.String("subject", r.subject), slog.String("namespace", r.namespace))
	}
	if r.turn != "" {
		attrs = append(attrs, slog.String("turn", r.turn))
	}
	if r.call != "" {
		attrs = append(attrs, slog.String("call", r.call))
	}
	return attrs
}
