package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	Main()
	if role := os.Getenv("WRIT_TEST_ROLE"); role != "" {
		os.Exit(runRole(role))
	}
	if err := SetUndumpable(); err != nil { // as a service does
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// run starts spec with captured output and waits for its end.
func run(t *testing.T, spec Spec) (Exit, Enforced, string) {
	t.Helper()
	p, out := start(t, spec)
	exit := wait(t, p)
	return exit, p.Enforced(), <-out
}

func start(t *testing.T, spec Spec) (*Process, <-chan string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	spec.Stdout, spec.Stderr = w, w
	p, err := Start(t.Context(), spec)
	w.Close()
	if err != nil {
		r.Close()
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() { p.Kill(); <-p.Done() })
	out := make(chan string, 1)
	go func() {
		defer r.Close()
		b, _ := io.ReadAll(io.LimitReader(r, 1<<20))
		out <- string(b)
	}()
	return p, out
}

func wait(t *testing.T, p *Process) Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	exit, err := p.Wait(ctx)
	if err != nil {
		t.Fatalf("the run did not end: %v", err)
	}
	return exit
}

func shell(t *testing.T, dir, line string) Spec {
	t.Helper()
	return Spec{Argv: []string{"sh", "-c", line}, Executable: "/bin/sh", Dir: dir, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp"},
		Profile: ProfileCommand, Binds: []Bind{{Path: dir, Write: true}}, Least: strongest(t), Scope: "test-" + t.Name()}
}

func strongest(t *testing.T) Level {
	t.Helper()
	caps, err := shared.capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	level, missing := caps.Best(ProfileCommand)
	if !level.AtLeast(LevelIsolatedSoftCaps) {
		t.Fatalf("this machine can't run the tests: %+v", missing)
	}
	return level
}

// workspace is a folder owned by whoever runs the test, reachable by its kuid only through the bind.
func workspace(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// R78, R105: what is stated was read back from the kernel.
func TestCommandIsIsolatedAndSaysSo(t *testing.T) {
	dir := workspace(t)
	spec := shell(t, dir, "cat /proc/self/status; pwd; ls / ; echo made > made")
	spec.MaxProcesses, spec.MaxMemory = 64, 256<<20
	exit, e, out := run(t, spec)
	if exit.Code != 0 || !exit.CleanedUp || len(exit.Survivors) != 0 {
		t.Fatalf("exit %+v, output %s", exit, out)
	}
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", dir} {
		if !strings.Contains(out, want) {
			t.Errorf("inside, %q is missing in\n%s", want, out)
		}
	}
	if e.Level != strongest(t) || !e.NoNewPrivs || e.Seccomp != 2 || strings.Trim(e.CapEff, "0") != "" || e.Network != "netns_empty" || e.Tracking != "pidns" {
		t.Errorf("enforced %+v", e)
	}
	if !contains(e.Writable, dir) || contains(e.Writable, "/") || !contains(e.ReadOnly, "/usr") {
		t.Errorf("writable %v, read-only %v", e.Writable, e.ReadOnly)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "made"), &st); err != nil || int(st.Uid) != os.Geteuid() {
		t.Errorf("what a command writes belongs to the folder's owner: %v, uid %d", err, st.Uid)
	}
	if os.Geteuid() == 0 && e.HostUID < firstKUID {
		t.Errorf("runs as host uid %d", e.HostUID)
	}
	for _, forbidden := range []string{"root", "home", "work"} {
		for line := range strings.SplitSeq(out, "\n") {
			if line == forbidden && !strings.HasPrefix(dir, "/"+forbidden) {
				t.Errorf("/%s is visible inside", forbidden)
			}
		}
	}
}

// Between Prepare and Release nothing runs, and an abandoned payload never does.
func TestPreparedRunsOnlyWhenReleased(t *testing.T) {
	dir := workspace(t)
	p, err := Prepare(t.Context(), shell(t, dir, "echo ran > ran"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Enforced().Level != strongest(t) || p.PID() == 0 {
		t.Errorf("%+v", p.Enforced())
	}
	p.Abandon()
	if exists(filepath.Join(dir, "ran")) {
		t.Error("it ran")
	}
	if p, err = Prepare(t.Context(), shell(t, dir, "echo ran > ran")); err != nil {
		t.Fatal(err)
	}
	running, err := p.Release()
	if err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, running); exit.Code != 0 || !exists(filepath.Join(dir, "ran")) {
		t.Errorf("%+v", exit)
	}
}

func TestExitStatusSignalAndUsageAreReported(t *testing.T) {
	dir := workspace(t)
	if exit, _, _ := run(t, shell(t, dir, "exit 7")); exit.Code != 7 || exit.Signal != 0 {
		t.Errorf("exit %+v", exit)
	}
	if exit, _, _ := run(t, shell(t, dir, "kill -9 $$")); exit.Code != -1 || exit.Signal != syscall.SIGKILL || exit.MaxRSS == 0 {
		t.Errorf("exit %+v", exit)
	}
}

// R84, R85: daemons that left the session and ignore TERM are listed and gone.
func TestSurvivorsAreListedAndGone(t *testing.T) {
	dir := workspace(t)
	mark := "writ-survivor-" + strconv.Itoa(os.Getpid())
	line := `for i in 1 2 3; do (setsid sh -c 'trap "" TERM HUP; exec sleep 7654' ` + mark + ` &) ; done; ` +
		`until [ "$(cat /proc/[0-9]*/comm | grep -c '^sleep$')" = 3 ]; do sleep 0.01; done; exit 0`
	exit, _, out := run(t, shell(t, dir, line))
	if exit.Code != 0 || len(exit.Survivors) != 3 || !exit.CleanedUp {
		t.Fatalf("exit %+v %s", exit, out)
	}
	if s := exit.Survivors[0]; s.Comm != "sleep" || len(s.Argv) != 2 || s.Argv[1] != "7654" {
		t.Errorf("survivor %+v", s)
	}
	if left := hostProcesses("sleep\x007654"); len(left) != 0 {
		t.Errorf("still alive on the host: %v", left)
	}
}

// hostProcesses lists pids whose command line contains the text.
func hostProcesses(text string) []int {
	var out []int
	for _, s := range processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.PID))
		if bytes.Contains(line, []byte(text)) {
			out = append(out, s.PID)
		}
	}
	return out
}

