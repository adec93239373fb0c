package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/writ-dev/writ/e2e/internal/stack"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/receipt"
)

const completed = commonv1.OutcomeState_OUTCOME_STATE_COMPLETED

// The road of issue 2: a connector, a turn, a read that runs, a call that a person allows, a command in a sandbox; each
// with a receipt that verifies with nothing but public keys (R31, R47, R86, R87, R105, R109).
func TestThreeCallsAndTheirReceipts(t *testing.T) {
	s := stack.Start(t)
	echo := addEcho(s, "echo")
	s.Settle("mcp.echo.echo", commonv1.SecurityClass_SECURITY_CLASS_READ, commonv1.Disposition_DISPOSITION_AUTOMATIC, echo.digest)
	folder := s.Workspace()
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: folder, Conversation: "t-42"})
	if got := mustTool(t, turn, "mcp.echo.echo").GetClass(); got != commonv1.SecurityClass_SECURITY_CLASS_READ {
		t.Errorf("the operator said read, the turn froze %v", got)
	}
	if got := mustTool(t, turn, "mcp.echo.append_note").GetClass(); got != commonv1.SecurityClass_SECURITY_CLASS_EXTERNAL_MUTATION {
		t.Errorf("nobody classified append_note, the turn froze %v", got)
	}

	t.Run("a read runs", func(t *testing.T) {
		s := s.In(t)
		done := s.Call(turn, "mcp.echo.echo", `{"text":"hello"}`, completed)
		if done.Card != nil {
			t.Errorf("a read in mode manual asked: %v", done.Card.GetWhy())
		}
		if !strings.Contains(string(done.Outcome.GetResult()), "hello") {
			t.Errorf("result %s", done.Outcome.GetResult())
		}
		checkCallReceipt(t, s, done, "mcp-host", "mode", `{"text":"hello"}`)
	})
	t.Run("an unclassified tool asks", func(t *testing.T) {
		s := s.In(t)
		arguments := echo.arguments("a note")
		done := s.Call(turn, "mcp.echo.append_note", arguments, completed)
		if done.Card == nil {
			t.Fatal("it ran without a person")
		}
		if echo.count("a note") != 1 {
			t.Errorf("the note is there %d times", echo.count("a note"))
		}
		facts := checkCallReceipt(t, s, done, "mcp-host", "card", arguments)
		if facts.Decision.Card != done.Card.GetId() {
			t.Errorf("the receipt names card %q, the answer was to %s", facts.Decision.Card, done.Card.GetId())
		}
		if facts.Enforcement.GetIsolation() != commonv1.Isolation_ISOLATION_GUARDED {
			t.Errorf("the server ran as %v", facts.Enforcement.GetIsolation())
		}
	})
	t.Run("a command runs in a sandbox", func(t *testing.T) {
		s := s.In(t)
		arguments := `{"command":"echo out > made && cat /proc/self/status | grep NoNewPrivs && cat /proc/net/dev | wc -l"}`
		done := s.Call(turn, "run_command", arguments, completed)
		if done.Card == nil || done.Card.GetPreview().GetCommand() == "" {
			t.Fatalf("the card shows no command: %v", done.Card)
		}
		var result struct {
			ExitCode int `json:"exit_code"`
			Stdout   string
		}
		if err := json.Unmarshal(done.Outcome.GetResult(), &result); err != nil || result.ExitCode != 0 {
			t.Fatalf("%s %v", done.Outcome.GetResult(), err)
		}
		// Two lines of heading and the loopback device: no other network (R86).
		if want := "NoNewPrivs:\t1\n3\n"; result.Stdout != want {
			t.Errorf("stdout %q, want %q", result.Stdout, want)
		}
		if b, err := os.ReadFile(filepath.Join(folder, "made")); err != nil || string(b) != "out\n" {
			t.Errorf("what it wrote into the workspace: %q %v", b, err)
		}
		facts := checkCallReceipt(t, s, done, "exec", "card", arguments)
		if facts.Enforcement.GetNetwork() != commonv1.NetworkMode_NETWORK_MODE_NONE || facts.Enforcement.GetIsolation() < commonv1.Isolation_ISOLATION_ISOLATED_SOFT_CAPS {
			t.Errorf("in force: %v", facts.Enforcement)
		}
	})
	t.Run("a command that a person denies", func(t *testing.T) {
		s := s.In(t)
		card := askFor(t, s, turn, `{"command":"touch denied"}`)
		s.Deny(card.GetId())
		done, err := s.Client(stack.Caller).Attach(s.Context(), "turns/"+turn.GetId()+"/calls/"+card.GetCall(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if done.Outcome.GetState() != commonv1.OutcomeState_OUTCOME_STATE_DENIED || stack.Reason(done.Outcome) != "CARD_DENIED" {
			t.Errorf("%v %v", done.Outcome.GetState(), done.Outcome.GetStatus())
		}
		if _, err := os.Stat(filepath.Join(folder, "denied")); err == nil {
			t.Error("it ran")
		}
		facts, _ := s.Receipt(stack.Caller, done.Outcome.GetReceipt())
		if facts.Executor != "permission" || facts.State != commonv1.OutcomeState_OUTCOME_STATE_DENIED {
			t.Errorf("sealed by %s as %v", facts.Executor, facts.State)
		}
	})
	checkListed(t, s, turn)
}

// checkCallReceipt verifies the receipt of a call and that it says what happened.
func checkCallReceipt(t *testing.T, s *stack.Stack, done stack.Done, executor, cause, arguments string) receipt.Facts {
	t.Helper()
	facts, got := s.Receipt(stack.Caller, done.Outcome.GetReceipt())
	opening := got.GetOpening()
	switch {
	case facts.Kind != evidencev1.ReceiptKind_RECEIPT_KIND_CALL || facts.State != completed || facts.Call != done.Name:
		t.Errorf("the receipt says %v %v of %s", facts.Kind, facts.State, facts.Call)
	case facts.Executor != executor || facts.Decision.Cause != cause:
		t.Errorf("executed by %s because of %s, want %s, %s", facts.Executor, facts.Decision.Cause, executor, cause)
	case facts.TraceID == "" || facts.TraceID != done.TraceID:
		t.Errorf("trace %q, the call's is %q", facts.TraceID, done.TraceID)
	case string(opening.GetArguments()) != arguments:
		t.Errorf("opened arguments %s, want %s", opening.GetArguments(), arguments)
	case !facts.Arguments.Equal(receipt.Committed(opening.GetArgumentsSalt(), []byte(arguments))):
		t.Error("the statement does not commit to the arguments")
	case !facts.Result.Equal(receipt.Committed(opening.GetResultSalt(), done.Outcome.GetResult())):
		t.Error("the statement does not commit to the result")
	}
	return facts
}

// checkListed reads every call of a turn again: by its name, in the list, for another principal not at all.
func checkListed(t *testing.T, s *stack.Stack, turn *registryv1.Turn) {
	t.Helper()
	caller := s.Client(stack.Caller)
	list, err := caller.Calls.ListCalls(s.Context(), &gatewayv1.ListCallsRequest{Turn: turn.GetId()})
	if err != nil || len(list.GetCalls()) != 4 {
		t.Fatalf("%d calls are listed, 4 were made: %v", len(list.GetCalls()), err)
	}
	for _, c := range list.GetCalls() {
		if c.GetState() != gatewayv1.CallState_CALL_STATE_ENDED || len(c.GetOutcome().GetResult()) != 0 {
			t.Errorf("%s is listed as %v with a result of %d bytes", c.GetName(), c.GetState(), len(c.GetOutcome().GetResult()))
		}
		got, err := caller.Calls.GetCall(s.Context(), &gatewayv1.GetCallRequest{Name: c.GetName()})
		if err != nil {
			t.Errorf("%s: %v", c.GetName(), err)
			continue
		}
		if got.GetCall().GetOutcome().GetReceipt() != c.GetOutcome().GetReceipt() || got.GetCall().GetOutcome().GetReceipt() == "" {
			t.Errorf("%s has receipt %q, the list says %q", c.GetName(), got.GetCall().GetOutcome().GetReceipt(), c.GetOutcome().GetReceipt())
		}
	}
	if list, err := s.Client(stack.Other).Calls.ListCalls(s.Context(), &gatewayv1.ListCallsRequest{Turn: turn.GetId()}); err == nil && len(list.GetCalls()) > 0 {
		t.Errorf("another principal lists %d of them", len(list.GetCalls()))
	}
}

// A receipt in which one byte was changed does not verify, nor with another service's key (R105).
func TestAChangedReceiptDoesNotVerify(t *testing.T) {
	s := stack.Start(t)
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: s.Workspace()})
	done := s.Call(turn, "run_command", `{"argv":["/bin/true"]}`, completed)
	_, got := s.Receipt(stack.Caller, done.Outcome.GetReceipt())
	keys, err := s.Client(stack.Caller).Receipts.ListReceiptKeys(s.Context(), &evidencev1.ListReceiptKeysRequest{})
	if err != nil {
		t.Fatal(err)
	}
	find := stack.Finder(keys.GetKeys())
	statement, counter := got.GetReceipt().GetStatementEnvelope(), got.GetReceipt().GetCountersignatureEnvelope()
	for i := range statement {
		changed := append([]byte(nil), statement...)
		changed[i] ^= 1
		if _, _, err := receipt.Check(changed, counter, find); err == nil {
			t.Fatalf("byte %d of the statement can be changed", i)
		}
	}
	wrong := proto.CloneOf(keys)
	for _, k := range wrong.GetKeys() {
		k.Service = "somebody-else"
	}
	if _, _, err := receipt.Check(statement, counter, stack.Finder(wrong.GetKeys())); err == nil {
		t.Error("it verifies with another service's key")
	}
}

