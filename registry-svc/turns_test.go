package registry_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/command"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/fingerprint"
	registry "github.com/writ-dev/writ/registry-svc"
)

// awkward is a definition that every re-marshalling would change: key order, white space, an integer over 2^53, an
// unknown field, escapes.
const awkward = `{ "name":"count","zeta":{"b":1,"a":[9007199254740993, 1.0, 1e2]},  "inputSchema":{"type":"object","$defs":{"x":{}}},"description":"caf\u00e9 \/ <b>" }`

func tool(name string) string {
	return `{"name":"` + name + `","inputSchema":{"type":"object"}}`
}

// R30, R32, R34: a turn freezes what the servers listed, byte for byte, with both fingerprints and the provider digest;
// a change that comes later is another turn's.
func TestATurnFreezesWhatTheServersListed(t *testing.T) {
	b := newBench(t, registry.Config{})
	b.host.tools("fs", "count", awkward, "read", tool("read"))
	b.add(t, "fs")
	turn := b.open(t, &registryv1.OpenTurnRequest{Agent: "notes-bot", Conversation: "c-1", Project: "p"})

	got := find(t, turn, "mcp.fs.count").GetTool()
	if !bytes.Equal(got.GetDefinition(), []byte(awkward)) {
		t.Errorf("the definition became\n%s", got.GetDefinition())
	}
	semantic, err := fingerprint.Semantic([]byte(awkward))
	if err != nil {
		t.Fatal(err)
	}
	want := &commonv1.ToolIdentity{
		Tool: "mcp.fs.count", WireFingerprint: fingerprint.Wire([]byte(awkward)), SemanticFingerprint: semantic, Provider: "mcp.fs", ProviderDigest: "digest-fs",
	}
	if !proto.Equal(got.GetIdentity(), want) || got.GetName() != "count" || got.GetLane() != commonv1.Lane_LANE_MCP || got.GetAlias() != "fs__count" {
		t.Errorf("%v", got)
	}

	b.host.tools("fs", "count", tool("count"))
	later := b.open(t, &registryv1.OpenTurnRequest{Agent: "notes-bot", Conversation: "c-1"})
	if find(t, later, "mcp.fs.count").GetTool().GetIdentity().GetWireFingerprint() == want.GetWireFingerprint() {
		t.Error("the next turn has the old definition")
	}
	again, err := b.turns(b.Caller("ada")).GetTurn(t.Context(), &registryv1.GetTurnRequest{Turn: turn.GetId()})
	if err != nil || !proto.Equal(again.GetTurn(), turn) {
		t.Errorf("%v: the first turn became %v", err, again)
	}
	res, err := b.resolve(t, turn.GetId(), "mcp.fs.count")
	if err != nil || !proto.Equal(res.GetTool().GetTool().GetIdentity(), want) || !bytes.Equal(res.GetTool().GetTool().GetDefinition(), []byte(awkward)) {
		t.Errorf("%v: %v", err, res)
	}
}

// R1, R13: of the 36 builtins a turn gets those that something executes, with the executor's own definition.
func TestATurnHasTheServedBuiltins(t *testing.T) {
	b := newBench(t, registry.Config{})
	turn := b.open(t, &registryv1.OpenTurnRequest{})
	if got := ids(turn); !slices.Equal(got, []string{"run_command"}) {
		t.Fatalf("%v", got)
	}
	run := find(t, turn, "run_command")
	if string(run.GetTool().GetDefinition()) != command.Definition || run.GetClass() != commonv1.SecurityClass_SECURITY_CLASS_PROCESS ||
		run.GetTool().GetLane() != commonv1.Lane_LANE_BUILTIN || run.GetTool().GetIdentity().GetProviderDigest() != command.ProviderDigest() {
		t.Errorf("%v", run)
	}
	res, err := b.resolve(t, turn.GetId(), "run_command")
	if err != nil || res.GetExecutor() != "exec" || !res.GetProviderEnabled() || res.GetCurrentProviderDigest() != command.ProviderDigest() {
		t.Errorf("%v: %v", err, res)
	}
}

