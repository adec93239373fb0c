package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// R87, R88: less than asked for is refused, with what is missing.
func TestLeastUnmetIsRefused(t *testing.T) {
	dir := workspace(t)
	spec := shell(t, dir, "echo ran > ran")
	spec.Profile, spec.Network, spec.Least, spec.Binds = ProfileHost, NetworkOpen, LevelIsolated, nil
	refused(t, spec, KindUnavailable, "")
	none := Capabilities{UserNS: Check{Step: "clone", Errno: "EPERM"}}
	l := &launcher{caps: &none}
	for _, profile := range []Profile{ProfileCommand, ProfileServer} {
		_, err := l.mode(t.Context(), Spec{Profile: profile, Least: LevelGuarded})
		var e *Error
		if !errors.As(err, &e) || e.Kind != KindUnavailable || e.Missing != "user namespaces" || e.Errno != unix.EPERM {
			t.Errorf("%s: %v", profile, err)
		}
		if _, err := l.mode(t.Context(), Spec{Profile: profile}); err == nil {
			t.Errorf("%s: host level was given without being asked for", profile)
		}
	}
	if exists(filepath.Join(dir, "ran")) {
		t.Error("it ran all the same")
	}
}

func refused(t *testing.T, spec Spec, kind Kind, path string) *Error {
	t.Helper()
	p, err := Start(t.Context(), spec)
	if err == nil {
		p.Kill()
		<-p.Done()
		t.Fatal("Start succeeded")
	}
	var e *Error
	if !errors.As(err, &e) || e.Kind != kind || path != "" && e.Path != path {
		t.Fatalf("got %#v, want kind %s for %q", err, kind, path)
	}
	return e
}

