package permission_test

import (
	"testing"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/errs"
	permission "github.com/writ-dev/writ/permission-svc"
	"github.com/writ-dev/writ/permission-svc/permissiontest"
)

func (h *house) classify(mode, credential commonv1.Mode, tools ...*permissionv1.ClassifyTool) (*permissionv1.ClassifyToolsResponse, error) {
	return permissionv1.NewSettingsServiceClient(h.Service("registry")).ClassifyTools(h.t.Context(), &permissionv1.ClassifyToolsRequest{
		Mode: mode, CredentialMaxMode: credential, Namespace: "default", Tools: tools,
	})
}

// Design "Trust" 1: without a person's setting the cap is Manual; a mode above cap or credential is refused, not lowered.
func TestTheModeIsCapped(t *testing.T) {
	h := start(t, permission.Config{})
	const edits = commonv1.Mode_MODE_ACCEPT_EDITS
	check := func(mode, credential, want commonv1.Mode, by string) {
		t.Helper()
		r, err := h.classify(mode, credential)
		if by != "" {
			if errs.ReasonOf(err) != "MODE_NOT_ALLOWED" || errs.Metadata(err)["by"] != by {
				t.Errorf("%v of %v: %v, want a refusal by %s", mode, credential, err, by)
			}
			return
		}
		if err != nil || r.GetMode() != want {
			t.Errorf("%v of %v: %v %v, want %v", mode, credential, r.GetMode(), err, want)
		}
	}
	check(0, bypass, manual, "")
	check(manual, bypass, manual, "")
	check(plan, bypass, plan, "")
	check(0, plan, plan, "")
	check(bypass, bypass, 0, "settings")
	check(edits, bypass, 0, "settings")
	check(commonv1.Mode(42), bypass, 0, "settings")
	h.settings(func(s *permissionv1.Settings) { s.ModeCap = bypass })
	check(bypass, auto, 0, "credential")
	check(auto, auto, auto, "")
	check(0, edits, edits, "")
	check(0, 0, manual, "") // a credential without a limit is not one without limits
	check(auto, 0, 0, "credential")
	h.settings(func(s *permissionv1.Settings) { s.ModesOff = []commonv1.Mode{bypass, edits} })
	check(bypass, bypass, 0, "settings")
	check(0, bypass, auto, "")
	check(0, edits, manual, "")
}

// Ruling 12, R41: a tool that nobody classified is external mutation; a person's class and "always allow" hold for the
// provider digest that they were given for; hints raise and never lower; a builtin's class is fixed.
func TestClassification(t *testing.T) {
	h := start(t, permission.Config{})
	digest, read := permissiontest.Digest("mcp.fs"), commonv1.SecurityClass_SECURITY_CLASS_READ
	tool := func(name, digest string, destroys bool) *permissionv1.ClassifyTool {
		return &permissionv1.ClassifyTool{Tool: name, Lane: commonv1.Lane_LANE_MCP, ProviderDigest: digest, DestructiveHint: destroys, BuiltinClass: read}
	}
	const mutation, automatic, allow = commonv1.SecurityClass_SECURITY_CLASS_EXTERNAL_MUTATION, commonv1.Disposition_DISPOSITION_AUTOMATIC, commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW
	check := func(in *permissionv1.ClassifyTool, class commonv1.SecurityClass, disposition commonv1.Disposition, gate bool) {
		t.Helper()
		r, err := h.classify(manual, bypass, in)
		if err != nil {
			t.Fatal(err)
		}
		if c := r.GetTools()[0]; c.GetClass() != class || c.GetDisposition() != disposition || c.GetAlwaysGate() != gate || c.GetTool() != in.GetTool() {
			t.Errorf("%v: %v", in, c)
		}
	}
	check(tool("mcp.fs.a", digest, false), mutation, automatic, false)
	first, _ := h.classify(manual, bypass)
	h.dispose(&permissionv1.ToolSetting{Tool: "mcp.fs.*", Class: read, Disposition: allow, ProviderDigest: digest})
	second, _ := h.classify(manual, bypass)
	if first.GetPolicyVersion() == second.GetPolicyVersion() {
		t.Error("the policy version did not change")
	}
	check(tool("mcp.fs.a", digest, false), read, allow, false)
	check(tool("mcp.fs.a", digest, true), mutation, allow, false)
	check(tool("mcp.fs.a", permissiontest.Digest("new"), false), mutation, automatic, false)
	check(tool("mcp.fsx.a", digest, false), mutation, automatic, false)
	h.dispose(&permissionv1.ToolSetting{Tool: "mcp.fs.a", Disposition: commonv1.Disposition_DISPOSITION_ASK_FIRST, AlwaysGate: true})
	check(tool("mcp.fs.a", digest, false), read, commonv1.Disposition_DISPOSITION_ASK_FIRST, true)
	check(&permissionv1.ClassifyTool{Tool: "read_file", Lane: commonv1.Lane_LANE_BUILTIN, BuiltinClass: read}, read, automatic, false)
	check(&permissionv1.ClassifyTool{Tool: "nothing", Lane: commonv1.Lane_LANE_BUILTIN}, 0, automatic, false)
	h.settings(func(s *permissionv1.Settings) { s.AlwaysAsk = []commonv1.SecurityClass{read} })
	check(tool("mcp.fs.b", digest, false), read, allow, true)
	if _, err := permissionv1.NewSettingsServiceClient(h.Caller("bot")).ClassifyTools(t.Context(), &permissionv1.ClassifyToolsRequest{}); errs.ReasonOf(err) != "ACCESS_DENIED" {
		t.Error(err)
	}
}

