package gateway_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	gateway "github.com/writ-dev/writ/gateway-svc"
	"github.com/writ-dev/writ/gateway-svc/gatewaytest"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/testkit"
)

// The gateway dies: the call goes on, and is attached again by its name (R49, "What survives what").
func TestGatewayRestartsWhileACallRuns(t *testing.T) {
	b := start(t, quick())
	b.call("c", gatewaytest.Slow, `{"a":1}`).started()
	b.restart(quick())
	s := b.attach(b.calls, b.name("c"), 0).started()
	got, err := b.calls.GetCall(b.ctx(), &gatewayv1.GetCallRequest{Name: b.name("c")})
	if err != nil || got.GetCall().GetState() != gatewayv1.CallState_CALL_STATE_RUNNING {
		t.Errorf("%v %v", got, err)
	}
	b.plane.Release(b.name("c"))
	b.want(s.outcome(), commonv1.OutcomeState_OUTCOME_STATE_COMPLETED)
	if tried, ran := b.plane.Tried(b.name("c")), b.plane.Ran(b.name("c")); tried != 1 || ran != 1 {
		t.Errorf("presented %d times, ran %d times", tried, ran)
	}
}

// A second gateway finds the call by calling again with the same id.
func TestCallingAgainAfterARestartAttaches(t *testing.T) {
	b := start(t, quick())
	b.call("c", gatewaytest.Slow, `{"a":1}`).started()
	b.restart(quick())
	s := b.call("c", gatewaytest.Slow, `{"a":1}`).started()
	b.plane.Release(b.name("c"))
	b.want(s.outcome(), commonv1.OutcomeState_OUTCOME_STATE_COMPLETED)
	if ran := b.plane.Ran(b.name("c")); ran != 1 {
		t.Errorf("it ran %d times", ran)
	}
}

// After a restart nobody in memory knows the arguments of a call that runs; the record does, and other ones get no answer.
func TestOtherArgumentsAfterARestart(t *testing.T) {
	b := start(t, quick())
	b.call("c", gatewaytest.Slow, `{"a":1}`).started()
	b.restart(quick())
	other := b.call("c", gatewaytest.Slow, `{"a":2}`).started()
	b.plane.Release(b.name("c"))
	if err := other.fails(); errs.ReasonOf(err) != "CALL_CHANGED" {
		t.Errorf("%v", err)
	}
	if err := b.call("c", gatewaytest.Slow, `{"a":2}`).fails(); errs.ReasonOf(err) != "CALL_CHANGED" {
		t.Errorf("ended: %v", err)
	}
	b.want(b.call("c", gatewaytest.Slow, `{"a":1}`).outcome(), commonv1.OutcomeState_OUTCOME_STATE_COMPLETED)
}

func TestOtherArgumentsOfAnAttachedCall(t *testing.T) {
	b := start(t, quick())
	b.call("c", gatewaytest.Slow, `{"a":1}`).started()
	b.restart(quick())
	right := b.attach(b.calls, b.name("c"), 0).started()
	other := b.call("c", gatewaytest.Slow, `{"a":2}`).started()
	b.plane.Release(b.name("c"))
	b.want(right.outcome(), commonv1.OutcomeState_OUTCOME_STATE_COMPLETED)
	if err := other.fails(); errs.ReasonOf(err) != "CALL_CHANGED" {
		t.Errorf("%v", err)
	}
	if err := b.call("c", gatewaytest.Slow, `{"a":2}`).fails(); errs.ReasonOf(err) != "CALL_CHANGED" {
		t.Errorf("ended: %v", err)
	}
	b.want(b.call("c", gatewaytest.Slow, `{"a":1}`).outcome(), commonv1.OutcomeState_OUTCOME_STATE_COMPLETED)
}

// An open card is still open after a restart; who attaches sees it and its answer (R49).
func TestOpenCardSurvivesARestart(t *testing.T) {
	b := start(t, quick())
	first := b.call("c", gatewaytest.Write, `{"a":1}`).card()
	b.restart(quick())
	got, err := b.calls.GetCall(b.ctx(), &gatewayv1.GetCallRequest{Name: b.name("c")})
	if err != nil || got.GetCall().GetState() != gatewayv1.CallState_CALL_STATE_WAITING || got.GetCall().GetCard() != first.GetId() {
		t.Errorf("%v %v", got, err)
	}
	s := b.attach(b.calls, b.name("c"), 0)
	if again := s.card(); again.GetId() != first.GetId() {
		t.Errorf("a person would be asked twice: %v", again)
	}
	b.plane.Answer(b.name("c"), permissionv1.CardState_CARD_STATE_APPROVED)
	b.want(s.outcome(), commonv1.OutcomeState_OUTCOME_STATE_COMPLETED)
}

