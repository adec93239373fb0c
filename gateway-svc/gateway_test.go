package gateway_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	gateway "github.com/writ-dev/writ/gateway-svc"
	"github.com/writ-dev/writ/gateway-svc/gatewaytest"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/testkit"
	"github.com/writ-dev/writ/internal/toolname"
)

const patience = 10 * time.Second

// bench is a gateway before a plane, with an agent at it.
type bench struct {
	t     *testing.T
	plane *gatewaytest.Plane
	srv   *gatewaytest.Server
	calls gatewayv1.CallServiceClient
	turn  string
}

func start(t *testing.T, cfg gateway.Config) *bench {
	t.Helper()
	testkit.NoLeaks(t)
	plane := gatewaytest.NewPlane()
	t.Cleanup(plane.Close)
	b := &bench{t: t, plane: plane, turn: plane.OpenTurn("alice")}
	b.restart(cfg)
	return b
}

// restart is a new gateway that knows nothing.
func (b *bench) restart(cfg gateway.Config) {
	b.t.Helper()
	if b.srv != nil {
		b.srv.Stop()
	}
	b.srv = gatewaytest.Start(b.t, cfg, b.plane)
	b.calls = b.srv.Calls(b.srv.Caller("alice"))
}

func quick() gateway.Config {
	return gateway.Config{Limits: gateway.Limits{PeerWait: 200 * time.Millisecond, ClockSkew: time.Millisecond, RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond}}
}

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.t.Cleanup(cancel)
	return ctx
}

// stream is a call's events.
type stream struct {
	b      *bench
	next   func() (*gatewayv1.CallEvent, error)
	cancel context.CancelFunc
	events []*gatewayv1.CallEvent
}

func (b *bench) call(id, tool, arguments string) *stream {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.ctx())
	in, err := b.calls.CallTool(ctx, &gatewayv1.CallToolRequest{Turn: b.turn, Call: id, Tool: tool, Arguments: []byte(arguments)})
	return b.open(cancel, events(in, err, func(m *gatewayv1.CallToolResponse) *gatewayv1.CallEvent { return m.GetEvent() }))
}

func (b *bench) attach(calls gatewayv1.CallServiceClient, name string, after int64) *stream {
	ctx, cancel := context.WithCancel(b.ctx())
	in, err := calls.AttachCall(ctx, &gatewayv1.AttachCallRequest{Name: name, AfterSequence: after})
	return b.open(cancel, events(in, err, func(m *gatewayv1.AttachCallResponse) *gatewayv1.CallEvent { return m.GetEvent() }))
}

func events[M any](in grpc.ServerStreamingClient[M], err error, event func(*M) *gatewayv1.CallEvent) func() (*gatewayv1.CallEvent, error) {
	return func() (*gatewayv1.CallEvent, error) {
		if err != nil {
			return nil, err
		}
		m, err := in.Recv()
		if err != nil {
			return nil, err
		}
		return event(m), nil
	}
}

func (b *bench) open(cancel context.CancelFunc, next func() (*gatewayv1.CallEvent, error)) *stream {
	b.t.Cleanup(cancel)
	return &stream{b: b, next: next, cancel: cancel}
}

// until reads events up to one that is wanted.
func (s *stream) until(want func(*gatewayv1.CallEvent) bool) *gatewayv1.CallEvent {
	s.b.t.Helper()
	for {
		e, err := s.next()
		if err != nil {
			s.b.t.Fatalf("after %d events: %v", len(s.events), err)
		}
		s.events = append(s.events, e)
		if want(e) {
			return e
		}
	}
}

func (s *stream) outcome() *commonv1.Outcome {
	s.b.t.Helper()
	o := s.until(func(e *gatewayv1.CallEvent) bool { return e.GetOutcome() != nil }).GetOutcome()
	if _, err := s.next(); !errors.Is(err, io.EOF) {
		s.b.t.Errorf("something follows the outcome: %v", err)
	}
	if o.GetReceipt() == "" {
		s.b.t.Error("an outcome without a receipt")
	}
	return o
}

