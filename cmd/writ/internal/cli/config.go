package cli

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/writ-dev/writ/cmd/writ/internal/client"
	"github.com/writ-dev/writ/internal/config"
	"github.com/writ-dev/writ/internal/home"
	registry "github.com/writ-dev/writ/registry-svc"
)

// configuration is what holds after flags, environment and file, in that order of strength.
type configuration struct {
	config.Writ
	home   home.Layout
	loaded *config.Loaded
}

// configuration reads writ.yaml. The flags are those of `writ up`, empty where not given.
func (a *app) configuration(listen, mcpFile string) (c configuration, err error) {
	f, err := client.Find(a.homeFlag, a.addrFlag)
	if err != nil {
		return c, err
	}
	flags := map[string]string{}
	if listen != "" {
		flags["listen.grpc"] = listen
	}
	if mcpFile != "" {
		if flags["mcp_file"], err = filepath.Abs(mcpFile); err != nil {
			return c, err
		}
	}
	c.home = f.Home
	if c.Writ, c.loaded, err = config.LoadWrit(f.Home, flags, nil); err != nil {
		return c, usage{err}
	}
	if err := c.unserved(); err != nil {
		return c, usage{err}
	}
	if c.MCPFile == "" {
		c.MCPFile = "mcp.json"
	}
	if !filepath.IsAbs(c.MCPFile) {
		c.MCPFile = filepath.Join(c.home.Root, c.MCPFile)
	}
	return c, nil
}

// unserved refuses settings that the kit knows and the all-in-one server does not act on yet: a setting that is accepted
// and ignored would be a promise that nobody keeps.
func (c configuration) unserved() error {
	for key, set := range map[string]bool{
		"trusted_issuers": len(c.TrustedIssuers) > 0, "limits": len(c.Limits) > 0, "permission.max_mode": c.Permission.MaxMode != "",
	} {
		if set {
			return c.loaded.Wrong(key, "is not served by `writ up` yet; remove it (docs/plan.md)")
		}
	}
	return nil
}

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "the configuration files, checked and shown"}
	check := &cobra.Command{
		Use: "check [MCP_JSON]", Short: "check writ.yaml and mcp.json; every problem at once", Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.configCheck(args) },
	}
	show := &cobra.Command{
		Use: "show", Short: "show what holds after flags, environment and file", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.configuration("", "")
			if err != nil {
				return err
			}
			settings := c.loaded.Settings()
			if a.json {
				return json.NewEncoder(a.Out).Encode(settings)
			}
			rows := [][]string{{"home", c.home.Root, ""}}
			for _, setting := range settings {
				rows = append(rows, []string{setting.Key, setting.Value, a.Dim(setting.Origin.Kind + " " + setting.Origin.Place)})
			}
			a.Table([]string{"SETTING", "VALUE", "FROM"}, rows)
			return nil
		},
	}
	cmd.AddCommand(check, show)
	return cmd
}

func missing(path string) string {
	if _, err := os.Stat(path); err != nil {
		return "  (not there)"
	}
	return ""
}

func (a *app) configCheck(args []string) error {
	c, err := a.configuration("", "")
	if err != nil {
		return err
	}
	path := c.MCPFile
	if len(args) == 1 {
		if path, err = filepath.Abs(args[0]); err != nil {
			return err
		}
	} else if missing(path) != "" {
		a.Line("%s is fine; there is no %s", c.home.ConfigFile(), path)
		return nil
	}
	resp := registry.CheckFile(path, c.Variables)
	if a.json {
		if err := a.Message(resp); err != nil {
			return err
		}
	} else {
		for _, p := range resp.GetProblems() {
			a.Line("%s %s", a.Bad("✗"), p)
		}
		a.Line("%s: %d connectors, %d problems", path, len(resp.GetConnectors()), len(resp.GetProblems()))
	}
	if len(resp.GetProblems()) > 0 {
		return exit(ExitUsage)
	}
	return nil
}
