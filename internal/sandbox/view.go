package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// File systems that are never shown with the owner's ids mapped: they act on
// the machine, and to the payload's user they stay as closed as to any other.
var machineFS = map[string]bool{
	"sysfs": true, "devtmpfs": true, "devpts": true, "cgroup": true, "cgroup2": true, "debugfs": true, "tracefs": true,
	"securityfs": true, "pstore": true, "efivarfs": true, "bpf": true, "configfs": true, "mqueue": true, "hugetlbfs": true,
	"fusectl": true, "rpc_pipefs": true, "autofs": true, "selinuxfs": true,
}

// droppedFS are not shown at all: they name other processes and namespaces.
var droppedFS = map[string]bool{"proc": true, "nsfs": true, "binfmt_misc": true}

// handed collects what a launch gives to its init, and closes it afterwards.
type handed struct{ files []*os.File }

func (h *handed) add(fd int) int {
	h.files = append(h.files, os.NewFile(uintptr(fd), "mount"))
	return ctrlFD + len(h.files)
}

func (h *handed) close() {
	for _, f := range h.files {
		f.Close()
	}
}

// serverView clones the visible mounts one by one, each with root's files
// mapped to kuid where the file system allows it.
func (l *launcher) serverView(h *handed, kuid int) ([]viewMount, []Degradation, error) {
	mounts, err := readMountinfo("/proc/self/mountinfo")
	if err != nil {
		return nil, nil, wrap(KindSetup, "read mounts", "/proc/self/mountinfo", err)
	}
	ns, err := l.idmap(idmapKey{0, 0, kuid})
	if err != nil {
		return nil, nil, wrap(KindSetup, "id map", "", err)
	}
	var view []viewMount
	var degraded []Degradation
	for _, m := range topMounts(mounts) {
		fd, err := unix.OpenTree(unix.AT_FDCWD, m.Point, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
			continue // hidden below another mount
		}
		if err != nil {
			return nil, nil, wrap(KindSetup, "clone mount", m.Point, err)
		}
		target := viewMount{Target: m.Point, FD: h.add(fd)}
		if machineFS[m.FSType] || m.Point == "/dev" {
			err = setAttr(fd, unix.MOUNT_ATTR_NOSUID, false)
		} else if err = mapOwner(fd, ns, false); err != nil && m.Point != "/" {
			degraded = append(degraded, Degradation{What: "owner map of " + m.Point, Wanted: "idmapped", Got: "other user", Cause: errnoName(err)})
			err = setAttr(fd, attrWritable, false)
		}
		if err != nil {
			return nil, nil, &Error{Kind: KindUnavailable, Stage: "view", Path: m.Point, Missing: "idmapped mounts", Errno: errnoOf(err)}
		}
		view = append(view, target)
	}
	if len(view) == 0 || view[0].Target != "/" {
		return nil, nil, &Error{Kind: KindSetup, Stage: "view", Path: "/", Detail: "the root mount is not visible"}
	}
	return view, degraded, nil
}

// topMounts keeps one entry per mount point, parents first.
func topMounts(mounts []mountEntry) []mountEntry {
	top := map[string]mountEntry{}
	for _, m := range mounts {
		if _, inProc := within(m.Point, "/proc"); droppedFS[m.FSType] || inProc {
			continue
		}
		top[m.Point] = m
	}
	out := make([]mountEntry, 0, len(top))
	for _, m := range top {
		out = append(out, m)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := depth(out[i].Point), depth(out[j].Point)
		return a < b || a == b && out[i].Point < out[j].Point
	})
	return out
}

func depth(p string) int {
	if p == "/" {
		return 0
	}
	return strings.Count(p, "/")
}

func mapOwner(fd int, ns *os.File, recursive bool) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	return unix.MountSetattr(fd, "", flags, &unix.MountAttr{
		Attr_set:    attrWritable | unix.MOUNT_ATTR_IDMAP,
		Userns_fd:   uint64(ns.Fd()),
		Propagation: unix.MS_PRIVATE,
	})
}