func (s *stream) card() *permissionv1.Card {
	s.b.t.Helper()
	return s.until(func(e *gatewayv1.CallEvent) bool { return e.GetCard() != nil }).GetCard()
}

func (s *stream) started() *stream {
	s.b.t.Helper()
	s.until(func(e *gatewayv1.CallEvent) bool { return e.GetExecution().GetStarted() != nil })
	return s
}

// fails reads the error with which a stream ends.
func (s *stream) fails() error {
	s.b.t.Helper()
	for {
		e, err := s.next()
		if err != nil {
			return err
		}
		if e.GetOutcome() != nil {
			s.b.t.Fatalf("an outcome instead of an error: %v", e)
		}
	}
}

func (b *bench) name(id string) string { return toolname.Call(b.turn, id) }

func (b *bench) want(o *commonv1.Outcome, state commonv1.OutcomeState) *commonv1.Outcome {
	b.t.Helper()
	if o.GetState() != state {
		b.t.Fatalf("%v, expected %v", o, state)
	}
	return o
}

// Arguments and results cross the door as bytes (design.md, rule 2): no number, order or space changes.
func TestArgumentsAndResultAreExactBytes(t *testing.T) {
	b := start(t, gateway.Config{})
	const arguments = "{\"z\": 9007199254740993,\t\"a\":1e400, \"unknown\":{\"\\u00e9\":[ ]}}"
	for _, tool := range []string{gatewaytest.Read, gatewaytest.Command, "t__read"} {
		s := b.call("", tool, arguments)
		o := b.want(s.outcome(), commonv1.OutcomeState_OUTCOME_STATE_COMPLETED)
		if string(o.GetResult()) != arguments {
			t.Errorf("%s: %s", tool, o.GetResult())
		}
		accepted := s.events[0].GetAccepted()
		if canonical := strings.Replace(tool, "t__", "mcp.t.", 1); accepted.GetTool() != canonical || s.events[0].GetSequence() != 1 {
			t.Errorf("%v", s.events[0])
		}
		if _, id, ok := toolname.ParseCall(accepted.GetName()); !ok || !strings.HasPrefix(id, "c_") {
			t.Errorf("the minted name %q", accepted.GetName())
		}
	}
}

