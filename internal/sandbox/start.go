package sandbox

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const commandUID = 1000 // what a command under a root service sees as its own id

// Start launches spec and returns once the payload stands at its first
// instruction, confined as Enforced says, and was let go. Every failure is an
// *Error, means that the payload has not run, and is never retried weaker.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	p, err := Prepare(ctx, spec)
	if err != nil {
		return nil, err
	}
	return p.Release()
}

// Prepared is a payload that stands at its first instruction: everything that
// can be refused has been, and nothing of it has run. The owner must Release
// or Abandon it.
type Prepared struct {
	launch   *launch
	proc     *os.Process
	ctrl     *os.File
	enforced Enforced
}

// Prepare is the first half of Start, for an owner that records something
// between knowing that the payload can run and letting it run.
func Prepare(ctx context.Context, spec Spec) (*Prepared, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	mode, err := shared.mode(ctx, spec)
	if err != nil {
		return nil, err
	}
	l := &launch{l: shared, spec: spec, mode: mode, slot: -1, kuid: -1}
	p, err := l.run(ctx)
	l.handed.close()
	if err != nil {
		l.free()
		return nil, err
	}
	return p, nil
}

// Enforced is what is in force around the waiting payload.
func (p *Prepared) Enforced() Enforced { return p.enforced }

// PID is the host's process id of the sandbox's init.
func (p *Prepared) PID() int { return p.proc.Pid }

// Release lets the payload run. After an error it has not run and nothing is
// left.
func (p *Prepared) Release() (*Process, error) {
	if err := writeFrame(p.ctrl, ownerFrame{Kind: "release"}); err != nil {
		p.Abandon()
		return nil, wrap(KindSetup, "release", "", err)
	}
	return newProcess(p.launch, p.proc, p.ctrl, p.enforced), nil
}

// Abandon ends the payload before it ran, and waits for that.
func (p *Prepared) Abandon() {
	p.ctrl.Close()
	_, _ = p.proc.Wait() // the init ends with its socket
	p.launch.free()
}

func (s *Spec) check() error {
	switch {
	case len(s.Argv) == 0:
		return specError("argv", "is empty")
	case !filepath.IsAbs(s.Executable):
		return specError("executable", fmt.Sprintf("%q is not an absolute path", s.Executable))
	case !filepath.IsAbs(s.Dir):
		return specError("dir", fmt.Sprintf("%q is not an absolute path", s.Dir))
	case s.Profile != ProfileCommand && s.Profile != ProfileServer && s.Profile != ProfileHost:
		return specError("profile", fmt.Sprintf("%q is unknown", s.Profile))
	case s.Least != "" && !s.Least.Valid():
		return specError("least", fmt.Sprintf("%q is not a level", s.Least))
	case s.Network != "" && s.Network != NetworkNone && s.Network != NetworkOpen:
		return specError("network", fmt.Sprintf("%q is neither none nor open", s.Network))
	case s.Scope == "" || strings.ContainsAny(s.Scope, "\x00\n"):
		return specError("scope", "must be a non-empty line")
	}
	if s.Network == "" {
		s.Network = NetworkNone
	}
	if s.Profile != ProfileCommand && s.Network != NetworkOpen {
		return specError("network", "a server or a host run shares the host's network; ask for open")
	}
	for _, list := range [][]string{s.Argv, s.Env} {
		for _, v := range list {
			if strings.Contains(v, "\x00") {
				return specError("argv or env", "holds a NUL byte")
			}
		}
	}
	for _, e := range s.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" || name == "WRIT_SCOPE" {
			return specError("env", fmt.Sprintf("%q is not a NAME=value that may be set", name))
		}
	}
	return s.checkPaths()
}

