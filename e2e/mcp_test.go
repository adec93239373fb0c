package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/writ-dev/writ/e2e/internal/stack"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/testkit"
	"github.com/writ-dev/writ/internal/toolname"
)

// peer is a program of the npm packages that `make tools` installs. That it is missing is a failure: a test that skips
// itself proves nothing.
func peer(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("WRIT_TEST_PEERS")
	if dir == "" {
		root, err := stack.Root()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(root, ".cache", "npm-peers")
	}
	path, err := filepath.EvalSymlinks(filepath.Join(dir, "node_modules", ".bin", name))
	if err != nil {
		t.Fatalf("%v: `make tools` installs it; WRIT_TEST_PEERS says where", err)
	}
	return path
}

// `writ mcp`, started as Claude Code and VS Code start a stdio server, spoken to with the official SDK: initialize, the
// tools under their aliases, a call that runs, one that waits for a person and is finished by calling again (R75, R76).
func TestMCPClientsWork(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	echo := addEcho(s, "echo")
	s.Settle("mcp.echo.echo", commonv1.SecurityClass_SECURITY_CLASS_READ, commonv1.Disposition_DISPOSITION_AUTOMATIC, echo.digest)
	cmd := mcpCommand(t, s, "--card-wait", "1s")
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil)
	session, err := client.Connect(s.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := session.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()

	tools, err := session.ListTools(s.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]*mcp.Tool{}
	for _, tool := range tools.Tools {
		names[tool.Name] = tool
	}
	read, write, command := toolname.Alias("echo", "echo"), toolname.Alias("echo", "append_note"), "run_command"
	for _, want := range []string{read, write, command} {
		if names[want] == nil {
			t.Errorf("%s is not listed", want)
		}
	}

	ran, err := session.CallTool(s.Context(), &mcp.CallToolParams{Name: read, Arguments: map[string]any{"text": "hello"}})
	if err != nil || ran.IsError {
		t.Fatalf("%v %v", err, ran)
	}
	params := &mcp.CallToolParams{Name: write, Arguments: json.RawMessage(echo.arguments("by mcp"))}
	waits, err := session.CallTool(s.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	card := onlyPendingCard(t, s)
	if text := contentText(waits); !strings.Contains(text, card.GetId()) || !strings.Contains(text, "writ cards") {
		t.Errorf("the pending result does not say which card waits, and how it is answered: %s", text)
	}
	if echo.count("by mcp") != 0 {
		t.Error("it ran before anybody answered")
	}
	s.Approve(card.GetId(), permissionv1.Lifetime_LIFETIME_ONCE)
	testkit.WaitFor(t, stack.Patience, func() bool { return echo.count("by mcp") == 1 })
	again, err := session.CallTool(s.Context(), params)
	if err != nil || again.IsError {
		t.Fatalf("called again after the answer: %v %s", err, contentText(again))
	}
	if n := echo.count("by mcp"); n != 1 {
		t.Errorf("the note was written %d times", n)
	}
}

func onlyPendingCard(t *testing.T, s *stack.Stack) *permissionv1.Card {
	t.Helper()
	list, err := s.Client(stack.Approver).Cards.ListCards(s.Context(), &permissionv1.ListCardsRequest{State: permissionv1.CardState_CARD_STATE_PENDING})
	if err != nil || len(list.GetCards()) != 1 {
		t.Fatalf("open cards: %v %v", list.GetCards(), err)
	}
	return list.GetCards()[0]
}

func contentText(r *mcp.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	return b.String()
}

// The MCP Inspector's command line lists and calls through `writ mcp`.
func TestMCPInspectorWorks(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	echo := addEcho(s, "echo")
	s.Settle("mcp.echo.echo", commonv1.SecurityClass_SECURITY_CLASS_READ, commonv1.Disposition_DISPOSITION_AUTOMATIC, echo.digest)
	alias := toolname.Alias("echo", "echo")

	listed := inspect(t, s, "--method", "tools/list")
	var tools struct {
		Tools []struct{ Name string }
	}
	if err := json.Unmarshal(listed, &tools); err != nil {
		t.Fatalf("%v: %s", err, listed)
	}
	found := false
	for _, tool := range tools.Tools {
		found = found || tool.Name == alias
	}
	if !found {
		t.Errorf("%s is not listed: %s", alias, listed)
	}
	called := inspect(t, s, "--method", "tools/call", "--tool-name", alias, "--tool-args-json", `{"text":"from the inspector"}`)
	if !strings.Contains(string(called), "from the inspector") {
		t.Errorf("the call's result: %s", called)
	}
}

func inspect(t *testing.T, s *stack.Stack, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(s.Context(), "node", append([]string{peer(t, "mcp-inspector"), "--cli", "-e", "WRIT_HOME=" + s.Home.Root}, append(args, stack.Program(t, "writ"), "mcp")...)...)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%v: %v\n%s\n%s", cmd.Args, err, out, exit.Stderr)
		}
		t.Fatal(err)
	}
	return out
}

// npm's filesystem server, unchanged: it reads a real file once a person classified the tool, and asks before it writes.
func TestTheFilesystemServer(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	folder := s.Workspace()
	if err := os.WriteFile(filepath.Join(folder, "a.txt"), []byte("what stands in the file\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	connector := s.AddConnector("fs", node, peer(t, "mcp-server-filesystem"), folder)
	s.Settle("mcp.fs.read_text_file", commonv1.SecurityClass_SECURITY_CLASS_READ, commonv1.Disposition_DISPOSITION_AUTOMATIC, connector.GetProviderDigest())
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: folder})
	mustTool(t, turn, "mcp.fs.write_file")

	path := func(name string) string {
		b, err := json.Marshal(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	read := s.Call(turn, "mcp.fs.read_text_file", `{"path":`+path("a.txt")+`}`, completed)
	if read.Card != nil || !strings.Contains(string(read.Outcome.GetResult()), "what stands in the file") {
		t.Errorf("card %v, result %s", read.Card, read.Outcome.GetResult())
	}
	write := s.Call(turn, "mcp.fs.write_file", `{"path":`+path("b.txt")+`,"content":"written"}`, completed)
	if write.Card == nil {
		t.Error("a write did not ask")
	}
	if b, err := os.ReadFile(filepath.Join(folder, "b.txt")); err != nil || string(b) != "written" {
		t.Errorf("%q %v", b, err)
	}
	outside := s.Call(turn, "mcp.fs.read_text_file", `{"path":"/etc/passwd"}`, commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR)
	if stack.Reason(outside.Outcome) != "TOOL_FAILED" || !strings.Contains(string(outside.Outcome.GetResult()), "isError") {
		t.Errorf("outside its folder: %v %s", outside.Outcome.GetStatus(), outside.Outcome.GetResult())
	}
}
