package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Main must be the first statement of main, and of TestMain, in every program
// that calls Start. Where this process was re-executed as a sandbox's init it
// runs the init and does not return; otherwise it returns at once.
func Main() {
	if len(os.Args) == 0 || os.Args[0] != initArgv0 {
		return
	}
	os.Exit(initMain())
}

// pidOne is the init of one sandbox: process 1 where there is a pid namespace,
// a child subreaper where there is none.
type pidOne struct {
	cfg  initConfig
	ctrl *os.File
	// ownDevices are the file systems made for this sandbox alone.
	ownDevices map[uint64]bool
}

func initMain() int {
	// The lockdown is done on this thread, from which the payload is forked;
	// the init's other threads keep what they need to supervise.
	runtime.LockOSThread()
	if err := SetUndumpable(); err != nil {
		return 1
	}
	// A handler (not SIG_IGN, which an exec would inherit) keeps terminal and
	// stray signals from ending the init before its payload.
	signal.Notify(make(chan os.Signal, 1))

	p := &pidOne{ctrl: os.NewFile(ctrlFD, "control"), ownDevices: map[uint64]bool{}}
	if err := readFrame(p.ctrl, &p.cfg); err != nil {
		return 1
	}
	switch p.cfg.Role {
	case roleHold:
		return p.hold()
	case roleProbe:
		return p.probe()
	case roleFilter:
		return p.probeFilter()
	case roleRun:
		return p.run()
	}
	return 1
}

// hold keeps a user namespace alive until the owner has opened it.
func (p *pidOne) hold() int {
	if writeFrame(p.ctrl, initFrame{Kind: "ready"}) != nil {
		return 1
	}
	var f ownerFrame
	_ = readFrame(p.ctrl, &f) // any frame or the end of the socket ends it
	return 0
}

func (p *pidOne) run() int {
	if err := p.prepare(); err != nil {
		return p.fail(err)
	}
	leader, err := p.launch()
	if err != nil {
		return p.fail(err)
	}
	enforced, err := p.readBack(leader)
	if err != nil {
		return p.fail(wrap(KindSetup, "read-back", "", err))
	}
	if writeFrame(p.ctrl, initFrame{Kind: "enforced", Enforced: enforced}) != nil {
		return p.abandon()
	}
	var f ownerFrame
	if err := readFrame(p.ctrl, &f); err != nil || f.Kind != "release" {
		return p.abandon()
	}
	if err := unix.PtraceDetach(leader); err != nil {
		return p.fail(wrap(KindSetup, "release", "", err))
	}
	return p.supervise(leader)
}

func (p *pidOne) fail(err error) int {
	e := wrap(KindSetup, "init", "", err)
	_ = writeFrame(p.ctrl, initFrame{Kind: "error", Error: e}) // an owner that is gone needs no answer
	return p.abandon()
}

// abandon ends everything before or without a run.
func (p *pidOne) abandon() int {
	p.killAll()
	return 1
}

func (p *pidOne) prepare() error {
	if err := unix.CloseRange(ctrlFD, ^uint(0)>>1&0x7fffffff, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return wrap(KindSetup, "close inherited files", "", err)
	}
	if p.cfg.Mode == modeNamespaces {
		if err := p.buildRoot(); err != nil {
			return err
		}
	} else if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return wrap(KindSetup, "subreaper", "", err)
	}
	return checkDir(p.cfg.Dir)
}

// ownMounts refuses to touch a mount before it is certain that the mounts are this sandbox's own. The mount namespace
// must not be the owner's; and, since an init that anything but the launcher started could be told anything about that,
// the user namespace must not be the machine's first, whose map is the whole range onto itself (user_namespaces(7)).
func (p *pidOne) ownMounts() error {
	link, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return wrap(KindSetup, "own namespaces", "/proc/self/ns/mnt", err)
	}
	if host := p.cfg.HostNS["mnt"]; host == "" || link == host {
		return &Error{Kind: KindSetup, Stage: "own namespaces", Detail: "the mounts are the owner's: nothing is mounted in them"}
	}
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return wrap(KindSetup, "own namespaces", "/proc/self/uid_map", err)
	}
	if strings.Join(strings.Fields(string(ids)), " ") == "0 0 4294967295" {
		return &Error{Kind: KindSetup, Stage: "own namespaces", Detail: "the user namespace is the machine's: nothing is mounted in it"}
	}
	return nil
}

