package sandbox

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// launch locks this thread down and starts the payload from it, stopped at its
// first instruction.
func (p *pidOne) launch() (int, error) {
	if p.cfg.Mode != modeHost {
		if err := p.lockdown(); err != nil {
			return 0, err
		}
	}
	proc := &syscall.ProcAttr{
		Dir:   p.cfg.Dir,
		Env:   p.cfg.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setsid: true, Ptrace: true},
	}
	pid, err := syscall.ForkExec(p.cfg.Executable, p.cfg.Argv, proc)
	if err != nil {
		return 0, wrap(KindExec, "exec", p.cfg.Executable, err)
	}
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &ws, 0, nil); err == unix.EINTR {
			continue
		} else if err != nil {
			return 0, wrap(KindSetup, "wait for exec", p.cfg.Executable, err)
		}
		break
	}
	if !ws.Stopped() {
		return 0, &Error{Kind: KindExec, Stage: "exec", Path: p.cfg.Executable,
			Detail: fmt.Sprintf("the program ended before its first instruction (status %#x)", uint32(ws))}
	}
	return pid, p.limit(pid)
}

// lockdown applies everything that a later exec can't undo: capabilities,
// no_new_privs, Landlock, seccomp, in this order.
func (p *pidOne) lockdown() error {
	// The rule set needs no privilege, but its paths are opened now.
	fd, flags := -1, uint32(0)
	if p.cfg.Profile == ProfileCommand {
		var err error
		if fd, flags, err = p.landlockRules(); err != nil {
			return err
		}
	}
	if err := dropCapabilities(); err != nil {
		return wrap(KindSetup, "drop capabilities", "", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return wrap(KindSetup, "no_new_privs", "", err)
	}
	if fd >= 0 {
		defer unix.Close(fd)
		if err := ll.LandlockRestrictSelf(fd, flags); err != nil {
			return wrap(KindSetup, "landlock", "", err)
		}
	}
	noInet := p.cfg.Mode == modeRestricted && p.cfg.Network != NetworkOpen
	programs, err := filters(p.cfg.Profile, noInet)
	if err != nil {
		return wrap(KindSetup, "seccomp", "", err)
	}
	for _, program := range programs {
		if err := installFilter(program); err != nil {
			return wrap(KindSetup, "seccomp", "", err)
		}
	}
	return nil
}

func dropCapabilities() error {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		// EINVAL: a capability that this kernel does not know.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL && err != unix.EPERM {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && err != unix.EINVAL {
		return err
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&head, &none[0])
}

// landlockRules describes the same reach as the mounts do, as a second layer;
// in restricted mode it is the only one.
func (p *pidOne) landlockRules() (int, uint32, error) {
	var read, write, files, readFiles []string
	if p.cfg.Mode == modeNamespaces {
		read, write = []string{"/"}, []string{"/tmp", "/var/tmp", "/dev/shm"}
	} else {
		system := append([]string{"/proc"}, systemFolders...)
		for _, e := range etcEntries {
			system = append(system, "/etc/"+e)
		}
		if p.cfg.Network == NetworkOpen {
			system = append(system, "/etc/resolv.conf", "/etc/hosts")
		}
		for _, path := range system {
			if fi, err := os.Stat(path); err == nil && fi.IsDir() { // what is missing needs no rule
				read = append(read, path)
			} else if err == nil {
				readFiles = append(readFiles, path)
			}
		}
	}
	for _, b := range p.cfg.Binds {
		fi, err := os.Lstat(b.Target)
		if err != nil {
			return -1, 0, wrap(KindPath, "bind", b.Path, err)
		}
		switch {
		case b.Write && fi.IsDir():
			write = append(write, b.Target)
		case b.Write:
			files = append(files, b.Target)
		case fi.IsDir():
			read = append(read, b.Target)
		default:
			readFiles = append(readFiles, b.Target)
		}
	}
	handled := landlock.V11
	if p.cfg.Mode == modeNamespaces || p.cfg.Network == NetworkOpen {
		// The network namespace decides; a command may use its own loopback.
		handled.HandledAccessNet = 0
	}
	fd, flags, err := handled.BestEffort().NewRulesetFD(
		landlock.RODirs(read...),
		landlock.RWDirs(write...).WithRefer().WithResolveUnix(),
		landlock.RWFiles(files...),
		landlock.ROFiles(readFiles...),
		deviceRule(p.cfg.Mode),
	)
	if err != nil {
		return -1, 0, wrap(KindSetup, "landlock rules", "", err)
	}
	return fd, flags, nil
}

// deviceRule opens the sandbox's own /dev, or of the host's only the harmless
// devices: a service that is root owns the disks.
func deviceRule(mode string) landlock.Rule {
	if mode == modeNamespaces {
		return landlock.RWDirs("/dev").WithIoctlDev()
	}
	var paths []string
	for _, d := range devices {
		paths = append(paths, "/dev/"+d)
	}
	return landlock.RWFiles(paths...).WithIoctlDev().IgnoreIfMissing()
}

