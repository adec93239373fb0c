package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// edgeBytes is how much of each end of an oversize line is kept: enough to find
// the id of the message in it.
const edgeBytes = 1024

// line is one line of a server's standard output, without its line end.
type line struct {
	data []byte // the whole line; nil when it was longer than the cap
	size int64  // its length in bytes
	head []byte // of an oversize line: its first edgeBytes
	tail []byte // of an oversize line: its last edgeBytes
}

func (l line) oversize() bool { return l.data == nil && l.size > 0 }

// lineReader cuts a stream into lines. A line longer than max is read to its end
// and thrown away, so that the next line is found where it begins: one large
// answer costs that answer, not the connection.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, max int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), max: max}
}

func (l *lineReader) next() (line, error) {
	var out line
	for {
		chunk, err := l.r.ReadSlice('\n')
		out.take(chunk, l.max)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if out.data != nil {
			out.data = bytes.TrimRight(out.data, "\r\n")
		}
		if err != nil && out.size > 0 {
			return out, nil // the last line had no line end; the error comes back with the next call
		}
		return out, err
	}
}

func (l *line) take(chunk []byte, max int) {
	before := l.size
	l.size += int64(len(chunk))
	if l.size <= int64(max)+1 { // the line end does not count
		if before == 0 || l.data != nil {
			l.data = append(l.data, chunk...)
		}
		return
	}
	if l.head == nil {
		l.head = append([]byte(nil), first(append(l.data, first(chunk, edgeBytes)...), edgeBytes)...)
		l.tail = append([]byte(nil), last(l.data, edgeBytes)...)
		l.data = nil
	}
	l.tail = append([]byte(nil), last(append(l.tail, last(chunk, edgeBytes)...), edgeBytes)...)
}

func first(b []byte, n int) []byte { return b[:min(n, len(b))] }
func last(b []byte, n int) []byte  { return b[max(0, len(b)-n):] }

// partial gathers a message that a server spread over several lines, which the
// protocol forbids and which happens. It watches strings and brackets only, byte
// by byte, so that a long message costs no more than its length.
type partial struct {
	buf      []byte
	depth    int
	inString bool
	escaped  bool
}

func (p *partial) empty() bool { return len(p.buf) == 0 }

// add takes one more line and reports whether the brackets are closed now.
func (p *partial) add(b []byte) (complete bool) {
	if !p.empty() {
		p.buf = append(p.buf, '\n')
	}
	p.buf = append(p.buf, b...)
	for _, c := range b {
		switch {
		case p.escaped:
			p.escaped = false
		case p.inString && c == '\\':
			p.escaped = true
		case c == '"':
			p.inString = !p.inString
		case p.inString:
		case c == '{' || c == '[':
			p.depth++
		case c == '}' || c == ']':
			p.depth--
		}
	}
	return p.depth <= 0
}

func (p *partial) reset() { *p = partial{} }
