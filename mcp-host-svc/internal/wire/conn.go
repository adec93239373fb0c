// Package wire speaks JSON-RPC over a server's standard input and output, one
// message a line, as MCP's stdio transport does.
//
// It exists because the record must hold what the server said: requests are
// assembled around the caller's bytes, and results are handed on as the bytes
// that came. It survives what real servers do: banners and other noise on
// standard output, a byte order mark, blank lines, messages spread over lines,
// several messages on one line, answers to nobody, answers twice, answers that
// are too long, and never answering at all.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/writ-dev/writ/mcp-host-svc/internal/jsonview"
)

// firstID is where the ids of our own requests begin. The SDK's session, which
// shares the connection for the handshake and for what a server asks of its
// client, counts from 1, so the two never meet. It stays below 2^31 for servers
// that keep ids in 32 bits.
const firstID = 1_000_000_000

// Options of a connection. The zero value works.
type Options struct {
	// MaxLine is the longest line that is taken, in bytes (max_line_bytes, 16 MiB).
	MaxLine int
	// MaxReverse is how many requests of the server may be open at a time
	// (max_server_requests, 64); more are answered with an error.
	MaxReverse int
	// OnNotification gets each notification of the server except progress. It
	// is called by the reader and must not block.
	OnNotification func(method string, params []byte)
	// OnNoise gets each piece of standard output that is no message. It is
	// called by the reader and must not block.
	OnNoise func(text []byte)
}

// Stats counts what came that should not have.
type Stats struct {
	NoiseLines    int64 // lines, or parts of lines, that are no message
	Strays        int64 // answers to no open request
	OversizeLines int64
	LastNoise     string // at most 200 bytes
}

// Conn is one connection. Its two goroutines end when Close is called or when
// the streams end; Close waits for them.
type Conn struct {
	opt    Options
	r      io.ReadCloser
	w      *writer
	stop   chan struct{} // closed by Close
	done   chan struct{} // closed when the reader has ended
	once   sync.Once
	wg     sync.WaitGroup
	nextID atomic.Int64

	mu      sync.Mutex
	pending map[int64]*pending
	ended   bool
	stats   Stats
	sdk     *sdkConn
}

type pending struct {
	answer   chan answer // buffered, one
	progress func(params []byte)
}

type answer struct {
	result []byte
	err    error
}

// New starts a connection over the server's standard output r and standard input w.
func New(r io.ReadCloser, w io.WriteCloser, opt Options) *Conn {
	if opt.MaxLine <= 0 {
		opt.MaxLine = 16 << 20
	}
	if opt.MaxReverse <= 0 {
		opt.MaxReverse = 64
	}
	stop := make(chan struct{})
	c := &Conn{
		opt: opt, r: r, w: newWriter(w, 64, stop), stop: stop,
		done: make(chan struct{}), pending: map[int64]*pending{},
	}
	c.nextID.Store(firstID)
	c.wg.Add(2)
	go func() { defer c.wg.Done(); c.w.run() }()
	go func() { defer c.wg.Done(); c.read() }()
	return c
}

// Done is closed when the server's standard output has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Stats returns what was counted so far.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// CloseInput closes the server's standard input, which is how MCP asks a server
// to end.
func (c *Conn) CloseInput() { _ = c.w.w.Close() }

// Close ends the connection and waits for its goroutines. Open requests fail
// with ClosedError.
func (c *Conn) Close() {
	c.once.Do(func() {
		close(c.stop)
		_ = c.w.w.Close()
		_ = c.r.Close()
	})
	c.wg.Wait()
}

// Request is one request to the server.
type Request struct {
	Method string
	// Params returns the raw parameters; token is the request's id, which serves
	// as its progress token too.
	Params func(token int64) []byte
	// Progress gets the parameters of each progress notification for the token.
	// It is called by the reader and must not block. May be nil.
	Progress func(params []byte)
}

// Do sends a request and returns the raw result. The error is one of the types
// of this package. When ctx ends after the request was sent, the server is told
// with notifications/cancelled.
func (c *Conn) Do(ctx context.Context, req Request) ([]byte, error) {
	id := c.nextID.Add(1)
	p := &pending{answer: make(chan answer, 1), progress: req.Progress}
	if !c.register(id, p) {
		return nil, &ClosedError{}
	}
	defer c.forget(id)
	out, err := c.w.enqueue(ctx, requestLine(id, req.Method, req.Params(id)))
	if err != nil {
		return nil, err
	}
	select {
	case a := <-p.answer:
		return c.settle(a, out)
	case <-ctx.Done():
	}
	select { // an answer that is here already counts more than the end of the context
	case a := <-p.answer:
		return c.settle(a, out)
	default:
	}
	sent := !out.withdraw()
	if sent {
		c.w.offer(cancelLine(id))
	}
	return nil, &InterruptedError{Sent: sent, Cause: context.Cause(ctx)}
}

func (c *Conn) settle(a answer, out *outgoing) ([]byte, error) {
	if closed, ok := a.err.(*ClosedError); ok {
		closed.Sent = !out.withdraw()
		return nil, closed
	}
	return a.result, a.err
}

// Notify sends a notification.
func (c *Conn) Notify(ctx context.Context, method string, params []byte) error {
	_, err := c.w.enqueue(ctx, requestLine(0, method, params))
	return err
}

func (c *Conn) register(id int64, p *pending) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.pending[id] = p
	return true
}

func (c *Conn) forget(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

func (c *Conn) take(id int64) *pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending[id]
	delete(c.pending, id)
	return p
}

// requestLine assembles a request around raw parameters; id 0 makes it a notification.
func requestLine(id int64, method string, params []byte) []byte {
	b := make([]byte, 0, len(params)+len(method)+64)
	b = append(b, `{"jsonrpc":"2.0",`...)
	if id != 0 {
		b = append(b, `"id":`...)
		b = strconv.AppendInt(b, id, 10)
		b = append(b, ',')
	}
	b = append(b, `"method":`...)
	b = strconv.AppendQuote(b, method)
	if len(params) > 0 {
		b = append(b, `,"params":`...)
		b = append(b, oneLine(params)...)
	}
	return append(b, '}', '\n')
}

// oneLine makes a JSON text fit on a line. A raw line feed or carriage return can
// only be blank space between tokens there, so a space says the same; everything
// else stays byte for byte.
func oneLine(b []byte) []byte {
	if bytes.IndexByte(b, '\n') < 0 && bytes.IndexByte(b, '\r') < 0 {
		return b
	}
	out := bytes.ReplaceAll(b, []byte("\n"), []byte(" "))
	return bytes.ReplaceAll(out, []byte("\r"), []byte(" "))
}

func cancelLine(id int64) []byte {
	p := append([]byte(`{"requestId":`), strconv.FormatInt(id, 10)...)
	return requestLine(0, "notifications/cancelled", append(p, `,"reason":"the caller gave up"}`...))
}

func rpcError(raw []byte) *RPCError {
	e := &RPCError{Message: "(no message)"}
	if code, ok := jsonview.Get(raw, "code"); ok {
		var n json.Number
		if json.Unmarshal(code, &n) == nil {
			e.Code, _ = n.Int64()
		}
	}
	if m, ok := jsonview.GetString(raw, "message"); ok {
		e.Message = m
	}
	e.Data, _ = jsonview.Get(raw, "data")
	return e
}
