package home

import (
	"os"
	"path/filepath"
	"strings"
)

// ForbidsWorkspace tells whether path can be nobody's workspace, and why: the file system's root, home folders, the
// folder with everybody's homes, and $WRIT_HOME with all that lies above or below it. Links are followed first. A path
// that cannot be looked at is forbidden too.
func (l Layout) ForbidsWorkspace(path string) (reason string, forbidden bool) {
	if !filepath.IsAbs(path) {
		return "it is not an absolute path", true
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "it can't be looked at", true
	}
	root := l.Root
	if r, err := filepath.EvalSymlinks(root); err == nil {
		root = r
	}
	switch {
	case within(root, real):
		return "Writ's own home lies in it", true
	case within(real, root):
		return "it lies in Writ's own home", true
	case real == "/":
		return "it is the whole file system", true
	case real == "/home" || real == "/Users" || filepath.Dir(real) == "/home" || filepath.Dir(real) == "/Users" || real == "/root":
		return "it is a home folder", true
	}
	if user, err := os.UserHomeDir(); err == nil {
		if u, err := filepath.EvalSymlinks(user); err == nil {
			user = u
		}
		if within(user, real) {
			return "it is or holds your home folder", true
		}
	}
	return "", false
}

// within tells whether path is dir or lies below it. Both are clean and absolute.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
