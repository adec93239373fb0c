package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/writ-dev/writ/e2e/internal/stack"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/errs"
)

func mustTool(t testing.TB, turn *registryv1.Turn, id string) *registryv1.TurnTool {
	t.Helper()
	tool := stack.Tool(turn, id)
	if tool == nil {
		var all []string
		for _, tool := range turn.GetTools() {
			all = append(all, tool.GetTool().GetIdentity().GetTool())
		}
		t.Fatalf("turn %s has no %s, but %v; problems %v", turn.GetId(), id, all, turn.GetProblems())
	}
	return tool
}

// wantReason checks an error of the contract: its reason, and that it says what to do next.
func wantReason(t *testing.T, what string, err error, reasons ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: allowed", what)
		return
	}
	got := errs.ReasonOf(err)
	for _, r := range reasons {
		if r == got {
			if errs.Metadata(err)["next"] == "" {
				t.Errorf("%s: %s does not say what to do next: %v", what, got, err)
			}
			return
		}
	}
	t.Errorf("%s: %v (%s), want %v", what, err, got, reasons)
}

// askFor makes a call of run_command that raises a card, and detaches: the call goes on waiting for a person.
func askFor(t *testing.T, s *stack.Stack, turn *registryv1.Turn, arguments string) *permissionv1.Card {
	t.Helper()
	return askForTool(t, s, &gatewayv1.CallToolRequest{Turn: turn.GetId(), Tool: "run_command", Arguments: []byte(arguments)})
}

func askForTool(t *testing.T, s *stack.Stack, req *gatewayv1.CallToolRequest) *permissionv1.Card {
	t.Helper()
	ctx, detach := context.WithCancel(s.Context())
	defer detach()
	done, err := s.Client(stack.Caller).Call(ctx, req, func(e *gatewayv1.CallEvent) {
		if e.GetCard() != nil {
			detach()
		}
	})
	if done.Card == nil {
		t.Fatalf("no card: %v %v", err, done.Outcome)
	}
	return done.Card
}

func receiptRequest(name string) *evidencev1.GetReceiptRequest {
	return &evidencev1.GetReceiptRequest{Name: name, WithOpening: true}
}

func traceRequest(name string) *evidencev1.GetTraceRequest {
	return &evidencev1.GetTraceRequest{Name: name}
}

// waitFor polls until a condition holds, and says what it was about when it does not.
func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(stack.Patience); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", stack.Patience, what)
		}
	}
}
