package home

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// maxPrivate bounds what ReadPrivate reads. Bytes.
const maxPrivate = 4 << 20

// ExposedError tells that others can read a file that holds a secret. What it holds has to be taken as known.
type ExposedError struct {
	Path string
	Mode os.FileMode
}

func (e *ExposedError) Error() string {
	return fmt.Sprintf("%s has mode %04o, so others can read it: remove it and let a new one be made, or, if nobody can have read it, chmod 600 it", e.Path, e.Mode.Perm())
}

// ReadPrivate reads a file that only its owner may read. One that is a link, not a regular file, another user's, or
// open to group or others is refused.
func ReadPrivate(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, &ExposedError{Path: path, Mode: st.Mode()}
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s belongs to uid %d, not to this process's uid %d", path, sys.Uid, os.Geteuid())
	}
	b, err := io.ReadAll(io.LimitReader(f, maxPrivate+1))
	if err == nil && len(b) > maxPrivate {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxPrivate)
	}
	return b, err
}

// CreatePrivate makes a file (0600) that is either not there or whole, also after a power cut. One that exists already
// is left alone: the error is os.ErrExist.
func CreatePrivate(path string, content []byte) error {
	return place(path, content, os.Link)
}

// ReplacePrivate is CreatePrivate for a file that may exist: readers see the old content or the new.
func ReplacePrivate(path string, content []byte) error {
	return place(path, content, os.Rename)
}

func place(path string, content []byte, move func(from, to string) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := move(tmp.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