// Bad input is refused before a call exists, with its reason and what to do (design.md, rules 2, 7 and 8).
func TestRefusedBeforeTheCallExists(t *testing.T) {
	b := start(t, gateway.Config{})
	good := func() *gatewayv1.CallToolRequest {
		return &gatewayv1.CallToolRequest{Turn: b.turn, Call: "c", Tool: gatewaytest.Read, Arguments: []byte(`{}`)}
	}
	for _, tc := range []struct {
		name   string
		change func(*gatewayv1.CallToolRequest)
		code   codes.Code
		reason string
		meta   map[string]string
	}{
		{"a name twice", func(r *gatewayv1.CallToolRequest) { r.Arguments = []byte(`{"a":1,"\u0061":2}`) }, codes.InvalidArgument, "JSON_INVALID", map[string]string{"field": "arguments", "kind": "duplicate_name", "offset": "7"}},
		{"no object", func(r *gatewayv1.CallToolRequest) { r.Arguments = []byte(`[1]`) }, codes.InvalidArgument, "JSON_INVALID", map[string]string{"kind": "not_object"}},
		{"a lone surrogate", func(r *gatewayv1.CallToolRequest) { r.Arguments = []byte(`{"a":"\ud800"}`) }, codes.InvalidArgument, "JSON_INVALID", map[string]string{"kind": "lone_surrogate"}},
		{"invalid UTF-8", func(r *gatewayv1.CallToolRequest) { r.Arguments = []byte("{\"a\":\"\xff\"}") }, codes.InvalidArgument, "JSON_INVALID", map[string]string{"kind": "invalid_utf8"}},
		{"more after it", func(r *gatewayv1.CallToolRequest) { r.Arguments = []byte(`{}{}`) }, codes.InvalidArgument, "JSON_INVALID", map[string]string{"kind": "trailing_bytes"}},
		{"too deep", func(r *gatewayv1.CallToolRequest) {
			r.Arguments = []byte(`{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`)
		}, codes.InvalidArgument, "JSON_INVALID", map[string]string{"kind": "too_deep", "limit_name": "arguments_max_depth", "limit": "64"}},
		{"2 MiB", func(r *gatewayv1.CallToolRequest) {
			r.Arguments = []byte(`{"a":"` + strings.Repeat("x", 2<<20) + `"}`)
		}, codes.ResourceExhausted, "LIMIT_EXCEEDED", map[string]string{"limit_name": "arguments_max_bytes", "limit": "1048576", "got": "2097160"}},
		{"unknown tool", func(r *gatewayv1.CallToolRequest) { r.Tool = "mcp.t.nope" }, codes.NotFound, "TOOL_NOT_FOUND", nil},
		{"unknown turn", func(r *gatewayv1.CallToolRequest) { r.Turn = "t_nope" }, codes.NotFound, "TURN_NOT_FOUND", nil},
		{"a turn that is a path", func(r *gatewayv1.CallToolRequest) { r.Turn = "turns/x" }, codes.InvalidArgument, "FIELD_INVALID", map[string]string{"field": "turn"}},
		{"an id with a slash", func(r *gatewayv1.CallToolRequest) { r.Call = "a/b" }, codes.InvalidArgument, "FIELD_INVALID", map[string]string{"field": "call"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := good()
			tc.change(req)
			in, err := b.calls.CallTool(b.ctx(), req)
			_, err = events(in, err, func(m *gatewayv1.CallToolResponse) *gatewayv1.CallEvent { return m.GetEvent() })()
			if status.Code(err) != tc.code || errs.ReasonOf(err) != tc.reason {
				t.Fatalf("%v %v", err, errs.Metadata(err))
			}
			for k, v := range tc.meta {
				if errs.Metadata(err)[k] != v {
					t.Errorf("%s: %q", k, errs.Metadata(err)[k])
				}
			}
		})
	}
	if n := b.plane.Tried(b.name("c")); n != 0 {
		t.Errorf("presented %d times", n)
	}
}

// A person's answer decides; the card's event has what is to be seen, and no argument bytes.
func TestCardIsShownAndAnswered(t *testing.T) {
	for _, tc := range []struct {
		answer permissionv1.CardState
		want   commonv1.OutcomeState
	}{
		{permissionv1.CardState_CARD_STATE_APPROVED, commonv1.OutcomeState_OUTCOME_STATE_COMPLETED},
		{permissionv1.CardState_CARD_STATE_DENIED, commonv1.OutcomeState_OUTCOME_STATE_DENIED},
	} {
		b := start(t, quick())
		s := b.call("c", gatewaytest.Write, `{"path":"x"}`)
		if card := s.card(); card.GetState() != permissionv1.CardState_CARD_STATE_PENDING || len(card.GetArguments()) != 0 {
			t.Errorf("%v", card)
		}
		got, err := b.calls.GetCall(b.ctx(), &gatewayv1.GetCallRequest{Name: b.name("c")})
		if err != nil || got.GetCall().GetState() != gatewayv1.CallState_CALL_STATE_WAITING || got.GetCall().GetCard() == "" {
			t.Errorf("%v %v", got, err)
		}
		b.plane.Answer(b.name("c"), tc.answer)
		b.want(s.outcome(), tc.want)
		if n := b.plane.Ran(b.name("c")); n != map[bool]int{true: 1, false: 0}[tc.want == commonv1.OutcomeState_OUTCOME_STATE_COMPLETED] {
			t.Errorf("it ran %d times", n)
		}
	}
}

// A lost stream and a client's deadline detach; the call goes on and is attached again by its name (design.md, One call).
func TestLostStreamDetaches(t *testing.T) {
	b := start(t, gateway.Config{})
	b.call("c", gatewaytest.Slow, `{}`).started().cancel()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	in, err := b.calls.AttachCall(ctx, &gatewayv1.AttachCallRequest{Name: b.name("c")})
	for err == nil {
		_, err = in.Recv()
	}
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v", err)
	}
	again := b.attach(b.calls, b.name("c"), 0).started()
	from := again.events[len(again.events)-1].GetSequence()
	b.plane.Release(b.name("c"))
	b.want(again.outcome(), commonv1.OutcomeState_OUTCOME_STATE_COMPLETED)
	if later := b.attach(b.calls, b.name("c"), from); later.outcome() == nil || later.events[0].GetSequence() <= from {
		t.Errorf("the cursor is not kept: %v", later.events)
	}
	if n := b.plane.Ran(b.name("c")); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// All watchers see the same events with the same numbers (R108).
