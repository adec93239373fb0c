package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/writ-dev/writ/e2e/internal/stack"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/testkit"
)

const unknown = commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN

// effects counts the lines that commands appended to a file of the workspace.
func effects(folder, file string) int {
	b, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "\n")
}

// kill -9 in the middle of a command that has had its effect: UNKNOWN with a receipt, nothing runs again, no process is
// left; what was there before is still there (R9 of the rulings, R84, R100, "What survives what").
func TestKilledInTheMiddleOfAnEffect(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	folder := s.Workspace()
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: folder, Conversation: "t-1"})
	before := s.Call(turn, "run_command", `{"argv":["/bin/true"]}`, completed)
	open := askFor(t, s, turn, `{"argv":["/bin/echo","still open"]}`)

	req := &gatewayv1.CallToolRequest{Turn: turn.GetId(), Call: "middle", Tool: "run_command",
		Arguments: []byte(`{"command":"echo once >> effects; setsid sleep 300 & sleep 300"}`)}
	card := askForTool(t, s, req)
	grant := s.Approve(card.GetId(), permissionv1.Lifetime_LIFETIME_ONCE).GetGrant()
	testkit.WaitFor(t, stack.Patience, func() bool { return effects(folder, "effects") == 1 })
	s.Restart()

	name := "turns/" + turn.GetId() + "/calls/middle"
	ended := waitEnded(t, s, name)
	if ended.GetState() != unknown || stack.Reason(ended) != "EXECUTOR_DIED" || stack.Info(ended).GetMetadata()["next"] == "" {
		t.Errorf("%v %v", ended.GetState(), ended.GetStatus())
	}
	facts, _ := s.Receipt(stack.Caller, ended.GetReceipt())
	if facts.State != unknown || facts.Call != name || facts.Executor != "exec" {
		t.Errorf("the receipt says %v of %s by %s", facts.State, facts.Call, facts.Executor)
	}
	again, err := s.Client(stack.Caller).Call(s.Context(), req, nil)
	if err != nil || again.Outcome.GetState() != unknown || again.Outcome.GetReceipt() != ended.GetReceipt() {
		t.Errorf("called again: %v %v", err, again.Outcome)
	}
	if n := effects(folder, "effects"); n != 1 {
		t.Errorf("the effect happened %d times", n)
	}

	if facts, _ := s.Receipt(stack.Caller, before.Outcome.GetReceipt()); facts.State != completed {
		t.Errorf("the earlier receipt says %v", facts.State)
	}
	kept, err := s.Client(stack.Approver).Cards.GetCard(s.Context(), &permissionv1.GetCardRequest{Card: open.GetId()})
	if err != nil || kept.GetCard().GetState() != permissionv1.CardState_CARD_STATE_PENDING || kept.GetCard().GetEtag() != open.GetEtag() {
		t.Errorf("the open card: %v %v", kept.GetCard().GetState(), err)
	}
	got, err := s.Client(stack.Caller).Turns.GetTurn(s.Context(), &registryv1.GetTurnRequest{Turn: turn.GetId()})
	if err != nil || got.GetTurn().GetState() != registryv1.TurnState_TURN_STATE_OPEN || len(got.GetTurn().GetTools()) != len(turn.GetTools()) {
		t.Errorf("the turn: %v %v, %d tools of %d", got.GetTurn().GetState(), err, len(got.GetTurn().GetTools()), len(turn.GetTools()))
	}
	if grant != "" {
		t.Errorf("an answer for once made the grant %s", grant)
	}
}

// The same with an MCP server: its call has had its effect and has not answered.
func TestKilledInTheMiddleOfAServersEffect(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	echo := addEcho(s, "echo")
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Conversation: "t-1"})
	req := &gatewayv1.CallToolRequest{Turn: turn.GetId(), Call: "middle", Tool: "mcp.echo.append_note", Arguments: []byte(echo.slowly("once"))}
	s.Approve(askForTool(t, s, req).GetId(), permissionv1.Lifetime_LIFETIME_ONCE)
	testkit.WaitFor(t, stack.Patience, func() bool { return echo.count("once") == 1 })
	s.Restart()
	ended := waitEnded(t, s, "turns/"+turn.GetId()+"/calls/middle")
	if ended.GetState() != unknown || stack.Reason(ended) != "EXECUTOR_DIED" {
		t.Errorf("%v %v", ended.GetState(), ended.GetStatus())
	}
	if facts, _ := s.Receipt(stack.Caller, ended.GetReceipt()); facts.State != unknown || facts.Executor != "mcp-host" {
		t.Errorf("the receipt says %v by %s", facts.State, facts.Executor)
	}
	if again, err := s.Client(stack.Caller).Call(s.Context(), req, nil); err != nil || again.Outcome.GetState() != unknown {
		t.Errorf("called again: %v %v", err, again.Outcome)
	}
	if n := echo.count("once"); n != 1 {
		t.Errorf("the note was written %d times", n)
	}
}

