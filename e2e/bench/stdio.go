package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// What is called, with the smallest arguments that still show whether they came through.
const (
	toolName  = "echo"
	arguments = `{"text":"hello"}`
)

// stdio is the smallest JSON-RPC client that many callers can share: one server, its pipes, answers found by id.
type stdio struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	next atomic.Int64

	mu      sync.Mutex // guards in's order and waiting
	waiting map[int64]chan answer
	gone    error
	reader  sync.WaitGroup
}

type answer struct {
	result json.RawMessage
	err    error
}

// startStdio starts an MCP server and makes the handshake.
func startStdio(ctx context.Context, program string) (*stdio, error) {
	s := &stdio{cmd: exec.Command(program), waiting: map[int64]chan answer{}}
	s.cmd.Stderr = os.Stderr
	in, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.in = in
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.reader.Go(func() { s.read(bufio.NewReaderSize(out, 64<<10)) })
	_, err = s.request(ctx, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`)
	if err == nil {
		err = s.write([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"))
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stdio) write(line []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.in.Write(line)
	return err
}

func (s *stdio) read(r *bufio.Reader) {
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			s.fail(fmt.Errorf("the server ended: %w", err))
			return
		}
		var m struct {
			ID     *int64          `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			s.fail(fmt.Errorf("the server sent %q: %w", line, err))
			return
		}
		if m.ID == nil {
			continue
		}
		a := answer{result: m.Result}
		if m.Error != nil {
			a.err = fmt.Errorf("the server answered the error %s", m.Error)
		}
		s.mu.Lock()
		ch := s.waiting[*m.ID]
		delete(s.waiting, *m.ID)
		s.mu.Unlock()
		if ch != nil {
			ch <- a
		}
	}
}

func (s *stdio) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = err
	for id, ch := range s.waiting {
		delete(s.waiting, id)
		ch <- answer{err: err}
	}
}

func (s *stdio) request(ctx context.Context, method, params string) (json.RawMessage, error) {
	id := s.next.Add(1)
	line := make([]byte, 0, 128+len(params))
	line = append(line, `{"jsonrpc":"2.0","id":`...)
	line = strconv.AppendInt(line, id, 10)
	line = append(line, `,"method":"`...)
	line = append(line, method...)
	line = append(line, `","params":`...)
	line = append(line, params...)
	line = append(line, "}\n"...)
	ch := make(chan answer, 1)
	s.mu.Lock()
	if s.gone != nil {
		s.mu.Unlock()
		return nil, s.gone
	}
	s.waiting[id] = ch
	_, err := s.in.Write(line)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case a := <-ch:
		return a.result, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tool calls a tool and returns the result's bytes.
func (s *stdio) tool(ctx context.Context, name string, args []byte) ([]byte, error) {
	params := make([]byte, 0, len(args)+64)
	params = append(params, `{"name":`...)
	params = strconv.AppendQuote(params, name)
	params = append(params, `,"arguments":`...)
	params = append(params, args...)
	params = append(params, '}')
	return s.request(ctx, "tools/call", string(params))
}

// close ends the server: its input is closed, and it is killed when it does not end by itself.
func (s *stdio) close() error {
	_ = s.in.Close()
	kill := time.AfterFunc(5*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer kill.Stop()
	s.reader.Wait()
	return s.cmd.Wait()
}

func openDirect(ctx context.Context, echo string) ([]target, error) {
	s, err := startStdio(ctx, echo)
	if err != nil {
		return nil, err
	}
	return []target{{name: "direct", close: s.close, call: func(ctx context.Context) error {
		result, err := s.tool(ctx, toolName, []byte(arguments))
		return check(result, err)
	}}}, nil
}

// check fails where the answer is not an echo of what was sent.
func check(result []byte, err error) error {
	if err == nil && !bytes.Contains(result, []byte("hello")) {
		err = fmt.Errorf("the answer is no echo: %s", result)
	}
	return err
}
