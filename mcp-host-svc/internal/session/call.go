package session

import (
	"context"
	"strconv"

	"github.com/writ-dev/writ/internal/rawjson"
	"github.com/writ-dev/writ/mcp-host-svc/internal/jsonview"
	"github.com/writ-dev/writ/mcp-host-svc/internal/wire"
)

// maxRounds bounds how often a modern server may ask back in one call.
const maxRounds = 10

// Call is one tools/call.
type Call struct {
	Tool        string
	Arguments   []byte // raw JSON, sent as it is; empty: the member is left out
	TraceParent string // W3C; empty: not sent
	TraceState  string
	// Progress gets the raw parameters of each progress notification. It is
	// called by the reader of the connection and must not block. May be nil.
	Progress func(params []byte)
}

// Result is the server's answer to a call.
type Result struct {
	Raw     []byte // the result as the server wrote it
	IsError bool   // the tool says that it failed
}

// Call calls a tool. Errors are those of package wire, or an InputRequiredError.
func (s *Session) Call(ctx context.Context, call Call) (Result, error) {
	var extra []byte
	for range maxRounds {
		raw, err := s.conn.Do(ctx, wire.Request{
			Method:   "tools/call",
			Params:   func(token int64) []byte { return s.callParams(call, token, extra) },
			Progress: call.Progress,
		})
		if err != nil {
			return Result{}, err
		}
		if s.info.Era != EraModern {
			return Result{Raw: raw, IsError: jsonview.IsTrue(raw, "isError")}, nil
		}
		if kind, _ := jsonview.GetString(raw, "resultType"); kind != "input_required" {
			return Result{Raw: raw, IsError: jsonview.IsTrue(raw, "isError")}, nil
		}
		if extra, err = s.answerInput(raw); err != nil {
			return Result{}, err
		}
	}
	return Result{}, &InputRequiredError{Method: "more input in every round"}
}

func (s *Session) callParams(call Call, token int64, extra []byte) []byte {
	b := make([]byte, 0, len(call.Arguments)+len(extra)+512)
	b = rawjson.AppendString(append(b, `{"name":`...), call.Tool)
	if len(call.Arguments) > 0 {
		b = append(append(b, `,"arguments":`...), call.Arguments...)
	}
	b = append(append(b, extra...), `,"_meta":{"progressToken":`...)
	b = strconv.AppendInt(b, token, 10)
	if call.TraceParent != "" {
		b = rawjson.AppendString(append(b, `,"traceparent":`...), call.TraceParent)
	}
	if call.TraceState != "" {
		b = rawjson.AppendString(append(b, `,"tracestate":`...), call.TraceState)
	}
	if s.info.Era == EraModern {
		b = append(append(b, ','), s.modernMeta()...)
	}
	return append(b, '}', '}')
}

// answerInput answers what a modern server asks back inside a result: the
// session's folder, and nothing else.
func (s *Session) answerInput(raw []byte) ([]byte, error) {
	requests, _ := jsonview.Get(raw, "inputRequests")
	b := []byte(`,"inputResponses":{`)
	n := 0
	for key, req := range jsonview.Members(requests) {
		method, _ := jsonview.GetString(req, "method")
		if method != "roots/list" {
			return nil, &InputRequiredError{Method: method}
		}
		if n++; n > 1 {
			b = append(b, ',')
		}
		s.cfg.RootsRead()
		b = append(append(rawjson.AppendString(b, key), ':'), s.rootsJSON()...)
	}
	if n == 0 {
		return nil, &InputRequiredError{Method: "another try (it is busy)"}
	}
	b = append(b, '}')
	if state, ok := jsonview.Get(raw, "requestState"); ok {
		b = append(append(b, `,"requestState":`...), state...)
	}
	return b, nil
}

func (s *Session) rootsJSON() []byte {
	b := []byte(`{"roots":[`)
	if uri, name, ok := s.root(); ok {
		b = rawjson.AppendString(append(b, `{"uri":`...), uri)
		b = append(rawjson.AppendString(append(b, `,"name":`...), name), '}')
	}
	return append(b, ']', '}')
}
