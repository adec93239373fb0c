package home_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/writ-dev/writ/internal/home"
)

const (
	lockEnv  = "WRIT_TEST_LOCK_HOME"
	ghostEnv = "WRIT_TEST_LOCK_GHOST"
)

// TestMain lets the test binary be the other process of TestTwoServersOnOneHome.
func TestMain(m *testing.M) {
	if path := os.Getenv(lockEnv); path != "" {
		h, err := home.Open(path)
		if err == nil {
			_, err = h.Lock()
		}
		if err == nil && os.Getenv(ghostEnv) != "" {
			err = inherit(h.LockFile())
		}
		fmt.Println(err == nil)
		select {}
	}
	os.Exit(m.Run())
}

// inherit starts a child that holds the open lock file for a short while, as one between fork and exec does.
func inherit(lockFile string) error {
	for fd := uintptr(3); fd < 64; fd++ {
		if path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && path == lockFile {
			child := exec.Command("/bin/sleep", "0.3")
			child.ExtraFiles = []*os.File{os.NewFile(fd, lockFile)}
			return child.Start()
		}
	}
	return os.ErrNotExist
}

func open(t *testing.T) *home.Home {
	t.Helper()
	h, err := home.Open(filepath.Join(t.TempDir(), "h"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Nobody but its owner reads anything in a home (design, Trust 3).
func TestAHomeIsPrivate(t *testing.T) {
	root := filepath.Join(t.TempDir(), "h")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := home.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.LoadOrCreateKey("permission"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.DeploymentID(); err != nil {
		t.Fatal(err)
	}
	lock, err := h.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			t.Error(err)
			return nil
		}
		if st, err := d.Info(); err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v (%v)", path, st.Mode(), err)
		}
		return nil
	})
}

func TestTheHomeIsWhereTheVariableSays(t *testing.T) {
	t.Setenv(home.Env, "/some/where")
	if p, err := home.Default(); err != nil || p != "/some/where" {
		t.Error(p, err)
	}
	t.Setenv(home.Env, "")
	t.Setenv("HOME", "/home/x")
	if p, err := home.Default(); err != nil || p != "/home/x/.writ" {
		t.Error(p, err)
	}
}

func TestAKeyIsMadeOnceAlsoByMany(t *testing.T) {
	h := open(t)
	keys := make([]ed25519.PrivateKey, 16)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Add(1)
		go func() {
			defer wg.Done()
			key, kid, err := h.LoadOrCreateKey("exec")
			if err != nil || kid == "" {
				t.Error(err)
			}
			keys[i] = key
		}()
	}
	wg.Wait()
	for _, k := range keys {
		if !bytes.Equal(k, keys[0]) {
			t.Fatal("two keys")
		}
	}
	other, kid, err := h.LoadOrCreateKey("mcp-host")
	if err != nil || bytes.Equal(other, keys[0]) || kid == home.KeyID(keys[0].Public().(ed25519.PublicKey)) {
		t.Error("two services share a key")
	}
}

// The example of RFC 8037, appendix A.3.
func TestKeyIDIsTheThumbprintOfTheStandard(t *testing.T) {
	pub, err := base64.RawURLEncoding.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
	if err != nil {
		t.Fatal(err)
	}
	if got := home.KeyID(pub); got != "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k" {
		t.Error(got)
	}
}