func (s *Spec) checkPaths() error {
	for _, b := range s.Binds {
		for _, p := range []string{b.Path, b.Target} {
			if p != "" && (!filepath.IsAbs(p) || filepath.Clean(p) != p || p == "/") {
				return specError("binds", fmt.Sprintf("%q is not a clean absolute path below the root", p))
			}
		}
		if s.Profile == ProfileServer && b.Target != "" && b.Target != b.Path {
			return specError("binds", "a server sees paths where they are")
		}
	}
	for _, m := range s.Mask {
		if !filepath.IsAbs(m) {
			return specError("mask", fmt.Sprintf("%q is not an absolute path", m))
		}
	}
	return nil
}

// mode picks how to start: the strongest way that this machine can give the
// profile. What it can't give is refused when Least asks for it.
func (l *launcher) mode(ctx context.Context, spec Spec) (string, error) {
	if spec.Profile == ProfileHost {
		if spec.Least != "" && spec.Least != LevelHost {
			return "", &Error{Kind: KindUnavailable, Stage: "level", Missing: string(spec.Least), Detail: "a host run enforces nothing"}
		}
		return modeHost, nil
	}
	caps, err := l.capabilities(ctx)
	if err != nil {
		return "", err
	}
	best, missing := caps.Best(spec.Profile)
	if !best.AtLeast(spec.Least) {
		e := &Error{Kind: KindUnavailable, Stage: "level", Missing: "level " + string(spec.Least),
			Detail: fmt.Sprintf("this machine gives %s", best)}
		if missing != nil {
			e.Missing, e.Stage, e.Errno = missing.What, missing.Step, missing.errno
		}
		return "", e
	}
	if spec.Least == "" && best == LevelHost {
		return "", &Error{Kind: KindUnavailable, Stage: "level", Missing: "any isolation", Detail: "ask for level host explicitly"}
	}
	switch best {
	case LevelRestricted:
		return modeRestricted, nil
	case LevelHost:
		return modeHost, nil
	}
	return modeNamespaces, nil
}

// launch is one attempt; what it holds is released when it fails.
type launch struct {
	l      *launcher
	spec   Spec
	mode   string
	slot   int
	kuid   int
	handed handed
	group  *cgroup
	cfg    initConfig
}

// free gives back what outlives the processes.
func (l *launch) free() {
	l.group.remove()
	l.l.freeSlot(l.slot)
}

func (l *launch) run(ctx context.Context) (*Prepared, error) {
	id := rand.Text()
	if err := l.configure(id); err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, wrap(KindPath, "stdio", os.DevNull, err)
	}
	defer null.Close()
	s := spawn{flags: l.flags(), kuid: l.kuid, insideUID: l.cfg.InsideUID, insideGID: l.cfg.InsideGID,
		handed: l.handed.files, scope: l.spec.Scope, stdio: [3]*os.File{null, null, null}}
	for i, f := range []*os.File{l.spec.Stdin, l.spec.Stdout, l.spec.Stderr} {
		if f != nil {
			s.stdio[i] = f
		}
	}
	proc, ctrl, err := l.l.start(s)
	if err != nil {
		return nil, err
	}
	stop := watch(ctx, ctrl)
	defer stop()
	enforced, err := l.handshake(proc, ctrl)
	if err != nil {
		ctrl.Close()
		_, _ = proc.Wait() // the init ends with its socket
		if ctx.Err() != nil {
			err = fmt.Errorf("sandbox: start: %w", context.Cause(ctx))
		}
		return nil, err
	}
	return &Prepared{launch: l, proc: proc, ctrl: ctrl, enforced: *enforced}, nil
}

func (l *launch) flags() uintptr {
	if l.mode != modeNamespaces {
		return 0
	}
	flags := uintptr(unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID)
	if l.spec.Profile == ProfileCommand {
		flags |= unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
		if l.spec.Network != NetworkOpen {
			flags |= unix.CLONE_NEWNET
		}
	}
	return flags
}

