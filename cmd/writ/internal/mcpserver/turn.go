package mcpserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"google.golang.org/grpc/metadata"

	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/rawjson"
)

// turn is the turn that the client works in: opened at the first need, opened again once it ended.
type turn struct {
	server *server

	mu      sync.Mutex // guards what follows
	current *registryv1.Turn
	pending map[string]string // what was asked and not answered yet: digest of tool and arguments -> call id
}

// open returns the open turn.
func (t *turn) open(ctx context.Context) (*registryv1.Turn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		return t.current, nil
	}
	o := t.server.Options
	resp, err := o.Turns.OpenTurn(ctx, &registryv1.OpenTurnRequest{Mode: o.Mode, Agent: o.Agent, Conversation: o.Conversation, Workspace: o.Workspace})
	if err != nil {
		return nil, err
	}
	t.current = resp.GetTurn()
	if t.server.Conversation == "" {
		t.server.Conversation = t.current.GetConversation() // the next turn goes on in the same one
	}
	for _, p := range t.current.GetProblems() {
		t.server.Log.Warn("left out", "provider", p.GetProvider(), "problem", p.GetStatus().GetMessage())
	}
	return t.current, nil
}

// ended forgets a turn that is over, so that the next need opens another.
func (t *turn) ended(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current.GetId() == id {
		t.current, t.pending = nil, map[string]string{}
	}
}

// end ends the turn with its client.
func (t *turn) end() {
	t.mu.Lock()
	current := t.current
	t.mu.Unlock()
	if current == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endPatience)
	defer cancel()
	if _, err := t.server.Turns.EndTurn(ctx, &registryv1.EndTurnRequest{Turn: current.GetId()}); err != nil {
		t.server.Log.Warn("turn not ended; it ends by itself", "turn", current.GetId(), "error", err)
	}
}

func digest(tool string, arguments []byte) string {
	h := sha256.New()
	h.Write([]byte(tool))
	h.Write([]byte{0})
	h.Write(arguments)
	return hex.EncodeToString(h.Sum(nil))
}

// callOf is the id of the same unanswered call; empty where there is none. A person is never asked twice for it.
func (t *turn) callOf(digest string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending[digest]
}

// setPending remembers a call that waits; with an empty id it forgets it.
func (t *turn) setPending(digest, call string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if call == "" {
		delete(t.pending, digest)
		return
	}
	t.pending[digest] = call
}

// find returns the frozen tool by its alias or canonical id.
func find(t *registryv1.Turn, name string) *registryv1.TurnTool {
	for _, tool := range t.GetTools() {
		if tool.GetTool().GetAlias() == name || tool.GetTool().GetIdentity().GetTool() == name {
			return tool
		}
	}
	return nil
}

// traced carries the client's trace context on.
func traced(ctx context.Context, params []byte) context.Context {
	meta := member(params, "_meta")
	for _, key := range []string{"traceparent", "tracestate"} {
		if v, err := rawjson.String(member(meta, key)); err == nil && v != "" && len(v) <= 512 {
			ctx = metadata.AppendToOutgoingContext(ctx, key, v)
		}
	}
	return ctx
}
