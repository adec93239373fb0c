package cli

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/writ-dev/writ/cmd/writ/internal/client"
	"github.com/writ-dev/writ/cmd/writ/internal/mcpserver"
)

// mcp serves one MCP client with the caller's credential, whatever else can be read here: an agent gets no more.
func (a *app) mcp(ctx context.Context, f turnFlags, wait time.Duration) error {
	mode, err := modeOf(f.mode)
	if err != nil {
		return err
	}
	conn, err := a.dial(client.Caller)
	if err != nil {
		return err
	}
	defer conn.Close()
	if f.conversation == "" {
		f.conversation = os.Getenv("WRIT_CONVERSATION")
	}
	return mcpserver.Serve(ctx, mcpserver.Options{
		In: a.streams.In, Out: a.Out, Log: slog.New(slog.NewTextHandler(a.Err, nil)), Version: Version, Calls: conn.Calls, Turns: conn.Turns,
		Conversation: f.conversation, Agent: f.agent, Workspace: f.workspace, Mode: mode, CardWait: wait,
	})
}