// R31, ruling 13: what tightens acts at once in open turns; what loosens waits for the next turn, also what was tightened
// and taken back in between.
func TestTighteningActsAtOnceAndLooseningLater(t *testing.T) {
	h := start(t, permission.Config{})
	allow := &permissionv1.ToolSetting{Tool: "mcp.fs.write_file", Disposition: commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW, ProviderDigest: permissiontest.Digest("mcp.fs")}
	h.turn("t_1", manual)
	h.dispose(allow)
	h.want(h.write("t_1", "a"), "pending") // loosened: not in this turn
	lifted := func(id string, mode commonv1.Mode) {
		h.turn(id, mode)
		h.Registry.Change(id, "mcp.fs.write_file", func(t *registryv1.TurnTool) { t.Disposition = commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW })
	}
	lifted("t_2", manual)
	if d := h.verify(h.write("t_2", "a")).Decision; d.Cause != "disposition" {
		t.Errorf("%+v", d)
	}
	h.dispose(&permissionv1.ToolSetting{Tool: "mcp.fs.write_file"})
	h.want(h.write("t_2", "b"), "pending") // taken back: at once
	h.dispose(&permissionv1.ToolSetting{Tool: "mcp.fs.write_file", Disposition: commonv1.Disposition_DISPOSITION_BLOCKED})
	h.want(h.write("t_2", "b"), "denied TOOL_BLOCKED")
	h.dispose(allow)
	h.want(h.write("t_2", "c"), "denied TOOL_BLOCKED") // unblocked: from the next turn
	lifted("t_3", manual)
	h.want(h.write("t_3", "a"), "allowed")
}

