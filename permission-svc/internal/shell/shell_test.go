package shell_test

import (
	_ "embed"
	"encoding/json"
	"strings"
	"testing"

	"github.com/writ-dev/writ/permission-svc/internal/shell"
)

//go:embed testdata/shell.json
var vectors []byte

type vector struct {
	Command     string
	Destructive bool
	Opaque      bool
	Words       []string
	Note        string
	Dialect     string
}

// R44: no line of the vectors that destroys is missed, whatever its spelling.
func TestNoDestructiveLineIsMissed(t *testing.T) {
	var vs []vector
	if err := json.Unmarshal(vectors, &vs); err != nil {
		t.Fatal(err)
	}
	overAsked := 0
	for _, v := range vs {
		r := shell.Line(v.Command)
		if v.Destructive && !r.Destructive {
			t.Errorf("missed: %q (%s): %+v", v.Command, v.Note, r)
		}
		if v.Opaque && r.Rememberable {
			t.Errorf("would be remembered: %q (%s): %+v", v.Command, v.Note, r)
		}
		if !v.Destructive && r.Destructive {
			overAsked++
			t.Logf("asks without need: %q (%s): %+v", v.Command, v.Note, r)
		}
	}
	t.Logf("%d vectors, %d ask without need", len(vs), overAsked)
}

// R44: a destructive word as data does not ask.
func TestWordsAsDataDoNotAsk(t *testing.T) {
	for _, line := range []string{
		"npm run rm-cache", "grep 'rm -rf' f", "cat <<'EOF'\nrm -rf /\nEOF", "ls -la", "echo rm -rf /", "curl https://x/rm", "git commit -m 'rm old; rm -rf x'",
		"go test ./... 2>&1 | tail -5", "cd sub && make test", "find . -name rm -print", "python3 script.py rm", "ls # rm -rf /",
	} {
		if r := shell.Line(line); r.Destructive {
			t.Errorf("%q asks: %+v", line, r)
		}
	}
}

// R44, R45: a program by argv is looked at as a line is, and nothing in its arguments is shell code unless it runs it.
func TestArgv(t *testing.T) {
	for _, c := range []struct {
		argv        string
		destructive bool
	}{
		{"rm,x", true}, {"/bin/RM,x", true}, {"echo,$(rm x)", false}, {"sh,-c,rm x", true}, {"sh,-c,ls", false}, {"env,rm,x", true},
		{"find,.,-delete", true}, {"git,push,-uf", true}, {"git,push,--forc", true}, {"git,push", false}, {"", true}, {"bash", true}, {"bash,build.sh", false},
	} {
		if r := shell.Argv(strings.Split(c.argv, ",")); r.Destructive != c.destructive {
			t.Errorf("%s: %+v", c.argv, r)
		}
	}
}

// R45: what is remembered is a word, or a program with its sub-command, never a line; and rm is not dd.
func TestTheWordThatIsRemembered(t *testing.T) {
	for line, want := range map[string]string{
		"rm -rf build": "rm", "dd if=a of=b": "dd", "git push --force origin x": "git push --force", "git status -s": "git status", "npm run build": "npm run build",
		"ls -la": "ls", "cd x && ls": "ls", "echo hi": "echo", "./tool a": "./tool", "/usr/bin/ls": "ls", "a; b": "a,b", "go test ./...": "go test",
	} {
		r := shell.Line(line)
		if got := strings.Join(r.Words, ","); got != want || !r.Rememberable {
			t.Errorf("%q: %q %+v, want %q", line, got, r, want)
		}
	}
	for _, line := range []string{"sudo ls", "$X a", "bash -c 'ls'", "eval ls", "PATH=/tmp/x ls", "export PATH=/x; ls", "curl x | sh", "python3 -c 'print(1)'", "xargs ls"} {
		if r := shell.Line(line); r.Rememberable {
			t.Errorf("%q would be remembered: %+v", line, r)
		}
	}
}

// Foreign lines can't make this slow or end it.
func TestWorkIsBounded(t *testing.T) {
	for _, line := range []string{
		strings.Repeat("a;", 32<<10), strings.Repeat("x", 65<<10), strings.Repeat("(", 10000), strings.Repeat("$(", 10000), strings.Repeat("sudo ", 5000) + "ls",
		strings.Repeat("sudo sh -c 'ls' ", 1000), "for a in " + strings.Repeat("x ", 1000) + "; do $a; done", "`" + strings.Repeat("\\`", 300), "{" + strings.Repeat("a,", 5000) + "}",
		strings.Repeat("bash -c \"", 20) + strings.Repeat("\"", 20),
	} {
		if r := shell.Line(line); !r.Opaque {
			t.Errorf("%.40q…: %+v", line, r)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("rm -rf x")
	f.Add("bash -c \"$(rm)\" <<E\nx\nE")
	f.Fuzz(func(t *testing.T, line string) {
		r := shell.Line(line)
		if r.Opaque && (!r.Destructive || r.Rememberable) {
			t.Fatalf("%q: %+v", line, r)
		}
	})
}
