package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"github.com/writ-dev/writ/cmd/writ/internal/client"
	"github.com/writ-dev/writ/cmd/writ/internal/ui"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
)

// turnFlags are what a turn is opened with, wherever one is.
type turnFlags struct {
	mode, agent, conversation, project, workspace string
	tools                                         []string
}

func (f *turnFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.mode, "mode", "", "manual, accept-edits, plan, auto or bypass (default what settings allow)")
	cmd.Flags().StringVar(&f.agent, "agent", "", "the agent that acts")
	cmd.Flags().StringVar(&f.conversation, "conversation", "", "the conversation that the turn belongs to")
	cmd.Flags().StringVar(&f.project, "project", "", "the project")
	cmd.Flags().StringVar(&f.workspace, "workspace", "", "the folder that tools may work in")
}

func modeOf(s string) (commonv1.Mode, error) {
	if s == "" {
		return commonv1.Mode_MODE_UNSPECIFIED, nil
	}
	key := "MODE_" + strings.ToUpper(strings.NewReplacer("-", "_", " ", "_").Replace(s))
	if v, ok := commonv1.Mode_value[key]; ok && v != 0 {
		return commonv1.Mode(v), nil
	}
	return 0, usagef("--mode %s: one of manual, accept-edits, plan, auto, bypass", s)
}

func (a *app) openTurn(ctx context.Context, conn *client.Conn, f turnFlags, omit bool) (*registryv1.Turn, error) {
	mode, err := modeOf(f.mode)
	if err != nil {
		return nil, err
	}
	if f.workspace != "" {
		if f.workspace, err = filepath.Abs(f.workspace); err != nil {
			return nil, err
		}
	}
	done := a.progress("opening a turn: listing the tools of every connector")
	defer done()
	resp, err := conn.Turns.OpenTurn(ctx, &registryv1.OpenTurnRequest{
		Mode: mode, Agent: f.agent, Conversation: f.conversation, Project: f.project, Workspace: f.workspace, Tools: f.tools, OmitDefinitions: omit,
	})
	if err != nil {
		return nil, err
	}
	return resp.GetTurn(), nil
}

func (a *app) turnCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "turn", Short: "frozen snapshots of what an agent may use"}
	var f turnFlags
	open := &cobra.Command{
		Use: "open", Short: "open a turn and print its id", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := a.dial(client.Caller)
			if err != nil {
				return err
			}
			defer conn.Close()
			turn, err := a.openTurn(cmd.Context(), conn, f, !a.json)
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(turn)
			}
			a.printTurn(turn)
			return nil
		},
	}
	f.add(open)
	open.Flags().StringSliceVar(&f.tools, "tools", nil, "only these tools: canonical ids, or mcp.SERVER.*")
	cmd.AddCommand(open, a.turnList(), a.turnEnd("end", "end a turn; running calls finish"), a.turnEnd("cancel", "cancel a turn, its cards and its running calls"))
	return cmd
}

func (a *app) printTurn(t *registryv1.Turn) {
	a.Line("%s · mode %s · conversation %s", t.GetId(), word(t.GetMode(), "MODE_"), ui.Safe(t.GetConversation(), false))
	if w := t.GetWorkspace(); w != nil {
		a.Line("  workspace %s", ui.Safe(w.GetPath(), false))
	}
	counts := map[string]int{}
	for _, tool := range t.GetTools() {
		counts[tool.GetTool().GetIdentity().GetProvider()]++
	}
	providers := make([]string, 0, len(counts))
	for p, n := range counts {
		providers = append(providers, fmt.Sprintf("%s %d", p, n))
	}
	sort.Strings(providers)
	a.Line("  %d tools: %s", len(t.GetTools()), strings.Join(providers, " · "))
	for _, p := range t.GetProblems() {
		a.Line("  %s %s: %s", a.Bad("!"), p.GetProvider(), ui.Safe(p.GetStatus().GetMessage(), false))
	}
}

func (a *app) turnList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "list turns, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := a.reader()
			if err != nil {
				return err
			}
			defer conn.Close()
			resp, err := conn.Turns.ListTurns(cmd.Context(), &registryv1.ListTurnsRequest{PageSize: 50})
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(resp)
			}
			var rows [][]string
			for _, t := range resp.GetTurns() {
				rows = append(rows, []string{t.GetId(), word(t.GetState(), "TURN_STATE_"), word(t.GetMode(), "MODE_"), clock(t.GetOpenTime()), ui.Safe(t.GetConversation(), false)})
			}
			if len(rows) == 0 {
				a.Line("no turns. Open one with  writ turn open")
				return nil
			}
			a.Table([]string{"TURN", "STATE", "MODE", "OPENED", "CONVERSATION"}, rows)
			return nil
		},
	}
}

func (a *app) turnEnd(verb, short string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " TURN", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := a.dial(client.Caller)
			if err != nil {
				return err
			}
			defer conn.Close()
			var turn *registryv1.Turn
			if verb == "end" {
				resp, err := conn.Turns.EndTurn(cmd.Context(), &registryv1.EndTurnRequest{Turn: args[0]})
				if err != nil {
					return err
				}
				turn = resp.GetTurn()
			} else {
				resp, err := conn.Turns.CancelTurn(cmd.Context(), &registryv1.CancelTurnRequest{Turn: args[0]})
				if err != nil {
					return err
				}
				turn = resp.GetTurn()
			}
			if a.json {
				return a.Message(turn)
			}
			a.Line("%s %s", turn.GetId(), word(turn.GetState(), "TURN_STATE_"))
			return nil
		},
	}
}