// R88: the exact path and the native error, before anything starts.
func TestUnusableFoldersFailBeforeTheStart(t *testing.T) {
	dir := workspace(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := shell(t, dir, "true")
	spec.Dir = filepath.Join(dir, "missing")
	if e := refused(t, spec, KindPath, spec.Dir); e.Errno != unix.ENOENT || e.ErrnoName() != "ENOENT" {
		t.Errorf("%v", e)
	}
	spec.Dir = file
	if e := refused(t, spec, KindPath, file); e.Errno != unix.ENOTDIR {
		t.Errorf("%v", e)
	}
	spec.Dir = dir
	spec.Binds = []Bind{{Path: filepath.Join(dir, "gone"), Write: true}}
	if e := refused(t, spec, KindPath, spec.Binds[0].Path); e.Errno != unix.ENOENT {
		t.Errorf("%v", e)
	}
	spec = shell(t, dir, "true")
	spec.Executable = "/bin/no-such-program"
	if e := refused(t, spec, KindExec, spec.Executable); e.Errno != unix.ENOENT {
		t.Errorf("%v", e)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("a stub was left in the user's folder: %v", entries)
	}
}

// A folder swapped for a link, or for another folder, is never mounted.
func TestSwappedWorkspaceIsRefused(t *testing.T) {
	dir := workspace(t)
	ws := filepath.Join(dir, "ws")
	if err := os.Mkdir(ws, 0o700); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(ws, &st); err != nil {
		t.Fatal(err)
	}
	spec := shell(t, ws, "true")
	spec.Binds[0].Dev, spec.Binds[0].Ino = st.Dev, st.Ino
	if exit, _, _ := run(t, spec); exit.Code != 0 {
		t.Fatalf("the unchanged folder: %+v", exit)
	}
	if err := os.Rename(ws, ws+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(ws, 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, spec, KindIdentity, ws)
	if err := errors.Join(os.Remove(ws), os.Symlink("/etc", ws)); err != nil {
		t.Fatal(err)
	}
	if e := refused(t, spec, KindPath, ws); e.Errno != unix.ELOOP {
		t.Errorf("%v", e)
	}
}

// Swapped while the launch is under way: it fails or it is the right folder.
func TestSwapRaceNeverMountsAnother(t *testing.T) {
	dir := workspace(t)
	ws, other := filepath.Join(dir, "ws"), filepath.Join(dir, "other")
	if err := errors.Join(os.Mkdir(ws, 0o700), os.Mkdir(other, 0o700), os.WriteFile(filepath.Join(other, "secret"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(ws, &st); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	swapped := make(chan struct{})
	go func() {
		defer close(swapped)
		for ctx.Err() == nil {
			_ = unix.Renameat2(unix.AT_FDCWD, ws, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
		}
	}()
	for range 15 {
		spec := shell(t, "/tmp", "test ! -e "+ws+"/secret")
		spec.Binds = []Bind{{Path: ws, Write: true, Dev: st.Dev, Ino: st.Ino}}
		p, err := Start(t.Context(), spec)
		if err != nil {
			continue
		}
		if exit := wait(t, p); exit.Code != 0 {
			t.Errorf("another folder was mounted")
		}
	}
	stop()
	<-swapped
}

func TestProbeReportsEachMechanism(t *testing.T) {
	c := Probe(t.Context())
	text, _ := json.Marshal(c)
	t.Logf("%s", text)
	if !c.UserNS.OK || !c.PIDNS.OK || !c.MountNS.OK || !c.NetNS.OK || !c.FreshProc.OK || !c.Loopback.OK || !c.Seccomp.OK {
		t.Errorf("%s", text)
	}
}

// R86: no network by default, kernel-enforced.
// A machine without namespaces is probed too, and nothing is mounted on it: a file system once lay over everybody's /tmp.
func TestProbingMountsNothingOnTheHost(t *testing.T) {
	mounts := func() string {
		b, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before := mounts()
	r, err := shared.tryInit(t.Context(), 0, NetworkOpen)
	if err != nil || !r["seccomp"].OK || len(r) != 1 {
		t.Errorf("%v %v", r, err)
	}
	if after := mounts(); after != before {
		t.Errorf("mounts before:\n%s\nafter:\n%s", before, after)
	}
	host, err := hostNamespaces()
	if err != nil {
		t.Fatal(err)
	}
	for name, ns := range map[string]map[string]string{"the owner's": host, "not told": {}} {
		if (&pidOne{cfg: initConfig{HostNS: ns}}).ownMounts() == nil {
			t.Errorf("%s: an init would mount in the owner's namespace", name)
		}
	}
}

func TestNetworkNoneReachesNoHostPort(t *testing.T) {
	dir := workspace(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	exit, _, out := run(t, shell(t, dir, "exec 3<>/dev/tcp/127.0.0.1/"+port))
	if exit.Code == 0 {
		t.Errorf("connected: %s", out)
	}
}

// A command's own loopback works, so that test suites run; an open network is the host's.
func TestLoopbackInsideAndOpenNetworkWork(t *testing.T) {
	bin, dir := program(t), workspace(t)
	spec := shell(t, dir, "exec "+bin+"/abuse")
	spec.Binds, spec.Env = append(spec.Binds, Bind{Path: bin}), append(spec.Env, "WRIT_TEST_ROLE=loopback")
	if exit, _, out := run(t, spec); exit.Code != 0 {
		t.Errorf("own loopback: %+v %s", exit, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	spec.Network, spec.Env = NetworkOpen, append(spec.Env, "WRIT_TEST_ADDR="+l.Addr().String())
	exit, e, out := run(t, spec)
	if exit.Code != 0 || e.Network != "host" {
		t.Errorf("open network: %+v %+v %s", exit, e, out)
	}
}

func roleLoopback() int {
	addr := os.Getenv("WRIT_TEST_ADDR")
	if addr == "" {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			fmt.Println(err)
			return 1
		}
		defer l.Close()
		addr = l.Addr().String()
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	c.Close()
	return 0
}

func TestRunningOutOfProcessesHurtsOnlyTheSandbox(t *testing.T) {
	dir := workspace(t)
	spec := shell(t, dir, `n=0; while [ $n -lt 60 ]; do sleep 30 & n=$((n+1)); done 2>/dev/null; true`)
	spec.MaxProcesses = 20
	exit, e, _ := run(t, spec)
	if exit.InitLost || !exit.CleanedUp || len(exit.Survivors) > 20 || e.Limits["processes"] == "" {
		t.Errorf("%d survivors, %+v, %v", len(exit.Survivors), exit, e.Limits)
	}
}

// Without user namespaces a command gets Landlock and seccomp, and is told so.
func TestRestrictedKeepsWritesAndNetwork(t *testing.T) {
	dir := workspace(t)
	spec := shell(t, dir, "")
	caps, err := shared.capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	caps.UserNS = Check{Step: "clone", Errno: "EPERM"}
	set := func(c *Capabilities) (old *Capabilities) {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		old, shared.caps = shared.caps, c
		return old
	}
	defer set(set(&caps))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	outside := workspace(t)
	spec.Least = LevelIsolatedSoftCaps
	if e := refused(t, spec, KindUnavailable, ""); e.Missing != "user namespaces" || e.Errno != unix.EPERM {
		t.Errorf("%v", e)
	}
	spec.Least = LevelRestricted
	spec.Executable, spec.Argv = "/bin/bash", []string{"bash", "-c", `echo in > in || exit 2
for f in ` + outside + `/x /proc/sys/kernel/core_pattern /usr/x; do echo x > $f && exit 3; done
exec 3<>/dev/tcp/127.0.0.1/` + port + ` && exit 4
cat /proc/` + fmt.Sprint(os.Getpid()) + `/environ && exit 5
ls ` + outside + ` && exit 6
for d in /dev/vda /dev/sda /dev/mem /dev/kmsg; do head -c 1 $d && exit 7; done
echo ok > /dev/null || exit 8
(setsid sleep 5432 &); exit 0`}
	exit, e, out := run(t, spec)
	if exit.Code != 0 || len(exit.Survivors) != 1 || !exit.CleanedUp || !exists(filepath.Join(dir, "in")) {
		t.Errorf("%+v\n%s", exit, out)
	}
	if e.Level != LevelRestricted || e.Network != "seccomp_denied" || len(e.Namespaces) != 0 || e.LandlockABI == 0 || e.Tracking != "subreaper" || strings.Trim(e.CapEff, "0") != "" {
		t.Errorf("%+v", e)
	}
}

// Sweeping by one service takes nothing from another that is about to start a process, and removes what a dead one left.
func TestSweepingLetsLivingOwnersBe(t *testing.T) {
	parent, _ := controllerDir("pids")
	if parent == "" {
		t.Log("no pids controller here: there are no groups to sweep")
		return
	}
	ended := exec.Command("/bin/true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	group := func(pid int) string {
		dir := filepath.Join(parent, fmt.Sprintf("%s%d-%s", cgroupPrefix, pid, "sweeptest"))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Rmdir(dir) })
		return dir
	}
	living, dead := group(os.Getppid()), group(ended.Process.Pid)
	sweepCgroups()
	if !exists(living) || exists(dead) {
		t.Errorf("the living owner's is there: %v; the dead one's is there: %v", exists(living), exists(dead))
	}
}