// A grant stands after kill -9 and spares the question (R47).
func TestAGrantSurvives(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	echo := addEcho(s, "echo")
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Conversation: "t-1"})
	card := askForTool(t, s, &gatewayv1.CallToolRequest{Turn: turn.GetId(), Tool: "mcp.echo.append_note", Arguments: []byte(echo.arguments("first"))})
	grant := s.Approve(card.GetId(), permissionv1.Lifetime_LIFETIME_CONVERSATION).GetGrant()
	testkit.WaitFor(t, stack.Patience, func() bool { return echo.count("first") == 1 })
	s.Restart()
	list, err := s.Client(stack.Approver).Grants.ListGrants(s.Context(), &permissionv1.ListGrantsRequest{})
	if err != nil || len(list.GetGrants()) != 1 || list.GetGrants()[0].GetId() != grant {
		t.Fatalf("grants: %v %v", list.GetGrants(), err)
	}
	if done := s.Call(turn, "mcp.echo.append_note", echo.arguments("second"), completed); done.Card != nil {
		t.Error("it asked again")
	}
}

// A card that a person answers after the restart is conducted with nobody waiting for it, once.
func TestApprovedAfterTheRestart(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	folder := s.Workspace()
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: folder})
	card := askFor(t, s, turn, `{"command":"echo once >> effects"}`)
	s.Restart()
	s.Approve(card.GetId(), permissionv1.Lifetime_LIFETIME_ONCE)
	// Looking at the call may make the door conduct it: so the effect is waited for first.
	testkit.WaitFor(t, stack.Patience, func() bool { return effects(folder, "effects") == 1 })
	ended := waitEnded(t, s, "turns/"+turn.GetId()+"/calls/"+card.GetCall())
	if ended.GetState() != completed || effects(folder, "effects") != 1 {
		t.Errorf("%v, the effect happened %d times: %v", ended.GetState(), effects(folder, "effects"), ended.GetStatus())
	}
	facts, _ := s.Receipt(stack.Caller, ended.GetReceipt())
	if facts.Decision.Cause != "card" {
		t.Errorf("the receipt says because of %s", facts.Decision.Cause)
	}
	// One trace, or a second one that links to the first (R110).
	waitFor(t, "a link from trace "+facts.TraceID+" to the card's "+card.GetTraceId(), func() bool {
		if facts.TraceID == card.GetTraceId() {
			return true
		}
		trace, err := s.Client(stack.Caller).Traces.GetTrace(s.Context(), traceRequest(facts.TraceID))
		return err == nil && slices.ContainsFunc(trace.GetSpans(), func(span *evidencev1.Span) bool { return slices.Contains(span.GetLinks(), card.GetTraceId()) })
	})
}

// A card that was approved just before the kill is conducted after it, at most once: whether the kill came before the
// claim or after it, the record and the world agree.
func TestApprovedJustBeforeTheKill(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	folder := s.Workspace()
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: folder})
	for round := range 4 {
		file := fmt.Sprintf("effects-%d", round)
		card := askFor(t, s, turn, fmt.Sprintf(`{"command":"echo once >> %s"}`, file))
		s.Approve(card.GetId(), permissionv1.Lifetime_LIFETIME_ONCE)
		s.Restart()
		ended := waitEnded(t, s, "turns/"+turn.GetId()+"/calls/"+card.GetCall())
		agree(t, s, ended, effects(folder, file))
	}
}

// agree holds an outcome against what really happened.
func agree(t *testing.T, s *stack.Stack, o *commonv1.Outcome, happened int) {
	t.Helper()
	switch o.GetState() {
	case completed:
		if happened != 1 {
			t.Errorf("COMPLETED, and it happened %d times", happened)
		}
	case unknown:
		if happened > 1 {
			t.Errorf("UNKNOWN, and it happened %d times", happened)
		}
	default:
		t.Errorf("%v: %v", o.GetState(), o.GetStatus())
	}
	if facts, _ := s.Receipt(stack.Caller, o.GetReceipt()); facts.State != o.GetState() {
		t.Errorf("the outcome is %v, its receipt says %v", o.GetState(), facts.State)
	}
}

