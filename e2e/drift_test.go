package e2e

import (
	"strings"
	"testing"

	"github.com/writ-dev/writ/e2e/internal/stack"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
)

// A server that changes a tool's schema within a turn: the call is refused before a byte of it reaches the server, with both
// fingerprints; the next turn shows the new contract, and what a person granted for the old one does not hold (R32, Trust 4).
func TestASchemaThatChangesInATurn(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	e := newEcho(t)
	s.AddConnector("hostile", stack.Program(t, "hostile-server"), "-record", e.lines)
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Conversation: "t-1"})
	seen := mustTool(t, turn, "mcp.hostile.weather").GetTool().GetIdentity().GetWireFingerprint()

	card := askForTool(t, s, &gatewayv1.CallToolRequest{Turn: turn.GetId(), Tool: "mcp.hostile.weather", Arguments: []byte(`{"city":"Oslo"}`)})
	if s.Approve(card.GetId(), permissionv1.Lifetime_LIFETIME_CONVERSATION).GetGrant() == "" {
		t.Fatal("no grant")
	}
	waitEnded(t, s, "turns/"+turn.GetId()+"/calls/"+card.GetCall())
	waiting := askForTool(t, s, &gatewayv1.CallToolRequest{Turn: turn.GetId(), Tool: "mcp.hostile.change"})
	s.Approve(waiting.GetId(), permissionv1.Lifetime_LIFETIME_ONCE)
	waitEnded(t, s, "turns/"+turn.GetId()+"/calls/"+waiting.GetCall())

	done, err := s.Client(stack.Caller).Call(s.Context(), &gatewayv1.CallToolRequest{Turn: turn.GetId(), Tool: "mcp.hostile.weather", Arguments: []byte(`{"city":"Bergen"}`)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	info := stack.Info(done.Outcome)
	if done.Outcome.GetState() != commonv1.OutcomeState_OUTCOME_STATE_REFUSED || info.GetReason() != "FINGERPRINT_CHANGED" {
		t.Fatalf("%v %v", done.Outcome.GetState(), done.Outcome.GetStatus())
	}
	if strings.Contains(e.record(), "Bergen") {
		t.Errorf("the call reached the server:\n%s", e.record())
	}
	if facts, _ := s.Receipt(stack.Caller, done.Outcome.GetReceipt()); facts.State != commonv1.OutcomeState_OUTCOME_STATE_REFUSED || facts.Reason != "FINGERPRINT_CHANGED" {
		t.Errorf("the receipt says %v %s", facts.State, facts.Reason)
	}

	next := s.OpenTurn(&registryv1.OpenTurnRequest{Conversation: "t-1"})
	now := mustTool(t, next, "mcp.hostile.weather").GetTool().GetIdentity().GetWireFingerprint()
	meta := info.GetMetadata()
	if now == seen || !strings.HasPrefix(seen, trimDots(meta["seen"])) || !strings.HasPrefix(now, trimDots(meta["now"])) || meta["seen"] == "" || meta["now"] == "" || meta["next"] == "" {
		t.Errorf("seen %s, now %s; the error says %v", seen, now, meta)
	}
	asked := askForTool(t, s, &gatewayv1.CallToolRequest{Turn: next.GetId(), Tool: "mcp.hostile.weather", Arguments: []byte(`{"city":"Bergen"}`)})
	if asked.GetState() != permissionv1.CardState_CARD_STATE_PENDING {
		t.Errorf("the grant for the old contract was used for the new one: %v", asked)
	}
}

func trimDots(s string) string { return strings.TrimSuffix(s, "…") }

// A provider that an operator replaces within a turn: the turn's tools are of the old one, and don't run on the new one.
func TestAProviderThatIsReplacedInATurn(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	addEcho(s, "echo")
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{})
	if _, err := s.Client(stack.Approver).Connectors.DeleteConnector(s.Context(), &registryv1.DeleteConnectorRequest{Name: "echo"}); err != nil {
		t.Fatal(err)
	}
	second := newEcho(t)
	s.AddConnector("echo", stack.Program(t, "echo-server"), second.args()...)
	done, err := s.TryCall(s.Context(), turn, "mcp.echo.append_note", second.arguments("on the new one"))
	if err != nil {
		t.Fatal(err)
	}
	if state := done.Outcome.GetState(); state == completed || second.count("on the new one") != 0 {
		t.Errorf("%v, it ran %d times", state, second.count("on the new one"))
	}
	if stack.Info(done.Outcome).GetMetadata()["next"] == "" {
		t.Errorf("what to do next is not said: %v", done.Outcome.GetStatus())
	}
}