func TestAnExposedSecretIsRefused(t *testing.T) {
	h := open(t)
	if _, _, err := h.LoadOrCreateKey("exec"); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660} {
		if err := os.Chmod(h.KeyFile("exec"), mode); err != nil {
			t.Fatal(err)
		}
		_, _, err := h.LoadOrCreateKey("exec")
		var exposed *home.ExposedError
		if !errors.As(err, &exposed) || !strings.Contains(err.Error(), h.KeyFile("exec")) {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
	link := filepath.Join(h.Root, "link")
	if err := os.Symlink("/etc/hostname", link); err != nil {
		t.Fatal(err)
	}
	if _, err := home.ReadPrivate(link); err == nil {
		t.Error("a link is followed")
	}
}

func TestADamagedKeyOrIdIsNotReplaced(t *testing.T) {
	h := open(t)
	if err := home.CreatePrivate(h.KeyFile("exec"), []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.LoadOrCreateKey("exec"); err == nil {
		t.Error("a damaged key is accepted")
	}
	first, err := h.DeploymentID()
	if err != nil {
		t.Fatal(err)
	}
	if second, err := h.DeploymentID(); err != nil || first != second {
		t.Errorf("%q, then %q (%v)", first, second, err)
	}
	if err := home.ReplacePrivate(filepath.Join(h.Root, "deployment-id"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := h.DeploymentID(); err == nil {
		t.Error("an emptied deployment id is accepted")
	}
}

func TestFilesAreMadeWholeOrNotAtAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := home.CreatePrivate(path, []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := home.CreatePrivate(path, []byte("two")); !errors.Is(err, os.ErrExist) {
		t.Errorf("%v", err)
	}
	if err := home.ReplacePrivate(path, []byte("three")); err != nil {
		t.Fatal(err)
	}
	if b, err := home.ReadPrivate(path); err != nil || string(b) != "three" {
		t.Errorf("%q %v", b, err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left over: %v", entries)
	}
}

// Two `writ up` on one home: the second is refused and told who the first is. kill -9 frees the home.
func TestTwoServersOnOneHome(t *testing.T) {
	h := open(t)
	other := exec.Command(os.Args[0], "-test.run=^$")
	other.Env = append(os.Environ(), lockEnv+"="+h.Root)
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, 4)
	if _, err := out.Read(ready); err != nil || string(ready) != "true" {
		t.Fatalf("the other process: %q %v", ready, err)
	}
	var locked *home.LockedError
	if _, err := h.Lock(); !errors.As(err, &locked) || locked.PID != other.Process.Pid || !strings.Contains(err.Error(), fmt.Sprint(other.Process.Pid)) {
		t.Errorf("%v, the holder is %d", err, other.Process.Pid)
	}
	if pid := h.Holder(); pid != other.Process.Pid {
		t.Errorf("holder %d", pid)
	}
	other.Process.Kill()
	other.Wait()
	if pid := h.Holder(); pid != 0 {
		t.Errorf("a dead holder: %d", pid)
	}
	lock, err := h.Lock()
	if err != nil {
		t.Fatalf("after the other was killed: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// A server that was killed while it started a child: the home is free a moment later, not taken by a dead process.
func TestAHomeIsFreeAfterAKill(t *testing.T) {
	h := open(t)
	other := exec.Command(os.Args[0], "-test.run=^$")
	other.Env = append(os.Environ(), lockEnv+"="+h.Root, ghostEnv+"=1")
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, 4)
	if _, err := out.Read(ready); err != nil || string(ready) != "true" {
		t.Fatalf("the other process: %q %v", ready, err)
	}
	other.Process.Kill()
	other.Wait()
	lock, err := h.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// No connector's name leads out of the folder that its server is started in, nor into another's.
func TestServerFoldersStayInTheirPlace(t *testing.T) {
	h := open(t)
	seen := map[string]string{}
	for _, name := range []string{"fs", "FS", "..", ".", "", "a/b", "../../etc", "a\x00b", strings.Repeat("x", 500), "ünï"} {
		dir, err := h.ServerDir(name)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if filepath.Dir(dir) != filepath.Join(h.Root, "servers") {
			t.Errorf("%q is started in %s", name, dir)
		}
		if first, taken := seen[dir]; taken {
			t.Errorf("%q and %q share %s", first, name, dir)
		}
		seen[dir] = name
	}
}

// `/`, home folders, $WRIT_HOME and their ancestors are no workspaces, by whatever way one gets there (design, Trust 1).
func TestForbiddenWorkspaces(t *testing.T) {
	base := t.TempDir()
	user := filepath.Join(base, "people", "x")
	t.Setenv("HOME", user)
	h, err := home.Open(filepath.Join(user, ".writ"))
	if err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(user, "project")
	if err := os.Mkdir(good, 0o700); err != nil {
		t.Fatal(err)
	}
	links := map[string]string{"root": "/", "home": user, "writ": h.Root}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(good, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{
		"/", "/root", "/home", user, filepath.Dir(user), base, h.Root, filepath.Join(h.Root, "tokens"), "/tmp/..", "relative", "",
		filepath.Join(good, "root"), filepath.Join(good, "home"), filepath.Join(good, "writ"), filepath.Join(good, "absent"),
	} {
		if reason, forbidden := h.ForbidsWorkspace(path); !forbidden || reason == "" {
			t.Errorf("%q may be a workspace", path)
		}
	}
	if reason, forbidden := h.ForbidsWorkspace(good); forbidden {
		t.Errorf("%s: %s", good, reason)
	}
}
