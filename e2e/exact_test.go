package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"

	"github.com/writ-dev/writ/e2e/internal/stack"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/toolname"
)

// exact is an object that no JSON library writes as it read it: an integer over 2^53, numbers in several spellings, names
// out of order, escapes that need not be, white space, and nothing that a schema knows.
const exact = `{"zeta":9007199254740993,"alpha":1.0,"exp":1E+2,"neg":-0,"long":123456789012345678901234567890.10, ` +
	`"esc":"\u0041\/\u00e9\ud83d\ude00é<>&\u2028","nested":{"b":[1 , 2.50],"a":{}},"unknown":null,"Zeta":true}`

// Arguments and structured results are bytes, and stay so: on the wire to the server, in the record, at the caller
// ("Rules that never bend" 2; R34, R73).
func TestBytesStayAsTheyAre(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	echo := addEcho(s, "echo")
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{})
	done := s.Call(turn, "mcp.echo.echo", exact, completed)

	if !echo.received(exact) {
		t.Errorf("the server did not receive these bytes:\n%s\nbut:\n%s", exact, echo.record())
	}
	if !bytes.Contains(done.Outcome.GetResult(), []byte(exact)) {
		t.Errorf("the caller got another structured result:\n%s", done.Outcome.GetResult())
	}
	facts, got := s.Receipt(stack.Caller, done.Outcome.GetReceipt())
	if string(got.GetOpening().GetArguments()) != exact || facts.Arguments.Size != int64(len(exact)) {
		t.Errorf("the record has other arguments: %s", got.GetOpening().GetArguments())
	}
	if !bytes.Equal(got.GetOpening().GetOutcome().GetResult(), done.Outcome.GetResult()) {
		t.Errorf("the record has another result: %s", got.GetOpening().GetOutcome().GetResult())
	}
	card, err := s.Client(stack.Approver).Cards.GetCard(s.Context(), &permissionv1.GetCardRequest{Card: done.Card.GetId()})
	if err != nil || string(card.GetCard().GetArguments()) != exact {
		t.Errorf("the card has other arguments: %v %s", err, card.GetCard().GetArguments())
	}
}

// A definition is the server's own, byte for byte, and its fingerprint is over these bytes (R32, R34, R37).
func TestDefinitionsAreTheServersOwn(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	echo := addEcho(s, "echo")
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{})
	for _, tool := range turn.GetTools() {
		if tool.GetTool().GetLane() == commonv1.Lane_LANE_MCP && !echo.sent(string(tool.GetTool().GetDefinition())) {
			t.Errorf("%s is not as the server wrote it:\n%s", tool.GetTool().GetIdentity().GetTool(), tool.GetTool().GetDefinition())
		}
	}
}

// The same through `writ mcp`, whose client here writes its lines by hand: an SDK would spoil them before they are sent.
func TestBytesStayAsTheyAreThroughMCP(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	echo := addEcho(s, "echo")
	s.Settle("mcp.echo.echo", commonv1.SecurityClass_SECURITY_CLASS_READ, commonv1.Disposition_DISPOSITION_AUTOMATIC, echo.digest)
	client := startLineClient(t, s)
	client.request(t, 1, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"lines","version":"1"}}`)
	client.send(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	answer := client.request(t, 2, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, toolname.Alias("echo", "echo"), exact))
	if !echo.received(exact) {
		t.Errorf("the server did not receive these bytes:\n%s\nbut:\n%s", exact, echo.record())
	}
	if !bytes.Contains(answer, []byte(exact)) {
		t.Errorf("the client got another structured result:\n%s", answer)
	}
}

// lineClient speaks to `writ mcp` in raw lines.
type lineClient struct {
	in  interface{ Write([]byte) (int, error) }
	out *bufio.Reader
}

func startLineClient(t *testing.T, s *stack.Stack, args ...string) *lineClient {
	t.Helper()
	cmd := mcpCommand(t, s, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil { // a client that is done closes the input, and the server ends (R76)
			t.Errorf("`writ mcp` after its input closed: %v\n%s", err, stderr.Bytes())
		}
	})
	return &lineClient{in: in, out: bufio.NewReaderSize(out, 4<<20)}
}

func (c *lineClient) send(t *testing.T, line string) {
	t.Helper()
	if _, err := c.in.Write([]byte(line + "\n")); err != nil {
		t.Fatal(err)
	}
}

// request sends a request and reads lines until its answer.
func (c *lineClient) request(t *testing.T, id int, method, params string) []byte {
	t.Helper()
	c.send(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params))
	for {
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		var m struct {
			ID     *int            `json:"id"`
			Method string          `json:"method"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("standard output carries the protocol only, and this came: %q", line)
		}
		if m.ID == nil || *m.ID != id || m.Method != "" {
			continue
		}
		if m.Error != nil {
			t.Fatalf("%s: %s", method, m.Error)
		}
		return line
	}
}

// mcpCommand is `writ mcp` as Claude Code and VS Code start it: a child with a minimal environment.
func mcpCommand(t *testing.T, s *stack.Stack, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(stack.Program(t, "writ"), append([]string{"mcp"}, args...)...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + t.TempDir(), "WRIT_HOME=" + s.Home.Root}
	cmd.Dir = t.TempDir()
	return cmd
}
