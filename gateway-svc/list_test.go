package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	gateway "github.com/writ-dev/writ/gateway-svc"
	"github.com/writ-dev/writ/gateway-svc/gatewaytest"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/testkit"
)

func (b *bench) list(calls gatewayv1.CallServiceClient, req *gatewayv1.ListCallsRequest) (all []*gatewayv1.Call) {
	b.t.Helper()
	for pages := 0; ; pages++ {
		answer, err := calls.ListCalls(b.ctx(), req)
		if err != nil || pages > 100 {
			b.t.Fatalf("page %d: %v", pages, err)
		}
		if n := len(answer.GetCalls()); req.GetPageSize() > 0 && n > int(req.GetPageSize()) {
			b.t.Errorf("%d calls on a page of %d", n, req.GetPageSize())
		}
		all = append(all, answer.GetCalls()...)
		if req.PageToken = answer.GetNextPageToken(); req.PageToken == "" {
			return all
		}
	}
}

func ids(calls []*gatewayv1.Call) (list []string) {
	for _, c := range calls {
		list = append(list, c.GetName()[strings.LastIndex(c.GetName(), "/")+1:])
	}
	return list
}

// ListCalls shows what runs and waits, here or only on its card, then what is recorded, newest first, in pages.
func TestListCalls(t *testing.T) {
	b := start(t, quick())
	b.call("card", gatewaytest.Write, `{}`).card()
	for n := range 7 {
		b.call(fmt.Sprintf("ended%d", n), gatewaytest.Read, `{"n":1}`).outcome()
	}
	b.call("denied", gatewaytest.Deny, `{}`).outcome()
	b.restart(quick())
	b.call("running", gatewaytest.Slow, `{}`).started()
	b.call("waiting", gatewaytest.Write, `{}`).card()
	want := []string{"card", "denied", "ended6", "ended5", "ended4", "ended3", "ended2", "ended1", "ended0"}
	for _, size := range []int32{0, 1, 2, 3, 100} {
		got := ids(b.list(b.calls, &gatewayv1.ListCallsRequest{PageSize: size}))
		slices.Sort(got[:2])
		if !slices.Equal(got[:2], []string{"running", "waiting"}) || !slices.Equal(got[2:], want) {
			t.Errorf("pages of %d: %v", size, got)
		}
	}
	if got := b.list(b.calls, &gatewayv1.ListCallsRequest{Turn: "t_other"}); len(got) != 0 {
		t.Errorf("another turn: %v", ids(got))
	}
	if got := b.list(b.calls, &gatewayv1.ListCallsRequest{Conversation: "conversation of alice"}); len(got) != 11 {
		t.Errorf("the conversation: %v", ids(got))
	}
	answer, err := b.calls.ListCalls(b.ctx(), &gatewayv1.ListCallsRequest{PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{answer.GetNextPageToken(), "nonsense"} {
		_, err = b.calls.ListCalls(b.ctx(), &gatewayv1.ListCallsRequest{PageSize: 1, PageToken: token, Turn: "t_other"})
		if errs.ReasonOf(err) != "PAGE_TOKEN_INVALID" {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// An approver sees the calls of the namespace, running, waiting and recorded, but not what they returned.
func TestApproverSeesCallsWithoutResults(t *testing.T) {
	b := start(t, quick())
	b.call("ended", gatewaytest.Read, `{"secret":1}`).outcome()
	b.call("running", gatewaytest.Slow, `{}`).started()
	check := func(when string) {
		t.Helper()
		boss := b.srv.Calls(b.srv.Approver("boss"))
		for id, state := range map[string]gatewayv1.CallState{
			"ended": gatewayv1.CallState_CALL_STATE_ENDED, "running": gatewayv1.CallState_CALL_STATE_RUNNING,
		} {
			got, err := boss.GetCall(b.ctx(), &gatewayv1.GetCallRequest{Name: b.name(id)})
			if err != nil || got.GetCall().GetState() != state || len(got.GetCall().GetOutcome().GetResult()) != 0 {
				t.Errorf("%s, %s: %v %v", when, id, got, err)
			}
		}
		got := ids(b.list(boss, &gatewayv1.ListCallsRequest{}))
		if !slices.Contains(got, "ended") || when == "here" && !slices.Contains(got, "running") {
			t.Errorf("%s: %v", when, got)
		}
	}
	check("here")
	b.restart(quick())
	check("after a restart")
	got, err := b.calls.GetCall(b.ctx(), &gatewayv1.GetCallRequest{Name: b.name("ended")})
	if err != nil || string(got.GetCall().GetOutcome().GetResult()) != `{"secret":1}` {
		t.Errorf("its own: %v %v", got, err)
	}
}

// Over the limits a call is refused with the limit's name and value (design.md, rule 8).
func TestTooManyCalls(t *testing.T) {
	cfg := quick()
	cfg.Limits.RunningPerPrincipal = 1
	b := start(t, cfg)
	b.call("a", gatewaytest.Slow, `{}`).started()
	err := b.call("b", gatewaytest.Slow, `{}`).fails()
	m := errs.Metadata(err)
	if errs.ReasonOf(err) != "TOO_MANY_CALLS" || m["limit_name"] != "running_calls_max_per_principal" || m["limit"] != "1" {
		t.Errorf("%v %v", err, m)
	}
}

// GetServerInfo names version, deployment, services, limits and what the machine enforces.
func TestServerInfo(t *testing.T) {
	cfg := quick()
	cfg.Info = gateway.Info{
		Version: "1.2.3", Deployment: "d_1", Services: []string{"writ.gateway.v1.CallService"}, Limits: map[string]int64{"claims_max": 7},
		Isolation: []string{"isolated: all namespaces"},
	}
	b := start(t, cfg)
	info, err := commonv1.NewServerInfoServiceClient(b.srv.Caller("alice")).GetServerInfo(b.ctx(), &commonv1.GetServerInfoRequest{})
	if err != nil || info.GetVersion() != "1.2.3" || info.GetDeployment() != "d_1" || len(info.GetServices()) != 1 || len(info.GetIsolation()) != 1 ||
		info.GetLimits()["claims_max"] != 7 || info.GetLimits()["open_calls_max"] != 10000 {
		t.Errorf("%v %v", info, err)
	}
}

// One trace follows the call through every peer; a call that resumes after a restart links to the first (R110).
func TestOneTrace(t *testing.T) {
	testkit.NoLeaks(t)
	sink := testkit.NewSink(t)
	plane := gatewaytest.NewPlane()
	t.Cleanup(plane.Close)
	b := &bench{t: t, plane: plane, turn: plane.OpenTurn("alice")}
	serve := func() {
		if b.srv != nil {
			b.srv.Stop()
		}
		b.srv = gatewaytest.StartTraced(t, quick(), plane, func(s string) trace.TracerProvider { return sink.Provider(s) })
		b.calls = b.srv.Calls(b.srv.Caller("alice"))
	}
	serve()
	s := b.call("c", gatewaytest.Read, `{}`)
	s.outcome()
	id := s.events[0].GetAccepted().GetTraceId()
	b.call("w", gatewaytest.Write, `{}`).card()
	first := plane.Card(b.name("w")).GetTraceId()
	b.srv.Stop()
	plane.Answer(b.name("w"), permissionv1.CardState_CARD_STATE_APPROVED)
	serve()
	testkit.WaitFor(t, patience, func() bool { return len(plane.Receipts(b.name("w"))) == 1 })
	b.srv.Stop()

	services, linked := map[string]bool{}, false
	for _, span := range sink.Spans(t) {
		if trace := fmt.Sprintf("%x", span.GetTraceId()); trace == id {
			services[span.Service] = true
			if span.GetName() == "conduct call" && (span.Attr("writ.call") != b.name("c") || span.Attr("writ.tool") != gatewaytest.Read || span.Attr("writ.outcome") != "COMPLETED" || span.Attr("writ.receipt") == "") {
				t.Errorf("%v", span)
			}
		}
		for _, l := range span.GetLinks() {
			linked = linked || span.GetName() == "conduct call" && fmt.Sprintf("%x", l.GetTraceId()) == first
		}
	}
	for _, want := range []string{"writ-gateway", "writ-permission", "writ-mcphost"} {
		if !services[want] {
			t.Errorf("no span of %s in trace %s: %v", want, id, services)
		}
	}
	if !linked {
		t.Error("the resumed call does not link to the first trace")
	}
	if receipts := plane.Receipts(b.name("c")); receipts[0].GetTraceId() != id {
		t.Errorf("the receipt's trace %q, the call's %q", receipts[0].GetTraceId(), id)
	}
}
