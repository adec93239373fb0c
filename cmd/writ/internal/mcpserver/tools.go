package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/rawjson"
	"github.com/writ-dev/writ/internal/toolname"
)

// listTools answers with every tool of the turn: its definition as its server wrote it, but for the name, which is the
// alias that model APIs take.
func (s *server) listTools(ctx context.Context, m message) []byte {
	t, err := s.turn.open(traced(ctx, m.params))
	if err != nil {
		return errorFrame(m.id, codeInternal, describe(err))
	}
	b := []byte(`{"tools":[`)
	for _, tool := range t.GetTools() {
		definition := tool.GetTool().GetDefinition()
		named, err := rawjson.Splice(definition, "/name", rawjson.AppendString(nil, tool.GetTool().GetAlias()))
		if err != nil {
			s.Log.Warn("left out: its definition has no name", "tool", tool.GetTool().GetIdentity().GetTool(), "error", err)
			continue
		}
		if b[len(b)-1] != '[' {
			b = append(b, ',')
		}
		b = append(b, named...)
	}
	b = append(b, ']')
	if s.isModern() {
		b = append(b, `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`...)
	}
	return resultFrame(m.id, append(b, '}'))
}

func (s *server) isModern() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.modern
}

// callTool makes a call and waits for it as long as the client does, but no longer than CardWait for a person.
func (s *server) callTool(ctx context.Context, m message) []byte {
	name, err := rawjson.String(member(m.params, "name"))
	if err != nil {
		return errorFrame(m.id, codeInvalidParams, "params.name is missing or no string")
	}
	arguments := member(m.params, "arguments")
	if arguments == nil || string(arguments) == "null" {
		arguments = []byte("{}")
	}
	ctx = traced(ctx, m.params)
	for attempt := 0; ; attempt++ {
		t, err := s.turn.open(ctx)
		if err != nil {
			return s.failed(m, err)
		}
		tool := find(t, name)
		if tool == nil {
			return errorFrame(m.id, codeInvalidParams, fmt.Sprintf("there is no tool %q; tools/list has them all", name))
		}
		result, err := s.oneCall(ctx, m, t, tool, arguments)
		if err == nil {
			return resultFrame(m.id, s.complete(result))
		}
		if attempt > 0 || !turnOver(err) {
			return s.failed(m, err)
		}
		// The turn ended: the next one has the tools as they are now, and the client looks again. The same contract is
		// called at once; another one is the client's to see first.
		s.turn.ended(t.GetId())
		s.send([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
		next, err := s.turn.open(ctx)
		if err != nil {
			return s.failed(m, err)
		}
		now := find(next, name)
		if now == nil || now.GetTool().GetIdentity().GetWireFingerprint() != tool.GetTool().GetIdentity().GetWireFingerprint() {
			return resultFrame(m.id, s.complete(textResult("not called: the turn ended and this tool is not the same in the new one. Read tools/list again, then call again.", true)))
		}
	}
}

func turnOver(err error) bool {
	switch errs.ReasonOf(err) {
	case "TURN_ENDED", "TURN_NOT_FOUND":
		return true
	}
	return false
}

// complete marks a result of our own as final where the client's era needs it. A tool's own bytes are never touched
// where they already say it.
func (s *server) complete(result []byte) []byte {
	if !s.isModern() || rawjson.TypeOf(result) != rawjson.Object || member(result, "resultType") != nil {
		return result
	}
	sep := ""
	for range rawjson.Members(result) {
		sep = ","
		break
	}
	open := result[:bytes.LastIndexByte(result, '}')] // what follows the last brace is white space
	return append(append([]byte{}, open...), sep+`"resultType":"complete"}`...)
}

// oneCall makes or re-attaches a call and returns the result object.
func (s *server) oneCall(ctx context.Context, m message, t *registryv1.Turn, tool *registryv1.TurnTool, arguments []byte) ([]byte, error) {
	id := tool.GetTool().GetIdentity().GetTool()
	key := digest(id, arguments)
	streamCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	stream, err := s.Calls.CallTool(streamCtx, &gatewayv1.CallToolRequest{Turn: t.GetId(), Call: s.turn.callOf(key), Tool: id, Arguments: arguments})
	if err != nil {
		return nil, err
	}
	events := make(chan *gatewayv1.CallEvent)
	ended := make(chan error, 1)
	go func() { // ends with the stream, which stop ends
		for {
			resp, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case events <- resp.GetEvent():
			case <-streamCtx.Done():
				ended <- streamCtx.Err()
				return
			}
		}
	}()
	w := &wait{server: s, key: key, token: member(member(m.params, "_meta"), "progressToken")}
	defer w.stop()
	for {
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errCancelled) {
				name := w.named(events, ended)
				s.turn.setPending(key, "") // the same call again is a new one
				s.cancel(name)
			}
			return nil, ctx.Err()
		case <-w.overdue():
			return w.pendingResult(), nil
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				err = status.Error(codes.Unavailable, "the stream ended before the outcome")
			}
			if _, call, ok := toolname.ParseCall(w.name); ok && !turnOver(err) {
				// The call goes on without its stream: made again under another id it would have its effect twice.
				s.turn.setPending(key, call)
				return textResult(describe(err)+"\nThe outcome of "+w.name+" is not known here. Repeat the same call to get it; it does not run twice.", true), nil
			}
			return nil, err
		case e := <-events:
			if o := w.event(e); o != nil {
				s.turn.setPending(key, "")
				return resultOf(tool, o), nil
			}
		}
	}
}