func (p *pidOne) buildRoot() error {
	if err := p.ownMounts(); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return wrap(KindSetup, "private mounts", "/", err)
	}
	if p.cfg.Profile == ProfileServer {
		if len(p.cfg.View) > 0 {
			return p.buildServerView()
		}
		return p.maskInPlace()
	}
	if p.cfg.Network != NetworkOpen {
		if err := loopbackUp(); err != nil {
			return wrap(KindSetup, "loopback up", "", err)
		}
	}
	if err := unix.Sethostname([]byte("writ")); err != nil {
		return wrap(KindSetup, "hostname", "", err)
	}
	return p.buildCommandRoot()
}

// checkDir fails before anything runs, with the exact path and errno (R88).
func checkDir(dir string) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return wrap(KindPath, "working folder", dir, err)
	}
	if !fi.IsDir() {
		return &Error{Kind: KindPath, Stage: "working folder", Path: dir, Errno: unix.ENOTDIR}
	}
	if err := unix.Access(dir, unix.X_OK); err != nil {
		return wrap(KindPath, "working folder", dir, err)
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// probe tries in a throw-away namespace what a sandbox needs, step by step.
func (p *pidOne) probe() int {
	if p.ownMounts() != nil {
		return 1
	}
	results := map[string]Check{}
	step := func(name, what string, err error) bool {
		results[name] = check(what, err)
		return err == nil
	}
	if step("mount", "private mounts", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")) {
		base, err := stagingDir()
		if err == nil {
			err = unix.Mount("writ", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m,mode=0755")
		}
		if step("mount", "tmpfs", err) {
			err = os.Mkdir(base+"/proc", 0o555)
			if err == nil {
				err = unix.Mount("proc", base+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
			}
			step("proc", "mount proc", err)
			_, _, err = cloneTree("/usr", true)
			step("clone", "open_tree /usr", err)
		}
	}
	if p.cfg.Network != NetworkOpen {
		step("lo", "loopback up", loopbackUp())
	}
	step("seccomp", "filter", probeSeccomp())
	if writeFrame(p.ctrl, initFrame{Kind: "probe", Probe: results}) != nil {
		return 1
	}
	return 0
}

// probeFilter tries what needs no namespace.
func (p *pidOne) probeFilter() int {
	if writeFrame(p.ctrl, initFrame{Kind: "probe", Probe: map[string]Check{"seccomp": check("filter", probeSeccomp())}}) != nil {
		return 1
	}
	return 0
}

func check(step string, err error) Check {
	if err != nil {
		return Check{Step: step, Errno: errnoName(err)}
	}
	return Check{OK: true}
}

func probeSeccomp() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	programs, err := filters(ProfileCommand, false)
	if err != nil {
		return err
	}
	for _, program := range programs {
		if err := installFilter(program); err != nil {
			return err
		}
	}
	return nil
}

func errnoName(err error) string {
	if no := errnoOf(err); no != 0 {
		return (&Error{Errno: no}).ErrnoName()
	}
	return err.Error()
}

// stagingDir is a folder of the old root on which the new one is assembled.
func stagingDir() (string, error) {
	var last error
	for _, d := range []string{"/tmp", "/mnt", "/run", "/var", "/usr"} {
		fi, err := os.Lstat(d)
		if err == nil && fi.IsDir() {
			return d, nil
		}
		last = errors.Join(last, err)
	}
	return "", fmt.Errorf("no folder to assemble the root on: %w", last)
}