// The cap binds open turns when it is tightened, and raising it again does not free them; Plan is never softer than it.
func TestTheCapBindsOpenTurns(t *testing.T) {
	h := start(t, permission.Config{})
	h.wide()
	h.turn("t_1", bypass)
	h.want(h.write("t_1", "a"), "allowed")
	h.settings(func(s *permissionv1.Settings) { s.ModeCap = manual })
	h.want(h.write("t_1", "b"), "pending")
	h.wide()
	h.want(h.write("t_1", "c"), "pending")
	h.turn("t_2", bypass)
	h.want(h.write("t_2", "a"), "allowed")
	h.turn("t_3", bypass, func(t *registryv1.Turn) { t.CredentialMaxMode = manual })
	h.want(h.write("t_3", "a"), "pending")
	h.turn("t_4", bypass, func(t *registryv1.Turn) { t.CredentialMaxMode = 0 })
	h.want(h.write("t_4", "a"), "pending") // a credential without a limit is not one without limits

	search := func(id string) {
		h.turn(id, plan)
		h.Registry.Change(id, "run_command", func(t *registryv1.TurnTool) { t.Class = commonv1.SecurityClass_SECURITY_CLASS_NETWORK_SEARCH })
	}
	search("t_p1")
	h.want(h.authorize("t_p1", "a", "run_command", `{"command":"ls"}`), "allowed")
	h.settings(func(s *permissionv1.Settings) { s.ModeCap = manual })
	search("t_p2")
	h.want(h.authorize("t_p2", "a", "run_command", `{"command":"ls"}`), "pending")
}

// Settings say who changed them and when, need the etag that was read, and refuse what they don't know.
func TestChangingSettings(t *testing.T) {
	h := start(t, permission.Config{})
	c := permissionv1.NewSettingsServiceClient(h.Approver("alice"))
	fresh, err := c.GetSettings(t.Context(), &permissionv1.GetSettingsRequest{})
	if err != nil || fresh.GetSettings().GetModeCap() != manual || fresh.GetSettings().GetUpdatedBy() != nil {
		t.Fatal(fresh, err)
	}
	h.wide()
	_, err = c.UpdateSettings(t.Context(), &permissionv1.UpdateSettingsRequest{Settings: &permissionv1.Settings{ModeCap: manual, Etag: fresh.GetSettings().GetEtag()}})
	wantReason(t, err, "ETAG_MISMATCH")
	now, err := c.GetSettings(t.Context(), &permissionv1.GetSettingsRequest{})
	if err != nil || now.GetSettings().GetModeCap() != bypass || now.GetSettings().GetUpdatedBy().GetId() != "alice" || now.GetSettings().GetUpdateTime() == nil {
		t.Fatal(now, err)
	}
	for _, bad := range []*permissionv1.Settings{{}, {ModeCap: 42}, {ModeCap: manual, ModesOff: []commonv1.Mode{0}}, {ModeCap: manual, AlwaysAsk: []commonv1.SecurityClass{99}}} {
		_, err := c.UpdateSettings(t.Context(), &permissionv1.UpdateSettingsRequest{Settings: bad})
		wantReason(t, err, "FIELD_INVALID")
	}
	digest := permissiontest.Digest("x")
	for _, bad := range []*permissionv1.ToolSetting{
		{}, {Tool: "mcp.*"}, {Tool: "*"}, {Tool: "mcp.fs.a*"}, {Tool: "mcp.fs.a.*"}, {Tool: "mcp.fs.a", Disposition: 42}, {Tool: "mcp.fs.a", Class: 42, ProviderDigest: digest},
		{Tool: "run_command", Class: 1, ProviderDigest: digest}, {Tool: "mcp.fs.a", Class: 1}, {Tool: "mcp.fs.a", Disposition: commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW},
	} {
		_, err := c.SetDisposition(t.Context(), &permissionv1.SetDispositionRequest{Setting: bad})
		if errs.ReasonOf(err) != "FIELD_INVALID" {
			t.Errorf("%v: %v", bad, err)
		}
	}
	for _, tool := range []string{"mcp.fs.b", "mcp.fs.a", "mcp.fs.a"} {
		h.dispose(&permissionv1.ToolSetting{Tool: tool, Disposition: commonv1.Disposition_DISPOSITION_ASK_FIRST})
	}
	var got []string
	for token := ""; ; {
		r, err := c.ListDispositions(t.Context(), &permissionv1.ListDispositionsRequest{PageSize: 1, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.GetSettings() {
			got = append(got, s.GetTool()+" by "+s.GetUpdatedBy().GetId())
		}
		if token = r.GetNextPageToken(); token == "" {
			break
		}
	}
	if len(got) != 2 || got[0] != "mcp.fs.a by alice" {
		t.Fatal(got)
	}
}
