package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/writ-dev/writ/cmd/writ/internal/client"
	"github.com/writ-dev/writ/cmd/writ/internal/ui"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
)

func (a *app) grantsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "grants", Short: "standing answers"}
	var all bool
	list := &cobra.Command{
		Use: "list", Short: "list grants", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := a.reader()
			if err != nil {
				return err
			}
			defer conn.Close()
			resp, err := conn.Grants.ListGrants(cmd.Context(), &permissionv1.ListGrantsRequest{PageSize: 200, IncludeEnded: all})
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(resp)
			}
			var rows [][]string
			for _, g := range resp.GetGrants() {
				state := a.Good("stands")
				if g.GetRevokeTime() != nil {
					state = "revoked"
				}
				rows = append(rows, []string{g.GetId(), state, word(g.GetLifetime(), "LIFETIME_"), clock(g.GetCreateTime()), ui.Safe(g.GetText(), false)})
			}
			if len(rows) == 0 {
				a.Line("no grants: every question is asked")
				return nil
			}
			a.Table([]string{"GRANT", "STATE", "FOR", "GIVEN", "WHAT"}, rows)
			return nil
		},
	}
	list.Flags().BoolVar(&all, "all", false, "revoked ones too")
	revoke := &cobra.Command{
		Use: "revoke GRANT", Short: "take a grant back, at once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := a.dial(client.Approver)
			if err != nil {
				return err
			}
			defer conn.Close()
			resp, err := conn.Grants.RevokeGrant(cmd.Context(), &permissionv1.RevokeGrantRequest{Grant: args[0]})
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(resp)
			}
			a.Line("%s revoked", args[0])
			return nil
		},
	}
	cmd.AddCommand(list, revoke)
	return cmd
}

func (a *app) settingsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "settings", Short: "the mode cap, classes and dispositions"}
	show := &cobra.Command{
		Use: "show", Short: "show the settings", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := a.reader()
			if err != nil {
				return err
			}
			defer conn.Close()
			resp, err := conn.Settings.GetSettings(cmd.Context(), &permissionv1.GetSettingsRequest{})
			if err != nil {
				return err
			}
			tools, err := conn.Settings.ListDispositions(cmd.Context(), &permissionv1.ListDispositionsRequest{PageSize: 1000})
			if err != nil {
				return err
			}
			if a.json {
				if err := a.Message(resp); err != nil {
					return err
				}
				return a.Message(tools)
			}
			a.Line("highest mode  %s", word(resp.GetSettings().GetModeCap(), "MODE_"))
			for _, c := range resp.GetSettings().GetAlwaysAsk() {
				a.Line("always asks   %s", word(c, "SECURITY_CLASS_"))
			}
			for _, t := range tools.GetSettings() {
				a.Line("tool          %s: %s", ui.Safe(t.GetTool(), false), settled(t))
			}
			return nil
		},
	}
	cmd.AddCommand(show, a.settingsMode(), a.settingsTool())
	return cmd
}

// settled says what a person settled for a tool, and leaves out what nobody did.
func settled(t *permissionv1.ToolSetting) string {
	var words []string
	if t.GetDisposition() != commonv1.Disposition_DISPOSITION_UNSPECIFIED {
		words = append(words, word(t.GetDisposition(), "DISPOSITION_"))
	}
	if t.GetClass() != commonv1.SecurityClass_SECURITY_CLASS_UNSPECIFIED {
		words = append(words, "class "+word(t.GetClass(), "SECURITY_CLASS_"))
	}
	if t.GetAlwaysGate() {
		words = append(words, "asks in every mode")
	}
	return strings.Join(words, ", ")
}

func (a *app) settingsMode() *cobra.Command {
	return &cobra.Command{
		Use: "mode MODE", Short: "the highest mode that a turn may have", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			mode, err := modeOf(args[0])
			if err != nil {
				return err
			}
			conn, err := a.dial(client.Approver)
			if err != nil {
				return err
			}
			defer conn.Close()
			now, err := conn.Settings.GetSettings(cmd.Context(), &permissionv1.GetSettingsRequest{})
			if err != nil {
				return err
			}
			s := now.GetSettings()
			s.ModeCap = mode
			resp, err := conn.Settings.UpdateSettings(cmd.Context(), &permissionv1.UpdateSettingsRequest{Settings: s})
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(resp)
			}
			a.Line("turns may have mode %s at most, from the next one on", word(resp.GetSettings().GetModeCap(), "MODE_"))
			return nil
		},
	}
}

func (a *app) settingsTool() *cobra.Command {
	var class, disposition string
	cmd := &cobra.Command{
		Use: "tool TOOL|mcp.SERVER.*", Short: "settle a tool: its disposition, its class", Args: cobra.ExactArgs(1),
		Example: "  writ settings tool mcp.fs.read_text_file --class read\n  writ settings tool mcp.fs.move_file --disposition blocked",
		RunE: func(cmd *cobra.Command, args []string) error {
			setting := &permissionv1.ToolSetting{Tool: args[0]}
			upper := func(s string) string {
				return strings.ToUpper(strings.NewReplacer("-", "_", " ", "_").Replace(s))
			}
			if disposition != "" {
				v := commonv1.Disposition_value["DISPOSITION_"+upper(disposition)]
				if v == 0 {
					return usagef("--disposition %s: one of automatic, always-allow, ask-first, blocked", disposition)
				}
				setting.Disposition = commonv1.Disposition(v)
			}
			if class != "" {
				v := commonv1.SecurityClass_value["SECURITY_CLASS_"+upper(class)]
				if v == 0 {
					return usagef("--class %s: one of read, compute, network-search, network-read, workspace-write, process, dispatch, persistent-instruction-write, external-mutation", class)
				}
				setting.Class = commonv1.SecurityClass(v)
			}
			if setting.Disposition == 0 && setting.Class == 0 {
				return usagef("say what to settle: --disposition or --class")
			}
			conn, err := a.dial(client.Approver)
			if err != nil {
				return err
			}
			defer conn.Close()
			if setting.ProviderDigest, err = a.digestOf(cmd, conn, args[0]); err != nil {
				return err
			}
			resp, err := conn.Settings.SetDisposition(cmd.Context(), &permissionv1.SetDispositionRequest{Setting: setting})
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(resp)
			}
			a.Line("%s: %s", args[0], settled(resp.GetSetting()))
			return nil
		},
	}
	cmd.Flags().StringVar(&class, "class", "", "its security class")
	cmd.Flags().StringVar(&disposition, "disposition", "", "automatic, always-allow, ask-first or blocked")
	return cmd
}