// waitEnded polls a call by its name until it has an outcome.
func waitEnded(t *testing.T, s *stack.Stack, name string) *commonv1.Outcome {
	t.Helper()
	caller := s.Client(stack.Caller)
	var o *commonv1.Outcome
	var last error
	deadline := time.Now().Add(stack.Patience)
	for o == nil {
		got, err := caller.Calls.GetCall(s.Context(), &gatewayv1.GetCallRequest{Name: name})
		o, last = got.GetCall().GetOutcome(), err
		if o == nil && time.Now().After(deadline) {
			t.Fatalf("%s has no outcome: %v, %v", name, got.GetCall(), last)
		}
		if o == nil {
			time.Sleep(20 * time.Millisecond)
		}
	}
	return o
}

// Kills at random moments, under several callers at once: no effect happens twice, what is recorded as done was done, and
// a call that nobody knows of can be made again with the same id. WRIT_SOAK lengthens it.
func TestSoakKills(t *testing.T) {
	t.Parallel()
	lasts := 12 * time.Second
	if text := os.Getenv("WRIT_SOAK"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		lasts = d
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	s := stack.Start(t)
	folder := s.Workspace()
	echo := addEcho(s, "echo")
	kinds := []effect{
		{"mcp.echo.append_note", func(id string) string { return echo.arguments(id) }, echo.count},
		{"run_command", func(id string) string { return fmt.Sprintf(`{"command":"echo x >> %s"}`, id) }, func(id string) int { return effects(folder, id) }},
	}
	for _, k := range kinds {
		s.Settle(k.tool, commonv1.SecurityClass_SECURITY_CLASS_UNSPECIFIED, commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW, echo.digestOf(k.tool))
	}
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: folder})
	made := 0
	for round, until := 0, time.Now().Add(lasts); round < 3 || time.Now().Before(until); round++ {
		calls := killUnder(s, turn, kinds, round, time.Duration(random.Int64N(int64(400*time.Millisecond))))
		made += len(calls)
		for _, c := range calls {
			agree(t, s, settleCall(t, s, turn, c), c.count(c.id))
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	t.Logf("%d calls", made)
}

// effect is a tool whose effect can be counted, by the call's id.
type effect struct {
	tool      string
	arguments func(id string) string
	count     func(id string) int
}

// madeCall is a call that was made of it.
type madeCall struct {
	effect
	id string
}

func (c madeCall) request(turn *registryv1.Turn) *gatewayv1.CallToolRequest {
	return &gatewayv1.CallToolRequest{Turn: turn.GetId(), Call: c.id, Tool: c.tool, Arguments: []byte(c.arguments(c.id))}
}

// killUnder makes calls from four callers until the time is over, and kills the server under those that run.
func killUnder(s *stack.Stack, turn *registryv1.Turn, kinds []effect, round int, lasts time.Duration) (calls []madeCall) {
	caller := s.Client(stack.Caller)
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	var mu sync.Mutex
	var callers sync.WaitGroup
	for k := range 4 {
		callers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				c := madeCall{kinds[(k+i)%len(kinds)], fmt.Sprintf("r%d-c%d-%d", round, k, i)}
				mu.Lock()
				calls = append(calls, c)
				mu.Unlock()
				// How it ends is asked after the restart; a stream that breaks detaches only.
				_, _ = caller.Call(ctx, c.request(turn), nil)
			}
		})
	}
	time.Sleep(lasts) // the moment of the kill is random on purpose
	s.Kill9()
	cancel()
	callers.Wait()
	s.NothingLeft()
	s.Up()
	return calls
}

// settleCall finds out how a call ended, and makes it again where nobody has heard of it.
func settleCall(t *testing.T, s *stack.Stack, turn *registryv1.Turn, c madeCall) *commonv1.Outcome {
	t.Helper()
	name := "turns/" + turn.GetId() + "/calls/" + c.id
	got, err := s.Client(stack.Caller).Calls.GetCall(s.Context(), &gatewayv1.GetCallRequest{Name: name})
	if err == nil && got.GetCall().GetOutcome() != nil {
		return got.GetCall().GetOutcome()
	}
	if err != nil && errs.ReasonOf(err) != "CALL_NOT_FOUND" {
		t.Fatalf("%s: %v", name, err)
	}
	if err != nil && c.count(c.id) != 0 {
		t.Errorf("%s happened and nobody has heard of it", name)
	}
	done, err := s.Client(stack.Caller).Call(s.Context(), c.request(turn), nil)
	if err != nil {
		t.Fatalf("%s again: %v", name, err)
	}
	return done.Outcome
}
