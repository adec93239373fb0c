package wire

import "sync"

// Tail keeps the last bytes that were written to it and counts them all. It is
// what a server's standard error is drained into: a server whose standard error
// nobody reads stops for good when the pipe is full.
type Tail struct {
	mu    sync.Mutex
	buf   []byte
	size  int
	total int64
}

// NewTail returns a Tail that keeps the last size bytes.
func NewTail(size int) *Tail { return &Tail{size: size} }

// Write never fails and never blocks on anything but the lock.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(p))
	t.buf = append(t.buf, last(p, t.size)...)
	if len(t.buf) > 2*t.size {
		t.buf = append([]byte(nil), last(t.buf, t.size)...)
	}
	return len(p), nil
}

// Bytes returns a copy of what is kept.
func (t *Tail) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]byte(nil), last(t.buf, t.size)...)
}

// Total returns how many bytes were ever written.
func (t *Tail) Total() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}
