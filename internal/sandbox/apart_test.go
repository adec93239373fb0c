package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
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
	lie := map[string]string{"mnt": "mnt:[1]"}
	for _, cfg := range []initConfig{
		{Role: roleProbe, Network: NetworkOpen, HostNS: lie},
		{Role: roleRun, Mode: modeNamespaces, Profile: ProfileCommand, Argv: []string{"true"}, Executable: "/bin/true", Dir: "/", Network: NetworkOpen, HostNS: lie},
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

// A server's own folder within a masked one stays reachable and writable; the rest of the masked folder does not (R71).
func TestAServersOwnFolderWithinAMaskedOne(t *testing.T) {
	home := t.TempDir()
	own := filepath.Join(home, "servers", "fs")
	if err := os.MkdirAll(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "secret"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := `cd ` + own + ` && echo here > made && ! cat ` + home + `/secret && ! ls ` + home + ` && ! ls ` + home + `/servers/.. && ! touch ` + home + `/new && ! mkdir ` + home + `/servers/other`
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p, err := Start(t.Context(), Spec{
		Stdout: out, Stderr: out,
		Argv: []string{"sh", "-xc", script}, Executable: "/bin/sh", Dir: own, Env: []string{"PATH=/usr/bin:/bin"}, Profile: ProfileServer,
		Mask: []string{home}, Binds: []Bind{{Path: own, Write: true}}, Network: NetworkOpen, Least: LevelGuarded, Scope: "own-folder-test;",
	})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait(t.Context())
	if err != nil || exit.Code != 0 {
		said, _ := os.ReadFile(out.Name())
		t.Fatalf("%+v %v\n%s", exit, err, said)
	}
	if b, err := os.ReadFile(filepath.Join(own, "made")); err != nil || string(b) != "here\n" {
		t.Errorf("%q %v", b, err)
	}
	if st, err := os.Stat(filepath.Join(own, "made")); err == nil && int(st.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		t.Errorf("what the server made belongs to uid %d", st.Sys().(*syscall.Stat_t).Uid)
	}
}
