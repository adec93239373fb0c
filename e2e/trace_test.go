package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/writ-dev/writ/e2e/internal/stack"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	parentSpan  = "b7ad6b7169203331"
	traceparent = "00-" + traceID + "-" + parentSpan + "-01"
	unsampled   = "00-" + traceID + "-" + parentSpan + "-00"
)

// One trace id, the caller's own, from the caller through gateway, permission, registry, executor and evidence, into the
// MCP request's _meta, the child's environment, the card and the receipt (R110), sampled by the caller or not.
func TestOneTrace(t *testing.T) {
	for name, from := range map[string]string{"sampled": traceparent, "not sampled": unsampled} {
		t.Run(name, func(t *testing.T) {
			s := stack.Start(t)
			echo := addEcho(s, "echo")
			turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: s.Workspace()})
			ctx := metadata.AppendToOutgoingContext(s.Context(), "traceparent", from)

			mcp, err := s.TryCall(ctx, turn, "mcp.echo.echo", `{"text":"x"}`)
			if err != nil || mcp.Outcome.GetState() != completed {
				t.Fatalf("%v %v", err, mcp.Outcome)
			}
			command, err := s.TryCall(ctx, turn, "run_command", `{"command":"echo $TRACEPARENT"}`)
			if err != nil || command.Outcome.GetState() != completed {
				t.Fatalf("%v %v", err, command.Outcome)
			}
			for what, got := range map[string]string{
				"MCP _meta.traceparent": echo.lastTraceparent(t),
				"child's TRACEPARENT":   stdoutOf(t, command),
			} {
				if !strings.HasPrefix(got, "00-"+traceID+"-") || strings.HasPrefix(got, "00-"+traceID+"-"+parentSpan) {
					t.Errorf("%s is %q: want trace %s with a span of its own", what, got, traceID)
				}
				if flag := from[len(from)-2:]; !strings.HasSuffix(strings.TrimSpace(got), "-"+flag) {
					t.Errorf("%s is %q: the caller's sampling flag %s was not passed on", what, got, flag)
				}
			}
			for _, done := range []stack.Done{mcp, command} {
				facts, got := s.Receipt(stack.Caller, done.Outcome.GetReceipt())
				for what, id := range map[string]string{
					"call": done.TraceID, "card": done.Card.GetTraceId(), "receipt": facts.TraceID, "receipt's index": got.GetReceipt().GetTraceId(),
				} {
					if id != traceID {
						t.Errorf("%s of %s has trace %q", what, done.Name, id)
					}
				}
			}
			checkSpans(t, s, mcp, "mcp-host")
			checkSpans(t, s, command, "exec")
		})
	}
}

// checkSpans asks evidence for the trace by call, card, receipt and trace id, and wants spans of all five services, each
// hanging in the one tree under the caller's span.
func checkSpans(t *testing.T, s *stack.Stack, done stack.Done, executor string) {
	t.Helper()
	caller := s.Client(stack.Caller)
	var trace *evidencev1.GetTraceResponse
	var missing []string
	for deadline := time.Now().Add(stack.Patience); ; time.Sleep(20 * time.Millisecond) { // spans are stored a moment after they end
		got, err := caller.Traces.GetTrace(s.Context(), traceRequest(done.Name))
		trace, missing = got, incomplete(got, "evidence", executor, "gateway", "permission", "registry")
		if err == nil && len(missing) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the trace of %s: %v, missing %v", done.Name, err, missing)
		}
	}
	if trace.GetTraceId() != traceID {
		t.Errorf("trace %s", trace.GetTraceId())
	}
	for _, span := range trace.GetSpans() {
		if span.GetEmitter() == "" {
			t.Errorf("span %q of %s has no authenticated emitter", span.GetName(), span.GetService())
		}
	}
	for _, name := range []string{done.Card.GetId(), done.Outcome.GetReceipt(), traceID} {
		got, err := caller.Traces.GetTrace(s.Context(), traceRequest(name))
		if err != nil || got.GetTraceId() != traceID {
			t.Errorf("by %s: %v %v", name, got.GetTraceId(), err)
		}
	}
}

// incomplete lists the services without a span, and the spans that hang under one that nobody knows.
func incomplete(trace *evidencev1.GetTraceResponse, services ...string) (missing []string) {
	found, known := map[string]bool{}, map[string]bool{parentSpan: true}
	for _, span := range trace.GetSpans() {
		found[strings.TrimPrefix(span.GetService(), "writ-")] = true
		known[span.GetSpanId()] = true
	}
	for _, service := range services {
		if !found[service] {
			missing = append(missing, "a span of "+service)
		}
	}
	for _, span := range trace.GetSpans() {
		if !known[span.GetParentSpanId()] {
			missing = append(missing, "the parent of "+span.GetName()+" of "+span.GetService())
		}
	}
	return missing
}

func stdoutOf(t *testing.T, done stack.Done) string {
	t.Helper()
	var result struct {
		Stdout string `json:"stdout"`
	}
	if err := json.Unmarshal(done.Outcome.GetResult(), &result); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(result.Stdout)
}
