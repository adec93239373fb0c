package e2e

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/writ-dev/writ/e2e/internal/stack"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
)

// A caller can lower authority, never raise it (Trust 1): what its credential or the settings do not give is refused when
// the turn opens, with the reason.
func TestACallerCannotRaiseItsAuthority(t *testing.T) {
	s := stack.Start(t)
	caller, other := s.Client(stack.Caller), s.Client(stack.Other)
	if _, err := other.Turns.OpenTurn(s.Context(), &registryv1.OpenTurnRequest{Conversation: "mallory's"}); err != nil {
		t.Fatal(err)
	}
	user, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	folder := s.Workspace()
	if err := os.Symlink("/", filepath.Join(folder, "root")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		req  *registryv1.OpenTurnRequest
		want []string
	}{
		"Bypass":                           {&registryv1.OpenTurnRequest{Mode: commonv1.Mode_MODE_BYPASS}, []string{"MODE_NOT_ALLOWED"}},
		"Auto, which no person has set":    {&registryv1.OpenTurnRequest{Mode: commonv1.Mode_MODE_AUTO}, []string{"MODE_NOT_ALLOWED"}},
		"a mode that does not exist":       {&registryv1.OpenTurnRequest{Mode: 99}, []string{"FIELD_INVALID"}},
		"another principal's conversation": {&registryv1.OpenTurnRequest{Conversation: "mallory's"}, []string{"CONVERSATION_TAKEN"}},
		"/ as workspace":                   {&registryv1.OpenTurnRequest{Workspace: "/"}, []string{"WORKSPACE_FORBIDDEN"}},
		"/ by a link":                      {&registryv1.OpenTurnRequest{Workspace: filepath.Join(folder, "root")}, []string{"WORKSPACE_FORBIDDEN"}},
		"/ by dots":                        {&registryv1.OpenTurnRequest{Workspace: folder + "/../../../../../../.."}, []string{"WORKSPACE_FORBIDDEN"}},
		"the home folder":                  {&registryv1.OpenTurnRequest{Workspace: user}, []string{"WORKSPACE_FORBIDDEN"}},
		"$WRIT_HOME":                       {&registryv1.OpenTurnRequest{Workspace: s.Home.Root}, []string{"WORKSPACE_FORBIDDEN"}},
		"a folder of $WRIT_HOME":           {&registryv1.OpenTurnRequest{Workspace: filepath.Join(s.Home.Root, "tokens")}, []string{"WORKSPACE_FORBIDDEN"}},
		"an ancestor of $WRIT_HOME":        {&registryv1.OpenTurnRequest{Workspace: filepath.Dir(s.Home.Root)}, []string{"WORKSPACE_FORBIDDEN"}},
		"a folder that is not there":       {&registryv1.OpenTurnRequest{Workspace: filepath.Join(folder, "absent")}, []string{"WORKSPACE_UNUSABLE"}},
		"a relative folder":                {&registryv1.OpenTurnRequest{Workspace: "here"}, []string{"WORKSPACE_FORBIDDEN", "WORKSPACE_UNUSABLE", "FIELD_INVALID"}},
	} {
		_, err := caller.Turns.OpenTurn(s.Context(), c.req)
		wantReason(t, name, err, c.want...)
	}
	if _, err := caller.Turns.OpenTurn(s.Context(), &registryv1.OpenTurnRequest{Workspace: folder}); err != nil {
		t.Errorf("a folder that may be a workspace: %v", err)
	}
}

