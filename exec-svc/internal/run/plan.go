package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/writ-dev/writ/clients/go/writtoken"
	"github.com/writ-dev/writ/internal/command"
	"github.com/writ-dev/writ/internal/sandbox"
)

// Bounds are the executor's own limits on every command, named settings.
type Bounds struct {
	MaxProcesses int
	MaxMemory    int64
	MaxFileSize  int64
	Mask         []string // hidden from every command
}

// Plan is what is about to be done, derived from the argument bytes and the
// scopes that a writ gives.
type Plan struct {
	Spec sandbox.Spec
	// Wanted is the least isolation level that was asked for.
	Wanted sandbox.Level
}

// Problem is a request that can't be planned. Field is the argument or scope.
type Problem struct {
	Field, Detail, Next string
}

// Error is one sentence.
func (p *Problem) Error() string { return p.Field + ": " + p.Detail }

const (
	sandboxPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	privateTmp  = "/tmp"
)

// ours are the variables that the executor sets itself.
var ours = []string{"WRIT_SCOPE", "TRACEPARENT", "TRACESTATE"}

// NewPlan turns the command and the writ's scopes into a sandbox. The first
// path of the scopes is the workspace, below which a relative working folder
// lies; without any path the command runs in the sandbox's private /tmp.
// Errors are a *Problem, or a *sandbox.Error of kind path or exec.
func NewPlan(c command.Command, scopes writtoken.Scopes, scope, traceparent, tracestate string, b Bounds) (*Plan, error) {
	level := sandbox.Level(c.Isolation)
	spec := sandbox.Spec{Profile: sandbox.ProfileCommand, Network: c.Network, Least: level, Scope: scope,
		MaxProcesses: b.MaxProcesses, MaxMemory: b.MaxMemory, MaxFileSize: b.MaxFileSize, Mask: b.Mask}
	if level == sandbox.LevelHost {
		if !scopes.HostExecution {
			return nil, &Problem{Field: "isolation", Detail: "host execution is not in the writ's scopes", Next: "ask for isolation, or let a person approve host execution"}
		}
		if c.Network != command.NetworkOpen {
			return nil, &Problem{Field: "network", Detail: "a host run can't be kept from the network", Next: `ask for network "open" too`}
		}
		spec.Profile, spec.Network, spec.Mask = sandbox.ProfileHost, sandbox.NetworkOpen, nil
	}
	for _, p := range scopes.Paths {
		spec.Binds = append(spec.Binds, sandbox.Bind{Path: p.Path, Write: p.Access == "write", Dev: p.Dev, Ino: p.Ino})
	}
	var err error
	if spec.Dir, err = workingFolder(c.Cwd, spec.Binds); err != nil {
		return nil, err
	}
	if spec.Env, err = environment(c.Env, spec.Profile, traceparent, tracestate); err != nil {
		return nil, err
	}
	spec.Argv = c.Argv
	if c.Argv == nil {
		spec.Argv = []string{"/bin/sh", "-c", c.Line}
	}
	if spec.Executable, err = findProgram(spec.Argv[0], spec.Dir, spec.Env); err != nil {
		return nil, err
	}
	return &Plan{Spec: spec, Wanted: level}, nil
}

func workingFolder(cwd string, binds []sandbox.Bind) (string, error) {
	if len(binds) == 0 {
		if cwd != "." {
			return "", &Problem{Field: "cwd", Detail: fmt.Sprintf("%q, but the turn has no workspace", cwd), Next: "leave cwd out, or open a turn with a workspace"}
		}
		return privateTmp, nil
	}
	if !filepath.IsAbs(cwd) {
		return filepath.Join(binds[0].Path, cwd), nil
	}
	for _, b := range binds {
		if cwd == b.Path || strings.HasPrefix(cwd, b.Path+"/") {
			return cwd, nil
		}
	}
	return "", &Problem{Field: "cwd", Detail: fmt.Sprintf("%q lies in no folder of the writ", cwd), Next: "give a folder inside the workspace"}
}

// environment is minimal for a sandbox and the service's few public variables
// for a host run, then what the command asked for, then the trace.
func environment(asked []command.Var, profile sandbox.Profile, traceparent, tracestate string) ([]string, error) {
	vars := []command.Var{{Name: "PATH", Value: sandboxPath}, {Name: "HOME", Value: privateTmp}, {Name: "TMPDIR", Value: privateTmp},
		{Name: "USER", Value: "writ"}, {Name: "LOGNAME", Value: "writ"}, {Name: "LANG", Value: "C.UTF-8"}, {Name: "TERM", Value: "dumb"}}
	if profile == sandbox.ProfileHost {
		vars = nil
		for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR"} {
			if v, ok := os.LookupEnv(name); ok {
				vars = append(vars, command.Var{Name: name, Value: v})
			}
		}
	}
	for _, v := range asked {
		for _, name := range ours {
			if v.Name == name {
				return nil, &Problem{Field: "env." + name, Detail: "is set by the executor", Next: "leave it out"}
			}
		}
		vars = append(vars, v)
	}
	if traceparent != "" {
		vars = append(vars, command.Var{Name: "TRACEPARENT", Value: traceparent})
	}
	if tracestate != "" {
		vars = append(vars, command.Var{Name: "TRACESTATE", Value: tracestate})
	}
	return lastWins(vars), nil
}

func lastWins(vars []command.Var) []string {
	at := map[string]int{}
	var out []string
	for _, v := range vars {
		if i, ok := at[v.Name]; ok {
			out[i] = v.Name + "=" + v.Value
			continue
		}
		at[v.Name] = len(out)
		out = append(out, v.Name+"="+v.Value)
	}
	return out
}

// findProgram looks the program up as a shell would. System folders and the
// workspace have the same paths inside and outside.
func findProgram(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return filepath.Clean(name), nil
	}
	search := sandboxPath
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			search = v
		}
	}
	for _, folder := range filepath.SplitList(search) {
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(dir, folder)
		}
		at := filepath.Join(folder, name)
		if fi, err := os.Stat(at); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return at, nil
		}
	}
	return "", &sandbox.Error{Kind: sandbox.KindExec, Stage: "look up", Path: name, Errno: syscall.Errno(unix.ENOENT), Detail: "not in PATH"}
}

// valid makes output fit for a JSON string.
func valid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
