package sandbox

import (
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// cloneTree makes a detached copy of what is mounted at path, which may hold
// no symbolic link when strict, and tells the identity of its root.
func cloneTree(path string, strict bool) (int, unix.Stat_t, error) {
	var st unix.Stat_t
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	if strict {
		how.Resolve |= unix.RESOLVE_NO_SYMLINKS
	}
	at, err := unix.Openat2(unix.AT_FDCWD, path, &how)
	if err != nil {
		return -1, st, err
	}
	defer unix.Close(at)
	fd, err := unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return -1, st, err
	}
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

const attrReadOnly = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
const attrWritable = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

func setAttr(fd int, attr uint64, recursive bool) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	return unix.MountSetattr(fd, "", flags, &unix.MountAttr{Attr_set: attr, Propagation: unix.MS_PRIVATE})
}

// attach moves a detached mount onto root+target, where something must exist:
// nothing is ever created in a folder of the user's.
func attach(fd int, root, target string) error {
	at, err := openInside(root, target)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return unix.MoveMount(fd, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

func openInside(root, target string) (int, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat2(dir, "."+filepath.Clean("/"+target), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// emptyFolder is a detached, empty file system that nobody without capabilities
// can look into: closed and read-only, or, to hold what stays visible, one that
// can be passed through but not listed and is still to be made read-only.
func emptyFolder(passable bool) (int, error) {
	mode, attr := "0000", uint64(attrReadOnly)
	if passable {
		mode, attr = "0111", attrWritable
	}
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigSetString(fs, "mode", mode); err != nil {
		return -1, err
	}
	if err := unix.FsconfigSetString(fs, "size", "4k"); err != nil {
		return -1, err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(attr)|unix.MOUNT_ATTR_NOEXEC)
}

// kept is a folder within a masked one that stays visible.
type kept struct {
	target string
	fd     int
}

// keep clones the binds that lie within path, before it is covered.
func (p *pidOne) keep(root, path string) (out []kept, err error) {
	for _, b := range p.cfg.Binds {
		if rest, inside := within(b.Target, path); !inside || rest == "" {
			continue
		}
		at, err := openInside(root, b.Target)
		if err != nil {
			return out, wrap(KindPath, "bind", b.Path, err)
		}
		fd, err := unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
		unix.Close(at)
		if err == nil && !b.Write {
			err = setAttr(fd, attrReadOnly, false)
		}
		if err != nil {
			return out, wrap(KindPath, "bind", b.Path, err)
		}
		out = append(out, kept{b.Target, fd})
	}
	return out, nil
}

// hide masks path under root but for the binds within it.
func (p *pidOne) hide(root, path string) error {
	open, err := p.keep(root, path)
	defer func() {
		for _, k := range open {
			unix.Close(k.fd)
		}
	}()
	if err != nil {
		return err
	}
	if err := mask(root, path, len(open) > 0); err != nil || len(open) == 0 {
		return err
	}
	cover, err := openInside(root, path)
	if err != nil {
		return wrap(KindPath, "mask", path, err)
	}
	defer unix.Close(cover)
	for _, k := range open {
		rest, _ := within(k.target, path)
		at := ""
		for _, name := range strings.Split(rest, "/") {
			at = filepath.Join(at, name)
			if err := unix.Mkdirat(cover, at, 0o111); err != nil && err != unix.EEXIST {
				return wrap(KindSetup, "bind", k.target, err)
			}
		}
		if err := attach(k.fd, root, k.target); err != nil {
			return wrap(KindSetup, "bind", k.target, err)
		}
	}
	return wrapNil(KindSetup, "mask", path, setAttr(cover, unix.MOUNT_ATTR_RDONLY, false))
}

// wrapNil is wrap for an error that may be nil.
func wrapNil(kind Kind, stage, path string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(kind, stage, path, err)
}

// mask covers path under root. A folder becomes empty and closed; a file or a
// socket becomes a device that can't be opened.
func mask(root, path string, passable bool) error {
	at, err := openInside(root, path)
	if err != nil {
		return wrap(KindPath, "mask", path, err)
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return wrap(KindPath, "mask", path, err)
	}
	var cover int
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		cover, err = emptyFolder(passable)
	} else if cover, _, err = cloneTree("/dev/null", false); err == nil {
		err = setAttr(cover, attrReadOnly|unix.MOUNT_ATTR_NOEXEC, false)
	}
	if err != nil {
		return wrap(KindSetup, "mask", path, err)
	}
	defer unix.Close(cover)
	if err := unix.MoveMount(cover, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return wrap(KindSetup, "mask", path, err)
	}
	return nil
}

// enter makes base the root of the mount namespace and drops the old one.
func enter(base string) error {
	if err := unix.Chdir(base); err != nil {
		return wrap(KindSetup, "enter root", base, err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return wrap(KindSetup, "pivot_root", base, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return wrap(KindSetup, "drop old root", "", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return wrap(KindSetup, "enter root", "/", err)
	}
	return nil
}

func mountProc(target string) error {
	if err := unix.Mount("proc", target, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return wrap(KindSetup, "mount fresh proc", target, err)
	}
	return nil
}

// buildServerView assembles the idmapped file system that the owner cloned,
// with a proc of this pid namespace, and hides the masked paths.
func (p *pidOne) buildServerView() error {
	base, err := stagingDir()
	if err != nil {
		return err
	}
	for i, m := range p.cfg.View {
		if i == 0 {
			err = unix.MoveMount(m.FD, "", unix.AT_FDCWD, base, unix.MOVE_MOUNT_F_EMPTY_PATH)
		} else {
			err = attach(m.FD, base, m.Target)
		}
		if err != nil {
			return wrap(KindSetup, "attach view", m.Target, err)
		}
	}
	if err := mountProc(base + "/proc"); err != nil {
		return err
	}
	for _, path := range p.cfg.Mask {
		if err := p.hide(base, path); err != nil {
			return err
		}
	}
	if err := enter(base); err != nil {
		return err
	}
	return p.verifyBinds()
}

// maskInPlace keeps the namespace's copy of the host's mounts, which the
// kernel has locked together, and covers what must not be seen.
func (p *pidOne) maskInPlace() error {
	for _, path := range append([]string{"/proc"}, p.cfg.Procs...) {
		if err := mountProc(path); err != nil {
			return err
		}
	}
	for _, path := range p.cfg.Mask {
		if err := p.hide("/", path); err != nil {
			return err
		}
	}
	return p.verifyBinds()
}

// verifyBinds compares what is visible at each target with what was approved.
func (p *pidOne) verifyBinds() error {
	for _, b := range p.cfg.Binds {
		if err := sameFile(b, "after mounting"); err != nil {
			return err
		}
	}
	return nil
}

func sameFile(b initBind, when string) error {
	var st unix.Stat_t
	if err := unix.Lstat(b.Target, &st); err != nil {
		return wrap(KindPath, "bind "+when, b.Path, err)
	}
	return checkIdentity(b.Path, b.Dev, b.Ino, st, when)
}

func checkIdentity(path string, dev, ino uint64, st unix.Stat_t, when string) error {
	if dev == 0 && ino == 0 || st.Dev == dev && st.Ino == ino {
		return nil
	}
	return &Error{Kind: KindIdentity, Stage: "bind " + when, Path: path,
		Detail: "it is no longer the folder that was approved (device or inode changed)"}
}

// source is a mount waiting to be placed in the new root.
type source struct {
	target string
	fd     int
	file   bool
	what   string
}

func (p *pidOne) buildCommandRoot() error {
	// Everything is cloned from the old root first: the new one covers a folder.
	system, links, err := systemSources(p.cfg.Network == NetworkOpen)
	if err != nil {
		return err
	}
	binds, err := p.bindSources()
	if err != nil {
		return err
	}
	base, err := stagingDir()
	if err != nil {
		return err
	}
	devs, err := deviceSources()
	if err != nil {
		return err
	}
	if err := unix.Mount("writ", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=2m,nr_inodes=4096,mode=0755"); err != nil {
		return wrap(KindSetup, "mount root", base, err)
	}
	if err := p.own(base); err != nil {
		return err
	}
	if err := p.skeleton(base, links); err != nil {
		return err
	}
	all := append(append(system, devs...), binds...)
	sort.SliceStable(all, func(i, j int) bool {
		return strings.Count(all[i].target, "/") < strings.Count(all[j].target, "/")
	})
	for _, s := range all {
		if err := p.place(base, s); err != nil {
			return err
		}
	}
	if err := closeProc(base); err != nil {
		return err
	}
	for _, path := range p.cfg.Mask {
		if _, err := openInside(base, path); err != nil {
			continue // not part of this root at all
		}
		if err := mask(base, path, false); err != nil {
			return err
		}
	}
	if err := enter(base); err != nil {
		return err
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return wrap(KindSetup, "read-only root", "/", err)
	}
	return p.verifyBinds()
}

// place attaches one mount. Its mount point is created only in the sandbox's
// own root; inside a bind it must exist already.
func (p *pidOne) place(base string, s source) error {
	defer unix.Close(s.fd)
	err := attach(s.fd, base, s.target)
	if err == unix.ENOENT {
		if err = p.makePoint(base, s.target, s.file); err == nil {
			err = attach(s.fd, base, s.target)
		}
	}
	if err != nil {
		return wrap(KindSetup, "attach "+s.what, s.target, err)
	}
	return nil
}

// makePoint creates a mount point step by step below base, resolving links as
// the payload will. It refuses to create on any file system that is not one of
// the sandbox's own: no stub may be left in a folder of the user's.
func (p *pidOne) makePoint(base, target string, file bool) error {
	parent := "/"
	parts := strings.Split(strings.TrimPrefix(target, "/"), "/")
	for i, part := range parts {
		here := filepath.Join(parent, part)
		fd, err := openInside(base, here)
		if err == unix.ENOENT {
			err = p.makeIn(base, parent, part, file && i == len(parts)-1)
		} else if err == nil {
			unix.Close(fd)
		}
		if err != nil {
			return err
		}
		parent = here
	}
	return nil
}

func (p *pidOne) makeIn(base, parent, name string, file bool) error {
	dir, err := openInside(base, parent)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return err
	}
	if !p.ownDevices[st.Dev] {
		return unix.ENOENT
	}
	if file {
		return unix.Mknodat(dir, name, unix.S_IFREG|0o444, 0)
	}
	return unix.Mkdirat(dir, name, 0o755)
}

// own remembers a file system that the sandbox made for itself.
func (p *pidOne) own(at string) error {
	var st unix.Stat_t
	if err := unix.Stat(at, &st); err != nil {
		return wrap(KindSetup, "own file system", at, err)
	}
	p.ownDevices[st.Dev] = true
	return nil
}

func (p *pidOne) bindSources() ([]source, error) {
	var out []source
	for _, b := range p.cfg.Binds {
		fd := b.FD
		var st unix.Stat_t
		var err error
		if fd < 0 {
			fd, st, err = cloneTree(b.Path, true)
		} else {
			err = unix.Fstat(fd, &st)
		}
		if err != nil {
			return nil, wrap(KindPath, "bind", b.Path, err)
		}
		if err := checkIdentity(b.Path, b.Dev, b.Ino, st, "at mounting"); err != nil {
			return nil, err
		}
		attr := uint64(attrReadOnly)
		if b.Write {
			attr = attrWritable
		}
		if err := setAttr(fd, attr, true); err != nil {
			return nil, wrap(KindSetup, "bind flags", b.Path, err)
		}
		out = append(out, source{target: b.Target, fd: fd, what: "bind", file: st.Mode&unix.S_IFMT != unix.S_IFDIR})
	}
	return out, nil
}

func threads() int {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return runtime.NumGoroutine() + 16
	}
	return len(entries)
}
