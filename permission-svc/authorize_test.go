package permission_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	rpcstatus "google.golang.org/grpc/status"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/command"
	"github.com/writ-dev/writ/internal/errs"
	permission "github.com/writ-dev/writ/permission-svc"
	"github.com/writ-dev/writ/permission-svc/permissiontest"
)

func statusError(d *permissionv1.Denied) error { return rpcstatus.ErrorProto(d.GetStatus()) }

// R46-R49: a call asks, the same call finds the same card, a person says yes, and the writ says all of it.
func TestACallIsAskedOnceAndThenAllowed(t *testing.T) {
	h := start(t, permission.Config{})
	h.turn("t_1", manual)
	const args = `{"n":9007199254740993,"path":"a.txt"}`
	c := h.ask("t_1", "c1", "mcp.fs.write_file", args)
	if c.GetPreview().GetTitle() != "fs · write_file" || !strings.Contains(c.GetWhy(), "mode manual, class external mutation") || string(c.GetArguments()) != args {
		t.Fatalf("%v", c)
	}
	if again := h.ask("t_1", "c1", "fs__write_file", args); again.GetId() != c.GetId() || again.GetEtag() != c.GetEtag() {
		t.Fatalf("asked twice: %v", again)
	}
	h.clock.advance(7 * 24 * time.Hour)
	h.want(h.authorize("t_1", "c1", "mcp.fs.write_file", args), "pending")
	done := h.approve(c, once)
	if done.GetDecidedBy().GetId() != "alice" || done.GetDecidedWith() != "approver-alice" || done.GetReason() != "because" ||
		!done.GetDecideTime().AsTime().After(done.GetAskTime().AsTime()) || done.GetGrant() != "" {
		t.Fatalf("%v", done)
	}
	r := h.authorize("t_1", "c1", "mcp.fs.write_file", args)
	claims := h.verify(r)
	if claims.CheckArguments([]byte(args)) != nil || claims.CheckArguments([]byte(strings.Replace(args, "993", "992", 1))) == nil {
		t.Fatal("the writ is not for exactly these bytes")
	}
	root := &writtoken.Folder{Path: "/work/notes", Dev: 7, Ino: 9007199254740993}
	if claims.Decision != (writtoken.Decision{ID: c.GetId(), Cause: "card", Card: c.GetId()}) || claims.CheckRoot(root) != nil || claims.Scopes.Network.Mode != "open" ||
		claims.Class != "external_mutation" || claims.Subject.ID != "bot" || claims.Turn != "t_1" || claims.Call != "c1" || claims.Expiry.Sub(claims.NotBefore) != time.Minute {
		t.Fatalf("%+v", claims)
	}
	if claims.CheckTool("mcp.fs.write_file", permissiontest.Digest("wire write_file"), permissiontest.Digest("mcp.fs")) != nil || r.GetAllowed().GetExecutor() != "mcp-host" {
		t.Fatalf("%+v", claims)
	}
	if other := h.verify(h.authorize("t_1", "c1", "mcp.fs.write_file", args)); other.ID == claims.ID {
		t.Error("two writs have one jti")
	}
}

// R43: what the table lets run has no card and no commit of its own.
func TestWhatRunsNeedsNoCard(t *testing.T) {
	h := start(t, permission.Config{})
	h.wide()
	h.turn("t_1", bypass)
	claims := h.verify(h.write("t_1", "c1"))
	if claims.Decision.Cause != "mode" || claims.Decision.Card != "" {
		t.Fatalf("%+v", claims.Decision)
	}
	l, err := permissionv1.NewCardServiceClient(h.Approver("alice")).ListCards(t.Context(), &permissionv1.ListCardsRequest{})
	if err != nil || len(l.GetCards()) != 0 || h.Evidence.Attempts() != 0 {
		t.Fatal(l, err)
	}
}