func TestEveryWatcherSeesTheSame(t *testing.T) {
	b := start(t, gateway.Config{})
	one := b.call("c", gatewaytest.Slow, `{}`).started()
	two := b.attach(b.calls, b.name("c"), 0)
	b.plane.Release(b.name("c"))
	one.outcome()
	two.outcome()
	numbers := func(s *stream) (n []int64) {
		for _, e := range s.events {
			n = append(n, e.GetSequence())
		}
		return n
	}
	if !slices.Equal(numbers(one), numbers(two)) {
		t.Errorf("%v %v", numbers(one), numbers(two))
	}
}

// Calling again attaches or answers from the record; other arguments are CALL_CHANGED (ruling 9).
func TestSameCallAgain(t *testing.T) {
	b := start(t, quick())
	first := b.call("c", gatewaytest.Slow, `{"a":1}`).started()
	again := b.call("c", gatewaytest.Slow, `{"a":1}`)
	again.started()
	changed := func(when string) {
		t.Helper()
		if err := b.call("c", gatewaytest.Slow, `{"a": 1}`).fails(); errs.ReasonOf(err) != "CALL_CHANGED" || status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s, other bytes: %v", when, err)
		}
		if err := b.call("c", gatewaytest.Read, `{"a":1}`).fails(); errs.ReasonOf(err) != "CALL_CHANGED" {
			t.Errorf("%s, another tool: %v", when, err)
		}
	}
	changed("running")
	b.plane.Release(b.name("c"))
	receipt := first.outcome().GetReceipt()
	if o := again.outcome(); o.GetReceipt() != receipt {
		t.Errorf("%v", o)
	}
	changed("ended")
	b.restart(quick())
	changed("recorded")
	if o := b.call("c", gatewaytest.Slow, `{"a":1}`).outcome(); o.GetReceipt() != receipt {
		t.Errorf("%v", o)
	}
	if n := b.plane.Ran(b.name("c")); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// Another principal's call is not there: not to call again, attach, cancel or read (R108 stays within its owner).
func TestAnothersCallIsNotThere(t *testing.T) {
	b := start(t, quick())
	b.call("c", gatewaytest.Slow, `{}`).started()
	check := func(when string) {
		t.Helper()
		mallory := b.srv.Calls(b.srv.Caller("mallory"))
		if err := b.attach(mallory, b.name("c"), 0).fails(); errs.ReasonOf(err) != "CALL_NOT_FOUND" {
			t.Errorf("%s, attach: %v", when, err)
		}
		_, err := mallory.CancelCall(b.ctx(), &gatewayv1.CancelCallRequest{Name: b.name("c")})
		if errs.ReasonOf(err) != "CALL_NOT_FOUND" {
			t.Errorf("%s, cancel: %v", when, err)
		}
		_, err = mallory.GetCall(b.ctx(), &gatewayv1.GetCallRequest{Name: b.name("c")})
		if errs.ReasonOf(err) != "CALL_NOT_FOUND" {
			t.Errorf("%s, get: %v", when, err)
		}
		in, err := mallory.CallTool(b.ctx(), &gatewayv1.CallToolRequest{Turn: b.turn, Call: "c", Tool: gatewaytest.Slow})
		if err == nil {
			_, err = in.Recv()
		}
		if errs.ReasonOf(err) != "TURN_NOT_FOUND" {
			t.Errorf("%s, call: %v", when, err)
		}
		if all, err := mallory.ListCalls(b.ctx(), &gatewayv1.ListCallsRequest{}); err != nil || len(all.GetCalls()) != 0 {
			t.Errorf("%s, list: %v %v", when, all, err)
		}
	}
	check("running")
	b.restart(quick())
	check("running, unknown here")
	b.plane.Release(b.name("c"))
	testkit.WaitFor(t, patience, func() bool { return len(b.plane.Receipts(b.name("c"))) == 1 })
	check("recorded")
}

