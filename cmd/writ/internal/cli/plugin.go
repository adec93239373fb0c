package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/writ-dev/writ/cmd/writ/internal/ui"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
)

func (a *app) pluginCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "plugin", Short: "what is registered, through either door"}
	var tools bool
	list := &cobra.Command{
		Use: "list", Short: "list providers; with --tools their tools too", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listPlugins(cmd, tools) },
	}
	list.Flags().BoolVar(&tools, "tools", false, "the number of tools of each, and every tool")
	cmd.AddCommand(list)
	return cmd
}

func (a *app) listPlugins(cmd *cobra.Command, tools bool) error {
	conn, err := a.reader()
	if err != nil {
		return err
	}
	defer conn.Close()
	resp, err := conn.Tools.ListPlugins(cmd.Context(), &registryv1.ListPluginsRequest{})
	if err != nil {
		return err
	}
	if a.json {
		if err := a.Message(resp); err != nil {
			return err
		}
	} else {
		headers := []string{"KIND", "ID", "VERSION", "SOURCE", "STATE"}
		if tools {
			headers = append(headers, "TOOLS")
		}
		var rows [][]string
		for _, p := range resp.GetPlugins() {
			version := ui.Safe(p.GetVersion(), false)
			if version == "" {
				version = "–"
			}
			row := []string{p.GetKind(), p.GetId(), version, word(p.GetSource(), "SOURCE_"), a.state(p.GetState())}
			if tools {
				row = append(row, fmt.Sprintf("%5d  %s", p.GetTools(), p.GetNext()))
			}
			rows = append(rows, row)
		}
		a.Table(headers, rows)
	}
	if !tools {
		return nil
	}
	var rows [][]string
	for token := ""; ; {
		page, err := conn.Tools.ListTools(cmd.Context(), &registryv1.ListToolsRequest{PageSize: 500, PageToken: token})
		if err != nil {
			return err
		}
		if a.json {
			if err := a.Message(page); err != nil {
				return err
			}
		}
		for _, t := range page.GetTools() {
			class := word(t.GetClass(), "SECURITY_CLASS_")
			if t.GetClass() == commonv1.SecurityClass_SECURITY_CLASS_UNSPECIFIED {
				class = "–"
			}
			rows = append(rows, []string{ui.Safe(t.GetIdentity().GetTool(), false), class, ui.Short(t.GetIdentity().GetWireFingerprint())})
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if !a.json && len(rows) > 0 {
		a.Line("")
		a.Table([]string{"TOOL", "CLASS", "FINGERPRINT"}, rows)
	}
	return nil
}
