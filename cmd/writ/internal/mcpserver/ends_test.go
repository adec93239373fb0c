package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
)

const modernCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo__echo","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`

func outcomes(state commonv1.OutcomeState, result string) *plane {
	return &plane{answer: func(int, *gatewayv1.CallToolRequest) ([]*gatewayv1.CallEvent, error) {
		return []*gatewayv1.CallEvent{accepted(), ended(state, result, nil)}, nil
	}}
}

// The end of standard input cancels nothing: a client that is closed leaves its effects to their end.
func TestTheEndOfInputCancelsNothing(t *testing.T) {
	seen := make(chan struct{})
	p := &plane{answer: func(int, *gatewayv1.CallToolRequest) ([]*gatewayv1.CallEvent, error) {
		return []*gatewayv1.CallEvent{accepted(), {Event: &gatewayv1.CallEvent_Execution{Execution: &commonv1.ExecutionEvent{Event: &commonv1.ExecutionEvent_Progress{Progress: &commonv1.Progress{Progress: 1}}}}}}, nil
	}}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- Serve(context.Background(), Options{In: inR, Out: outW, Log: slog.New(slog.DiscardHandler), Calls: p, Turns: p, CardWait: time.Minute})
		outW.Close()
	}()
	go func() { // the progress frame says that the call runs and its name is known
		_, _ = bufio.NewReader(outR).ReadString('\n')
		close(seen)
		_, _ = io.Copy(io.Discard, outR)
	}()
	_, _ = io.WriteString(inW, call+"\n")
	<-seen
	inW.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := p.cancelled(); len(got) != 0 {
		t.Errorf("CancelCall for %v", got)
	}
}

// A tool's own white space doesn't break the frame that marks its result as final.
func TestWhitespaceInAResultOfTheModernEra(t *testing.T) {
	for _, result := range []string{`{ }`, `{}`, `{"content":[]} `, `{"content":[]}`} {
		t.Run(result, func(t *testing.T) {
			c := start(t, outcomes(commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, result))
			if got := c.ask(modernCall); !json.Valid([]byte(got)) {
				t.Errorf("not JSON: %s", got)
			}
		})
	}
}

// A result that is too long to be inline is an error where the tool said so.
func TestAToolErrorInABlobIsAnError(t *testing.T) {
	p := &plane{answer: func(int, *gatewayv1.CallToolRequest) ([]*gatewayv1.CallEvent, error) {
		o := &commonv1.Outcome{State: commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR, ResultBlob: &commonv1.BlobRef{Handle: "b"}, Receipt: "r"}
		return []*gatewayv1.CallEvent{accepted(), {Event: &gatewayv1.CallEvent_Outcome{Outcome: o}}}, nil
	}}
	c := start(t, p)
	c.wants(c.ask(modernCall), `"isError":true`)
}

// A stream that breaks detaches; the repetition has to be the same call, or its effect happens twice.
func TestABrokenStreamIsFoundAgain(t *testing.T) {
	p := &plane{answer: func(n int, _ *gatewayv1.CallToolRequest) ([]*gatewayv1.CallEvent, error) {
		if n == 0 {
			return []*gatewayv1.CallEvent{accepted()}, status.Error(codes.Unavailable, "the gateway restarts")
		}
		return []*gatewayv1.CallEvent{accepted(), ended(commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, exact, nil)}, nil
	}}
	c := start(t, p)
	c.wants(c.ask(modernCall), `"isError":true`)
	c.ask(modernCall)
	if got := p.calls[1].GetCall(); got != "c_1" {
		t.Errorf("the repetition is call %q, not c_1", got)
	}
}

// After a cancelled pending call, the same call again is a new one.
func TestAfterACancelledPendingCall(t *testing.T) {
	p := &plane{answer: func(int, *gatewayv1.CallToolRequest) ([]*gatewayv1.CallEvent, error) {
		return []*gatewayv1.CallEvent{accepted(), card(permissionv1.CardState_CARD_STATE_PENDING)}, nil
	}}
	c := startWaiting(t, p, time.Minute)
	c.send(call)
	c.wants(c.next(), "waiting for a person")
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	deadline := time.Now().Add(5 * time.Second)
	for len(p.cancelled()) == 0 && time.Now().Before(deadline) {
		c.ask(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	}
	if len(p.cancelled()) == 0 {
		t.Fatal("no CancelCall")
	}
	for p.isRunning(c) && time.Now().Before(deadline) {
		c.ask(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	}
	c.ask(call)
	if got := p.calls[1].GetCall(); got != "" {
		t.Errorf("the repetition attaches to the cancelled call %q", got)
	}
}
