package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	firstKUID = 61000 // payloads of a root service run as firstKUID + slot
	maxSlots  = 1000
	// imageFD keeps the init's image above all descriptors that a launch hands
	// down, so that handing them down can't overwrite it.
	imageFD   = 700
	maxHanded = 600
)

// launcher holds what all launches of this process share.
type launcher struct {
	mu     sync.Mutex
	image  *os.File
	slots  [maxSlots]bool
	idmaps map[idmapKey]*os.File
	caps   *Capabilities
	// forking serialises launches whose child must be dumpable while its user
	// map is written.
	forking sync.Mutex
}

// shared is per process by nature: it caches a sealed copy of this very
// executable, kernel user ids in use and what this kernel can do.
var shared = &launcher{idmaps: map[idmapKey]*os.File{}}

// initImage is a sealed copy of our own executable: its path may be closed to
// the payload's user, and no payload can write to it.
func (l *launcher) initImage() (*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.image != nil {
		return l.image, nil
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	fd, err := unix.MemfdCreate(initArgv0, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3 every memfd is executable
		fd, err = unix.MemfdCreate(initArgv0, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	low := os.NewFile(uintptr(fd), initArgv0)
	defer low.Close()
	if _, err := io.Copy(low, self); err != nil {
		return nil, fmt.Errorf("copy of the executable: %w", err)
	}
	seals := unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(low.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	high, err := unix.FcntlInt(low.Fd(), unix.F_DUPFD_CLOEXEC, imageFD)
	if err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", imageFD, err)
	}
	l.image = os.NewFile(uintptr(high), initArgv0)
	return l.image, nil
}

func (l *launcher) takeSlot() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, used := range l.slots {
		if !used {
			l.slots[i] = true
			return i, nil
		}
	}
	return -1, fmt.Errorf("all %d sandbox slots are in use", maxSlots)
}

func (l *launcher) freeSlot(i int) {
	if i < 0 {
		return
	}
	l.mu.Lock()
	l.slots[i] = false
	l.mu.Unlock()
}

// spawn describes one init to start.
type spawn struct {
	flags uintptr
	// insideUID and insideGID are seen inside; kuid is the id outside, -1 for
	// this process's own.
	insideUID, insideGID, kuid int
	uidMap, gidMap             []syscall.SysProcIDMap // instead of a single id
	stdio                      [3]*os.File
	handed                     []*os.File
	scope                      string
}

// start runs an init and returns it with the owner's end of its control socket.
func (l *launcher) start(s spawn) (*os.Process, *os.File, error) {
	image, err := l.initImage()
	if err != nil {
		return nil, nil, wrap(KindSetup, "init image", "", err)
	}
	if len(s.handed) > maxHanded {
		return nil, nil, &Error{Kind: KindSetup, Stage: "hand down files",
			Detail: fmt.Sprintf("%d mounts and files, at most %d", len(s.handed), maxHanded)}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, wrap(KindSetup, "control socket", "", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	if err := unix.SetNonblock(pair[0], true); err != nil { // the poller lets Close end a read
		unix.Close(pair[0])
		return nil, nil, wrap(KindSetup, "control socket", "", err)
	}
	ours := os.NewFile(uintptr(pair[0]), "control")
	files := append([]*os.File{s.stdio[0], s.stdio[1], s.stdio[2], theirs}, s.handed...)
	proc, err := l.fork("/proc/self/fd/"+strconv.Itoa(int(image.Fd())), s, files)
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	return proc, ours, nil
}

func (l *launcher) fork(path string, s spawn, files []*os.File) (*os.Process, error) {
	attr := &os.ProcAttr{
		Dir:   "/",
		Env:   []string{"WRIT_SCOPE=" + s.scope, "GOMAXPROCS=2"},
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: true, Cloneflags: s.flags},
	}
	if s.flags&unix.CLONE_NEWUSER != 0 {
		s.mapUser(attr.Sys)
		restore, err := l.dumpableWhileForking()
		if err != nil {
			return nil, wrap(KindSetup, "fork", "", err)
		}
		defer restore()
	}
	proc, err := os.StartProcess(path, []string{initArgv0}, attr)
	if err != nil {
		return nil, wrap(KindSetup, "clone", "", err)
	}
	return proc, nil
}

func (s spawn) mapUser(sys *syscall.SysProcAttr) {
	uid, gid := s.kuid, s.kuid
	if s.kuid < 0 {
		uid, gid = os.Geteuid(), os.Getegid()
	} else {
		sys.Credential = &syscall.Credential{Uid: uint32(s.insideUID), Gid: uint32(s.insideGID)}
		sys.GidMappingsEnableSetgroups = true
	}
	sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: s.insideUID, HostID: uid, Size: 1}}
	sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: s.insideGID, HostID: gid, Size: 1}}
	if s.uidMap != nil {
		sys.Credential, sys.UidMappings, sys.GidMappings = nil, s.uidMap, s.gidMap
		return
	}
	for c := uintptr(0); c <= lastCapability(); c++ {
		sys.AmbientCaps = append(sys.AmbientCaps, c)
	}
}