// R42, R51, ruling 12: refusals are sealed before they are answered, each with its reason.
func TestRefusals(t *testing.T) {
	h := start(t, permission.Config{})
	h.wide()
	unclassified := func(c *registryv1.TurnTool) { c.Class = 0 }
	unknownClass := func(c *registryv1.TurnTool) { c.Class = 77 }
	read := func(c *registryv1.TurnTool) { c.Class = commonv1.SecurityClass_SECURITY_CLASS_READ }
	blocked := func(c *registryv1.TurnTool) { c.Disposition = commonv1.Disposition_DISPOSITION_BLOCKED }
	none := func(c *registryv1.TurnTool) { c.Disposition = 0 }
	for i, c := range []struct {
		mode   commonv1.Mode
		change func(*registryv1.TurnTool)
		want   string
	}{
		{plan, read, "denied MODE_REFUSES"}, {plan, func(*registryv1.TurnTool) {}, "denied MODE_REFUSES"}, {bypass, unclassified, "denied TOOL_UNCLASSIFIED"},
		{bypass, unknownClass, "denied TOOL_UNCLASSIFIED"}, {bypass, blocked, "denied TOOL_BLOCKED"}, {bypass, none, "denied TOOL_BLOCKED"}, {commonv1.Mode(42), read, "denied MODE_REFUSES"},
		{0, read, "denied MODE_REFUSES"},
	} {
		turn := fmt.Sprintf("t_%d", i)
		h.turn(turn, c.mode)
		h.Registry.Change(turn, "mcp.fs.write_file", c.change)
		r := h.write(turn, "c1")
		h.want(r, c.want)
		sealed := h.Evidence.Of("turns/" + turn + "/calls/c1")
		if sealed.GetId() == "" || sealed.GetId() != r.GetDenied().GetReceipt() || sealed.GetState() != commonv1.OutcomeState_OUTCOME_STATE_DENIED || "denied "+sealed.GetReason() != c.want {
			t.Errorf("%s: %v", c.want, sealed)
		}
		if again := h.write(turn, "c1"); again.GetDenied().GetReceipt() != sealed.GetId() {
			t.Errorf("a second receipt for the same call: %v", again)
		}
	}
}

// Nothing is answered without its receipt: while evidence is down there is no denial, and it comes when evidence is back.
func TestNoDenialWithoutReceipt(t *testing.T) {
	h := start(t, permission.Config{})
	h.turn("t_1", plan)
	h.Evidence.Down(true)
	_, err := h.try(h.Caller("bot"), "t_1", "c1", "mcp.fs.write_file", `{}`)
	if errs.ReasonOf(err) != "PEER_UNAVAILABLE" {
		t.Fatal(err)
	}
	h.Evidence.Down(false)
	h.want(h.authorize("t_1", "c1", "mcp.fs.write_file", `{}`), "denied MODE_REFUSES")
}

