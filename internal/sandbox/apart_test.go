package sandbox

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// An init that something other than the launcher starts, with frames of its own making, changes no mount of the machine.
// The try runs in a mount namespace of its own, so that a failure of this test harms nothing.
func TestAForgedInitTouchesNoMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("without root there is nothing to mount")
		return
	}
	for _, cfg := range []initConfig{
		{Role: roleProbe, Network: NetworkOpen},
		{Role: roleRun, Mode: modeNamespaces, Profile: ProfileCommand, Argv: []string{"true"}, Executable: "/bin/true", Dir: "/", Network: NetworkOpen},
		{Role: roleRun, Mode: modeNamespaces, Profile: ProfileServer, Argv: []string{"true"}, Executable: "/bin/true", Dir: "/", Mask: []string{t.TempDir()}},
	} {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self)
		cmd.Args = []string{initArgv0}
		cmd.ExtraFiles = []*os.File{theirs}
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		if err := writeFrame(ours, cfg); err != nil {
			t.Fatal(err)
		}
		var f initFrame
		err = readFrame(ours, &f)
		ours.Close()
		_ = cmd.Wait()
		if err == nil && (f.Error == nil || f.Error.Stage != "own namespaces") {
			t.Errorf("%s %s: went on: %+v", cfg.Role, cfg.Profile, f)
		}
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(mounts), "writ ") {
			t.Errorf("%s %s: the machine's mounts changed", cfg.Role, cfg.Profile)
		}
	}
}
