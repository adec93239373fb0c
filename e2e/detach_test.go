package e2e

import (
	"context"
	"testing"

	"github.com/writ-dev/writ/e2e/internal/stack"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/command"
)

// always lets run_command run in the turns that are opened next, so that a test does not have to answer cards.
func always(s *stack.Stack) {
	s.Settle(command.ToolName, commonv1.SecurityClass_SECURITY_CLASS_UNSPECIFIED, commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW, command.ProviderDigest())
}

// begin makes a call and returns, its stream broken, once the executor says that it has begun.
func begin(t *testing.T, s *stack.Stack, turn *registryv1.Turn, id, arguments string) (name string) {
	t.Helper()
	ctx, lost := context.WithCancel(s.Context())
	defer lost()
	begun := false
	done, err := s.Client(stack.Caller).Call(ctx, &gatewayv1.CallToolRequest{Turn: turn.GetId(), Call: id, Tool: command.ToolName, Arguments: []byte(arguments)}, func(e *gatewayv1.CallEvent) {
		if e.GetExecution().GetStarted() != nil {
			begun = true
			lost()
		}
	})
	if !begun {
		t.Fatalf("it did not begin: %v %v", err, done.Outcome)
	}
	return done.Name
}

// A lost stream and a client's deadline detach only: the call goes on, once, and is attached again by its name, or by making
// the same call again (design, "One call").
func TestALostStreamDetaches(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	always(s)
	folder := s.Workspace()
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: folder})
	arguments := `{"command":"echo once >> effects; sleep 1; echo done"}`
	name := begin(t, s, turn, "lost", arguments)

	attached, err := s.Client(stack.Caller).Attach(s.Context(), name, nil)
	if err != nil || attached.Outcome.GetState() != completed {
		t.Fatalf("attached: %v %v", err, attached.Outcome)
	}
	again, err := s.Client(stack.Caller).Call(s.Context(), &gatewayv1.CallToolRequest{Turn: turn.GetId(), Call: "lost", Tool: command.ToolName, Arguments: []byte(arguments)}, nil)
	if err != nil || again.Outcome.GetReceipt() != attached.Outcome.GetReceipt() {
		t.Errorf("the same call again: %v, receipt %s, first %s", err, again.Outcome.GetReceipt(), attached.Outcome.GetReceipt())
	}
	if n := effects(folder, "effects"); n != 1 {
		t.Errorf("it happened %d times", n)
	}
	_, err = s.Client(stack.Caller).Call(s.Context(), &gatewayv1.CallToolRequest{Turn: turn.GetId(), Call: "lost", Tool: command.ToolName, Arguments: []byte(`{"command":"true"}`)}, nil)
	wantReason(t, "the same id with other arguments", err, "CALL_CHANGED")
}

// CancelCall ends a running command with everything that it started; the receipt says that it had begun.
func TestCancelling(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	always(s)
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: s.Workspace()})
	quiet := len(s.Family())
	name := begin(t, s, turn, "long", `{"command":"setsid sleep 300 & sleep 300"}`)
	caller := s.Client(stack.Caller)
	if _, err := caller.Calls.CancelCall(s.Context(), &gatewayv1.CancelCallRequest{Name: name, Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	ended := waitEnded(t, s, name)
	if ended.GetState() != commonv1.OutcomeState_OUTCOME_STATE_CANCELLED || stack.Info(ended).GetMetadata()["begun"] != "true" {
		t.Errorf("%v %v", ended.GetState(), ended.GetStatus())
	}
	if facts, _ := s.Receipt(stack.Caller, ended.GetReceipt()); facts.State != commonv1.OutcomeState_OUTCOME_STATE_CANCELLED || facts.Begin.IsZero() {
		t.Errorf("the receipt says %v, begun %v", facts.State, facts.Begin)
	}
	waitFor(t, "the command's processes to be gone", func() bool { return len(s.Family()) <= quiet })
}

// CancelTurn ends what runs and what waits in it; an answer that comes later is too late.
func TestCancellingATurn(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: s.Workspace()})
	card := askFor(t, s, turn, `{"argv":["/bin/true"]}`)
	if _, err := s.Client(stack.Caller).Turns.CancelTurn(s.Context(), &registryv1.CancelTurnRequest{Turn: turn.GetId()}); err != nil {
		t.Fatal(err)
	}
	ended := waitEnded(t, s, "turns/"+turn.GetId()+"/calls/"+card.GetCall())
	if ended.GetState() != commonv1.OutcomeState_OUTCOME_STATE_CANCELLED {
		t.Errorf("%v %v", ended.GetState(), ended.GetStatus())
	}
	approver := s.Client(stack.Approver)
	read, err := approver.Cards.GetCard(s.Context(), &permissionv1.GetCardRequest{Card: card.GetId()})
	if err != nil || read.GetCard().GetState() != permissionv1.CardState_CARD_STATE_CANCELLED {
		t.Fatalf("the card: %v %v", read.GetCard().GetState(), err)
	}
	_, err = approver.Cards.DecideCard(s.Context(), &permissionv1.DecideCardRequest{
		Card: card.GetId(), Etag: read.GetCard().GetEtag(), PreviewSha256: read.GetCard().GetPreview().GetSha256(),
		Answer: permissionv1.Answer_ANSWER_APPROVE, Lifetime: permissionv1.Lifetime_LIFETIME_ONCE})
	wantReason(t, "a late answer", err, "CARD_DECIDED", "CALL_CANCELLED")
}

// An answer is bound to what was shown (Trust 7), and counts once.
func TestAnAnswerIsBoundToWhatWasShown(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: s.Workspace()})
	card := askFor(t, s, turn, `{"argv":["/bin/true"]}`)
	approver := s.Client(stack.Approver)
	good := func() *permissionv1.DecideCardRequest {
		return &permissionv1.DecideCardRequest{
			Card: card.GetId(), Etag: card.GetEtag(), PreviewSha256: card.GetPreview().GetSha256(),
			Answer: permissionv1.Answer_ANSWER_APPROVE, Lifetime: permissionv1.Lifetime_LIFETIME_ONCE}
	}
	for what, c := range map[string]struct {
		change func(*permissionv1.DecideCardRequest)
		reason string
	}{
		"another preview":                {func(r *permissionv1.DecideCardRequest) { r.PreviewSha256 = "ab" + r.GetPreviewSha256()[2:] }, "PREVIEW_MISMATCH"},
		"no preview":                     {func(r *permissionv1.DecideCardRequest) { r.PreviewSha256 = "" }, "PREVIEW_MISMATCH"},
		"another etag":                   {func(r *permissionv1.DecideCardRequest) { r.Etag += "x" }, "ETAG_MISMATCH"},
		"another card":                   {func(r *permissionv1.DecideCardRequest) { r.Card = "k_none" }, "CARD_NOT_FOUND"},
		"a lifetime that is not offered": {func(r *permissionv1.DecideCardRequest) { r.Lifetime = permissionv1.Lifetime_LIFETIME_UNSPECIFIED }, "LIFETIME_NOT_OFFERED"},
	} {
		req := good()
		c.change(req)
		_, err := approver.Cards.DecideCard(s.Context(), req)
		wantReason(t, what, err, c.reason, "FIELD_INVALID")
	}
	if _, err := approver.Cards.DecideCard(s.Context(), good()); err != nil {
		t.Fatal(err)
	}
	_, err := approver.Cards.DecideCard(s.Context(), good())
	wantReason(t, "a second answer", err, "CARD_DECIDED", "ETAG_MISMATCH")
}
