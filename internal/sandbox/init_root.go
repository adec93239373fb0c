package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// What a command sees of the machine, read-only. Folders of /etc are listed
// one by one: /etc as a whole holds keys on many machines.
var systemFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"}

var etcEntries = []string{
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl/certs", "ssl/openssl.cnf", "ca-certificates",
	"pki/tls/certs", "pki/ca-trust", "crypto-policies", "localtime", "timezone", "mime.types", "nsswitch.conf",
	"protocols", "services", "profile", "profile.d", "bash.bashrc", "bashrc", "inputrc", "gitconfig",
	"debian_version", "os-release", "terminfo", "magic", "java-17-openjdk", "java-21-openjdk", "maven", "python3", "perl",
}

// systemSources clones the system folders; links are the ones that are
// symbolic links on this machine (usr-merge) and are made again.
func systemSources(network bool) ([]source, map[string]string, error) {
	var out []source
	links := map[string]string{}
	paths := append([]string{}, systemFolders...)
	for _, e := range etcEntries {
		paths = append(paths, "/etc/"+e)
	}
	if network {
		paths = append(paths, "/etc/resolv.conf")
	}
	for _, path := range paths {
		fi, err := os.Lstat(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, nil, wrap(KindPath, "system folder", path, err)
		}
		if fi.Mode()&os.ModeSymlink != 0 && path != "/etc/resolv.conf" {
			if links[path], err = os.Readlink(path); err != nil {
				return nil, nil, wrap(KindPath, "system folder", path, err)
			}
			continue
		}
		fd, st, err := cloneTree(path, false)
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOENT) {
			continue // not readable by everybody, or a dangling link: not part of the root
		}
		if err == nil {
			err = setAttr(fd, attrReadOnly, true)
		}
		if err != nil {
			return nil, nil, wrap(KindSetup, "system folder", path, err)
		}
		out = append(out, source{target: path, fd: fd, what: "system folder", file: st.Mode&unix.S_IFMT != unix.S_IFDIR})
	}
	return out, links, nil
}

var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

func deviceSources() ([]source, error) {
	var out []source
	for _, d := range devices {
		fd, _, err := cloneTree("/dev/"+d, false)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, wrap(KindSetup, "device", "/dev/"+d, err)
		}
		out = append(out, source{target: "/dev/" + d, fd: fd, file: true, what: "device"})
	}
	return out, nil
}

// skeleton fills the empty root: links, private temporary folders, devices and
// the few files of /etc that must not be the host's.
func (p *pidOne) skeleton(base string, links map[string]string) error {
	for _, d := range []string{"/proc", "/dev", "/tmp", "/run", "/var", "/var/tmp", "/etc"} {
		if err := os.Mkdir(base+d, 0o755); err != nil {
			return wrap(KindSetup, "root skeleton", d, err)
		}
	}
	if err := mountProc(base + "/proc"); err != nil {
		return err
	}
	for _, d := range []string{"/tmp", "/var/tmp"} {
		if err := p.tmpfs(base+d, "size=512m,mode=1777", 0); err != nil {
			return err
		}
	}
	if err := p.tmpfs(base+"/dev", "size=64k,mode=0755", unix.MS_NOEXEC); err != nil {
		return err
	}
	for _, d := range []string{"/dev/shm", "/dev/pts"} {
		if err := os.Mkdir(base+d, 0o755); err != nil {
			return wrap(KindSetup, "root skeleton", d, err)
		}
	}
	if err := p.tmpfs(base+"/dev/shm", "size=64m,mode=1777", unix.MS_NOEXEC); err != nil {
		return err
	}
	if err := unix.Mount("devpts", base+"/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return wrap(KindSetup, "mount devpts", "/dev/pts", err)
	}
	links["/dev/ptmx"], links["/dev/fd"] = "pts/ptmx", "/proc/self/fd"
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		links["/dev/"+name] = fmt.Sprintf("/proc/self/fd/%d", i)
	}
	for at, to := range links {
		if err := os.MkdirAll(filepath.Dir(base+at), 0o755); err != nil {
			return wrap(KindSetup, "root skeleton", at, err)
		}
		if err := os.Symlink(to, base+at); err != nil {
			return wrap(KindSetup, "root skeleton", at, err)
		}
	}
	return p.accounts(base)
}

func (p *pidOne) tmpfs(at, options string, flags uintptr) error {
	if err := unix.Mount("writ", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|flags, options); err != nil {
		return wrap(KindSetup, "mount tmpfs", at, err)
	}
	return p.own(at)
}

// accounts writes user and host tables that name only the payload itself.
func (p *pidOne) accounts(base string) error {
	files := map[string]string{
		"passwd":   fmt.Sprintf("writ:x:%d:%d:writ:/tmp:/bin/sh\n", p.cfg.InsideUID, p.cfg.InsideGID),
		"group":    fmt.Sprintf("writ:x:%d:\n", p.cfg.InsideGID),
		"hosts":    "127.0.0.1 localhost writ\n::1 localhost writ\n",
		"hostname": "writ\n",
	}
	for name, text := range files {
		if err := os.WriteFile(base+"/etc/"+name, []byte(text), 0o444); err != nil {
			return wrap(KindSetup, "root skeleton", "/etc/"+name, err)
		}
	}
	return nil
}

// closeProc makes the parts of proc that act on the machine read-only: the
// first wall is that the payload is never host uid 0, this is the second.
func closeProc(base string) error {
	for _, name := range []string{"sys", "irq", "bus", "fs", "acpi", "scsi", "sysrq-trigger"} {
		path := base + "/proc/" + name
		if _, err := os.Lstat(path); err != nil {
			continue // this kernel has no such part
		}
		fd, _, err := cloneTree(path, true)
		if err == nil {
			err = setAttr(fd, attrReadOnly|unix.MOUNT_ATTR_NOEXEC, true)
			if err == nil {
				err = attach(fd, base, "/proc/"+name)
			}
			unix.Close(fd)
		}
		if err != nil {
			return wrap(KindSetup, "read-only proc", "/proc/"+name, err)
		}
	}
	return nil
}
