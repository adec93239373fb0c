package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/writ-dev/writ/e2e/internal/stack"
)

// terminal runs the command line on a home, as a person's shell does, but without a terminal behind it.
type terminal struct {
	t    *testing.T
	home string
	dir  string
}

// run runs `writ WORDS` and wants its exit code.
func (c terminal) run(want int, words ...string) (stdout, stderr string) {
	c.t.Helper()
	cmd := exec.Command(stack.Program(c.t, "writ"), words...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + c.t.TempDir(), "WRIT_HOME=" + c.home}
	cmd.Dir = c.dir
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		c.t.Errorf("writ %s: exit code %d, want %d\n%s%s", strings.Join(words, " "), got, want, out.String(), problems.String())
	}
	if want != 0 && problems.Len()+out.Len() == 0 {
		c.t.Errorf("writ %s: exit code %d without a word", strings.Join(words, " "), want)
	}
	return out.String(), problems.String()
}

// The road of the README, at the command line: a server is added and settled, a call asks, is answered and recorded; every
// end has the exit code that docs/cli.md gives it.
func TestTheCommandLine(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	e := newEcho(t)
	c := terminal{t: t, home: s.Home.Root, dir: s.Workspace()}

	c.run(0, append([]string{"connector", "add", "echo", "--yes", "--", stack.Program(t, "echo-server")}, e.args()...)...)
	if out, _ := c.run(0, "connector", "test", "echo"); !strings.Contains(out, "echo") {
		t.Errorf("connector test: %s", out)
	}
	if out, _ := c.run(0, "plugin", "list", "--tools"); !strings.Contains(out, "mcp.echo.append_note") || !strings.Contains(out, "run_command") {
		t.Errorf("plugin list --tools: %s", out)
	}
	c.run(0, "settings", "tool", "mcp.echo.echo", "--class", "read")
	if out, _ := c.run(0, "call", "mcp.echo.echo", `{"n":9007199254740993}`, "--raw"); !strings.Contains(out, `{"n":9007199254740993}`) {
		t.Errorf("a read: %s", out)
	}

	out, problems := c.run(7, "call", "mcp.echo.append_note", "text=by hand", "--no-wait")
	card := regexp.MustCompile(`k_[0-9a-z]+`).FindString(out + problems)
	if card == "" || e.count("by hand") != 0 {
		t.Fatalf("no card, or it ran: %s%s", out, problems)
	}
	if out, _ := c.run(0, "cards", "show", card); !strings.Contains(out, "by hand") || !strings.Contains(out, "mcp.echo.append_note") {
		t.Errorf("the card does not show what would run: %s", out)
	}
	c.run(0, "cards", "approve", card)
	waitFor(t, "the approved call", func() bool { return e.count("by hand") == 1 })
	c.run(1, "cards", "approve", card) // it is decided

	if out, _ := c.run(0, "receipt", "last"); !strings.Contains(out, "mcp.echo.append_note") {
		t.Errorf("receipt last: %s", out)
	}
	if out, _ := c.run(0, "trace", "last"); !strings.Contains(out, "tools/call") {
		t.Errorf("trace last: %s", out)
	}
	c.run(0, "settings", "tool", "mcp.echo.append_note", "--disposition", "blocked")
	c.run(4, "call", "mcp.echo.append_note", "text=blocked")
	c.run(0, "settings", "tool", "mcp.echo.show_files", "--class", "read")
	c.run(3, "call", "mcp.echo.show_files", "path=/no/such/file")
	for _, words := range [][]string{{"calls", "list"}, {"cards", "list"}, {"grants", "list"}, {"turn", "list"}, {"connector", "list"}, {"token", "list"}, {"config", "show"}} {
		c.run(0, words...)
		out, _ := c.run(0, append(words, "--json")...)
		for line := range strings.Lines(out) {
			if !json.Valid([]byte(line)) {
				t.Errorf("writ %s --json prints %q", strings.Join(words, " "), line)
			}
		}
		if token, err := os.ReadFile(s.Home.TokenFile(stack.Caller)); err != nil || strings.Contains(out, strings.TrimSpace(string(token))) {
			t.Errorf("writ %s prints a token (%v)", strings.Join(words, " "), err)
		}
	}
	if e.count("blocked") != 0 {
		t.Error("a blocked tool ran")
	}
}

// Wrong words, no server, a bad configuration: each its own exit code, and words that say what to do.
func TestTheCommandLineFails(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	c := terminal{t: t, home: s.Home.Root, dir: t.TempDir()}
	c.run(2, "no-such-command")
	c.run(2, "call")
	c.run(2, "call", "run_command", "--no-such-flag")
	c.run(2, "call", "run_command", `{"argv":["x"]`)
	if _, problems := c.run(1, "receipt", "r_none"); !strings.Contains(problems, "RECEIPT_NOT_FOUND") {
		t.Errorf("an unknown receipt: %s", problems)
	}
	if _, problems := c.run(4, "call", "run_command", `{"argv":["/bin/true"]}`, "--mode", "bypass", "--workspace", c.dir); !strings.Contains(problems, "MODE_NOT_ALLOWED") {
		t.Errorf("bypass: %s", problems)
	}
	c.run(0, "config", "check")
	bad := filepath.Join(c.dir, "mcp.json")
	if err := os.WriteFile(bad, []byte(`{"servers":{"fs":{"trasport":"stdio","command":"x"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, problems := c.run(2, "config", "check", bad); !strings.Contains(out+problems, "trasport") || !strings.Contains(out+problems, "fs") {
		t.Errorf("config check: %s%s", out, problems)
	}
	nowhere := terminal{t: t, home: filepath.Join(t.TempDir(), "home"), dir: c.dir}
	if _, problems := nowhere.run(8, "calls", "list"); !strings.Contains(problems, "writ up") {
		t.Errorf("no server: %s", problems)
	}
	// A second server on the same home is turned away, and told who the first is.
	if _, problems := c.run(1, "up", "--listen", "none"); !strings.Contains(problems, "process") {
		t.Errorf("a second server: %s", problems)
	}
}