// A card that is approved while no gateway runs, or while nobody conducts it, is conducted exactly once, while its turn
// is open; one that was executed, refused or whose turn ended is not (design.md, One call).
func TestApprovedCardIsConductedOnce(t *testing.T) {
	b := start(t, quick())
	done := b.call("done", gatewaytest.Write, `{}`)
	done.card()
	b.plane.Answer(b.name("done"), permissionv1.CardState_CARD_STATE_APPROVED)
	done.outcome()
	for _, id := range []string{"before", "after"} {
		b.call(id, gatewaytest.Write, `{"id":"`+id+`"}`).card()
	}
	over := *b
	over.turn = b.plane.OpenTurn("alice")
	over.call("over", gatewaytest.Write, `{}`).card()
	b.srv.Stop()
	b.plane.Answer(b.name("before"), permissionv1.CardState_CARD_STATE_APPROVED)
	over.plane.Answer(over.name("over"), permissionv1.CardState_CARD_STATE_APPROVED)
	b.plane.EndTurn(over.turn, registryv1.TurnState_TURN_STATE_ENDED)

	b.restart(quick())
	recorded := func(id string) func() bool {
		return func() bool { return len(b.plane.Receipts(b.name(id))) == 1 }
	}
	testkit.WaitFor(t, patience, recorded("before"))
	b.plane.Answer(b.name("after"), permissionv1.CardState_CARD_STATE_APPROVED)
	testkit.WaitFor(t, patience, recorded("after"))
	b.restart(quick()) // and once more: by now all are recorded
	b.call("marker", gatewaytest.Read, `{}`).outcome()
	for _, id := range []string{"done", "before", "after"} {
		if ran, tried := b.plane.Ran(b.name(id)), b.plane.Tried(b.name(id)); ran != 1 || tried != 1 {
			t.Errorf("%s ran %d times, presented %d times", id, ran, tried)
		}
	}
	if ran := b.plane.Ran(over.name("over")); ran != 0 {
		t.Errorf("the turn had ended, and it ran %d times", ran)
	}
	o := b.attach(b.calls, b.name("before"), 0).outcome()
	if string(o.GetResult()) != `{"id":"before"}` {
		t.Errorf("%v", o)
	}
}

// Two gateways and one call: one runs, the other's CLAIM_TAKEN becomes the recorded outcome.
func TestTwoReplicasAndOneCall(t *testing.T) {
	b := start(t, quick())
	other := gatewaytest.Start(t, quick(), b.plane)
	second := *b
	second.calls = other.Calls(other.Caller("alice"))
	first := b.call("c", gatewaytest.Slow, `{"a":1}`).started()
	s := second.call("c", gatewaytest.Slow, `{"a":1}`)
	s.until(func(e *gatewayv1.CallEvent) bool { return e.GetAccepted() != nil })
	b.plane.Release(b.name("c"))
	if one, two := first.outcome(), s.outcome(); one.GetReceipt() != two.GetReceipt() {
		t.Errorf("%v %v", one, two)
	}
	if ran := b.plane.Ran(b.name("c")); ran != 1 {
		t.Errorf("it ran %d times", ran)
	}
}

// The executor dies after the claim: UNKNOWN, with the receipt that it seals when it is back, and nothing runs again.
func TestExecutorDiesAfterTheClaim(t *testing.T) {
	cfg := quick()
	cfg.Limits.PeerWait = patience
	b := start(t, cfg)
	s := b.call("c", gatewaytest.Slow, `{}`).started()
	b.plane.Kill("mcp-host")
	s.until(func(e *gatewayv1.CallEvent) bool { return e.GetExecution().GetWaiting() != nil })
	b.plane.Revive("mcp-host")
	o := b.want(s.outcome(), commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN)
	receipts := b.plane.Receipts(b.name("c"))
	if len(receipts) != 1 || receipts[0].GetId() != o.GetReceipt() || b.plane.Tried(b.name("c")) != 1 {
		t.Errorf("%v, presented %d times", receipts, b.plane.Tried(b.name("c")))
	}
	again := b.call("c", gatewaytest.Slow, `{}`)
	b.want(again.outcome(), commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN)
}

// An executor that stays away after the claim: the stream ends and says so; the record has the outcome later.
func TestExecutorStaysAway(t *testing.T) {
	b := start(t, quick())
	s := b.call("c", gatewaytest.Slow, `{}`).started()
	b.plane.Kill("mcp-host")
	if err := s.fails(); status.Code(err) != codes.Unavailable || errs.ReasonOf(err) != "PEER_UNAVAILABLE" || errs.Metadata(err)["name"] != "mcp-host" {
		t.Errorf("%v", err)
	}
	b.plane.Revive("mcp-host")
	b.want(b.attach(b.calls, b.name("c"), 99).outcome(), commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN)
}

