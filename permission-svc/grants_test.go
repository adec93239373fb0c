package permission_test

import (
	"fmt"
	"testing"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/testkit"
	permission "github.com/writ-dev/writ/permission-svc"
	"github.com/writ-dev/writ/permission-svc/permissiontest"
)

const (
	forTurn         = permissionv1.Lifetime_LIFETIME_TURN
	forConversation = permissionv1.Lifetime_LIFETIME_CONVERSATION
	forNamespace    = permissionv1.Lifetime_LIFETIME_NAMESPACE
)

// R47: an answer for the conversation is silent in it, at once and in its turn too, and asks in another one.
func TestAnAnswerStandsForItsScope(t *testing.T) {
	for lifetime, want := range map[permissionv1.Lifetime]map[string]string{
		once:            {"same turn": "pending", "same conversation": "pending", "other conversation": "pending"},
		forTurn:         {"same turn": "allowed", "same conversation": "pending", "other conversation": "pending"},
		forConversation: {"same turn": "allowed", "same conversation": "allowed", "other conversation": "pending"},
		forNamespace:    {"same turn": "allowed", "same conversation": "allowed", "other conversation": "allowed"},
	} {
		t.Run(lifetime.String(), func(t *testing.T) {
			h := start(t, permission.Config{})
			h.turn("t_1", manual)
			h.turn("t_2", manual)
			h.turn("t_3", manual, func(t *registryv1.Turn) { t.Conversation = "another" })
			card := h.approve(h.ask("t_1", "c1", "mcp.fs.write_file", `{"path":"a"}`), lifetime)
			h.want(h.write("t_1", "c1"), "allowed")
			h.want(h.write("t_1", "c2"), want["same turn"])
			h.want(h.write("t_2", "c1"), want["same conversation"])
			h.want(h.write("t_3", "c1"), want["other conversation"])
			if (card.GetGrant() != "") != (lifetime != once) {
				t.Error(card.GetGrant())
			}
			if want["same turn"] == "allowed" {
				if d := h.verify(h.write("t_1", "c3")).Decision; d.Cause != "grant" || d.Grant != card.GetGrant() {
					t.Errorf("%+v", d)
				}
			}
		})
	}
}

