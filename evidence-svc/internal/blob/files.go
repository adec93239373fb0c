// Package blob is the file driver: immutable bytes, each in a file that is named by its digest.
//
// A blob is written to a temporary file, hashed on the way, synced, and linked to its name without overwriting; then
// the folder is synced. When Commit returns, the bytes survive a power cut.
package blob

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/writ-dev/writ/internal/ids"
)

// Errors of a blob itself.
var (
	ErrDigest  = errors.New("the bytes are not those of the expected digest")
	ErrCorrupt = errors.New("the stored bytes changed")
)

// Files keeps blobs below one folder, in a folder of its own for each namespace.
type Files struct{ root string }

// Open makes the folder, and removes what an interrupted write has left.
func Open(root string) (*Files, error) {
	f := &Files{root: root}
	if err := os.MkdirAll(f.temp(), 0o700); err != nil {
		return nil, err
	}
	left, err := os.ReadDir(f.temp())
	if err != nil {
		return nil, err
	}
	for _, e := range left {
		if err := os.Remove(filepath.Join(f.temp(), e.Name())); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Root is the folder.
func (f *Files) Root() string { return f.root }

func (f *Files) temp() string { return filepath.Join(f.root, "tmp") }

func (f *Files) path(namespace int64, digest string) (string, error) {
	if b, err := hex.DecodeString(digest); err != nil || len(b) != sha256.Size {
		return "", fmt.Errorf("%q is no SHA-256", digest)
	}
	return filepath.Join(f.root, strconv.FormatInt(namespace, 10), digest[:2], digest), nil
}

// Writer takes the bytes of one blob. Exactly one of Commit and Abort ends it.
type Writer struct {
	files     *Files
	namespace int64
	file      *os.File
	hash      hash.Hash
	size      int64
}

// Create begins a blob.
func (f *Files) Create(namespace int64) (*Writer, error) {
	name := filepath.Join(f.temp(), ids.New("w_", rand.Reader))
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return nil, err
	}
	return &Writer{files: f, namespace: namespace, file: file, hash: sha256.New()}, nil
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	w.hash.Write(p[:n])
	w.size += int64(n)
	return n, err
}

// Size is the number of bytes so far.
func (w *Writer) Size() int64 { return w.size }

// Abort removes what was written.
func (w *Writer) Abort() error { return errors.Join(w.file.Close(), os.Remove(w.file.Name())) }

// Commit makes the blob durable and returns its digest. expected may be empty; bytes of another digest fail with
// ErrDigest and leave nothing.
func (w *Writer) Commit(expected string) (digest string, err error) {
	digest = hex.EncodeToString(w.hash.Sum(nil))
	if expected != "" && expected != digest {
		return digest, errors.Join(ErrDigest, w.Abort())
	}
	path, err := w.files.path(w.namespace, digest)
	if err != nil {
		return "", errors.Join(err, w.Abort())
	}
	if err := errors.Join(w.file.Sync(), w.file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(w.file.Name()))
	}
	err = w.files.publish(w.file.Name(), path, w.namespace, digest)
	return digest, errors.Join(err, removeIfThere(w.file.Name()))
}

// publish gives the synced file its name. Where the blob exists it stays, unless its bytes changed: then the good ones
// take their place, which is what the name says.
func (f *Files) publish(temp, path string, namespace int64, digest string) error {
	if err := f.makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	err := os.Link(temp, path)
	if errors.Is(err, os.ErrExist) {
		if f.Verify(namespace, digest) == nil {
			return nil
		}
		err = os.Rename(temp, path)
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// makeFolder makes a folder below the root durably: each new name is synced in its parent.
func (f *Files) makeFolder(dir string) error {
	if _, err := os.Stat(dir); err == nil || dir == f.root {
		return nil
	}
	if err := f.makeFolder(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// Open returns a blob's file. Its bytes are not yet checked: see Copy.
func (f *Files) Open(namespace int64, digest string) (*os.File, error) {
	path, err := f.path(namespace, digest)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.Join(ErrCorrupt, err)
	}
	return file, err
}

// Verify reads a blob through and fails with ErrCorrupt if its bytes changed.
func (f *Files) Verify(namespace int64, digest string) error {
	return f.Copy(namespace, digest, -1, 0, 256<<10, func([]byte) error { return nil })
}

// Copy gives emit the bytes from offset on in pieces of at most chunk bytes, and reads all of the blob to check it. The
// last piece is emitted only when digest and size (-1: any) are right; else the error is ErrCorrupt. A piece is valid
// until emit returns.
func (f *Files) Copy(namespace int64, digest string, size, offset int64, chunk int, emit func([]byte) error) error {
	file, err := f.Open(namespace, digest)
	if err != nil {
		return err
	}
	defer file.Close()
	var (
		sum        = sha256.New()
		now, held  = make([]byte, chunk), make([]byte, 0, chunk)
		at         int64
		n          int
		readFailed error
	)
	for readFailed == nil {
		n, readFailed = io.ReadFull(file, now)
		sum.Write(now[:n])
		piece := now[min(int64(n), max(0, offset-at)):n]
		at += int64(n)
		if len(piece) == 0 {
			continue
		}
		if len(held) > 0 {
			if err := emit(held); err != nil {
				return err
			}
		}
		held = append(held[:0], piece...)
	}
	if readFailed != io.EOF && readFailed != io.ErrUnexpectedEOF {
		return errors.Join(ErrCorrupt, readFailed)
	}
	if hex.EncodeToString(sum.Sum(nil)) != digest || size >= 0 && at != size {
		return ErrCorrupt
	}
	if len(held) == 0 {
		return nil
	}
	return emit(held)
}

func removeIfThere(name string) error {
	if err := os.Remove(name); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
