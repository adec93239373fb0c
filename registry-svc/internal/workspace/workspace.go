// Package workspace says which folders can be a workspace. What a workspace is, an agent's tools may be given to read
// and write: so never the whole file system, a person's home, or Writ's own files.
package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/writ-dev/writ/registry-svc/internal/fault"
)

const field = "workspace"

// Folder is a folder that can be a workspace, as it was when it was looked at.
type Folder struct {
	Path   string // absolute, without symbolic links
	Device uint64
	Inode  uint64
}

// Rules are the folders that nobody may have.
type Rules struct {
	// Forbidden are folders that hold Writ's own files: they, what lies in them and what they lie in.
	Forbidden []string
	// Homes holds people's home folders: each entry, the folder itself and what they lie in. Empty: /home and /Users.
	Homes []string
	// Home is the home of the user that Writ runs as; empty: $HOME and /root.
	Home []string
}

// Check looks at a path that a caller asks for. The identity that it returns is checked again by whoever uses the
// folder, so that another folder put in its place later is noticed.
func (r Rules) Check(path string) (Folder, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return Folder{}, fault.OfField(fault.WorkspaceUnusable, field, path, "the path is not absolute", "Send the folder's whole path.")
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Folder{}, unusable(path, err)
	}
	info, err := os.Lstat(resolved)
	if err != nil {
		return Folder{}, unusable(path, err)
	}
	if !info.IsDir() {
		return Folder{}, unusable(path, syscall.ENOTDIR)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Folder{}, fault.OfField(fault.WorkspaceUnusable, field, path, "the system gives no identity of the folder", "Use a local folder.")
	}
	if why := r.forbidden(resolved, info); why != "" {
		return Folder{}, fault.OfField(fault.WorkspaceForbidden, field, path, "this can be nobody's workspace: "+why,
			"Choose or make a folder of the project's own.", "why", why)
	}
	return Folder{Path: resolved, Device: st.Dev, Inode: st.Ino}, nil
}

func unusable(path string, err error) error {
	why, errno := "it can't be looked at", ""
	var e syscall.Errno
	if errors.As(err, &e) {
		why, errno = e.Error(), name(e)
	}
	return fault.OfField(fault.WorkspaceUnusable, field, path, "the folder can't be used: "+why, "Make the folder, or correct the path.", "errno", errno)
}

func name(e syscall.Errno) string {
	for errno, word := range map[syscall.Errno]string{
		syscall.ENOENT: "ENOENT", syscall.EACCES: "EACCES", syscall.ENOTDIR: "ENOTDIR", syscall.ELOOP: "ELOOP",
		syscall.ENAMETOOLONG: "ENAMETOOLONG", syscall.EPERM: "EPERM", syscall.EIO: "EIO",
	} {
		if e == errno {
			return word
		}
	}
	return e.Error()
}

// forbidden says why nobody may have the folder. Folders are compared by path and, where they are there, by identity:
// a bind mount of a home is that home.
func (r Rules) forbidden(path string, info fs.FileInfo) string {
	if path == "/" {
		return "the file system's root"
	}
	for _, kernel := range []string{"/proc", "/sys", "/dev"} {
		if within(path, kernel) {
			return "it belongs to the kernel"
		}
	}
	for _, f := range r.Forbidden {
		f = resolve(f)
		if within(path, f) {
			return "it lies in Writ's own home"
		}
		if holds(path, info, f) {
			return "it holds Writ's own home"
		}
	}
	for _, h := range r.people() {
		if holds(path, info, h) {
			return "it is or holds a home folder"
		}
	}
	return ""
}

// people lists the home folders of this machine, and where home folders are made.
func (r Rules) people() []string {
	homes, own := r.Homes, r.Home
	if len(homes) == 0 {
		homes = []string{"/home", "/Users"}
	}
	if len(own) == 0 {
		own = []string{"/root", os.Getenv("HOME")}
	}
	var out []string
	for _, o := range own {
		if filepath.IsAbs(o) {
			out = append(out, resolve(o))
		}
	}
	for _, h := range homes {
		out = append(out, resolve(h))
		entries, err := os.ReadDir(h)
		if err != nil {
			continue // it is not there, or its entries can't be seen; by path they are still covered
		}
		for _, e := range entries {
			out = append(out, resolve(filepath.Join(h, e.Name())))
		}
	}
	return out
}

// resolve follows the links of as much of a path as there is.
func resolve(path string) string {
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(resolve(parent), filepath.Base(path))
}

// holds tells whether the folder is inner or one of the folders that inner lies in, by path or by identity.
func holds(path string, info fs.FileInfo, inner string) bool {
	if within(inner, path) {
		return true
	}
	for at := inner; ; at = filepath.Dir(at) {
		if other, err := os.Stat(at); err == nil && os.SameFile(info, other) {
			return true
		}
		if at == filepath.Dir(at) {
			return false
		}
	}
}

// within tells whether path is dir or lies below it. Both are clean and absolute.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