func TestTerminateGivesGraceThenKills(t *testing.T) {
	dir := workspace(t)
	p, out := start(t, shell(t, dir, `trap 'echo bye; exit 3' TERM; echo ready > r; while :; do sleep 0.02; done`))
	eventually(t, "the command to be ready", func() bool { return exists(filepath.Join(dir, "r")) })
	p.Terminate(10 * time.Second)
	if exit := wait(t, p); exit.Code != 3 || !strings.Contains(<-out, "bye") {
		t.Errorf("exit %+v", exit)
	}
	p, _ = start(t, shell(t, dir, `trap '' TERM; echo ready > r2; while :; do sleep 4321; done`))
	eventually(t, "the command to be ready", func() bool { return exists(filepath.Join(dir, "r2")) })
	p.Terminate(20 * time.Millisecond)
	if exit := wait(t, p); exit.Signal != syscall.SIGKILL || !exit.CleanedUp || len(exit.Survivors) == 0 {
		t.Errorf("exit %+v", exit)
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

// Rule 6 of the design: no process outlives its owner.
func TestOwnerKilledLeavesNothing(t *testing.T) {
	for _, profile := range []Profile{ProfileCommand, ProfileServer, ProfileHost} {
		t.Run(string(profile), func(t *testing.T) {
			dir := workspace(t)
			mark := fmt.Sprintf("77%d", os.Getpid())
			owner, lines := reexec(t, "owner", "WRIT_TEST_DIR="+dir, "WRIT_TEST_MARK="+mark, "WRIT_TEST_PROFILE="+string(profile))
			if got := <-lines; got != "started" {
				t.Fatalf("owner said %q", got)
			}
			eventually(t, "the daemons", func() bool { return len(hostProcesses("sleep\x00"+mark)) >= 2 })
			if err := owner.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "all processes to be gone", func() bool {
				return len(hostProcesses("sleep\x00"+mark)) == 0
			})
		})
	}
}

// reexec runs this test binary in a role of its own and gives its lines.
func reexec(t *testing.T, role string, env ...string) (*os.Process, <-chan string) {
	t.Helper()
	image, err := shared.initImage() // sealed and readable by everybody
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	attr := &os.ProcAttr{Env: append(env, "WRIT_TEST_ROLE="+role, "PATH=/usr/bin:/bin"), Files: []*os.File{nil, w, os.Stderr}, Dir: "/"}
	if role == "nobody" {
		attr.Sys = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	p, err := os.StartProcess("/proc/self/fd/"+strconv.Itoa(int(image.Fd())), []string{"sandbox.test"}, attr)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(lines)
		sc := bufio.NewScanner(r)
		for sc.Scan() {
			lines <- sc.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.Kill()
		_, _ = p.Wait()
		r.Close()
		<-done
	})
	return p, lines
}

func runRole(role string) int {
	switch role {
	case "owner":
		return roleOwner()
	case "nobody":
		return roleNobody()
	case "abuse":
		return roleAbuse()
	case "loopback":
		return roleLoopback()
	}
	return 2
}

func roleOwner() int {
	dir, mark, profile := os.Getenv("WRIT_TEST_DIR"), os.Getenv("WRIT_TEST_MARK"), Profile(os.Getenv("WRIT_TEST_PROFILE"))
	spec := Spec{Argv: []string{"sh", "-c", "(setsid sh -c 'trap \"\" TERM; exec sleep " + mark + "' &); exec sleep " + mark}, Executable: "/bin/sh",
		Dir: dir, Env: []string{"PATH=/usr/bin:/bin"}, Profile: profile, Scope: "owner-" + mark, Network: NetworkOpen}
	if profile == ProfileCommand {
		spec.Binds, spec.Network = []Bind{{Path: dir, Write: true}}, NetworkNone
	}
	p, err := Start(context.Background(), spec)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("started")
	<-p.Done()
	return 0
}

// A killed init of a host run leaves processes; the next start finds them.
func TestSweepEndsWhatAKilledOwnerLeft(t *testing.T) {
	dir := workspace(t)
	mark := fmt.Sprintf("88%d", os.Getpid())
	spec := shell(t, dir, "(setsid sleep "+mark+" &); exec sleep "+mark)
	spec.Profile, spec.Least, spec.Network, spec.Binds = ProfileHost, LevelHost, NetworkOpen, nil
	spec.Scope = "sweep-" + mark
	p, _ := start(t, spec)
	if p.Enforced().Level != LevelHost || p.Enforced().Tracking != "subreaper" {
		t.Errorf("a host run is stated as such: %+v", p.Enforced())
	}
	eventually(t, "two processes", func() bool { return len(hostProcesses("sleep\x00"+mark)) == 2 })
	if err := unix.Kill(p.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, p); !exit.InitLost || exit.CleanedUp {
		t.Errorf("a lost init is not called clean: %+v", exit)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	found, err := Sweep(ctx, "sweep-"+mark)
	if err != nil || len(found) != 2 || len(hostProcesses("sleep\x00"+mark)) != 0 {
		t.Errorf("found %+v, %v", found, err)
	}
}