// R17: a dead, a silent and a broken server are left out and reported, each with what is known; the rest goes on.
func TestOneBadServerDoesNotSpoilTheTurn(t *testing.T) {
	b := newBench(t, registry.Config{DiscoverTimeout: 50 * time.Millisecond})
	b.host.tools("good", "read", tool("read"))
	b.host.failing["dead"] = startFailed("dead")
	b.host.silent["silent"] = true
	b.add(t, "dead", "good", "silent")
	turn := b.open(t, &registryv1.OpenTurnRequest{})

	if got := ids(turn); !slices.Equal(got, []string{"run_command", "mcp.good.read"}) {
		t.Errorf("%v", got)
	}
	reasons := map[string]string{}
	for _, p := range turn.GetProblems() {
		reasons[p.GetProvider()] = errs.ReasonOf(status.FromProto(p.GetStatus()).Err())
	}
	if len(reasons) != 2 || reasons["mcp.dead"] != "SERVER_START_FAILED" || reasons["mcp.silent"] != "DEADLINE_EXCEEDED" {
		t.Errorf("%v", reasons)
	}
	list, err := registryv1.NewConnectorServiceClient(b.Operator("olga")).ListConnectors(t.Context(), &registryv1.ListConnectorsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.GetConnectors() {
		if bad := c.GetState() == registryv1.ConnectorState_CONNECTOR_STATE_ERROR; bad != (c.GetName() != "good") {
			t.Errorf("%s is %v: %s", c.GetName(), c.GetState(), c.GetProblem())
		}
		if strings.Contains(c.GetProblem(), "\x1b") {
			t.Errorf("a server's control characters reach the terminal: %q", c.GetProblem())
		}
	}
}

// R14: names that models can't take get an alias of 64 characters at most that tells them apart, a pure function of
// server and tool; both names lead to the tool.
func TestLongAndOddNamesGetAliases(t *testing.T) {
	b := newBench(t, registry.Config{})
	long := strings.Repeat("very_long_name_", 8)
	names := []string{long + "a", long + "b", "dotted.name", "näme"}
	var pairs []string
	for _, n := range names {
		pairs = append(pairs, n, tool("x"))
	}
	b.host.tools("fs", pairs...)
	b.host.tools("other", "dotted.name", tool("x"))
	b.add(t, "fs", "other")
	first, second := b.open(t, &registryv1.OpenTurnRequest{}), b.open(t, &registryv1.OpenTurnRequest{})
	if len(first.GetTools()) != 6 {
		t.Fatalf("%v, %v", ids(first), first.GetProblems())
	}
	valid, seen := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`), map[string]bool{}
	for i, x := range first.GetTools() {
		alias := x.GetTool().GetAlias()
		if !valid.MatchString(alias) || seen[alias] || alias != second.GetTools()[i].GetTool().GetAlias() {
			t.Errorf("alias %q", alias)
		}
		seen[alias] = true
		res, err := b.resolve(t, first.GetId(), alias)
		if err != nil || !proto.Equal(res.GetTool(), x) {
			t.Errorf("%s leads to %v, %v", alias, res, err)
		}
	}
}

// Ruling 1: what is malformed in a listing is left out and shown; nothing is silently dropped, nothing else is lost.
func TestMalformedToolsAreLeftOutAndReported(t *testing.T) {
	b := newBench(t, registry.Config{})
	b.host.tools("fs", "good", tool("good"), "twice", `{"name":"twice","name":"thrice"}`, "good", tool("shadow"), "", tool(""),
		"list", `[]`, "bidi\u202e", tool("x"), "big", `{"x":"`+strings.Repeat("a", 1<<20)+`"}`, "last", tool("last"))
	b.add(t, "fs")
	turn := b.open(t, &registryv1.OpenTurnRequest{})
	if got := ids(turn); !slices.Equal(got, []string{"run_command", "mcp.fs.good", "mcp.fs.last"}) {
		t.Errorf("%v", got)
	}
	var reasons []string
	for _, p := range turn.GetProblems() {
		reasons = append(reasons, errs.ReasonOf(status.FromProto(p.GetStatus()).Err()))
	}
	want := []string{"JSON_INVALID", "ALIAS_COLLISION", "FIELD_INVALID", "JSON_INVALID", "FIELD_INVALID", "LIMIT_EXCEEDED"}
	if !slices.Equal(reasons, want) {
		t.Errorf("%v", reasons)
	}
}

// R31: class, disposition and policy version travel with the turn; a change of the settings is the next turn's.
func TestTheClassificationTravelsWithTheTurn(t *testing.T) {
	b := newBench(t, registry.Config{})
	b.host.tools("fs", "read", `{"name":"read","annotations":{"readOnlyHint":true}}`, "wipe", `{"name":"wipe","annotations":{"destructiveHint":true}}`)
	b.settings.do(func() {
		b.settings.verdict["mcp.fs.read"] = &permissionv1.ToolClassification{
			Class: commonv1.SecurityClass_SECURITY_CLASS_READ, Disposition: commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW, AlwaysGate: true, Why: "olga said so",
		}
	})
	b.add(t, "fs")
	turn := b.open(t, &registryv1.OpenTurnRequest{Mode: commonv1.Mode_MODE_MANUAL})
	b.settings.do(func() { b.settings.verdict, b.settings.version = map[string]*permissionv1.ToolClassification{}, "v2" })
	next := b.open(t, &registryv1.OpenTurnRequest{Mode: commonv1.Mode_MODE_MANUAL})

	read := find(t, turn, "mcp.fs.read")
	if read.GetClass() != commonv1.SecurityClass_SECURITY_CLASS_READ || read.GetDisposition() != commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW ||
		!read.GetAlwaysGate() || read.GetWhy() != "olga said so" || turn.GetPolicyVersion() != "v1" {
		t.Errorf("%v", read)
	}
	res, err := b.resolve(t, turn.GetId(), "mcp.fs.read")
	if err != nil || !proto.Equal(res.GetTool(), read) {
		t.Errorf("%v, %v", res, err)
	}
	if find(t, next, "mcp.fs.read").GetClass() != commonv1.SecurityClass_SECURITY_CLASS_EXTERNAL_MUTATION || next.GetPolicyVersion() != "v2" {
		t.Error("the next turn has the old classification")
	}
	// Hints only raise: that a server calls itself read-only is not even passed on.
	if b.settings.seen["mcp.fs.read"].GetDestructiveHint() || !b.settings.seen["mcp.fs.wipe"].GetDestructiveHint() {
		t.Error("hints")
	}
}

// R42: what has no class is in no turn. And a permission service that is down or confused opens no turn: fail closed.
func TestWithoutAClassificationNothingIsAvailable(t *testing.T) {
	b := newBench(t, registry.Config{})
	b.host.tools("fs", "read", tool("read"), "odd", tool("odd"))
	b.add(t, "fs")
	b.settings.do(func() {
		b.settings.verdict["mcp.fs.odd"] = &permissionv1.ToolClassification{Disposition: commonv1.Disposition_DISPOSITION_AUTOMATIC}
	})
	turn := b.open(t, &registryv1.OpenTurnRequest{})
	if slices.Contains(ids(turn), "mcp.fs.odd") || len(turn.GetProblems()) != 1 {
		t.Errorf("%v %v", ids(turn), turn.GetProblems())
	}
	if _, err := b.resolve(t, turn.GetId(), "mcp.fs.odd"); errs.ReasonOf(err) != "TOOL_NOT_IN_TURN" {
		t.Error(err)
	}
	for name, twist := range map[string]func(*permissionv1.ClassifyToolsResponse){
		"too few":       func(r *permissionv1.ClassifyToolsResponse) { r.Tools = r.GetTools()[1:] },
		"another order": func(r *permissionv1.ClassifyToolsResponse) { slices.Reverse(r.GetTools()) },
		"no mode":       func(r *permissionv1.ClassifyToolsResponse) { r.Mode = 0 },
		"a higher mode": func(r *permissionv1.ClassifyToolsResponse) { r.Mode = commonv1.Mode_MODE_BYPASS },
	} {
		b.settings.do(func() { b.settings.twist = twist })
		if _, err := b.turns(b.Caller("ada")).OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Mode: commonv1.Mode_MODE_MANUAL}); err == nil {
			t.Errorf("%s: the turn is open", name)
		}
	}
	b.settings.do(func() { b.settings.fail = status.Error(codes.Unavailable, "connection refused") })
	if _, err := b.turns(b.Caller("ada")).OpenTurn(t.Context(), &registryv1.OpenTurnRequest{}); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// R26: an allowlist decides what an agent may list and call, also by exact name; deny wins; and a server that can't
// matter is not started (R60).
func TestAllowlistsNarrowAndDenyWins(t *testing.T) {
	b := newBench(t, registry.Config{Agents: map[string]registry.Agent{
		"notes-bot": {Tools: []string{"mcp.fs.*", "run_command"}, Deny: []string{"mcp.fs.write"}},
		"reader":    {Deny: []string{"mcp.mail.*", "run_command"}},
	}})
	b.host.tools("fs", "read", tool("read"), "write", tool("write"))
	b.host.tools("fs2", "read", tool("read"))
	b.host.tools("mail", "send", tool("send"))
	b.add(t, "fs", "fs2", "mail")
	for _, c := range []struct {
		agent string
		tools []string
		want  []string
	}{
		{"notes-bot", nil, []string{"run_command", "mcp.fs.read"}},
		{"notes-bot", []string{"*"}, []string{"run_command", "mcp.fs.read"}},
		{"notes-bot", []string{"mcp.fs.read", "mcp.mail.send"}, []string{"mcp.fs.read"}},
		{"reader", []string{"mcp.fs.*", "mcp.mail.send"}, []string{"mcp.fs.read", "mcp.fs.write"}},
		{"anybody", []string{"mcp.fs2.*"}, []string{"mcp.fs2.read"}},
		{"anybody", nil, []string{"run_command", "mcp.fs.read", "mcp.fs.write", "mcp.fs2.read", "mcp.mail.send"}},
	} {
		before := b.host.discovered("mail")
		turn := b.open(t, &registryv1.OpenTurnRequest{Agent: c.agent, Tools: c.tools})
		if got := ids(turn); !slices.Equal(got, c.want) {
			t.Errorf("%s with %v: %v", c.agent, c.tools, got)
		}
		if c.agent == "reader" && b.host.discovered("mail") != before {
			t.Error("a server that may give nothing was started")
		}
		if !slices.Contains(c.want, "mcp.mail.send") {
			if _, err := b.resolve(t, turn.GetId(), "mcp.mail.send"); errs.ReasonOf(err) != "TOOL_NOT_IN_TURN" {
				t.Errorf("%s with %v calls it by name: %v", c.agent, c.tools, err)
			}
		}
	}
	for _, bad := range []string{"", "mcp.*.read", "mcp.fs*", "a b", ".*"} {
		_, err := b.turns(b.Caller("ada")).OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Tools: []string{bad}})
		if meta := refused(t, err, "FIELD_INVALID"); meta["field"] != "tools[0]" {
			t.Errorf("%q: %v", bad, meta)
		}
	}
	if _, err := registry.New(t.Context(), registry.Config{Agents: map[string]registry.Agent{"x": {Deny: []string{"mcp.*.y"}}}}); err == nil {
		t.Error("a pattern that can't be meant starts")
	}
}

// Trust 1: a caller can lower authority, never raise it.
func TestACredentialLimitsItsTurns(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	work, home := filepath.Join(root, "work"), filepath.Join(root, "writ-home")
	for _, dir := range []string{filepath.Join(work, "app"), filepath.Join(home, "tokens"), filepath.Join(root, "other")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	escape := filepath.Join(work, "link")
	if err := os.Symlink(filepath.Join(root, "other"), escape); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, registry.Config{Forbidden: []string{home}})
	limited := b.turns(b.As(auth.Credential{
		ID: "limited", Namespace: "default", Agents: []string{"notes-bot"}, MaxMode: commonv1.Mode_MODE_ACCEPT_EDITS, WorkspaceRoots: []string{work, home, "/"},
		Principal: &commonv1.Principal{Id: "leo", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT}, Roles: []commonv1.Role{commonv1.Role_ROLE_CALLER},
	}))
	narrow := b.turns(b.As(auth.Credential{
		ID: "narrow", Namespace: "default", WorkspaceRoots: []string{work},
		Principal: &commonv1.Principal{Id: "nia", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT}, Roles: []commonv1.Role{commonv1.Role_ROLE_CALLER},
	}))
	for _, c := range []struct {
		who    registryv1.TurnServiceClient
		req    *registryv1.OpenTurnRequest
		reason string
	}{
		{limited, &registryv1.OpenTurnRequest{Agent: "other-bot"}, "AGENT_NOT_ALLOWED"},
		{limited, &registryv1.OpenTurnRequest{Mode: commonv1.Mode_MODE_AUTO}, "MODE_NOT_ALLOWED"},
		{limited, &registryv1.OpenTurnRequest{Mode: commonv1.Mode_MODE_BYPASS}, "MODE_NOT_ALLOWED"},
		{limited, &registryv1.OpenTurnRequest{Mode: 77}, "FIELD_INVALID"},
		{limited, &registryv1.OpenTurnRequest{Workspace: "/"}, "WORKSPACE_FORBIDDEN"},
		{limited, &registryv1.OpenTurnRequest{Workspace: home}, "WORKSPACE_FORBIDDEN"},
		{limited, &registryv1.OpenTurnRequest{Workspace: filepath.Join(home, "tokens")}, "WORKSPACE_FORBIDDEN"},
		{limited, &registryv1.OpenTurnRequest{Workspace: root}, "WORKSPACE_FORBIDDEN"},
		{limited, &registryv1.OpenTurnRequest{Workspace: filepath.Join(work, "absent")}, "WORKSPACE_UNUSABLE"},
		{narrow, &registryv1.OpenTurnRequest{Workspace: filepath.Join(root, "other")}, "WORKSPACE_OUTSIDE_ROOTS"},
		{narrow, &registryv1.OpenTurnRequest{Workspace: escape}, "WORKSPACE_OUTSIDE_ROOTS"},
		{narrow, &registryv1.OpenTurnRequest{Workspace: filepath.Join(work, "..", "other")}, "WORKSPACE_OUTSIDE_ROOTS"},
		{narrow, &registryv1.OpenTurnRequest{Mode: commonv1.Mode_MODE_ACCEPT_EDITS}, "MODE_NOT_ALLOWED"}, // it says no mode, so Manual
		{narrow, &registryv1.OpenTurnRequest{Agent: "any"}, "AGENT_NOT_ALLOWED"},
	} {
		_, err := c.who.OpenTurn(t.Context(), c.req)
		refused(t, err, c.reason)
	}
	// The settings' own cap is permission's to say.
	_, err = b.turns(b.Caller("ada")).OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Mode: commonv1.Mode_MODE_BYPASS})
	if meta := refused(t, err, "MODE_NOT_ALLOWED"); meta["by"] != "settings" || status.Code(err) != codes.PermissionDenied {
		t.Errorf("%v", err)
	}
	res, err := limited.OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Agent: "notes-bot", Workspace: filepath.Join(work, "app")})
	if err != nil {
		t.Fatal(err)
	}
	turn := res.GetTurn()
	if turn.GetMode() != commonv1.Mode_MODE_ACCEPT_EDITS || turn.GetCredentialMaxMode() != commonv1.Mode_MODE_ACCEPT_EDITS {
		t.Errorf("mode %v", turn.GetMode())
	}
	if w := turn.GetWorkspace(); w.GetPath() != filepath.Join(work, "app") || w.GetInode() == 0 {
		t.Errorf("%v", w)
	}
}

// R66, R67: a server is listed for the folder of the turn; a build is a turn with a folder and a parent of its own.
func TestABuildHasItsOwnFolder(t *testing.T) {
	b := newBench(t, registry.Config{})
	b.host.tools("fs", "read", tool("read"))
	b.add(t, "fs")
	chat, build := t.TempDir(), t.TempDir()
	parent := b.open(t, &registryv1.OpenTurnRequest{Workspace: chat})
	child := b.open(t, &registryv1.OpenTurnRequest{Workspace: build, Parent: parent.GetId(), Conversation: parent.GetConversation()})
	if child.GetParent() != parent.GetId() || child.GetWorkspace().GetPath() == parent.GetWorkspace().GetPath() {
		t.Errorf("%v", child)
	}
	b.host.do(func() {
		if len(b.host.asked) != 2 || b.host.asked[0].GetWorkspace() != parent.GetWorkspace().GetPath() || b.host.asked[1].GetWorkspace() != child.GetWorkspace().GetPath() {
			t.Errorf("%v", b.host.asked)
		}
	})
	_, err := b.turns(b.Caller("bob")).OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Parent: parent.GetId()})
	refused(t, err, "TURN_NOT_FOUND")
	if _, err := b.turns(b.Caller("ada")).EndTurn(t.Context(), &registryv1.EndTurnRequest{Turn: parent.GetId()}); err != nil {
		t.Fatal(err)
	}
	_, err = b.turns(b.Caller("ada")).OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Parent: parent.GetId()})
	refused(t, err, "TURN_NOT_FOUND")
}

// A request id makes one turn, however many ask at once.
func TestARequestIDMakesOneTurn(t *testing.T) {
	now := &clock{at: time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC)}
	b := newBench(t, registry.Config{SweepEvery: time.Millisecond}, registry.WithClock(now.now))
	b.host.tools("fs", "read", tool("read"))
	b.add(t, "fs")
	req := &registryv1.OpenTurnRequest{RequestId: "r-1", Conversation: "c", Tools: []string{"mcp.fs.*"}}
	turns, mu := map[string]int{}, sync.Mutex{}
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			r := proto.CloneOf(req)
			r.OmitDefinitions = i%2 == 0
			res, err := b.turns(b.Caller("ada")).OpenTurn(t.Context(), r)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			turns[res.GetTurn().GetId()]++
			if has := len(res.GetTurn().GetTools()[0].GetTool().GetDefinition()) > 0; has == r.GetOmitDefinitions() {
				t.Errorf("omit %v, definition %v", r.GetOmitDefinitions(), has)
			}
		})
	}
	wg.Wait()
	if len(turns) != 1 || b.host.discovered("fs") != 1 {
		t.Errorf("%v, listed %d times", turns, b.host.discovered("fs"))
	}
	// It is the caller's own: another's is another turn; another request with it is refused.
	res, err := b.turns(b.Caller("bob")).OpenTurn(t.Context(), &registryv1.OpenTurnRequest{RequestId: "r-1"})
	if err != nil || turns[res.GetTurn().GetId()] != 0 {
		t.Errorf("%v %v", res, err)
	}
	_, err = b.turns(b.Caller("ada")).OpenTurn(t.Context(), &registryv1.OpenTurnRequest{RequestId: "r-1", Mode: commonv1.Mode_MODE_PLAN})
	refused(t, err, "FIELD_INVALID")
	// It is remembered for a day.
	now.forward(25 * time.Hour)
	eventually(t, "the id is forgotten", func() bool {
		res, err := b.turns(b.Caller("ada")).OpenTurn(t.Context(), req)
		return err == nil && turns[res.GetTurn().GetId()] == 0
	})
}

// A conversation belongs to who used it first, also when many try at once.
func TestAConversationHasOneOwner(t *testing.T) {
	b := newBench(t, registry.Config{})
	winners, mu := map[string]bool{}, sync.Mutex{}
	var wg sync.WaitGroup
	for i := range 8 {
		name := fmt.Sprintf("agent-%d", i)
		client := b.turns(b.Caller(name))
		wg.Go(func() {
			_, err := client.OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Conversation: "t-42"})
			if err != nil {
				refused(t, err, "CONVERSATION_TAKEN")
				return
			}
			mu.Lock()
			defer mu.Unlock()
			winners[name] = true
		})
	}
	wg.Wait()
	if len(winners) != 1 {
		t.Errorf("%v", winners)
	}
	// In another namespace it is another conversation.
	other := b.turns(b.As(auth.Credential{ID: "x", Namespace: "elsewhere", Roles: []commonv1.Role{commonv1.Role_ROLE_CALLER},
		Principal: &commonv1.Principal{Id: "eve", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT}}))
	if _, err := other.OpenTurn(t.Context(), &registryv1.OpenTurnRequest{Conversation: "t-42"}); err != nil {
		t.Error(err)
	}
	// Without one a turn has its own.
	a, c := b.open(t, &registryv1.OpenTurnRequest{}), b.open(t, &registryv1.OpenTurnRequest{})
	if a.GetConversation() == "" || a.GetConversation() == c.GetConversation() {
		t.Errorf("%q %q", a.GetConversation(), c.GetConversation())
	}
}
