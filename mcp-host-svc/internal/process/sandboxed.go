package process

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/writ-dev/writ/internal/sandbox"
)

// Sandboxed starts servers through the kit's launcher: own user, mount and pid
// namespaces, never host uid 0, with Mask out of sight.
type Sandboxed struct {
	// Scope begins the mark of every process, for the sweep after a crash.
	Scope string
	// Mask lists existing paths that no server may see.
	Mask []string
}

// Start implements Starter.
func (s *Sandboxed) Start(ctx context.Context, spec Spec) (Process, error) {
	p, theirs, err := pipes()
	if err != nil {
		return nil, err
	}
	defer theirs.close()
	in := sandbox.Spec{
		Argv: spec.Argv, Executable: spec.Path, Dir: spec.Dir, Env: spec.Env, Profile: sandbox.ProfileServer, Mask: s.Mask,
		Network: sandbox.NetworkOpen, Least: sandbox.LevelGuarded,
		Stdin: theirs.in, Stdout: theirs.out, Stderr: theirs.errs, Scope: s.Scope + spec.Server + ";",
	}
	for _, m := range s.Mask {
		if within(spec.Dir, m) { // the one masked folder that is the server's own
			in.Binds = []sandbox.Bind{{Path: spec.Dir, Write: true}}
		}
	}
	if spec.HostAccepted {
		in.Profile, in.Least, in.Mask, in.Binds = sandbox.ProfileHost, sandbox.LevelHost, nil, nil
	}
	if p.run, err = sandbox.Start(ctx, in); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// ends are the three pipe ends of one side.
type ends struct{ in, out, errs *os.File }

func (e ends) close() {
	for _, f := range []*os.File{e.in, e.out, e.errs} {
		if f != nil {
			_ = f.Close()
		}
	}
}

func pipes() (*sandboxed, ends, error) {
	var ours, theirs ends
	var err error
	if theirs.in, ours.in, err = os.Pipe(); err == nil {
		if ours.out, theirs.out, err = os.Pipe(); err == nil {
			ours.errs, theirs.errs, err = os.Pipe()
		}
	}
	if err != nil {
		ours.close()
		theirs.close()
		return nil, ends{}, err
	}
	return &sandboxed{ends: ours}, theirs, nil
}

type sandboxed struct {
	ends
	run *sandbox.Process
}

func (p *sandboxed) Stdin() io.WriteCloser   { return p.in }
func (p *sandboxed) Stdout() io.ReadCloser   { return p.out }
func (p *sandboxed) Stderr() io.ReadCloser   { return p.errs }
func (p *sandboxed) PID() int                { return p.run.PID() }
func (p *sandboxed) Exited() <-chan struct{} { return p.run.Done() }

// Stop waits for the server to end by itself, its input being closed, then asks,
// then ends everything. The init kills after the grace, so the wait is bounded.
func (p *sandboxed) Stop(grace time.Duration) Exit {
	_ = p.in.Close()
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.run.Done():
	case <-t.C:
		p.run.Terminate(grace)
	}
	e, _ := p.run.Wait(context.Background())
	out := Exit{Code: e.Code, Survivors: len(e.Survivors), CleanedUp: e.CleanedUp}
	if e.Signal != 0 {
		out.Signal = e.Signal.String()
	}
	return out
}

func (p *sandboxed) Enforced() Enforced {
	e := p.run.Enforced()
	out := Enforced{Isolation: string(e.Level), Network: "open"}
	if e.Network != "host" {
		out.Network = "none"
	}
	add := func(format string, args ...any) {
		out.Mechanisms = append(out.Mechanisms, fmt.Sprintf(format, args...))
	}
	if len(e.Namespaces) > 0 {
		add("namespaces %s", strings.Join(e.Namespaces, ","))
	}
	if e.NoNewPrivs {
		add("no_new_privs")
	}
	if e.Seccomp == 2 {
		add("seccomp")
	}
	if e.CapEff != "" && strings.Trim(e.CapEff, "0") == "" {
		add("capabilities none")
	}
	add("network %s", e.Network)
	add("uid %d", e.HostUID)
	add("tracking %s", e.Tracking)
	for _, d := range e.Degraded {
		out.Degraded = append(out.Degraded, fmt.Sprintf("%s: wanted %s, got %s: %s", d.What, d.Wanted, d.Got, d.Cause))
	}
	return out
}
