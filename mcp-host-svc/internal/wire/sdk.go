package wire

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// SDKTransport lets one session of the MCP SDK share the connection. The SDK does
// the handshake and answers what the server asks of its client; it sees only
// messages that it can read, and nothing of the listings and results that are
// kept as bytes.
func (c *Conn) SDKTransport() mcp.Transport { return sdkTransport{c} }

type sdkTransport struct{ c *Conn }

func (t sdkTransport) Connect(context.Context) (mcp.Connection, error) {
	s := &sdkConn{c: t.c, in: make(chan jsonrpc.Message, 64), closed: make(chan struct{})}
	t.c.mu.Lock()
	t.c.sdk = s
	t.c.mu.Unlock()
	return s, nil
}

type sdkConn struct {
	c      *Conn
	in     chan jsonrpc.Message
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	open int // requests of the server that the SDK has not answered
}

func (s *sdkConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-s.in:
		return m, nil
	case <-s.closed:
		return nil, io.EOF
	case <-s.c.done:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *sdkConn) Write(ctx context.Context, m jsonrpc.Message) error {
	b, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	if _, answer := m.(*jsonrpc.Response); answer {
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
	}
	out, err := s.c.w.enqueue(ctx, append(b, '\n'))
	if err != nil {
		return err
	}
	select {
	case <-out.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.c.stop:
		return io.ErrClosedPipe
	}
}

// Close ends the SDK's part only: the process and the connection have another owner.
func (s *sdkConn) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

func (s *sdkConn) SessionID() string { return "" }

// toSDK hands a message to the SDK's session and reports whether there is one.
// requestID is set when the server asks something: such a request is always
// answered, by us when nobody else is there to do it.
func (c *Conn) toSDK(m []byte, tagged bool, requestID []byte) bool {
	c.mu.Lock()
	s := c.sdk
	c.mu.Unlock()
	if s == nil {
		c.refuse(requestID, jsonrpc.CodeMethodNotFound, "this client takes no requests from a server here")
		return false
	}
	if !tagged {
		m = append([]byte(`{"jsonrpc":"2.0",`), m[1:]...)
	}
	msg, err := jsonrpc.DecodeMessage(m)
	if err != nil {
		c.noise(m)
		return false
	}
	if resp, ok := msg.(*jsonrpc.Response); ok {
		resp.ID = numericID(resp.ID)
	}
	if requestID != nil && !s.admit(c.opt.MaxReverse) {
		c.refuse(requestID, -32000, "too many requests of this server are open at this client")
		return true
	}
	select {
	case s.in <- msg:
		return true
	case <-s.closed:
		return false
	case <-c.stop:
		return false
	}
}

// numericID undoes what some servers do to ids: the SDK's are numbers, and come
// back as text.
func numericID(id jsonrpc.ID) jsonrpc.ID {
	text, ok := id.Raw().(string)
	if !ok {
		return id
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return id
	}
	number, err := jsonrpc.MakeID(float64(n))
	if err != nil {
		return id
	}
	return number
}

func (s *sdkConn) admit(limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= limit {
		return false
	}
	s.open++
	return true
}

func (c *Conn) refuse(requestID []byte, code int, message string) {
	if requestID == nil {
		return
	}
	text, _ := json.Marshal(message)
	code64, _ := json.Marshal(code)
	b := append([]byte(`{"jsonrpc":"2.0","id":`), requestID...)
	b = append(append(append(b, `,"error":{"code":`...), code64...), `,"message":`...)
	c.w.offer(append(append(b, text...), '}', '}', '\n'))
}
