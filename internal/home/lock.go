package home

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Lock is the right to run the server of a home. The kernel takes it back when the process ends, however it ends.
type Lock struct{ f *os.File }

// LockedError tells that another process serves the home.
type LockedError struct {
	Home string
	PID  int // 0 if the other has not written it yet
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("%s is served by process %d already: use it, end it, or set %s to another folder", e.Home, e.PID, Env)
}

// Of a server that was killed, a child that was just being started may hold the lock for a moment longer.
const (
	ghostPatience = 2 * time.Second
	ghostStep     = 10 * time.Millisecond
)

// Lock takes the home for this process, or fails with a *LockedError. Where the holder is dead already it waits a moment.
func (h *Home) Lock() (*Lock, error) {
	for deadline := time.Now().Add(ghostPatience); ; time.Sleep(ghostStep) {
		l, err := h.tryLock()
		var held *LockedError
		if !errors.As(err, &held) || held.PID == 0 || unix.Kill(held.PID, 0) != unix.ESRCH || time.Now().After(deadline) {
			return l, err
		}
	}
}

func (h *Home) tryLock() (*Lock, error) {
	f, err := os.OpenFile(h.LockFile(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, wholeFile()); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return nil, &LockedError{Home: h.Root, PID: readPID(f)}
		}
		return nil, fmt.Errorf("lock %s: %w", h.LockFile(), err)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("write %s: %w", h.LockFile(), err)
	}
	return &Lock{f: f}, nil
}

// Holder is the pid of the process that serves the home, 0 if none does.
func (l Layout) Holder() int {
	f, err := os.Open(l.LockFile())
	if err != nil {
		return 0
	}
	defer f.Close()
	// Asking takes no lock, so that a server which starts at this moment is not turned away.
	lock := wholeFile()
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, lock); err != nil || lock.Type == unix.F_UNLCK {
		return 0
	}
	return readPID(f)
}

// wholeFile describes the exclusive lock. It belongs to the open file, not to the process, so that closing another
// handle of the file does not drop it.
func wholeFile() *unix.Flock_t {
	return &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
}

// Release gives the home back. The file stays: removing it would let two processes hold locks on two files.
func (l *Lock) Release() error {
	return errors.Join(l.f.Truncate(0), l.f.Close())
}

func readPID(f *os.File) int {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}
