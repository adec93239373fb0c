// Package mcpserver is `writ mcp`: an MCP server over standard input and output, through which any MCP client uses the
// tools of a turn.
//
// It owns its frames, since the go-sdk's typed results lose bytes (integers over 2^53, key order, unknown fields): a
// definition goes out as its server wrote it but for the name, arguments go on as the client wrote them, and a result
// comes back as the tool returned it.
package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/rawjson"
)

// Bounds of one client.
const (
	lineMaxBytes    = 4 << 20 // one message
	runningCallsMax = 64      // at a time
	defaultCardWait = 20 * time.Second
	endPatience     = 5 * time.Second
)

// Options of Serve.
type Options struct {
	In  io.Reader
	Out io.Writer
	Log *slog.Logger
	// Version is the release that clients are told.
	Version string

	Calls gatewayv1.CallServiceClient
	Turns registryv1.TurnServiceClient

	// Conversation, Agent, Workspace and Mode are what turns are opened with; empty and UNSPECIFIED are the server's defaults.
	Conversation string
	Agent        string
	Workspace    string
	Mode         commonv1.Mode
	// CardWait is how long a call waits for a person before it answers that it is pending. 0: 20 s.
	CardWait time.Duration
}

// server serves one client.
type server struct {
	Options
	turn *turn

	outMu sync.Mutex // guards Out

	mu      sync.Mutex                         // guards running and modern
	running map[string]context.CancelCauseFunc // by the request's id, raw
	modern  bool                               // the client speaks 2026-07-28
	calls   sync.WaitGroup
}

// errCancelled ends a request that its client cancelled. The end of the client itself cancels no call.
var errCancelled = errors.New("the client cancelled its request")

// Serve serves one client until In ends or ctx does. Running calls are left running: they are found again by their name.
func Serve(ctx context.Context, o Options) error {
	if o.CardWait == 0 {
		o.CardWait = defaultCardWait
	}
	s := &server{Options: o, running: map[string]context.CancelCauseFunc{}}
	s.turn = &turn{server: s, pending: map[string]string{}}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		s.calls.Wait()
		s.turn.end()
	}()
	lines := make(chan line)
	// The reader ends with In; a read of standard input can't be cancelled, so nobody waits for it once ctx ended.
	go read(ctx, o.In, lines)
	for {
		select {
		case <-ctx.Done():
			return nil
		case l, ok := <-lines:
			switch {
			case !ok:
				return nil
			case l.err != nil:
				return l.err
			case l.long:
				s.send(errorFrame([]byte("null"), codeInvalidRequest, fmt.Sprintf("a message may have %d bytes", lineMaxBytes)))
			default:
				s.receive(ctx, l.bytes)
			}
		}
	}
}

type line struct {
	bytes []byte
	long  bool
	err   error
}

// read splits In into lines of bounded length. A longer one is skipped and told.
func read(ctx context.Context, in io.Reader, out chan<- line) {
	defer close(out)
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		var l line
		for {
			part, err := r.ReadSlice('\n')
			if l.long = l.long || len(l.bytes)+len(part) > lineMaxBytes; l.long {
				l.bytes = nil
			} else {
				l.bytes = append(l.bytes, part...)
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if err != nil && !errors.Is(err, io.EOF) {
				l.err = err
			}
			if err != nil && len(bytes.TrimSpace(l.bytes)) == 0 && l.err == nil && !l.long {
				return
			}
			break
		}
		if l.bytes = bytes.TrimSpace(l.bytes); len(l.bytes) == 0 && !l.long && l.err == nil {
			continue
		}
		select {
		case out <- l:
		case <-ctx.Done():
			return
		}
		if l.err != nil {
			return
		}
	}
}

// send writes one frame as one line. A client that is gone is noticed by the end of In.
//
// A line break in the frame can only be white space between tokens: strings have none. It becomes a space, or a tool
// could hide a whole frame, on a line of its own, in the white space of its result.
func (s *server) send(frame []byte) {
	for i, c := range frame {
		if c == '\n' || c == '\r' {
			frame[i] = ' '
		}
	}
	s.outMu.Lock()
	defer s.outMu.Unlock()
	if _, err := s.Out.Write(append(frame, '\n')); err != nil {
		s.Log.Warn("the client can't be written to", "error", err)
	}
}

// receive takes one message, or the array of them that 2025-03-26 allowed.
func (s *server) receive(ctx context.Context, b []byte) {
	if err := rawjson.Check(b, rawjson.Limits{MaxBytes: lineMaxBytes}); err != nil {
		s.send(errorFrame([]byte("null"), codeParse, err.Error()))
		return
	}
	if b[0] == '[' {
		for m, err := range rawjson.Elements(b) {
			if err != nil {
				return
			}
			s.message(ctx, m)
		}
		return
	}
	s.message(ctx, b)
}

// message answers what can be answered at once and starts the rest.
func (s *server) message(ctx context.Context, b []byte) {
	m, err := parse(b)
	if err != nil {
		s.send(errorFrame(m.idOrNull(), codeInvalidRequest, err.Error()))
		return
	}
	if m.id == nil {
		s.notification(m)
		return
	}
	switch m.method {
	case "":
		return // an answer to a request that we never made
	case "initialize":
		s.setModern(false)
		s.send(resultFrame(m.id, s.initialize(m.params)))
	case "server/discover":
		s.setModern(true)
		s.send(resultFrame(m.id, s.discovery()))
	case "ping":
		s.send(resultFrame(m.id, []byte(`{}`)))
	case "tools/list", "tools/call":
		if member(member(m.params, "_meta"), metaVersion) != nil {
			s.setModern(true) // the newest revision has no handshake: each request says it
		}
		s.start(ctx, m)
	default:
		s.send(errorFrame(m.id, codeMethodNotFound, "there is no method "+m.method))
	}
}

func (s *server) setModern(modern bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.modern = modern
}

// start answers a request in a goroutine of its own, which Serve waits for.
func (s *server) start(ctx context.Context, m message) {
	ctx, cancel := context.WithCancelCause(ctx)
	key := string(m.id)
	s.mu.Lock()
	if _, twice := s.running[key]; twice || len(s.running) >= runningCallsMax {
		s.mu.Unlock()
		cancel(nil)
		s.send(errorFrame(m.id, codeInvalidRequest, fmt.Sprintf("the id is in use, or more than %d requests are running", runningCallsMax)))
		return
	}
	s.running[key] = cancel
	s.mu.Unlock()
	s.calls.Go(func() {
		frame := s.answer(ctx, m)
		cancelled := ctx.Err() != nil
		cancel(nil)
		s.mu.Lock()
		delete(s.running, key)
		s.mu.Unlock()
		if !cancelled { // a cancelled request gets no answer
			s.send(frame)
		}
	})
}

func (s *server) answer(ctx context.Context, m message) []byte {
	if m.method == "tools/list" {
		return s.listTools(ctx, m)
	}
	return s.callTool(ctx, m)
}

func (s *server) notification(m message) {
	if m.method != "notifications/cancelled" {
		return
	}
	id, ok, err := rawjson.Get(m.params, "requestId")
	if err != nil || !ok {
		return
	}
	s.mu.Lock()
	cancel := s.running[string(id)]
	s.mu.Unlock()
	if cancel != nil {
		cancel(errCancelled)
	}
}