// limit sets what must bind the payload only, while it is stopped: the init
// shares its kernel user and must still be able to start a thread.
func (p *pidOne) limit(pid int) error {
	set := func(name string, resource int, n uint64) error {
		if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: n, Max: n}, nil); err != nil {
			return wrap(KindSetup, "limit "+name, "", err)
		}
		return nil
	}
	if err := set("core", unix.RLIMIT_CORE, 0); err != nil {
		return err
	}
	if n := p.cfg.MaxProcesses; n > 0 {
		if err := set("processes", unix.RLIMIT_NPROC, uint64(n)+uint64(threads())); err != nil {
			return err
		}
	}
	if n := p.cfg.MaxFileSize; n > 0 {
		if err := set("file size", unix.RLIMIT_FSIZE, uint64(n)); err != nil {
			return err
		}
	}
	if n := p.cfg.MaxMemory; n > 0 && !p.cfg.HardCaps {
		return set("memory", unix.RLIMIT_DATA, uint64(n))
	}
	return nil
}

// readBack reports what the kernel says about the stopped payload.
func (p *pidOne) readBack(pid int) (*Enforced, error) {
	e := &Enforced{Limits: p.cfg.Limits, Degraded: p.cfg.Degraded, Tracking: "subreaper", Network: "host"}
	status, err := statusOf(pid)
	if err != nil {
		return nil, err
	}
	e.NoNewPrivs = status["NoNewPrivs"] == "1"
	_, _ = fmt.Sscan(status["Seccomp"], &e.Seccomp) // an unreadable mode stays 0 = off
	e.CapEff = status["CapEff"]
	for _, kind := range nsKinds {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil {
			return nil, err
		}
		if link != p.cfg.HostNS[kind] {
			e.Namespaces = append(e.Namespaces, kind)
		}
	}
	if contains(e.Namespaces, "pid") {
		e.Tracking = "pidns"
	}
	if p.cfg.Profile == ProfileCommand && p.cfg.Mode != modeHost {
		e.LandlockABI, _ = ll.LandlockGetABIVersion() // no Landlock: 0
	}
	if e.HostUID, err = hostUID(status["Uid"]); err != nil {
		return nil, err
	}
	if err := readNetwork(e, pid, p.cfg); err != nil {
		return nil, err
	}
	mounts, err := readMountinfo(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if m.FSType == "proc" || m.FSType == "devpts" || strings.HasPrefix(m.Point, "/dev/") {
			continue
		}
		if m.readOnly() {
			e.ReadOnly = append(e.ReadOnly, m.Point)
		} else {
			e.Writable = append(e.Writable, m.Point)
		}
	}
	e.Level = levelOf(e, p.cfg)
	return e, nil
}

var nsKinds = []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}

// levelOf derives the level from what was read back, never from the request.
func levelOf(e *Enforced, cfg initConfig) Level {
	if !e.NoNewPrivs || e.Seccomp != 2 || strings.Trim(e.CapEff, "0") != "" {
		return LevelHost
	}
	has := func(kinds ...string) bool {
		for _, k := range kinds {
			if !contains(e.Namespaces, k) {
				return false
			}
		}
		return true
	}
	switch {
	case cfg.Profile == ProfileServer && has("user", "mnt", "pid"):
		return LevelGuarded
	case cfg.Profile == ProfileCommand && has("user", "mnt", "pid", "ipc", "uts") && (has("net") || cfg.Network == NetworkOpen):
		if e.LandlockABI > 0 && len(e.Degraded) == 0 {
			return LevelIsolated
		}
		return LevelIsolatedSoftCaps
	case cfg.Profile == ProfileCommand && e.LandlockABI > 0:
		return LevelRestricted
	}
	return LevelHost
}

func readNetwork(e *Enforced, pid int, cfg initConfig) error {
	if cfg.Mode == modeRestricted && cfg.Network != NetworkOpen {
		e.Network = "seccomp_denied"
		return nil
	}
	if !contains(e.Namespaces, "net") {
		return nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(text), "\n")[2:] {
		name, _, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok && name != "lo" {
			return fmt.Errorf("the network namespace holds the interface %q", name)
		}
	}
	e.Network = "netns_empty"
	return nil
}

func statusOf(pid int) (map[string]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.SplitSeq(string(text), "\n") {
		if k, v, ok := strings.Cut(line, ":"); ok {
			out[k] = strings.TrimSpace(v)
		}
	}
	return out, nil
}

// hostUID turns the effective uid of a status line into the one outside.
func hostUID(line string) (int, error) {
	var real, effective int
	if _, err := fmt.Sscan(line, &real, &effective); err != nil {
		return 0, fmt.Errorf("uid line %q: %w", line, err)
	}
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return 0, err
	}
	for l := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		var inside, outside, size int
		if _, err := fmt.Sscan(l, &inside, &outside, &size); err != nil {
			return 0, fmt.Errorf("uid map %q: %w", l, err)
		}
		if effective >= inside && effective < inside+size {
			return outside + effective - inside, nil
		}
	}
	return 0, fmt.Errorf("uid %d is not mapped", effective)
}
