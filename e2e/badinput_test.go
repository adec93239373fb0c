package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/writ-dev/writ/e2e/internal/stack"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/errs"
)

// Arguments that are no strict JSON object never become a call: the error names the field and what to do, and the next
// call works ("Rules that never bend" 2, 7, 8).
func TestBadArguments(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	echo := addEcho(s, "echo")
	s.Settle("mcp.echo.echo", commonv1.SecurityClass_SECURITY_CLASS_READ, commonv1.Disposition_DISPOSITION_AUTOMATIC, echo.digest)
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{})
	caller := s.Client(stack.Caller)
	for name, c := range map[string]struct {
		tool, arguments string
		code            codes.Code
		reason          string
	}{
		"malformed":                {"mcp.echo.echo", `{"a":1`, codes.InvalidArgument, "JSON_INVALID"},
		"something behind it":      {"mcp.echo.echo", `{"a":1} x`, codes.InvalidArgument, "JSON_INVALID"},
		"a name twice":             {"mcp.echo.echo", `{"a":1,"b":2,"a":3}`, codes.InvalidArgument, "JSON_INVALID"},
		"a name twice, escaped":    {"mcp.echo.echo", `{"a":1,"\u0061":3}`, codes.InvalidArgument, "JSON_INVALID"},
		"a name twice, deep":       {"mcp.echo.echo", `{"x":[{"a":1,"a":2}]}`, codes.InvalidArgument, "JSON_INVALID"},
		"a lone surrogate":         {"mcp.echo.echo", `{"a":"\ud800"}`, codes.InvalidArgument, "JSON_INVALID"},
		"invalid UTF-8":            {"mcp.echo.echo", "{\"a\":\"\xff\"}", codes.InvalidArgument, "JSON_INVALID"},
		"a list":                   {"mcp.echo.echo", `[1]`, codes.InvalidArgument, "JSON_INVALID"},
		"null":                     {"mcp.echo.echo", `null`, codes.InvalidArgument, "JSON_INVALID"},
		"NaN":                      {"mcp.echo.echo", `{"a":NaN}`, codes.InvalidArgument, "JSON_INVALID"},
		"too deep":                 {"mcp.echo.echo", `{"a":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `}`, codes.InvalidArgument, "JSON_INVALID"},
		"two MiB":                  {"mcp.echo.echo", `{"a":"` + strings.Repeat("x", 2<<20) + `"}`, codes.ResourceExhausted, "LIMIT_EXCEEDED"},
		"an unknown tool":          {"mcp.echo.nope", `{}`, codes.NotFound, "TOOL_NOT_FOUND"},
		"an unknown server":        {"mcp.nope.echo", `{}`, codes.NotFound, "TOOL_NOT_FOUND"},
		"a command and an argv":    {"run_command", `{"command":"x","argv":["x"]}`, codes.InvalidArgument, "ARGUMENTS_INVALID"},
		"a field that is not one":  {"run_command", `{"comand":"x"}`, codes.InvalidArgument, "ARGUMENTS_INVALID"},
		"a variable of the kernel": {"run_command", `{"argv":["x"],"env":{"A=B":"x"}}`, codes.InvalidArgument, "ARGUMENTS_INVALID"},
	} {
		_, err := caller.Call(s.Context(), &gatewayv1.CallToolRequest{Turn: turn.GetId(), Tool: c.tool, Arguments: []byte(c.arguments)}, nil)
		wantReason(t, name, err, c.reason)
		if got := status.Code(err); got != c.code {
			t.Errorf("%s: %v, want %v", name, got, c.code)
		}
		meta := errs.Metadata(err)
		if c.reason == "LIMIT_EXCEEDED" && (meta["limit_name"] != "arguments_max_bytes" || meta["limit"] != "1048576" || meta["got"] == "") {
			t.Errorf("%s: the limit is not named: %v", name, meta)
		}
		if c.reason == "JSON_INVALID" && meta["field"] != "arguments" {
			t.Errorf("%s: the field is not named: %v", name, meta)
		}
	}
	_, err := caller.Call(s.Context(), &gatewayv1.CallToolRequest{Turn: "t_none", Tool: "run_command"}, nil)
	wantReason(t, "an unknown turn", err, "TURN_NOT_FOUND")
	if _, err := caller.Turns.EndTurn(s.Context(), &registryv1.EndTurnRequest{Turn: turn.GetId()}); err != nil {
		t.Fatal(err)
	}
	_, err = caller.Call(s.Context(), &gatewayv1.CallToolRequest{Turn: turn.GetId(), Tool: "mcp.echo.echo"}, nil)
	wantReason(t, "an ended turn", err, "TURN_ENDED")

	next := s.OpenTurn(&registryv1.OpenTurnRequest{})
	s.Call(next, "mcp.echo.echo", `{"a":"`+strings.Repeat("x", 1<<20-8)+`"}`, completed)
}

// Servers that do not work are left out of a turn, each with its reason and what to do; a good one works beside them (R16,
// R17).
func TestBadServers(t *testing.T) {
	t.Parallel()
	s := stack.New(t)
	echo := newEcho(t)
	s.WriteMCPFile(fmt.Sprintf(`{"servers":{
		"good":    {"transport":"stdio","command":%q,"args":%s},
		"typo":    {"trasport":"stdio","command":"/bin/true"},
		"unbound": {"transport":"stdio","command":"/bin/true","env":{"TOKEN":"${TOKEN}"}},
		"missing": {"transport":"stdio","command":"no-such-program-anywhere"},
		"absent":  {"transport":"stdio","command":%q},
		"dies":    {"transport":"stdio","command":"/bin/sh","args":["-c","echo out of order >&2; exit 3"]},
		"silent":  {"transport":"stdio","command":"/bin/sleep","args":["1000"]},
		"noise":   {"transport":"stdio","command":"/usr/bin/yes"}
	}}`, stack.Program(t, "echo-server"), jsonList(echo.args()), filepath.Join(t.TempDir(), "absent")))
	s.Up()
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{})
	problems := map[string]error{}
	for _, p := range turn.GetProblems() {
		problems[p.GetProvider()] = status.ErrorProto(p.GetStatus())
	}
	for provider, want := range map[string][]string{
		"mcp.typo":    {"CONFIGURATION_INVALID"},
		"mcp.unbound": {"VARIABLE_NOT_BOUND", "CONFIGURATION_INVALID"},
		"mcp.missing": {"PROGRAM_NOT_FOUND"},
		"mcp.absent":  {"PROGRAM_NOT_FOUND"},
		"mcp.dies":    {"SERVER_START_FAILED"},
		"mcp.silent":  {"SERVER_SILENT", "DEADLINE_EXCEEDED"},
		"mcp.noise":   {"SERVER_SILENT", "DEADLINE_EXCEEDED", "SERVER_PROTOCOL", "LIMIT_EXCEEDED", "SERVER_START_FAILED"},
	} {
		wantReason(t, provider, problems[provider], want...)
		delete(problems, provider)
	}
	for provider, err := range problems {
		t.Errorf("%s: %v", provider, err)
	}
	if err := statusOf(turn, "mcp.typo"); !strings.Contains(err, "typo") || !strings.Contains(err, "trasport") || !strings.Contains(err, "mcp.json") {
		t.Errorf("file, entry and field are not all named: %s", err)
	}
	if err := statusOf(turn, "mcp.dies"); !strings.Contains(err, "out of order") {
		t.Errorf("the server's last words are missing: %s", err)
	}
	s.Call(turn, "mcp.good.echo", `{"text":"works"}`, completed)
}

func statusOf(turn *registryv1.Turn, provider string) string {
	i := slices.IndexFunc(turn.GetProblems(), func(p *registryv1.ProviderProblem) bool { return p.GetProvider() == provider })
	if i < 0 {
		return ""
	}
	st := status.FromProto(turn.GetProblems()[i].GetStatus())
	return fmt.Sprint(st.Message(), errs.Metadata(st.Err()))
}

// A configuration that can't be meant keeps the server from starting, and the message names file, place and what to do.
func TestBadConfigurationFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ yaml, want string }{
		"an unknown key":    {"lissten:\n  grpc: none\n", "lissten"},
		"no such limit":     {"limits:\n  no_such_limit: 3\n", "limits"},
		"an open listener":  {"listen:\n  grpc: 0.0.0.0:0\n", "0.0.0.0"},
		"no YAML whatever":  {"listen: [", "writ.yaml"},
		"a mode of no kind": {"permission:\n  max_mode: everything\n", "everything"},
	} {
		t.Run(name, func(t *testing.T) {
			s := stack.New(t, stack.WithConfig(c.yaml), stack.ListenAsConfigured())
			if err := s.TryUp(); err == nil {
				t.Fatal("it started")
			}
			if !strings.Contains(s.Log(), c.want) {
				t.Errorf("the message does not name %q:\n%s", c.want, s.Log())
			}
			s.Refused()
		})
	}
}
