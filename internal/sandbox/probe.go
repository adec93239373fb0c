package sandbox

import (
	"context"
	"os"
	"syscall"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Check is the result of one thing that was tried.
type Check struct {
	OK bool `json:"ok"`
	// Step and Errno say what failed and how.
	Step  string `json:"step,omitempty"`
	Errno string `json:"errno,omitempty"`
}

// Capabilities is what this machine was seen to do, for this user.
type Capabilities struct {
	Root        bool  `json:"root"`
	UserNS      Check `json:"user_namespace"`
	MountNS     Check `json:"mount_namespace"`
	PIDNS       Check `json:"pid_namespace"`
	NetNS       Check `json:"network_namespace"`
	Loopback    Check `json:"loopback"`
	FreshProc   Check `json:"fresh_proc"`
	Seccomp     Check `json:"seccomp"`
	IDMap       Check `json:"idmapped_mounts"` // needed by a root service only
	LandlockABI int   `json:"landlock_abi"`
	// CgroupPIDs and CgroupMemory are "cgroup1", "cgroup2" or "" for none.
	CgroupPIDs   string `json:"cgroup_pids"`
	CgroupMemory string `json:"cgroup_memory"`
	Kernel       string `json:"kernel"`
}

// Missing is a mechanism that keeps a profile from a stronger level.
type Missing struct {
	What, Step string
	errno      syscall.Errno
}

type need struct {
	what  string
	check Check
}

// Best is the strongest level that the profile gets on this machine, and what
// keeps it from a stronger one.
func (c Capabilities) Best(profile Profile) (Level, *Missing) {
	needs := []need{{"user namespaces", c.UserNS}, {"mount namespaces", c.MountNS}, {"pid namespaces", c.PIDNS},
		{"a fresh proc", c.FreshProc}, {"seccomp", c.Seccomp}}
	if c.Root {
		needs = append(needs, need{"idmapped mounts", c.IDMap})
	}
	if profile == ProfileCommand {
		needs = append(needs, need{"network namespaces", c.NetNS}, need{"a loopback interface", c.Loopback})
	}
	var missing *Missing
	for _, n := range needs {
		if !n.check.OK {
			missing = &Missing{What: n.what, Step: n.check.Step, errno: errnoNamed(n.check.Errno)}
			break
		}
	}
	switch {
	case missing == nil && profile == ProfileServer:
		return LevelGuarded, nil
	case missing == nil && c.LandlockABI == 0:
		return LevelIsolatedSoftCaps, &Missing{What: "Landlock"}
	case missing == nil && (c.CgroupPIDs == "" || c.CgroupMemory == ""):
		return LevelIsolatedSoftCaps, &Missing{What: "writable cgroups"}
	case missing == nil:
		return LevelIsolated, nil
	case profile == ProfileCommand && c.LandlockABI > 0 && c.Seccomp.OK:
		return LevelRestricted, missing
	}
	return LevelHost, missing
}

func errnoNamed(name string) syscall.Errno {
	for no := syscall.Errno(1); no < 134; no++ {
		if name != "" && unix.ErrnoName(no) == name {
			return no
		}
	}
	return 0
}

// Probe tries in throw-away processes what a sandbox needs and reports it
// step by step. It starts at most a few processes and leaves nothing behind.
// The result may be kept as long as the machine is not reconfigured.
func Probe(ctx context.Context) Capabilities { return shared.probe(ctx) }

// capabilities probes once and remembers.
func (l *launcher) capabilities(ctx context.Context) (Capabilities, error) {
	l.mu.Lock()
	known := l.caps
	l.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	c := l.probe(ctx)
	if err := ctx.Err(); err != nil {
		return Capabilities{}, &Error{Kind: KindSetup, Stage: "probe", Detail: err.Error()}
	}
	l.mu.Lock()
	l.caps = &c
	l.mu.Unlock()
	return c, nil
}

const baseNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

func (l *launcher) probe(ctx context.Context) Capabilities {
	c := Capabilities{Root: os.Geteuid() == 0, Kernel: kernelRelease()}
	if abi, err := ll.LandlockGetABIVersion(); err == nil {
		c.LandlockABI = abi
	}
	c.CgroupPIDs, c.CgroupMemory = probeCgroups()
	l.probeNamespaces(ctx, &c)
	if !c.Seccomp.OK && ctx.Err() == nil {
		if r, err := l.tryInit(ctx, 0, NetworkOpen); err == nil {
			c.Seccomp = r["seccomp"]
		}
	}
	c.IDMap = l.probeIDMap()
	return c
}

func (l *launcher) probeNamespaces(ctx context.Context, c *Capabilities) {
	failed := func(err error) Check { return Check{Step: "clone", Errno: errnoName(err)} }
	if _, err := l.tryInit(ctx, unix.CLONE_NEWUSER, NetworkOpen); err != nil {
		none := failed(err)
		c.UserNS, c.MountNS, c.PIDNS, c.NetNS, c.FreshProc, c.Loopback = none, none, none, none, none, none
		return
	}
	c.UserNS.OK = true
	r, err := l.tryInit(ctx, baseNamespaces, NetworkOpen)
	if err != nil {
		_, mntErr := l.tryInit(ctx, unix.CLONE_NEWUSER|unix.CLONE_NEWNS, NetworkOpen)
		c.MountNS, c.PIDNS = failed(err), failed(err)
		if mntErr == nil {
			c.MountNS = Check{OK: true}
		}
		c.NetNS, c.FreshProc, c.Loopback = failed(err), failed(err), failed(err)
		return
	}
	c.PIDNS.OK = true
	c.MountNS, c.FreshProc, c.Seccomp = r["mount"], r["proc"], r["seccomp"]
	if clone := r["clone"]; c.MountNS.OK && !clone.OK {
		c.MountNS = clone
	}
	if r, err = l.tryInit(ctx, baseNamespaces|unix.CLONE_NEWNET, NetworkNone); err != nil {
		c.NetNS, c.Loopback = failed(err), failed(err)
		return
	}
	c.NetNS.OK = true
	c.Loopback = r["lo"]
}

// tryInit starts a probing init with the namespaces and returns its findings.
func (l *launcher) tryInit(ctx context.Context, flags uintptr, network string) (map[string]Check, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	s := spawn{flags: flags, kuid: -1, insideUID: os.Geteuid(), insideGID: os.Getegid(), scope: "probe", stdio: [3]*os.File{null, null, null}}
	if os.Geteuid() == 0 {
		s.kuid, s.insideUID, s.insideGID = firstKUID, commandUID, commandUID
	}
	proc, ctrl, err := l.start(s)
	if err != nil {
		return nil, err
	}
	defer watch(ctx, ctrl)()
	defer func() {
		ctrl.Close()
		_, _ = proc.Wait() // it ends by itself
	}()
	role := roleProbe
	switch flags {
	case unix.CLONE_NEWUSER:
		role = roleHold // nothing to try beyond the clone
	case 0:
		role = roleFilter // it runs among the machine's own mounts
	}
	host, err := hostNamespaces()
	if err != nil {
		return nil, err
	}
	if err := writeFrame(ctrl, initConfig{Role: role, Network: network, HostNS: host}); err != nil {
		return nil, err
	}
	var f initFrame
	if err := readFrame(ctrl, &f); err != nil {
		return nil, err
	}
	return f.Probe, nil
}

func (l *launcher) probeIDMap() Check {
	if os.Geteuid() != 0 {
		return Check{Step: "euid", Errno: "EPERM"}
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return Check{Step: "open_tree /", Errno: errnoName(err)}
	}
	defer unix.Close(fd)
	ns, err := l.idmap(idmapKey{0, 0, firstKUID})
	if err != nil {
		return Check{Step: "id map", Errno: errnoName(err)}
	}
	if err := mapOwner(fd, ns, false); err != nil {
		return Check{Step: "mount_setattr /", Errno: errnoName(err)}
	}
	return Check{OK: true}
}

func probeCgroups() (pids, memory string) {
	try := func(controller string) string {
		parent, version := controllerDir(controller)
		if parent == "" {
			return ""
		}
		dir, err := os.MkdirTemp(parent, cgroupPrefix+"probe-")
		if err != nil {
			return ""
		}
		_ = unix.Rmdir(dir) // left for Sweep otherwise
		return version
	}
	return try("pids"), try("memory")
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
