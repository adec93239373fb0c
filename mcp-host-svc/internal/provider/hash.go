package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"sync"
	"syscall"
)

// identity is what changes when the content of a file does, as far as the kernel
// tells; ctime can't be set back by who writes the file.
type identity struct {
	path         string
	dev, ino     uint64
	size         int64
	mtime, ctime syscall.Timespec
}

type hashCache struct {
	mu   sync.Mutex
	sums map[string]struct {
		id  identity
		sum string
	}
}

// file returns the SHA-256 of a file. A program like node has 100 MB, which would
// be read again at every start otherwise.
func (c *hashCache) file(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	id := identity{path: path, size: info.Size()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		id.dev, id.ino, id.mtime, id.ctime = uint64(st.Dev), st.Ino, st.Mtim, st.Ctim
	}
	c.mu.Lock()
	known, ok := c.sums[path]
	c.mu.Unlock()
	if ok && known.id == id {
		return known.sum, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	known.id, known.sum = id, hex.EncodeToString(h.Sum(nil))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sums == nil {
		c.sums = map[string]struct {
			id  identity
			sum string
		}{}
	}
	c.sums[path] = known
	return known.sum, nil
}