func (l *launch) configure(id string) error {
	s := l.spec
	l.cfg = initConfig{Role: roleRun, Mode: l.mode, Profile: s.Profile, Argv: s.Argv, Executable: s.Executable, Dir: s.Dir,
		Env: append(append([]string{}, s.Env...), "WRIT_SCOPE="+s.Scope), Network: s.Network,
		InsideUID: os.Geteuid(), InsideGID: os.Getegid(),
		MaxProcesses: int64(s.MaxProcesses), MaxMemory: s.MaxMemory, MaxFileSize: s.MaxFileSize}
	var err error
	if l.cfg.HostNS, err = hostNamespaces(); err != nil {
		return wrap(KindSetup, "namespaces", "", err)
	}
	if l.mode == modeNamespaces && os.Geteuid() == 0 {
		if l.slot, err = l.l.takeSlot(); err != nil {
			return wrap(KindSetup, "slot", "", err)
		}
		l.kuid = firstKUID + l.slot
		if s.Profile == ProfileCommand {
			l.cfg.InsideUID, l.cfg.InsideGID = commandUID, commandUID
		}
	}
	if l.mode == modeRestricted && os.Geteuid() == 0 {
		l.cfg.Degraded = append(l.cfg.Degraded, Degradation{What: "user", Wanted: "not host uid 0", Got: "host uid 0 without capabilities", Cause: "no user namespaces"})
	}
	if l.cfg.Binds, err = l.l.binds(&l.handed, s, l.kuid); err != nil {
		return err
	}
	if l.mode == modeNamespaces {
		if l.cfg.Mask, l.cfg.Procs, err = maskPaths(s.Mask); err != nil {
			return err
		}
		if s.Profile == ProfileServer && l.kuid >= 0 {
			var degraded []Degradation
			if l.cfg.View, degraded, err = l.l.serverView(&l.handed, l.kuid); err != nil {
				return err
			}
			l.cfg.Degraded = append(l.cfg.Degraded, degraded...)
		}
	}
	return l.limits(id)
}

// limits asks cgroups to keep the limits and says so when they can't.
func (l *launch) limits(id string) error {
	if l.spec.MaxProcesses == 0 && l.spec.MaxMemory == 0 {
		return nil
	}
	group, limits, err := newCgroup(id, l.spec)
	if err == nil {
		l.group, l.cfg.Limits, l.cfg.HardCaps = group, limits, true
		return nil
	}
	l.cfg.Limits = map[string]string{}
	if n := l.spec.MaxProcesses; n > 0 {
		l.cfg.Limits["processes"] = fmt.Sprintf("%d (rlimit)", n)
	}
	if n := l.spec.MaxMemory; n > 0 {
		l.cfg.Limits["memory"] = fmt.Sprintf("%d (rlimit, per process)", n)
	}
	l.cfg.Degraded = append(l.cfg.Degraded, Degradation{What: "limits", Wanted: "cgroup", Got: "rlimit", Cause: errnoName(err)})
	return nil
}

// handshake configures the init, reads what it found in force, and accepts it
// only when that is at least what was asked for.
func (l *launch) handshake(proc *os.Process, ctrl *os.File) (*Enforced, error) {
	if err := l.group.add(proc.Pid); err != nil {
		return nil, err
	}
	if err := writeFrame(ctrl, l.cfg); err != nil {
		return nil, wrap(KindSetup, "configure init", "", err)
	}
	var f initFrame
	if err := readFrame(ctrl, &f); err != nil {
		return nil, wrap(KindSetup, "init ended early", "", err)
	}
	if f.Error != nil {
		return nil, f.Error
	}
	if f.Enforced == nil {
		return nil, &Error{Kind: KindSetup, Stage: "init", Detail: "unexpected answer " + f.Kind}
	}
	if !f.Enforced.Level.AtLeast(l.spec.Least) {
		return nil, &Error{Kind: KindUnavailable, Stage: "read-back", Missing: "level " + string(l.spec.Least),
			Detail: fmt.Sprintf("the kernel enforces %s", f.Enforced.Level)}
	}
	if l.mode == modeNamespaces && os.Geteuid() == 0 && f.Enforced.HostUID == 0 {
		return nil, &Error{Kind: KindSetup, Stage: "read-back", Detail: "the payload would be host uid 0"}
	}
	return f.Enforced, nil
}
