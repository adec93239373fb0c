package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/writ-dev/writ/clients/go/writtoken"
	"github.com/writ-dev/writ/internal/command"
	"github.com/writ-dev/writ/internal/sandbox"
)

func plan(t *testing.T, arguments string, scopes writtoken.Scopes) (*Plan, error) {
	t.Helper()
	c, err := command.Parse([]byte(arguments))
	if err != nil {
		t.Fatal(err)
	}
	return NewPlan(c, scopes, "scope", "00-tp", "", Bounds{MaxProcesses: 7, Mask: []string{"/m"}})
}

func paths(access string, list ...string) writtoken.Scopes {
	var s writtoken.Scopes
	for _, p := range list {
		s.Paths = append(s.Paths, writtoken.PathScope{Folder: writtoken.Folder{Path: p, Dev: 1, Ino: 2}, Access: access})
	}
	return s
}

// What the writ says is what is reached: paths with identity, read or write, network, level.
func TestPlanFollowsTheWrit(t *testing.T) {
	p, err := plan(t, `{"command":"make","cwd":"src","env":{"PATH":"/bin","A":"1"}}`, paths("read", "/w", "/data"))
	if err != nil {
		t.Fatal(err)
	}
	s := p.Spec
	if s.Dir != "/w/src" || s.Profile != sandbox.ProfileCommand || s.Network != "none" || s.Least != sandbox.LevelIsolatedSoftCaps || s.MaxProcesses != 7 {
		t.Errorf("%+v", s)
	}
	if len(s.Binds) != 2 || s.Binds[0] != (sandbox.Bind{Path: "/w", Dev: 1, Ino: 2}) || s.Binds[1].Write {
		t.Errorf("%+v", s.Binds)
	}
	for _, want := range []string{"PATH=/bin", "A=1", "HOME=/tmp", "TRACEPARENT=00-tp"} {
		if !slices.Contains(s.Env, want) {
			t.Errorf("%q is missing in %q", want, s.Env)
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(s.Env), func(e string) bool { return !strings.HasPrefix(e, "PATH=") })); n != 1 {
		t.Errorf("PATH stands %d times", n)
	}
}

func TestNothingOfTheServiceIsInheritedInASandbox(t *testing.T) {
	t.Setenv("WRIT_SECRET_TOKEN", "x")
	for _, args := range []string{`{"command":"true"}`, `{"command":"true","isolation":"host","network":"open"}`} {
		scopes := paths("write", "/w")
		scopes.HostExecution = true
		p, err := plan(t, args, scopes)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.Join(p.Spec.Env, "\n"), "WRIT_SECRET_TOKEN") {
			t.Errorf("%s: %q", args, p.Spec.Env)
		}
	}
}

func TestPlansThatCannotBe(t *testing.T) {
	cases := []struct{ args, field string }{
		{`{"command":"true","cwd":"/etc"}`, "cwd"},
		{`{"command":"true","cwd":"/wide"}`, "cwd"},
		{`{"command":"true","isolation":"host","network":"open"}`, "isolation"},
		{`{"command":"true","env":{"WRIT_SCOPE":"x"}}`, "env.WRIT_SCOPE"},
	}
	for _, c := range cases {
		_, err := plan(t, c.args, paths("write", "/w"))
		var p *Problem
		if !errors.As(err, &p) || p.Field != c.field || p.Next == "" {
			t.Errorf("%s: %v", c.args, err)
		}
	}
	if _, err := plan(t, `{"command":"true","cwd":"x"}`, writtoken.Scopes{}); err == nil {
		t.Error("a folder without a workspace")
	}
	if p, err := plan(t, `{"command":"true"}`, writtoken.Scopes{}); err != nil || p.Spec.Dir != "/tmp" || len(p.Spec.Binds) != 0 {
		t.Errorf("%+v %v", p, err)
	}
	host := paths("write", "/w")
	host.HostExecution = true
	var p *Problem
	if _, err := plan(t, `{"command":"true","isolation":"host"}`, host); !errors.As(err, &p) || p.Field != "network" {
		t.Errorf("a host run that claims no network: %v", err)
	}
}

func TestProgramIsLookedUpInTheCommandsOwnPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := plan(t, `{"argv":["tool"],"env":{"PATH":"`+dir+`"}}`, paths("write", dir))
	if err != nil || p.Spec.Executable != dir+"/tool" {
		t.Errorf("%v %v", p, err)
	}
	if p, err = plan(t, `{"argv":["./tool"]}`, paths("write", dir)); err != nil || p.Spec.Executable != dir+"/tool" || p.Spec.Argv[0] != "./tool" {
		t.Errorf("%v %v", p, err)
	}
	var e *sandbox.Error
	if _, err = plan(t, `{"argv":["tool"]}`, paths("write", dir)); !errors.As(err, &e) || e.Kind != sandbox.KindExec || e.ErrnoName() != "ENOENT" {
		t.Errorf("%v", err)
	}
}

// R108: every reader sees the same events in the same order, whenever it comes.
func TestAllReadersSeeTheSameEvents(t *testing.T) {
	l := NewLog(time.Now)
	read := func() string {
		var b strings.Builder
		for after := int64(0); ; {
			e, more, err := l.Next(t.Context(), after)
			if !more || err != nil {
				return b.String()
			}
			if e.Sequence != after+1 {
				return "a gap"
			}
			after = e.Sequence
			b.Write(e.Output)
		}
	}
	var wg sync.WaitGroup
	got := make([]string, 3)
	for i := range got {
		wg.Go(func() { got[i] = read() })
	}
	want := strings.Repeat("0123456789", 500)
	for i := range 500 {
		l.Output(Stdout, []byte(want[i*10:i*10+10]))
	}
	l.End("the end", nil)
	wg.Wait()
	for _, text := range append(got, read()) {
		if text != want {
			t.Errorf("%d bytes", len(text))
		}
	}
}

func TestNextGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, more, err := NewLog(time.Now).Next(ctx, 0); more || !errors.Is(err, context.Canceled) {
		t.Errorf("%v %v", more, err)
	}
	l := NewLog(time.Now)
	l.End(nil, errors.New("sealed nothing"))
	l.Append("late")
	if _, more, err := l.Next(t.Context(), 0); more || err == nil {
		t.Errorf("%v %v", more, err)
	}
}

func TestResultIsBoundedValidJSON(t *testing.T) {
	o := NewOutput(1<<20, func(Stream, []byte) {})
	for s, b := range map[Stream][]byte{Stdout: bytes.Repeat([]byte{1}, 1<<20), Stderr: {0xff, 'x', '"', '\n'}} {
		w, err := o.Pipe(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		w.Close()
	}
	o.Wait()
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	raw := Result(sandbox.Exit{Code: -1, Signal: 9}, o)
	var r struct {
		ExitCode       int `json:"exit_code"`
		Signal, Stderr string
		Truncated      bool
	}
	if err := json.Unmarshal(raw, &r); err != nil || len(raw) > MaxResult || !r.Truncated || r.ExitCode != -1 || r.Signal != "SIGKILL" || r.Stderr != "\uFFFDx\"\n" {
		t.Errorf("%v, %d bytes, %+v", err, len(raw), r)
	}
}