// Acting and deciding are different credentials (Trust 2): what decides, grants, settles or adds is refused to a caller.
func TestACallerDecidesNothing(t *testing.T) {
	s := stack.Start(t)
	folder := s.Workspace()
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: folder})
	caller := s.Client(stack.Caller)
	card := askFor(t, s, turn, `{"argv":["/bin/true"]}`)

	_, err := caller.Cards.DecideCard(s.Context(), &permissionv1.DecideCardRequest{
		Card: card.GetId(), Etag: card.GetEtag(), PreviewSha256: card.GetPreview().GetSha256(),
		Answer: permissionv1.Answer_ANSWER_APPROVE, Lifetime: permissionv1.Lifetime_LIFETIME_ONCE,
	})
	wantReason(t, "its own card", err, "ACCESS_DENIED")
	_, err = caller.Settings.SetDisposition(s.Context(), &permissionv1.SetDispositionRequest{
		Setting: &permissionv1.ToolSetting{Tool: "run_command", Disposition: commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW}})
	wantReason(t, "a disposition", err, "ACCESS_DENIED")
	_, err = caller.Settings.UpdateSettings(s.Context(), &permissionv1.UpdateSettingsRequest{
		Settings: &permissionv1.Settings{ModeCap: commonv1.Mode_MODE_BYPASS}})
	wantReason(t, "the mode cap", err, "ACCESS_DENIED")
	_, err = caller.Connectors.CreateConnector(s.Context(), &registryv1.CreateConnectorRequest{Connector: &registryv1.Connector{
		Name: "mine", Transport: registryv1.Transport_TRANSPORT_STDIO, Command: "/bin/sh", Enabled: true}})
	wantReason(t, "a connector", err, "ACCESS_DENIED")
	_, err = caller.Grants.RevokeGrant(s.Context(), &permissionv1.RevokeGrantRequest{Grant: "g_x"})
	wantReason(t, "a grant", err, "ACCESS_DENIED")

	still, err := s.Client(stack.Approver).Cards.GetCard(s.Context(), &permissionv1.GetCardRequest{Card: card.GetId()})
	if err != nil || still.GetCard().GetState() != permissionv1.CardState_CARD_STATE_PENDING {
		t.Errorf("the card is %v (%v)", still.GetCard().GetState(), err)
	}
}

// Another agent sees nothing of a caller's: not its turn, its call, its card, its receipt or its trace.
func TestAnotherCallerSeesNothing(t *testing.T) {
	s := stack.Start(t)
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: s.Workspace()})
	done := s.Call(turn, "run_command", `{"argv":["/bin/true"]}`, commonv1.OutcomeState_OUTCOME_STATE_COMPLETED)
	other := s.Client(stack.Other)

	_, err := other.Turns.GetTurn(s.Context(), &registryv1.GetTurnRequest{Turn: turn.GetId()})
	wantReason(t, "turn", err, "TURN_NOT_FOUND")
	_, err = other.Call(s.Context(), &gatewayv1.CallToolRequest{Turn: turn.GetId(), Tool: "run_command", Arguments: []byte(`{"argv":["/bin/true"]}`)}, nil)
	wantReason(t, "a call in the turn", err, "TURN_NOT_FOUND")
	_, err = other.Calls.GetCall(s.Context(), &gatewayv1.GetCallRequest{Name: done.Name})
	wantReason(t, "call", err, "CALL_NOT_FOUND")
	_, err = other.Attach(s.Context(), done.Name, nil)
	wantReason(t, "attach", err, "CALL_NOT_FOUND")
	_, err = other.Cards.GetCard(s.Context(), &permissionv1.GetCardRequest{Card: done.Card.GetId()})
	wantReason(t, "card", err, "CARD_NOT_FOUND")
	_, err = other.Receipts.GetReceipt(s.Context(), receiptRequest(done.Outcome.GetReceipt()))
	wantReason(t, "receipt", err, "RECEIPT_NOT_FOUND")
	_, err = other.Traces.GetTrace(s.Context(), traceRequest(done.Name))
	wantReason(t, "trace", err, "TRACE_NOT_FOUND")
}