// lastCapability is the highest one that this kernel knows; raising another
// would fail the launch.
func lastCapability() uintptr {
	text, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return unix.CAP_LAST_CAP
	}
	var n uintptr
	if _, err := fmt.Sscan(string(text), &n); err != nil {
		return unix.CAP_LAST_CAP
	}
	return min(n, 63)
}

// dumpableWhileForking lets an undumpable service that is not root write its
// child's user map (the kernel gives the file to root otherwise). For these
// milliseconds another program of the same user could trace the service;
// processes that Writ started can't, they don't see it.
func (l *launcher) dumpableWhileForking() (func(), error) {
	if os.Geteuid() == 0 {
		return func() {}, nil
	}
	l.forking.Lock()
	was, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err == nil && was != 1 {
		err = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	}
	if err != nil {
		l.forking.Unlock()
		return nil, err
	}
	return func() {
		if was != 1 {
			_ = SetUndumpable() // can't fail with a constant argument
		}
		l.forking.Unlock()
	}, nil
}

type idmapKey struct{ uid, gid, kuid int }

// idmap returns a user namespace that maps the on-disk owner uid:gid to kuid
// and leaves all other ids as they are. It is kept for later launches.
func (l *launcher) idmap(key idmapKey) (*os.File, error) {
	l.mu.Lock()
	ns := l.idmaps[key]
	l.mu.Unlock()
	if ns != nil {
		return ns, nil
	}
	ns, err := l.makeIDMap(spawn{uidMap: idExtents(key.uid, key.kuid), gidMap: idExtents(key.gid, key.kuid)})
	if errnoOf(err) == unix.EPERM { // a container whose own map is smaller than the full range
		one := func(id int) []syscall.SysProcIDMap {
			return []syscall.SysProcIDMap{{ContainerID: id, HostID: key.kuid, Size: 1}}
		}
		ns, err = l.makeIDMap(spawn{uidMap: one(key.uid), gidMap: one(key.gid)})
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.idmaps[key]; other != nil {
		ns.Close()
		return other, nil
	}
	l.idmaps[key] = ns
	return ns, nil
}

func (l *launcher) makeIDMap(s spawn) (*os.File, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	s.flags, s.scope, s.stdio = unix.CLONE_NEWUSER, "idmap", [3]*os.File{null, null, null}
	proc, ctrl, err := l.start(s)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctrl.Close()
		_, _ = proc.Wait() // it ends with its socket
	}()
	if err := writeFrame(ctrl, initConfig{Role: roleHold}); err != nil {
		return nil, err
	}
	var ready initFrame
	if err := readFrame(ctrl, &ready); err != nil {
		return nil, fmt.Errorf("id map holder: %w", err)
	}
	return os.Open(filepath.Join("/proc", strconv.Itoa(proc.Pid), "ns/user"))
}

// idExtents maps disk to host and every other id to itself, but host, which
// then has no on-disk owner.
func idExtents(disk, host int) []syscall.SysProcIDMap {
	const last = 1<<32 - 2
	out := []syscall.SysProcIDMap{{ContainerID: disk, HostID: host, Size: 1}}
	from := 0
	for _, cut := range []int{min(disk, host), max(disk, host), last + 1} {
		if cut > from {
			out = append(out, syscall.SysProcIDMap{ContainerID: from, HostID: from, Size: cut - from})
		}
		from = cut + 1
	}
	return out
}

// watch closes the control socket when ctx ends, which ends the init.
func watch(ctx context.Context, ctrl *os.File) func() bool {
	return context.AfterFunc(ctx, func() { ctrl.Close() })
}
