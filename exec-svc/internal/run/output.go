package run

import (
	"errors"
	"io"
	"os"
	"sync"
)

// Output reads a command's two streams to their end, keeps the first bytes of
// each and counts the rest, so that a command never blocks on a full pipe and
// memory stays bounded.
type Output struct {
	limit   int64
	emit    func(Stream, []byte)
	mu      sync.Mutex
	kept    [2][]byte
	dropped [2]int64
	reading sync.WaitGroup
	ends    []*os.File // the readers' ends
}

// NewOutput keeps at most limit bytes per stream and hands the kept pieces to emit.
func NewOutput(limit int64, emit func(Stream, []byte)) *Output {
	return &Output{limit: limit, emit: emit}
}

// Pipe makes the pipe for a stream and reads it. The caller gives the returned
// end to the command and closes its own copy.
func (o *Output) Pipe(s Stream) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o.ends = append(o.ends, r)
	o.reading.Add(1)
	go func() {
		defer o.reading.Done()
		o.read(s, r)
	}()
	return w, nil
}

func (o *Output) read(s Stream, r io.Reader) {
	buf := make([]byte, maxChunk)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			o.keep(s, buf[:n])
		}
		if err != nil {
			return // EOF, or Close
		}
	}
}

func (o *Output) keep(s Stream, b []byte) {
	o.mu.Lock()
	i := int(s) - 1
	room := max(o.limit-int64(len(o.kept[i])), 0)
	cut := min(int64(len(b)), room)
	o.kept[i] = append(o.kept[i], b[:cut]...)
	o.dropped[i] += int64(len(b)) - cut
	o.mu.Unlock()
	if cut > 0 {
		o.emit(s, b[:cut])
	}
}

// Wait waits until both streams have ended, which they do with the last
// process that holds them.
func (o *Output) Wait() { o.reading.Wait() }

// Close gives the pipes back; readers that are still reading end.
func (o *Output) Close() error {
	var errs []error
	for _, r := range o.ends {
		errs = append(errs, r.Close())
	}
	o.reading.Wait()
	return errors.Join(errs...)
}

// Kept returns what was kept of a stream and how many bytes were dropped.
func (o *Output) Kept(s Stream) ([]byte, int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]byte(nil), o.kept[s-1]...), o.dropped[s-1]
}
