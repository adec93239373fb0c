package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/writ-dev/writ/e2e/internal/stack"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/command"
)

// echoServer is the example server as a connector, with the files that show what reached it and what it did.
type echoServer struct {
	digest       string // of its provider
	notes, lines string // files
}

func newEcho(t testing.TB) *echoServer {
	t.Helper()
	dir := t.TempDir()
	return &echoServer{notes: filepath.Join(dir, "notes"), lines: filepath.Join(dir, "lines")}
}

func (e *echoServer) args() []string { return []string{"-notes", e.notes, "-record", e.lines} }

// addEcho adds the example server and learns its provider digest from a turn.
func addEcho(s *stack.Stack, name string) *echoServer {
	t := s.T()
	t.Helper()
	e := newEcho(t)
	s.AddConnector(name, stack.Program(t, "echo-server"), e.args()...)
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{Conversation: "addEcho " + name})
	e.digest = mustTool(t, turn, "mcp."+name+".echo").GetTool().GetIdentity().GetProviderDigest()
	return e
}

// digestOf is the provider digest that a tool has in these tests.
func (e *echoServer) digestOf(tool string) string {
	if tool == command.ToolName {
		return command.ProviderDigest()
	}
	return e.digest
}

// arguments are append_note's for a line.
func (e *echoServer) arguments(text string) string { return fmt.Sprintf(`{"text":%q}`, text) }

// slowly are arguments for a line after which the server does not answer for minutes.
func (e *echoServer) slowly(text string) string {
	return fmt.Sprintf(`{"text":%q,"wait_ms":600000}`, text)
}

// count tells how often a line was written.
func (e *echoServer) count(text string) int {
	b, err := os.ReadFile(e.notes)
	if err != nil {
		return 0
	}
	n := 0
	for line := range bytes.Lines(b) {
		if string(bytes.TrimSuffix(line, []byte("\n"))) == text {
			n++
		}
	}
	return n
}

// record is every line that the server received (>) and sent (<).
func (e *echoServer) record() string {
	b, err := os.ReadFile(e.lines)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// received tells whether a line that came in has these bytes in it.
func (e *echoServer) received(bytes string) bool { return e.has("> ", bytes) }

// sent tells whether a line that went out has these bytes in it.
func (e *echoServer) sent(bytes string) bool { return e.has("< ", bytes) }

func (e *echoServer) has(way, bytes string) bool {
	for line := range strings.Lines(e.record()) {
		if strings.HasPrefix(line, way) && strings.Contains(line, bytes) {
			return true
		}
	}
	return false
}

// lastTraceparent is params._meta.traceparent of the last call that reached the server.
func (e *echoServer) lastTraceparent(t *testing.T) string {
	t.Helper()
	last := ""
	for line := range strings.Lines(e.record()) {
		request, in := strings.CutPrefix(line, "> ")
		var m struct {
			Method string
			Params struct {
				Meta struct{ Traceparent string } `json:"_meta"`
			}
		}
		if in && json.Unmarshal([]byte(request), &m) == nil && m.Method == "tools/call" {
			last = m.Params.Meta.Traceparent
		}
	}
	return last
}

func jsonList(words []string) string {
	b, err := json.Marshal(words)
	if err != nil {
		return "[]"
	}
	return string(b)
}