// cancel cancels a call whose request was cancelled.
func (s *server) cancel(name string) {
	if name == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	if _, err := s.Calls.CancelCall(ctx, &gatewayv1.CancelCallRequest{Name: name, Reason: "the MCP client cancelled its request"}); err != nil {
		s.Log.Warn("not cancelled", "call", name, "error", err)
	}
}

// wait follows one call for its client.
type wait struct {
	server *server
	key    string
	token  []byte // the client's progress token; nil: it wants none
	name   string
	card   *permissionv1.Card
	timer  *time.Timer
	steps  float64
}

func (w *wait) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *wait) overdue() <-chan time.Time {
	if w.timer == nil {
		return nil
	}
	return w.timer.C
}

// event takes one event and returns the outcome once it is there.
func (w *wait) event(e *gatewayv1.CallEvent) *commonv1.Outcome {
	switch {
	case e.GetAccepted() != nil:
		w.name = e.GetAccepted().GetName()
	case e.GetCard() != nil:
		w.card = e.GetCard()
		if w.card.GetState() == permissionv1.CardState_CARD_STATE_PENDING && w.timer == nil {
			if _, call, ok := toolname.ParseCall(w.name); ok {
				w.server.turn.setPending(w.key, call)
			}
			w.timer = time.NewTimer(w.server.CardWait)
			w.progress(0, 0, "waiting for a person: card "+w.card.GetId())
		} else if w.card.GetState() != permissionv1.CardState_CARD_STATE_PENDING && w.timer != nil {
			w.timer.Stop()
			w.timer = nil
		}
	case e.GetExecution().GetProgress() != nil:
		p := e.GetExecution().GetProgress()
		w.progress(p.GetProgress(), p.GetTotal(), p.GetMessage())
	case e.GetOutcome() != nil:
		return e.GetOutcome()
	}
	return nil
}

// named waits a moment for the name of a call that was cancelled before it had one.
func (w *wait) named(events <-chan *gatewayv1.CallEvent, ended <-chan error) string {
	late := time.NewTimer(endPatience)
	defer late.Stop()
	for w.name == "" {
		select {
		case e := <-events:
			w.event(e)
		case <-ended:
			return ""
		case <-late.C:
			return ""
		}
	}
	return w.name
}

// progress passes progress on. It has to grow with each notification.
func (w *wait) progress(at, total float64, text string) {
	if w.token == nil {
		return
	}
	if at <= w.steps {
		at = w.steps + 0.001
	}
	w.steps = at
	w.server.send(progressFrame(w.token, at, total, text))
}

func (w *wait) pendingResult() []byte {
	return textResult(fmt.Sprintf("Waiting for a person: card %s (%s).\nIt is answered with:  writ cards approve %s   or   writ cards deny %s\n"+
		"Nothing has run. Repeat the same call to go on waiting; nobody is asked twice.", w.card.GetId(), w.card.GetPreview().GetTitle(), w.card.GetId(), w.card.GetId()), false)
}

// resultOf turns an outcome into a result object. What an MCP tool returned goes through as it is.
func resultOf(tool *registryv1.TurnTool, o *commonv1.Outcome) []byte {
	switch o.GetState() {
	case commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR:
		if result := o.GetResult(); len(result) > 0 {
			if tool.GetTool().GetLane() == commonv1.Lane_LANE_MCP {
				return result
			}
			return wrapped(result, o.GetState() == commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR)
		}
		if ref := o.GetResultBlob(); ref != nil {
			return textResult(fmt.Sprintf("The result has %d bytes and is kept as %s (sha256 %s).", ref.GetSize(), ref.GetHandle(), ref.GetSha256()),
				o.GetState() == commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR)
		}
	}
	return textResult(explain(o), true)
}

// wrapped makes an MCP result of a builtin's: its bytes as structured content, and as text for clients that read only that.
func wrapped(result []byte, isError bool) []byte {
	b := rawjson.AppendString([]byte(`{"content":[{"type":"text","text":`), string(result))
	b = append(append(b, `}],"structuredContent":`...), result...)
	if isError {
		b = append(b, `,"isError":true`...)
	}
	return append(b, '}')
}

func explain(o *commonv1.Outcome) string {
	err := status.FromProto(o.GetStatus()).Err()
	text := o.GetStatus().GetMessage()
	if reason := errs.ReasonOf(err); reason != "" {
		text += " (" + reason + ")"
	}
	if next := errs.Metadata(err)["next"]; next != "" {
		text += "\n" + next
	}
	return text + "\nreceipt " + o.GetReceipt()
}

// failed answers an error before the call existed.
func (s *server) failed(m message, err error) []byte {
	if status.Code(err) == codes.InvalidArgument || status.Code(err) == codes.NotFound {
		return errorFrame(m.id, codeInvalidParams, describe(err))
	}
	return resultFrame(m.id, s.complete(textResult(describe(err), true)))
}

func describe(err error) string {
	st := status.Convert(err)
	text := st.Message()
	if reason := errs.ReasonOf(err); reason != "" {
		text += " (" + reason + ")"
	}
	if next := errs.Metadata(err)["next"]; next != "" {
		text += ": " + next
	}
	return text
}
