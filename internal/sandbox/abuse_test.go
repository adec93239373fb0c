package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// roleAbuse tries to get out. It refuses to run outside a sandbox: as root on
// a bare machine it would do what it tries.
func roleAbuse() int {
	uidMap, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || !strings.HasPrefix(os.Getenv("WRIT_SCOPE"), "abuse-") || strings.Contains(string(uidMap), "4294967295") {
		fmt.Fprintln(os.Stderr, "not inside a sandbox: nothing was tried")
		return 3
	}
	results := map[string]string{}
	for name, try := range attempts() {
		results[name] = "ALLOWED"
		if err := try(); err != nil {
			results[name] = err.Error()
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		return 1
	}
	return 0
}

func attempts() map[string]func() error {
	service, _ := strconv.Atoi(os.Getenv("ABUSE_SERVICE"))
	call := func(nr uintptr, args ...uintptr) func() error {
		return func() error {
			var a [4]uintptr
			copy(a[:], args)
			if _, _, no := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], 0, 0); no != 0 {
				return no
			}
			return nil
		}
	}
	open := func(path string, flags int) func() error {
		return func() error {
			f, err := os.OpenFile(path, flags, 0o600)
			if err == nil {
				f.Close()
			}
			return err
		}
	}
	socket := func(family int) func() error {
		return func() error { _, err := unix.Socket(family, unix.SOCK_STREAM, 0); return err }
	}
	out := map[string]func() error{
		"core_pattern":      open("/proc/sys/kernel/core_pattern", os.O_WRONLY),
		"overcommit":        open("/proc/sys/vm/overcommit_memory", os.O_WRONLY),
		"sysrq":             open("/proc/sysrq-trigger", os.O_WRONLY),
		"pid1 environ":      open("/proc/1/environ", os.O_RDONLY),
		"pid1 mem":          open("/proc/1/mem", os.O_RDWR),
		"pid1 root":         func() error { _, err := os.ReadDir("/proc/1/root/"); return err },
		"pid1 fd":           func() error { _, err := os.Readlink("/proc/1/fd/3"); return err },
		"service environ":   open(fmt.Sprintf("/proc/%d/environ", service), os.O_RDONLY),
		"service mem":       open(fmt.Sprintf("/proc/%d/mem", service), os.O_RDWR),
		"ptrace service":    func() error { return unix.PtraceAttach(service) },
		"ptrace pid1":       func() error { return unix.PtraceAttach(1) },
		"mount":             func() error { return unix.Mount("x", os.Getenv("ABUSE_WS"), "tmpfs", 0, "") },
		"umount proc":       func() error { return unix.Unmount("/proc", unix.MNT_DETACH) },
		"vsock":             socket(unix.AF_VSOCK),
		"alg":               socket(unix.AF_ALG),
		"packet":            socket(unix.AF_PACKET),
		"setuid":            call(unix.SYS_SETUID, 61999),
		"mknod":             func() error { return unix.Mknod(os.Getenv("ABUSE_WS")+"/disk", unix.S_IFBLK|0o600, 0xfd00) },
		"keyctl":            call(unix.SYS_KEYCTL, 0, ^uintptr(2), 0),
		"bpf":               call(unix.SYS_BPF, 0, 0, 0),
		"userfaultfd":       call(unix.SYS_USERFAULTFD, 1),
		"reboot":            call(unix.SYS_REBOOT, 0),
		"tiocsti high bits": call(unix.SYS_IOCTL, 0, 0x1_0000_5412, uintptr(unsafe.Pointer(&[1]byte{'x'}))),
		"disk":              open("/dev/vda", os.O_RDONLY),
	}
	for _, path := range strings.Split(os.Getenv("ABUSE_READ"), ":") {
		out["read "+path] = open(path, os.O_RDONLY)
		out["list "+path] = func() error { _, err := os.ReadDir(path); return err }
		out["connect "+path] = func() error { _, err := net.Dial("unix", path); return err }
		out["umount "+path] = func() error { return unix.Unmount(path, unix.MNT_DETACH) }
	}
	for _, path := range strings.Split(os.Getenv("ABUSE_WRITE"), ":") {
		out["write "+path] = open(path, os.O_WRONLY|os.O_CREATE)
	}
	if os.Getenv("ABUSE_COMMAND") == "" {
		out["nested unmask"] = nestedUnmask
		return out
	}
	out["unshare user"] = call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	out["clone user"] = call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD))
	out["clone3"] = call(unix.SYS_CLONE3, 0, 0)
	out["open_tree"] = call(unix.SYS_OPEN_TREE, ^uintptr(99), uintptr(unsafe.Pointer(&[]byte("/\x00")[0])), unix.OPEN_TREE_CLONE)
	out["io_uring"] = call(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&[256]byte{})))
	out["process_vm_readv"] = call(unix.SYS_PROCESS_VM_READV, 1, 0, 0, 0)
	out["connect host"] = func() error { _, err := net.Dial("tcp", os.Getenv("ABUSE_PORT")); return err }
	out["abstract socket"] = func() error { _, err := net.Dial("unix", os.Getenv("ABUSE_ABSTRACT")); return err }
	return out
}