// Bad input of each kind is a typed error before anything is looked up.
func TestBadInput(t *testing.T) {
	h := start(t, permission.Config{})
	h.turn("t_1", manual)
	h.turn("t_none", manual, func(t *registryv1.Turn) { t.Workspace = nil })
	for _, c := range []struct{ turn, call, tool, args, reason string }{
		{"t_1", "c", "mcp.fs.write_file", `{"a":1,"a":2}`, "JSON_INVALID"}, {"t_1", "c", "mcp.fs.write_file", `[]`, "JSON_INVALID"}, {"t_1", "c", "mcp.fs.write_file", ``, "JSON_INVALID"},
		{"t_1", "c", "mcp.fs.write_file", `{"a":"\ud800"}`, "JSON_INVALID"}, {"t_1", "c", "mcp.fs.write_file", "{\"a\":\"\xff\"}", "JSON_INVALID"},
		{"t_1", "c", "mcp.fs.write_file", strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100), "JSON_INVALID"},
		{"t_1", "c", "mcp.fs.write_file", `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, "LIMIT_EXCEEDED"},
		{"t_1", "c/d", "mcp.fs.write_file", `{}`, "FIELD_INVALID"}, {"t_1", "", "mcp.fs.write_file", `{}`, "FIELD_INVALID"},
		{"t_1", "c", "mcp.fs.nope", `{}`, "TOOL_NOT_FOUND"}, {"t_nope", "c", "mcp.fs.write_file", `{}`, "TURN_NOT_FOUND"},
		{"t_1", "c", "run_command", `{}`, "ARGUMENTS_INVALID"}, {"t_1", "c", "run_command", `{"command":"ls","Cwd":"/"}`, "ARGUMENTS_INVALID"},
		{"t_1", "c", "run_command", `{"command":"ls","cwd":"/etc"}`, "OUTSIDE_WORKSPACE"}, {"t_1", "c", "run_command", `{"command":"ls","cwd":"../x"}`, "ARGUMENTS_INVALID"},
		{"t_1", "c", "run_command", `{"command":"ls","cwd":"/work/notes-2"}`, "OUTSIDE_WORKSPACE"}, {"t_none", "c", "run_command", `{"command":"ls","cwd":"sub"}`, "WORKSPACE_UNAVAILABLE"},
	} {
		_, err := h.try(h.Caller("bot"), c.turn, c.call, c.tool, c.args)
		if got := errs.ReasonOf(err); got != c.reason {
			t.Errorf("%.60s: %v, want %s", c.args, err, c.reason)
		}
	}
}

// Another's turn is not there, not even for asking whether it has a tool.
func TestAnothersTurnIsNotThere(t *testing.T) {
	h := start(t, permission.Config{})
	h.turn("t_1", manual)
	for _, tool := range []string{"mcp.fs.write_file", "mcp.fs.nope"} {
		_, err := h.try(h.Caller("mallory"), "t_1", "c", tool, `{}`)
		wantReason(t, err, "TURN_NOT_FOUND")
		_, err = h.try(h.Approver("bot"), "t_1", "c", tool, `{}`) // the same id, another kind of principal
		wantReason(t, err, "TURN_NOT_FOUND")
	}
}

// R100: the call's name is bound to its tool and its bytes.
func TestACallsNameIsUsedOnce(t *testing.T) {
	h := start(t, permission.Config{})
	h.turn("t_1", manual)
	h.ask("t_1", "c1", "mcp.fs.write_file", `{"a":1}`)
	for _, c := range [][2]string{{"mcp.fs.write_file", `{"a":2}`}, {"mcp.fs.write_file", `{ "a":1}`}, {"mcp.fs.read_file", `{"a":1}`}} {
		_, err := h.try(h.Caller("bot"), "t_1", "c1", c[0], c[1])
		wantReason(t, err, "CALL_CHANGED")
	}
}

// An ended turn takes no call; what was asked in it and approved too late is stale.
func TestAnEndedTurn(t *testing.T) {
	h := start(t, permission.Config{})
	h.turn("t_1", manual)
	c := h.ask("t_1", "c1", "mcp.fs.write_file", `{"path":"a"}`)
	h.approve(c, once)
	h.Registry.End("t_1", registryv1.TurnState_TURN_STATE_ENDED)
	h.want(h.write("t_1", "c1"), "stale turn")
	_, err := h.try(h.Caller("bot"), "t_1", "c2", "mcp.fs.write_file", `{}`)
	wantReason(t, err, "TURN_ENDED")
	h.turn("t_2", manual)
	h.Registry.End("t_2", registryv1.TurnState_TURN_STATE_CANCELLED)
	h.want(h.write("t_2", "c1"), "cancelled")
}

// Minting is the last evaluation: what changed after a person's answer makes it stale, what got blocked denies it.
func TestWhatChangedAfterTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*house)
		want   string
	}{
		"time":     {func(h *house) { h.clock.advance(time.Hour + time.Second) }, "stale time"},
		"not yet":  {func(h *house) { h.clock.advance(time.Hour - time.Minute) }, "allowed"},
		"provider": {func(h *house) { h.Registry.Replace("mcp.fs", permissiontest.Digest("other")) }, "stale provider"},
		"fingerprint": {func(h *house) {
			h.Registry.Change("t_1", "mcp.fs.write_file", func(t *registryv1.TurnTool) { t.Tool.Identity.WireFingerprint = permissiontest.Digest("x") })
		}, "stale fingerprint"},
		"disabled": {func(h *house) { h.Registry.Disable("mcp.fs") }, "denied TOOL_BLOCKED"},
		"blocked": {func(h *house) {
			h.dispose(&permissionv1.ToolSetting{Tool: "mcp.fs.*", Disposition: commonv1.Disposition_DISPOSITION_BLOCKED})
		}, "denied TOOL_BLOCKED"},
		"mode off": {func(h *house) {
			h.settings(func(s *permissionv1.Settings) { s.ModesOff = []commonv1.Mode{manual} })
		}, "denied MODE_NOT_ALLOWED"},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, permission.Config{})
			h.turn("t_1", manual)
			h.approve(h.ask("t_1", "c1", "mcp.fs.write_file", `{"path":"a"}`), once)
			c.change(h)
			r := h.write("t_1", "c1")
			h.want(r, c.want)
			if c.want != "allowed" && r.GetDenied().GetReceipt() == "" {
				t.Error("no receipt")
			}
			h.want(h.write("t_1", "c1"), c.want) // and it stays so
		})
	}
}

// R39, R86: a command's writ lets it reach the workspace and nothing else, unless it says more.
func TestWhatACommandMayReach(t *testing.T) {
	h := start(t, permission.Config{})
	h.wide()
	h.turn("t_1", bypass)
	args := `{"command":"make test","cwd":"sub","env":{"A":"1"},"timeout_seconds":1.5}`
	claims := h.verify(h.authorize("t_1", "c1", "run_command", args))
	in := writtoken.CommandInput{Line: "make test", Cwd: "sub", Env: []writtoken.EnvVar{{Name: "A", Value: "1"}}}
	if err := claims.CheckCommand(in, "none"); err != nil {
		t.Fatal(err)
	}
	in.Line = "make tes"
	if claims.CheckCommand(in, "none") == nil {
		t.Fatal("the writ is for another command too")
	}
	folder := writtoken.Folder{Path: "/work/notes", Dev: 7, Ino: 9007199254740993}
	if claims.CheckPath(folder, true) != nil || len(claims.Scopes.Paths) != 1 || claims.Scopes.HostExecution || claims.Exec.Timeout != 1500*time.Millisecond || claims.ProviderDigest != command.ProviderDigest() {
		t.Fatalf("%+v", claims)
	}
	if open := h.verify(h.authorize("t_1", "c2", "run_command", `{"argv":["curl","x"],"network":"open"}`)); open.Scopes.Network.Mode != "open" {
		t.Fatalf("%+v", open.Scopes)
	}
}

// R44, R82, R86: what asks in Auto, and host execution, which asks in Bypass too.
func TestWhichCommandsAsk(t *testing.T) {
	h := start(t, permission.Config{})
	h.wide()
	h.turn("t_auto", auto)
	h.turn("t_bypass", bypass)
	for i, c := range []struct{ turn, args, want string }{
		{"t_auto", `{"command":"ls -la"}`, "allowed"}, {"t_auto", `{"command":"npm run rm-cache"}`, "allowed"}, {"t_auto", `{"command":"rm -rf build"}`, "pending"},
		{"t_auto", `{"argv":["rm","x"]}`, "pending"}, {"t_auto", `{"argv":["echo","rm"]}`, "allowed"}, {"t_auto", `{"command":"$X y"}`, "pending"},
		{"t_auto", `{"command":"ls","env":{"PATH":"/work/notes"}}`, "pending"}, {"t_auto", `{"command":"make","network":"open"}`, "pending"},
		{"t_auto", `{"command":"make","isolation":"restricted"}`, "pending"}, {"t_auto", `{"argv":["sh"],"stdin":"rm -rf x"}`, "pending"},
		{"t_bypass", `{"command":"rm -rf build"}`, "allowed"}, {"t_bypass", `{"command":"ls","isolation":"host"}`, "pending"},
	} {
		h.want(h.authorize(c.turn, fmt.Sprint("c", i), "run_command", c.args), c.want)
	}
	card := h.ask("t_bypass", "host", "run_command", `{"command":"ls","isolation":"host"}`)
	if len(card.GetRemember()) != 1 || !strings.Contains(card.GetEnforcement(), "without a sandbox") || card.GetPreview().GetCommand() != "ls" {
		t.Fatalf("%v", card)
	}
	h.approve(card, once)
	if claims := h.verify(h.authorize("t_bypass", "host", "run_command", `{"command":"ls","isolation":"host"}`)); !claims.Scopes.HostExecution || claims.Decision.Cause != "card" {
		t.Fatalf("%+v", claims)
	}
}

// A service may act for an agent, which the writ says, and nobody else may: design "Trust" 2.
func TestAServiceActsForAnAgent(t *testing.T) {
	h := start(t, permission.Config{})
	h.turn("t_1", manual)
	bot := &commonv1.Principal{Id: "bot", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT, Namespace: "default"}
	authorize := func(conn permissionv1.AuthorizationServiceClient, p *commonv1.Principal) (*permissionv1.AuthorizeResponse, error) {
		ctx := t.Context()
		if p != nil {
			ctx = auth.OnBehalfOf(ctx, p)
		}
		return conn.Authorize(ctx, &permissionv1.AuthorizeRequest{Turn: "t_1", Call: "c1", Tool: "mcp.fs.write_file", Arguments: []byte(`{"path":"a"}`)})
	}
	gateway := permissionv1.NewAuthorizationServiceClient(h.Service("gateway"))
	r, err := authorize(gateway, bot)
	if err != nil {
		t.Fatal(err)
	}
	h.approve(r.GetPending().GetCard(), once)
	if r, err = authorize(gateway, bot); err != nil {
		t.Fatal(err)
	}
	if claims := h.verify(r); claims.AssertedBy != "gateway" || claims.Subject.ID != "bot" || claims.Subject.Kind != "agent" {
		t.Fatalf("%+v", claims)
	}
	_, err = authorize(gateway, nil) // a service's own turns are not an agent's
	wantReason(t, err, "TURN_NOT_FOUND")
	_, err = authorize(permissionv1.NewAuthorizationServiceClient(h.Caller("mallory")), bot)
	wantReason(t, err, "ON_BEHALF_REFUSED")
	elsewhere := &commonv1.Principal{Id: "bot", Kind: bot.Kind, Namespace: "elsewhere"}
	_, err = authorize(gateway, elsewhere)
	wantReason(t, err, "TURN_NOT_FOUND")
}