// A header that says on whose behalf a call is made is honoured from a service only (Trust 2, 5).
func TestACallerCannotActForAnother(t *testing.T) {
	s := stack.Start(t)
	b, err := proto.Marshal(&commonv1.Principal{Id: "alice", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_HUMAN, Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	for _, credential := range []string{stack.Caller, stack.Approver} {
		// Past the kit's client, which would not send it.
		ctx := metadata.AppendToOutgoingContext(s.Context(), "writ-on-behalf-of-bin", string(b))
		_, err := s.Bare(credential).Turns.OpenTurn(ctx, &registryv1.OpenTurnRequest{})
		wantReason(t, credential, err, "ON_BEHALF_REFUSED")
	}
}

// Whoever has no credential, or a wrong one, gets nothing.
func TestNoCredentialNoAnswer(t *testing.T) {
	s := stack.Start(t)
	for name, c := range map[string]*stack.Client{"none": s.WithToken(""), "unknown": s.WithToken("writ_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")} {
		_, err := c.Turns.OpenTurn(s.Context(), &registryv1.OpenTurnRequest{})
		wantReason(t, name, err, "UNAUTHENTICATED")
		_, err = c.Info.GetServerInfo(s.Context(), &commonv1.GetServerInfoRequest{})
		wantReason(t, name, err, "UNAUTHENTICATED")
	}
}

// An MCP server and a sandboxed command are code that nobody reviewed (Trust 3): neither reaches the home, the tokens, the
// keys, the socket, nor anything of the server's process.
func TestForeignCodeDoesNotReachWrit(t *testing.T) {
	secret := "WRIT_E2E_SECRET=a-secret-of-the-server"
	s := stack.Start(t, stack.WithEnv(secret))
	folder := s.Workspace()
	link := filepath.Join(folder, "link")
	if err := os.Symlink(s.Home.TokenFile("caller"), link); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "abuse")
	copyFile(t, stack.Program(t, "abuse"), program)
	args := []string{s.Home.Root, strconv.Itoa(s.PID()), link}

	t.Run("a sandboxed command", func(t *testing.T) {
		s := s.In(t)
		turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: folder})
		argv, err := json.Marshal(map[string]any{"argv": append([]string{program, "try"}, args...)})
		if err != nil {
			t.Fatal(err)
		}
		done := s.Call(turn, "run_command", string(argv), commonv1.OutcomeState_OUTCOME_STATE_COMPLETED)
		var result struct {
			ExitCode       int `json:"exit_code"`
			Stdout, Stderr string
		}
		if err := json.Unmarshal(done.Outcome.GetResult(), &result); err != nil || result.ExitCode != 0 {
			t.Fatalf("%s: %v", done.Outcome.GetResult(), err)
		}
		checkAttempts(t, []byte(result.Stdout))
	})
	t.Run("an MCP server", func(t *testing.T) {
		s := s.In(t)
		s.AddConnector("abuse", program, append([]string{"mcp"}, args...)...)
		turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: folder})
		done := s.Call(turn, "mcp.abuse.attempt", `{}`, commonv1.OutcomeState_OUTCOME_STATE_COMPLETED)
		var result struct {
			Content []struct{ Text string } `json:"content"`
		}
		if err := json.Unmarshal(done.Outcome.GetResult(), &result); err != nil || len(result.Content) != 1 {
			t.Fatalf("%s: %v", done.Outcome.GetResult(), err)
		}
		checkAttempts(t, []byte(result.Content[0].Text))
	})
}

func checkAttempts(t *testing.T, report []byte) {
	t.Helper()
	var attempts map[string]string
	if err := json.Unmarshal(report, &attempts); err != nil {
		t.Fatalf("%v: %s", err, report)
	}
	if len(attempts) < 20 || !strings.HasPrefix(attempts["control"], "ALLOWED") {
		t.Errorf("%d attempts, the one that has to work: %q", len(attempts), attempts["control"])
	}
	delete(attempts, "control")
	var names []string
	for name := range attempts {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !strings.HasPrefix(attempts[name], "refused: ") {
			t.Errorf("%s: %s", name, attempts[name])
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// A folder that was swapped for another under the same name after the turn opened is not the workspace: nothing runs in it
// (R88; the scope carries device and inode).
func TestASwappedWorkspace(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	always(s)
	folder := filepath.Join(s.Workspace(), "project")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: folder})
	for name, swap := range map[string]func() error{
		"another folder":   func() error { return os.Mkdir(folder, 0o755) },
		"a link elsewhere": func() error { return os.Symlink(s.Home.Root, folder) },
		"nothing":          func() error { return nil },
	} {
		moved := folder + " before " + name
		if err := os.Rename(folder, moved); err != nil {
			t.Fatal(err)
		}
		if err := swap(); err != nil {
			t.Fatal(err)
		}
		done, err := s.TryCall(s.Context(), turn, "run_command", `{"command":"echo x >> ran"}`)
		if err == nil && done.Outcome.GetState() == completed {
			t.Errorf("%s: it ran: %s", name, done.Outcome.GetResult())
		}
		for _, dir := range []string{folder, moved, s.Home.Root} {
			if effects(dir, "ran") != 0 {
				t.Errorf("%s: it ran in %s", name, dir)
			}
		}
		if err := os.Remove(folder); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.Rename(moved, folder); err != nil {
			t.Fatal(err)
		}
	}
	if done := s.Call(turn, "run_command", `{"command":"echo x >> ran"}`, completed); effects(folder, "ran") != 1 {
		t.Errorf("the folder itself: %v", done.Outcome)
	}
}