// binds checks every bind and, under root, clones it with its owner mapped to
// kuid, so that what the payload writes belongs to the folder's owner.
func (l *launcher) binds(h *handed, spec Spec, kuid int) ([]initBind, error) {
	var out []initBind
	for _, b := range spec.Binds {
		st, err := identify(b)
		if err != nil {
			return nil, err
		}
		ib := initBind{Path: b.Path, Target: b.Target, Write: b.Write, Dev: st.Dev, Ino: st.Ino, FD: -1}
		if ib.Target == "" {
			ib.Target = b.Path
		}
		if kuid >= 0 && spec.Profile == ProfileCommand {
			if ib.FD, err = l.mappedBind(h, b, kuid, st); err != nil {
				return nil, err
			}
		}
		out = append(out, ib)
	}
	return out, nil
}

func (l *launcher) mappedBind(h *handed, b Bind, kuid int, want unix.Stat_t) (int, error) {
	fd, st, err := cloneTree(b.Path, true)
	if err != nil {
		return -1, wrap(KindPath, "bind", b.Path, err)
	}
	inside := h.add(fd)
	if err := checkIdentity(b.Path, want.Dev, want.Ino, st, "at cloning"); err != nil {
		return -1, err
	}
	ns, err := l.idmap(idmapKey{int(st.Uid), int(st.Gid), kuid})
	if err == nil {
		err = mapOwner(fd, ns, true)
	}
	if err != nil {
		return -1, &Error{Kind: KindUnavailable, Stage: "bind", Path: b.Path, Missing: "idmapped mounts on this file system", Errno: errnoOf(err)}
	}
	return inside, nil
}

// identify opens the path without following any link and compares it with the
// identity that was approved.
func identify(b Bind) (unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := unix.Openat2(unix.AT_FDCWD, b.Path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return st, wrap(KindPath, "bind", b.Path, err)
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return st, wrap(KindPath, "bind", b.Path, err)
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return st, &Error{Kind: KindPath, Stage: "bind", Path: b.Path, Detail: "neither a folder nor a plain file"}
	}
	return st, checkIdentity(b.Path, b.Dev, b.Ino, st, "before mounting")
}

// maskPaths resolves the masked paths and adds every other path under which
// the same files are mounted; procs are further mounts of proc.
func maskPaths(paths []string) (masks, procs []string, err error) {
	mounts, err := readMountinfo("/proc/self/mountinfo")
	if err != nil {
		return nil, nil, wrap(KindSetup, "read mounts", "/proc/self/mountinfo", err)
	}
	for _, m := range mounts {
		if m.FSType == "proc" && m.Point != "/proc" {
			procs = append(procs, m.Point)
		}
	}
	for _, p := range paths {
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			return nil, nil, wrap(KindPath, "mask", p, err)
		}
		if real == "/" {
			return nil, nil, &Error{Kind: KindSpec, Stage: "mask", Path: p, Detail: "the root can't be hidden"}
		}
		for _, a := range aliases(mounts, real) {
			if !visibleAs(a, real) || contains(masks, a) {
				continue
			}
			masks = append(masks, a)
		}
	}
	sort.Strings(masks)
	return outermost(masks), procs, nil
}

// visibleAs drops aliases that another mount covers: what is seen there is
// not the file.
func visibleAs(alias, real string) bool {
	if alias == real {
		return true
	}
	_, err := os.Lstat(alias)
	return err == nil
}

// outermost drops paths below another one of the sorted list: they vanish with it.
func outermost(sorted []string) []string {
	var out []string
	for _, p := range sorted {
		hidden := false
		for _, o := range out {
			if _, ok := within(p, o); ok {
				hidden = true
			}
		}
		if !hidden {
			out = append(out, p)
		}
	}
	return out
}

// hostNamespaces are the links to compare the payload's with.
func hostNamespaces() (map[string]string, error) {
	out := map[string]string{}
	for _, kind := range nsKinds {
		link, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return nil, fmt.Errorf("namespace %s: %w", kind, err)
		}
		out[kind] = link
	}
	return out, nil
}