// CancelCall and CancelTurn cancel, EndTurn does not; what had begun says so (design.md, One call; R49).
func TestCancel(t *testing.T) {
	t.Run("running", func(t *testing.T) {
		b := start(t, quick())
		s := b.call("c", gatewaytest.Slow, `{}`).started()
		if _, err := b.calls.CancelCall(b.ctx(), &gatewayv1.CancelCallRequest{Name: b.name("c"), Reason: "enough"}); err != nil {
			t.Fatal(err)
		}
		b.want(s.outcome(), commonv1.OutcomeState_OUTCOME_STATE_CANCELLED)
		if _, err := b.calls.CancelCall(b.ctx(), &gatewayv1.CancelCallRequest{Name: b.name("c")}); err != nil {
			t.Errorf("cancelling what ended: %v", err)
		}
	})
	t.Run("waiting for a person", func(t *testing.T) {
		b := start(t, quick())
		s := b.call("c", gatewaytest.Write, `{}`)
		s.card()
		if _, err := b.calls.CancelCall(b.ctx(), &gatewayv1.CancelCallRequest{Name: b.name("c")}); err != nil {
			t.Fatal(err)
		}
		if b.plane.Answer(b.name("c"), permissionv1.CardState_CARD_STATE_APPROVED) {
			t.Error("the card was still open after CancelCall")
		}
		b.want(s.outcome(), commonv1.OutcomeState_OUTCOME_STATE_CANCELLED)
		if b.plane.Ran(b.name("c")) != 0 {
			t.Error("it ran")
		}
	})
	t.Run("unknown to this gateway", func(t *testing.T) {
		b := start(t, quick())
		b.call("r", gatewaytest.Slow, `{}`).started()
		b.call("w", gatewaytest.Write, `{}`).card()
		b.restart(quick())
		for _, id := range []string{"r", "w"} {
			if _, err := b.calls.CancelCall(b.ctx(), &gatewayv1.CancelCallRequest{Name: b.name(id)}); err != nil {
				t.Fatal(err)
			}
			b.want(b.attach(b.calls, b.name(id), 0).outcome(), commonv1.OutcomeState_OUTCOME_STATE_CANCELLED)
		}
	})
	t.Run("its turn", func(t *testing.T) {
		b := start(t, quick())
		run, ask := b.call("r", gatewaytest.Slow, `{}`).started(), b.call("w", gatewaytest.Write, `{}`)
		ask.card()
		b.plane.EndTurn(b.turn, registryv1.TurnState_TURN_STATE_CANCELLED)
		b.want(run.outcome(), commonv1.OutcomeState_OUTCOME_STATE_CANCELLED)
		b.want(ask.outcome(), commonv1.OutcomeState_OUTCOME_STATE_CANCELLED)
	})
	t.Run("its turn, while the registry was away", func(t *testing.T) {
		b := start(t, quick())
		s := b.call("r", gatewaytest.Slow, `{}`).started()
		b.plane.Away("registry", true)
		b.plane.EndTurn(b.turn, registryv1.TurnState_TURN_STATE_CANCELLED)
		b.plane.Away("registry", false)
		b.want(s.outcome(), commonv1.OutcomeState_OUTCOME_STATE_CANCELLED)
	})
	t.Run("an ended turn lets its calls finish", func(t *testing.T) {
		b := start(t, quick())
		s := b.call("r", gatewaytest.Slow, `{}`).started()
		b.plane.EndTurn(b.turn, registryv1.TurnState_TURN_STATE_ENDED)
		if err := b.call("x", gatewaytest.Read, `{}`).fails(); errs.ReasonOf(err) != "TURN_ENDED" {
			t.Errorf("%v", err)
		}
		b.plane.Release(b.name("r"))
		b.want(s.outcome(), commonv1.OutcomeState_OUTCOME_STATE_COMPLETED)
	})
}
