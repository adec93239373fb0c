package workspace_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/writ-dev/writ/registry-svc/internal/fault"
	"github.com/writ-dev/writ/registry-svc/internal/workspace"
)

// tree makes a machine in miniature: homes/alice/{project,.writ}, homes/bob, srv/app.
func tree(t *testing.T) (root string, rules workspace.Rules) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"homes/alice/project", "homes/alice/.writ/tokens", "homes/bob", "srv/app", "own/dir"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root, workspace.Rules{
		Forbidden: []string{filepath.Join(root, "homes/alice/.writ")},
		Homes:     []string{filepath.Join(root, "homes")},
		Home:      []string{filepath.Join(root, "own")},
	}
}

func link(t *testing.T, to, at string) string {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
	return at
}

// Trust 1: `/`, home folders, $WRIT_HOME and their ancestors are no workspaces, whatever they are called.
func TestNobodyGetsAHomeWritsFilesOrTheRoot(t *testing.T) {
	root, rules := tree(t)
	in := func(p string) string { return filepath.Join(root, p) }
	for _, path := range []string{
		"/", "/.", "/tmp/..", "/proc", "/proc/self", "/sys", "/dev", "/root", "/home",
		root, in("homes"), in("homes/alice"), in("homes/bob"), in("own"),
		in("homes/alice/.writ"), in("homes/alice/.writ/tokens"), in("homes/alice/project/.."),
		link(t, "/", in("srv/toroot")), link(t, in("homes/bob"), in("srv/tobob")), link(t, in("homes/alice/.writ/tokens"), in("srv/totokens")),
	} {
		r := rules
		if path == "/root" || path == "/home" {
			r.Home, r.Homes = nil, nil
		}
		if _, err := os.Stat(path); err != nil {
			continue // a machine without that folder can't give it away
		}
		if _, err := r.Check(path); !fault.Is(err, fault.WorkspaceForbidden) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A home of another place, reached by a link in the folder of homes, is a home too.
func TestALinkedHomeIsAHome(t *testing.T) {
	root, rules := tree(t)
	data := filepath.Join(root, "data/carol")
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	link(t, data, filepath.Join(root, "homes/carol"))
	if _, err := rules.Check(data); !fault.Is(err, fault.WorkspaceForbidden) {
		t.Errorf("carol's home by its other name: %v", err)
	}
}

// What is in a home is fine; the folder's identity is what the file system says.
func TestAFolderIsGivenWithItsIdentity(t *testing.T) {
	root, rules := tree(t)
	for _, dir := range []string{"homes/alice/project", "srv/app", "own/dir"} {
		path := filepath.Join(root, dir)
		got, err := rules.Check(link(t, path, filepath.Join(root, "link-"+filepath.Base(dir))))
		if err != nil {
			t.Fatal(err)
		}
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		if got != (workspace.Folder{Path: path, Device: st.Dev, Inode: st.Ino}) {
			t.Errorf("%s became %+v", path, got)
		}
	}
}

// What is no folder is an error that says why.
func TestWhatIsNoFolderIsUnusable(t *testing.T) {
	root, rules := tree(t)
	file := filepath.Join(root, "srv/file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	loop := filepath.Join(root, "srv/loop")
	link(t, loop, loop)
	for _, path := range []string{"", "relative", "~/x", filepath.Join(root, "absent"), file, file + "/x", loop, "/tmp/\x00"} {
		if _, err := rules.Check(path); !fault.Is(err, fault.WorkspaceUnusable) {
			t.Errorf("%q: %v", path, err)
		}
	}
}