// nestedUnmask tries to look below a mask from a user namespace of its own,
// which servers may make (browsers do).
func nestedUnmask() error {
	masked := os.Getenv("ABUSE_HOME")
	script := "umount " + masked + " && cat " + masked + "/tokens/caller"
	p, err := os.StartProcess("/usr/bin/unshare", []string{"unshare", "-rm", "sh", "-c", script}, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, nil, nil}})
	if err != nil {
		return err
	}
	state, err := p.Wait()
	if err == nil && !state.Success() {
		err = errors.New(state.String())
	}
	return err
}

// writHome is a stand-in for $WRIT_HOME with a token and a live socket.
func writHome(t *testing.T) string {
	t.Helper()
	home := filepath.Join(workspace(t), "home")
	if err := os.MkdirAll(filepath.Join(home, "tokens"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "tokens", "caller"), []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(home, "writ.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return home
}

// program copies this binary to where a payload can reach it.
func program(t *testing.T) string {
	t.Helper()
	dir := workspace(t)
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "abuse"), b, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func abuse(t *testing.T, spec Spec, env ...string) {
	t.Helper()
	spec.Argv, spec.Scope = []string{"abuse"}, "abuse-"+t.Name()
	spec.Env = append(env, "WRIT_TEST_ROLE=abuse", "PATH=/usr/bin:/bin", "ABUSE_SERVICE="+strconv.Itoa(os.Getpid()))
	exit, _, out := run(t, spec)
	var results map[string]string
	if err := json.Unmarshal([]byte(out), &results); err != nil || exit.Code != 0 {
		t.Fatalf("exit %+v: %s", exit, out)
	}
	for name, r := range results {
		if r == "ALLOWED" {
			t.Errorf("%s: allowed", name)
		}
		t.Logf("%-24s %s", name, r)
	}
}

// R78, R79 and the list: each attempt of a command is refused.
func TestCommandCannotGetOut(t *testing.T) {
	home, ws, bin := writHome(t), workspace(t), program(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Listen("unix", "@writ-test-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := os.Symlink("/etc/passwd", filepath.Join(ws, "link")); err != nil {
		t.Fatal(err)
	}
	spec := Spec{Executable: bin + "/abuse", Dir: ws, Profile: ProfileCommand, Least: strongest(t), Mask: []string{home},
		Binds: []Bind{{Path: ws, Write: true}, {Path: bin}}}
	abuse(t, spec, "ABUSE_COMMAND=1", "ABUSE_WS="+ws, "ABUSE_PORT="+l.Addr().String(), "ABUSE_ABSTRACT="+a.Addr().String(),
		"ABUSE_READ="+strings.Join([]string{home, home + "/tokens/caller", home + "/writ.sock", "/root/.bashrc", "/etc/shadow", "/run/docker.sock"}, ":"),
		"ABUSE_WRITE="+strings.Join([]string{"/usr/x", "/etc/x", "/x", "/var/x", "/proc/x", bin + "/abuse", ws + "/link"}, ":"))
}

// A home below a workspace bind is hidden all the same.
func TestMaskedFolderInsideAWorkspaceIsHidden(t *testing.T) {
	home := writHome(t)
	spec := shell(t, filepath.Dir(home), "ls home; cat home/tokens/caller")
	spec.Mask = []string{home}
	if exit, _, out := run(t, spec); exit.Code == 0 || strings.Contains(out, "caller\n") || strings.Contains(out, "token\n") {
		t.Errorf("%+v %s", exit, out)
	}
}

func serverSpec(t *testing.T, dir string, mask ...string) Spec {
	t.Helper()
	return Spec{Profile: ProfileServer, Network: NetworkOpen, Least: LevelGuarded, Dir: dir, Mask: mask, Scope: "server-" + t.Name(),
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/root"}}
}

func TestServerCannotReachWrit(t *testing.T) {
	home, ws, bin := writHome(t), workspace(t), program(t)
	reads := []string{home, home + "/tokens/caller", home + "/writ.sock"}
	link := filepath.Join(ws, "link")
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	reads = append(reads, link+"/tokens/caller", link+"/writ.sock")
	if os.Geteuid() == 0 { // the same folder mounted a second time
		alias := filepath.Join(ws, "alias")
		if err := errors.Join(os.Mkdir(alias, 0o700), unix.Mount(filepath.Dir(home), alias, "", unix.MS_BIND, "")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(alias, unix.MNT_DETACH) })
		reads = append(reads, alias+"/home/tokens/caller", alias+"/home/writ.sock")
	}
	spec := serverSpec(t, ws, home)
	spec.Executable = bin + "/abuse"
	abuse(t, spec, "ABUSE_WS="+ws, "ABUSE_HOME="+home, "ABUSE_READ="+strings.Join(reads, ":"), "ABUSE_WRITE=/proc/x:/sys/kernel/x")
}

// The server is its user: it reads and writes the user's files, never as uid 0.
func TestServerIsItsUserButNeverHostRoot(t *testing.T) {
	ws := workspace(t)
	if err := os.WriteFile(filepath.Join(ws, "notes"), []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := serverSpec(t, ws)
	spec.Executable, spec.Argv = "/bin/sh", []string{"sh", "-c", "cat notes; id -u; echo new > new; mkdir d; mv new d/; cat /proc/1/comm; ps -e | wc -l"}
	exit, e, out := run(t, spec)
	if exit.Code != 0 || !strings.HasPrefix(out, fmt.Sprintf("mine\n%d\n", os.Geteuid())) {
		t.Fatalf("%+v %s", exit, out)
	}
	if e.Level != LevelGuarded || !contains(e.Namespaces, "pid") || e.Network != "host" || strings.Trim(e.CapEff, "0") != "" {
		t.Errorf("%+v", e)
	}
	if os.Geteuid() == 0 && e.HostUID < firstKUID {
		t.Errorf("host uid %d", e.HostUID)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(ws, "d/new"), &st); err != nil || int(st.Uid) != os.Geteuid() {
		t.Errorf("%v, on disk it belongs to %d", err, st.Uid)
	}
}

func TestMaskThatDoesNotExistIsRefused(t *testing.T) {
	ws := workspace(t)
	spec := serverSpec(t, ws, ws+"/not-there")
	spec.Executable, spec.Argv = "/bin/true", []string{"true"}
	if e := refused(t, spec, KindPath, ws+"/not-there"); e.Errno != unix.ENOENT {
		t.Errorf("%v", e)
	}
}

// The same walls stand when the service is an ordinary, undumpable user.
func TestAsAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return // the whole suite runs as one already
	}
	dir, err := os.MkdirTemp("/var/tmp", "writ-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	_, lines := reexec(t, "nobody", "WRIT_TEST_DIR="+dir)
	var last string
	for l := range lines {
		t.Log(l)
		last = l
	}
	if last != "ok" {
		t.Error("failed as nobody")
	}
}

func roleNobody() int {
	dir := os.Getenv("WRIT_TEST_DIR")
	home := filepath.Join(dir, "home")
	err := errors.Join(SetUndumpable(), os.Mkdir(home, 0o700), os.WriteFile(home+"/token", []byte("token"), 0o600))
	for _, profile := range []Profile{ProfileCommand, ProfileServer} {
		spec := Spec{Argv: []string{"sh", "-c", "id -u; cat " + home + "/token && exit 9; echo x > " + dir + "/x || exit 8; grep -c . /proc/[0-9]*/comm; " +
			"echo y > /proc/sys/kernel/core_pattern && exit 7; (setsid sleep 600 &); exit 0"},
			Executable: "/bin/sh", Dir: dir, Env: []string{"PATH=/usr/bin:/bin"}, Profile: profile, Mask: []string{home}, Network: NetworkOpen,
			Least: LevelGuarded, Scope: "nobody", Stdout: os.Stdout, Stderr: os.Stdout}
		if profile == ProfileCommand {
			spec.Binds, spec.Network, spec.Least = []Bind{{Path: dir, Write: true}}, NetworkNone, LevelIsolatedSoftCaps
		}
		p, startErr := Start(context.Background(), spec)
		if startErr != nil {
			err = errors.Join(err, startErr)
			continue
		}
		exit, waitErr := p.Wait(context.Background())
		fmt.Printf("%s %+v %+v\n", profile, exit, p.Enforced())
		if waitErr != nil || exit.Code != 0 || len(exit.Survivors) != 1 || p.Enforced().HostUID != 65534 {
			err = errors.Join(err, fmt.Errorf("%s: exit %+v", profile, exit))
		}
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ok")
	return 0
}
