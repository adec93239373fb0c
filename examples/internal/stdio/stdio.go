// Package stdio is the least MCP server over standard input and output that an example needs. It keeps every byte of a
// request as it came: an SDK would read 9007199254740993 as a float and write ...992.
package stdio

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// maxLine bounds one message. Bytes.
const maxLine = 16 << 20

// Call is a tools/call.
type Call struct {
	Name      string
	Arguments json.RawMessage // the bytes as they came; `{}` where there were none
	Meta      json.RawMessage // params._meta, `{}` where there was none
}

// Server is what an example brings.
type Server struct {
	// Name and Version stand in serverInfo.
	Name, Version string
	// Tools returns the elements of tools/list, each a JSON object.
	Tools func() []json.RawMessage
	// Call runs a tool and returns the result object of tools/call.
	Call func(Call) (json.RawMessage, error)
	// Record gets every line that comes in, and every line that goes out; nil: nobody.
	Record io.Writer

	mu  sync.Mutex
	out io.Writer
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string          `json:"protocolVersion"`
		Name            string          `json:"name"`
		Arguments       json.RawMessage `json:"arguments"`
		Meta            json.RawMessage `json:"_meta"`
	} `json:"params"`
}

// ErrNoTool is for Call, when there is no tool of that name.
var ErrNoTool = errors.New("no such tool")

// Serve answers requests until the input ends. Calls run side by side; Serve waits for them.
func (s *Server) Serve(in io.Reader, out io.Writer) error {
	s.out = out
	var calls sync.WaitGroup
	defer calls.Wait()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		s.record("> ", lines.Bytes())
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			fmt.Fprintln(os.Stderr, "not JSON-RPC:", err)
			continue
		}
		if m.ID == nil {
			continue // a notification, or an answer to nothing that was asked
		}
		if m.Method == "tools/call" {
			calls.Go(func() { s.call(m) })
			continue
		}
		s.answer(m)
	}
	return lines.Err()
}

func (s *Server) answer(m message) {
	switch m.Method {
	case "initialize":
		s.say(m.ID, "result", fmt.Appendf(nil, `{"protocolVersion":%s,"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":%s,"version":%s}}`,
			Quote(m.Params.ProtocolVersion), Quote(s.Name), Quote(s.Version)))
	case "ping":
		s.say(m.ID, "result", []byte("{}"))
	case "tools/list":
		list := []byte(`{"tools":[`)
		for i, tool := range s.Tools() {
			if i > 0 {
				list = append(list, ',')
			}
			list = append(list, tool...)
		}
		s.say(m.ID, "result", append(list, "]}"...))
	default:
		s.say(m.ID, "error", fmt.Appendf(nil, `{"code":-32601,"message":%s}`, Quote("no method "+m.Method)))
	}
}

func (s *Server) call(m message) {
	c := Call{Name: m.Params.Name, Arguments: m.Params.Arguments, Meta: m.Params.Meta}
	if c.Arguments == nil {
		c.Arguments = json.RawMessage("{}")
	}
	if c.Meta == nil {
		c.Meta = json.RawMessage("{}")
	}
	result, err := s.Call(c)
	switch {
	case errors.Is(err, ErrNoTool):
		s.say(m.ID, "error", fmt.Appendf(nil, `{"code":-32602,"message":%s}`, Quote("no tool "+c.Name)))
	case err != nil:
		s.say(m.ID, "result", Text(err.Error(), true))
	default:
		s.say(m.ID, "result", result)
	}
}

// Notify sends a notification without parameters.
func (s *Server) Notify(method string) {
	s.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%s}`, Quote(method)))
}

func (s *Server) say(id json.RawMessage, member string, value []byte) {
	s.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,%q:%s}`, id, member, value))
}

func (s *Server) write(line []byte) {
	s.record("< ", line)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.out.Write(append(line, '\n')); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func (s *Server) record(way string, line []byte) {
	if s.Record == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.Record.Write(append(append([]byte(way), line...), '\n')); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// Text is a result of one text.
func Text(text string, isError bool) json.RawMessage {
	return fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}],"isError":%t}`, Quote(text), isError)
}

// Quote is s as a JSON string.
func Quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // a string can always be written
		return []byte(`""`)
	}
	return b
}

// OpenRecord opens a file for Server.Record; "" is none.
func OpenRecord(path string) (io.Writer, error) {
	if path == "" {
		return nil, nil
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}