// The executor is away before the claim and stays away: the gateway seals a refusal, signed by itself, and the same id
// can be used again.
func TestExecutorAwayBeforeTheClaim(t *testing.T) {
	b := start(t, quick())
	b.plane.WritLifetime = 2 * time.Second
	b.plane.Away("mcp-host", true)
	o := b.want(b.call("c", gatewaytest.Slow, `{"a":1}`).outcome(), commonv1.OutcomeState_OUTCOME_STATE_REFUSED)
	if got := errs.ReasonOf(status.FromProto(o.GetStatus()).Err()); got != "EXECUTOR_UNAVAILABLE" {
		t.Errorf("%v", o)
	}
	receipts := b.plane.Receipts(b.name("c"))
	if len(receipts) != 1 || receipts[0].GetKind() != evidencev1.ReceiptKind_RECEIPT_KIND_REFUSAL || receipts[0].GetExecutor() != gateway.ServiceName {
		t.Errorf("%v", receipts)
	}
	b.plane.Away("mcp-host", false)
	s := b.call("c", gatewaytest.Slow, `{"a":1}`).started()
	if s.events[0].GetSequence() <= 1 {
		t.Error("the new attempt's events have the numbers of the old one's")
	}
	b.plane.Release(b.name("c"))
	b.want(s.outcome(), commonv1.OutcomeState_OUTCOME_STATE_COMPLETED)
}

// Evidence is down: calls are refused before they run, and no outcome is told without a receipt.
func TestEvidenceIsDown(t *testing.T) {
	b := start(t, quick())
	s := b.call("running", gatewaytest.Slow, `{}`).started()
	b.plane.Away("evidence", true)
	if err := b.call("c", gatewaytest.Slow, `{}`).fails(); status.Code(err) != codes.Unavailable || errs.Metadata(err)["name"] != "evidence" {
		t.Errorf("%v", err)
	}
	if b.plane.Tried(b.name("c")) != 0 {
		t.Error("it was presented")
	}
	b.plane.Kill("mcp-host")
	if err := s.fails(); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
}

// permission-svc restarts with cards open: watchers come back by themselves, answers stand.
func TestPermissionRestartsWithCardsOpen(t *testing.T) {
	cfg := quick()
	cfg.Limits.PeerWait = time.Millisecond // a card never times out, whatever this is
	b := start(t, cfg)
	s := b.call("c", gatewaytest.Write, `{}`)
	s.card()
	b.plane.Away("permission", true)
	b.plane.Answer(b.name("c"), permissionv1.CardState_CARD_STATE_APPROVED)
	testkit.WaitFor(t, patience, func() bool { return b.plane.Knocks("permission") > 20 })
	b.plane.Away("permission", false)
	b.want(s.outcome(), commonv1.OutcomeState_OUTCOME_STATE_COMPLETED)
}

// A stopping gateway ends its streams with SHUTTING_DOWN and waits for its conductors; the call goes on.
func TestShutdown(t *testing.T) {
	b := start(t, quick())
	s := b.call("c", gatewaytest.Slow, `{}`).started()
	if err := b.srv.Gateway.Health(b.ctx()); err != nil {
		t.Error(err)
	}
	b.srv.Stop()
	if err := s.fails(); status.Code(err) != codes.Unavailable || errs.ReasonOf(err) != "SHUTTING_DOWN" {
		t.Errorf("%v", err)
	}
	if err := b.srv.Gateway.Health(b.ctx()); errs.ReasonOf(err) != "SHUTTING_DOWN" {
		t.Errorf("%v", err)
	}
	if !b.plane.Running(b.name("c")) {
		t.Error("the call went with the gateway")
	}
}

// A call with very many events keeps the last of them, and never loses what says how it stands.
func TestEventsAreBounded(t *testing.T) {
	cfg := quick()
	cfg.Limits.EventsPerCall = 50
	b := start(t, cfg)
	b.call("c", gatewaytest.Chatty, `{}`).outcome()
	late := b.attach(b.calls, b.name("c"), 0)
	late.outcome()
	if n := len(late.events); n > 50 || n < 4 {
		t.Errorf("%d events", n)
	}
	kinds := []bool{false, false, false}
	for _, e := range late.events {
		kinds[0] = kinds[0] || e.GetAccepted() != nil
		kinds[1] = kinds[1] || e.GetAuthorized() != nil
		kinds[2] = kinds[2] || e.GetExecution().GetStarted() != nil
	}
	if slices.Contains(kinds, false) {
		t.Errorf("%v", kinds)
	}
}