// "Always allow" on a card acts at once, for this provider and fingerprint only, and can be revoked at once (R47, R48,
// ruling 13).
func TestAGrantSparesTheNextQuestion(t *testing.T) {
	s := stack.Start(t)
	echo := addEcho(s, "echo")
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Conversation: "t-1"})
	card := askForTool(t, s, &gatewayv1.CallToolRequest{Turn: turn.GetId(), Tool: "mcp.echo.append_note", Arguments: []byte(echo.arguments("first"))})
	decided := s.Approve(card.GetId(), permissionv1.Lifetime_LIFETIME_CONVERSATION)
	if decided.GetGrant() == "" {
		t.Fatalf("no grant was made: %v", decided)
	}
	second := s.Call(turn, "mcp.echo.append_note", echo.arguments("second"), completed)
	if second.Card != nil {
		t.Error("it asked again")
	}
	if _, err := s.Client(stack.Approver).Grants.RevokeGrant(s.Context(), &permissionv1.RevokeGrantRequest{Grant: decided.GetGrant()}); err != nil {
		t.Fatal(err)
	}
	third := askForTool(t, s, &gatewayv1.CallToolRequest{Turn: turn.GetId(), Tool: "mcp.echo.append_note", Arguments: []byte(echo.arguments("third"))})
	if third.GetState() != permissionv1.CardState_CARD_STATE_PENDING || echo.count("third") != 0 {
		t.Errorf("after the revocation: card %v, effects %d", third.GetState(), echo.count("third"))
	}
}