// A grant is for the tool, the definition, the provider, the principal and the agent that the person saw, for no other.
func TestAGrantIsForWhatThePersonSaw(t *testing.T) {
	h := start(t, permission.Config{})
	h.turn("t_1", manual)
	h.approve(h.ask("t_1", "c1", "mcp.fs.write_file", `{"path":"a"}`), forNamespace)
	h.want(h.authorize("t_1", "c2", "mcp.fs.read_file", `{}`), "pending")
	h.turn("t_agent", manual, func(t *registryv1.Turn) { t.Agent = "other" })
	h.want(h.write("t_agent", "c1"), "pending")
	h.turn("t_changed", manual)
	h.Registry.Change("t_changed", "mcp.fs.write_file", func(t *registryv1.TurnTool) { t.Tool.Identity.WireFingerprint = permissiontest.Digest("new") })
	h.want(h.write("t_changed", "c1"), "pending")
	h.turn("t_provider", manual)
	h.Registry.Change("t_provider", "mcp.fs.write_file", func(t *registryv1.TurnTool) { t.Tool.Identity.ProviderDigest = permissiontest.Digest("new") })
	h.want(h.write("t_provider", "c1"), "pending")
	h.turn("t_other", manual, func(t *registryv1.Turn) { t.Principal.Id = "mallory" })
	r, err := h.try(h.Caller("mallory"), "t_other", "c1", "mcp.fs.write_file", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	h.want(r, "pending")
	h.turn("t_plan", plan)
	h.want(h.write("t_plan", "c1"), "denied MODE_REFUSES") // never lifts a refusal
}

// Revoking acts at once, in the same turn, also for a call that was approved by it and has not run.
func TestRevokingActsAtOnce(t *testing.T) {
	h := start(t, permission.Config{})
	h.turn("t_1", manual)
	card := h.approve(h.ask("t_1", "c1", "mcp.fs.write_file", `{"path":"a"}`), forConversation)
	h.want(h.write("t_1", "c2"), "allowed")
	grants := permissionv1.NewGrantServiceClient(h.Approver("alice"))
	for range 2 {
		r, err := grants.RevokeGrant(t.Context(), &permissionv1.RevokeGrantRequest{Grant: card.GetGrant()})
		if err != nil || r.GetGrant().GetRevokeTime() == nil {
			t.Fatal(r, err)
		}
	}
	h.want(h.write("t_1", "c2"), "pending")
	h.want(h.write("t_1", "c1"), "stale grant")
	_, err := grants.RevokeGrant(t.Context(), &permissionv1.RevokeGrantRequest{Grant: "g_nope"})
	wantReason(t, err, "GRANT_NOT_FOUND")
	live, err := grants.ListGrants(t.Context(), &permissionv1.ListGrantsRequest{})
	all, errAll := grants.ListGrants(t.Context(), &permissionv1.ListGrantsRequest{IncludeEnded: true})
	if err != nil || errAll != nil || len(live.GetGrants()) != 0 || len(all.GetGrants()) != 1 || all.GetGrants()[0].GetGrantedBy().GetId() != "alice" || all.GetGrants()[0].GetCard() != card.GetId() {
		t.Fatal(live, all, err, errAll)
	}
}

// An answer from one place releases all who wait for it, and only those that it covers.
func TestAnAnswerReleasesTheOthers(t *testing.T) {
	h := start(t, permission.Config{})
	h.turn("t_1", manual)
	h.turn("t_2", manual, func(t *registryv1.Turn) { t.Conversation = "another" })
	first := h.ask("t_1", "c1", "mcp.fs.write_file", `{"path":"a"}`)
	same := h.ask("t_1", "c2", "mcp.fs.write_file", `{"path":"a"}`)
	tool := h.ask("t_1", "c3", "mcp.fs.read_file", `{}`)
	other := h.ask("t_2", "c1", "mcp.fs.write_file", `{"path":"a"}`)
	h.approve(first, forConversation)
	if c := h.card(same.GetId()); c.GetState() != permissionv1.CardState_CARD_STATE_APPROVED || c.GetDecidedBy().GetId() != "alice" || c.GetGrant() == "" {
		t.Errorf("%v", c)
	}
	for _, c := range []*permissionv1.Card{tool, other} {
		if h.card(c.GetId()).GetState() != permissionv1.CardState_CARD_STATE_PENDING {
			t.Errorf("%v was released", c)
		}
	}
	h.want(h.write("t_1", "c2"), "allowed")
}

// R45: "always allow" on a command remembers its word, never the class and never the line: rm once does not silence dd,
// and network is a grant of its own (R86).
func TestACommandsWordIsRemembered(t *testing.T) {
	h := start(t, permission.Config{})
	h.turn("t_1", manual)
	run := func(call, args string) *permissionv1.AuthorizeResponse {
		return h.authorize("t_1", call, "run_command", args)
	}
	card := h.approve(h.ask("t_1", "c1", "run_command", `{"command":"rm -rf build"}`), forConversation)
	grants, err := permissionv1.NewGrantServiceClient(h.Approver("alice")).ListGrants(t.Context(), &permissionv1.ListGrantsRequest{})
	if err != nil || len(grants.GetGrants()) != 1 || grants.GetGrants()[0].GetCommandWord() != "rm" || grants.GetGrants()[0].GetId() != card.GetGrant() {
		t.Fatal(grants, err)
	}
	for i, c := range []struct{ args, want string }{
		{`{"command":"rm other"}`, "allowed"}, {`{"argv":["rm","x"]}`, "allowed"}, {`{"command":"cd sub && rm x"}`, "allowed"}, {`{"command":"rm x; rm y"}`, "allowed"},
		{`{"command":"dd if=a of=b"}`, "pending"}, {`{"command":"rm x && curl y | sh"}`, "pending"}, {`{"command":"rm $(curl x)"}`, "pending"}, {`{"command":"ls"}`, "pending"},
		{`{"command":"sudo rm x"}`, "pending"}, {`{"command":"./rm x"}`, "pending"}, {`{"command":"rm x","network":"open"}`, "pending"},
		{`{"command":"rm x","env":{"LD_PRELOAD":"/work/notes/x.so"}}`, "pending"}, {`{"command":"rm x","isolation":"host"}`, "pending"}, {`{"command":"rm x","isolation":"guarded"}`, "pending"},
		{`{"command":"rm x > y"}`, "pending"},
	} {
		if got := word(run(fmt.Sprint("d", i), c.args)); got != c.want {
			t.Errorf("%s: %s, want %s", c.args, got, c.want)
		}
	}
	h.approve(h.ask("t_1", "n1", "run_command", `{"command":"npm install","network":"open"}`), forConversation)
	h.want(run("n2", `{"command":"npm install","network":"open"}`), "allowed")
	h.want(run("n3", `{"command":"npm install"}`), "pending")
	h.want(run("n4", `{"command":"npm publish","network":"open"}`), "pending")
	for call, args := range map[string]string{"o1": `{"command":"$X y"}`, "o2": `{"command":"sudo ls"}`, "o3": `{"command":"a; b"}`, "o4": `{"command":"ls","isolation":"host"}`} {
		if c := h.ask("t_1", call, "run_command", args); len(c.GetRemember()) != 1 || c.GetRemember()[0].GetLifetime() != once {
			t.Errorf("%s offers %v", args, c.GetRemember())
		}
	}
}

// R53: what always asks is answered for one call only, and no grant of before lifts it.
func TestWhatAlwaysAsksIsNeverRemembered(t *testing.T) {
	for name, tighten := range map[string]func(*house){
		"always gated": func(h *house) { h.dispose(&permissionv1.ToolSetting{Tool: "mcp.fs.write_file", AlwaysGate: true}) },
		"ask first": func(h *house) {
			h.dispose(&permissionv1.ToolSetting{Tool: "mcp.fs.*", Disposition: commonv1.Disposition_DISPOSITION_ASK_FIRST})
		},
		"the class always asks": func(h *house) {
			h.settings(func(s *permissionv1.Settings) {
				s.AlwaysAsk = []commonv1.SecurityClass{commonv1.SecurityClass_SECURITY_CLASS_EXTERNAL_MUTATION}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, permission.Config{})
			h.wide()
			h.turn("t_1", manual)
			h.turn("t_bypass", bypass)
			h.approve(h.ask("t_1", "c1", "mcp.fs.write_file", `{"path":"a"}`), forNamespace)
			h.want(h.write("t_1", "c2"), "allowed")
			h.want(h.write("t_bypass", "c1"), "allowed")
			tighten(h)
			h.want(h.write("t_1", "c2"), "pending")
			c := h.ask("t_bypass", "c2", "mcp.fs.write_file", `{"path":"a"}`)
			if len(c.GetRemember()) != 1 {
				t.Errorf("offers %v", c.GetRemember())
			}
			_, err := h.decide(h.Approver("alice"), c, yes, forNamespace)
			wantReason(t, err, "LIFETIME_NOT_OFFERED")
			h.approve(c, once)
			h.want(h.write("t_bypass", "c2"), "allowed")
		})
	}
}

// Grants are seen by whom they are for and by who approves, and page without loss.
func TestWhoSeesGrants(t *testing.T) {
	h := start(t, permission.Config{})
	h.turn("t_1", manual)
	for i, tool := range []string{"mcp.fs.write_file", "mcp.fs.read_file"} {
		h.approve(h.ask("t_1", fmt.Sprint("c", i), tool, `{}`), forNamespace)
	}
	for who, want := range map[permissionv1.GrantServiceClient]int{
		permissionv1.NewGrantServiceClient(h.Caller("bot")): 2, permissionv1.NewGrantServiceClient(h.Caller("mallory")): 0, permissionv1.NewGrantServiceClient(h.As(testkit.Approver("bob"))): 2,
	} {
		n, token := 0, ""
		for {
			r, err := who.ListGrants(t.Context(), &permissionv1.ListGrantsRequest{PageSize: 1, PageToken: token})
			if err != nil {
				t.Fatal(err)
			}
			n += len(r.GetGrants())
			if token = r.GetNextPageToken(); token == "" {
				break
			}
		}
		if n != want {
			t.Errorf("%d grants, want %d", n, want)
		}
	}
}
