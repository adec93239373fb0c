package cli

import (
	"bufio"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/writ-dev/writ/cmd/writ/internal/client"
	"github.com/writ-dev/writ/cmd/writ/internal/ui"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
)

func (a *app) connectorCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "connector", Short: "MCP servers that were added by hand"}
	cmd.AddCommand(a.connectorAdd(), a.connectorList(), a.connectorTest(), a.connectorLogs(),
		a.connectorSwitch("enable", true), a.connectorSwitch("disable", false), a.connectorRemove())
	return cmd
}

func (a *app) connectorAdd() *cobra.Command {
	var env []string
	var folder string
	var yes, disabled bool
	var idle int32
	cmd := &cobra.Command{
		Use:   "add NAME -- PROGRAM [ARG …]  |  add NAME URL",
		Short: "add an MCP server and, when you agree, enable it",
		Example: "  writ connector add fs -- npx -y @modelcontextprotocol/server-filesystem ~/notes\n" +
			"  writ connector add search --env KEY=value -- ./search-server",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := &registryv1.Connector{Name: args[0], Transport: registryv1.Transport_TRANSPORT_STDIO, Command: args[1], Args: args[2:], Env: map[string]string{}, IdleTimeoutSeconds: idle}
			if strings.Contains(args[1], "://") && len(args) == 2 {
				c.Transport, c.Url, c.Command = registryv1.Transport_TRANSPORT_HTTP, args[1], ""
			}
			for _, pair := range env {
				k, v, ok := strings.Cut(pair, "=")
				if !ok {
					return usagef("--env %s: write NAME=VALUE", k)
				}
				c.Env[k] = v
			}
			if folder != "" {
				abs, err := filepath.Abs(folder)
				if err != nil {
					return err
				}
				c.WorkingFolder = abs
			}
			return a.addConnector(cmd, c, yes, disabled)
		},
	}
	cmd.Flags().StringArrayVar(&env, "env", nil, "a variable for the server, NAME=VALUE; may be repeated")
	cmd.Flags().StringVar(&folder, "folder", "", "the folder that it starts in (default one of its own)")
	cmd.Flags().Int32Var(&idle, "idle-timeout", 0, "seconds without a call after which it is ended (0: 300, -1: never)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "enable it without asking")
	cmd.Flags().BoolVar(&disabled, "disabled", false, "add it without enabling it")
	return cmd
}

func (a *app) addConnector(cmd *cobra.Command, c *registryv1.Connector, yes, disabled bool) error {
	conn, err := a.dial(client.Approver)
	if err != nil {
		return err
	}
	defer conn.Close()
	resp, err := conn.Connectors.CreateConnector(cmd.Context(), &registryv1.CreateConnectorRequest{Connector: c})
	if err != nil {
		return err
	}
	c = resp.GetConnector()
	if !a.json {
		a.Line("%s · %s · starts  %s", c.GetName(), word(c.GetTransport(), "TRANSPORT_"), ui.Safe(starts(c), false))
		if c.GetProblem() != "" {
			a.Line("  %s %s", a.Bad("!"), ui.Safe(c.GetProblem(), false))
		}
		if isLauncher(c) {
			a.Line("  unpinned packages: %s may fetch another version later", c.GetCommand())
		}
	}
	if disabled {
		if a.json {
			return a.Message(resp)
		}
		a.Line("added, not enabled. Enable it with  writ connector enable %s", c.GetName())
		return nil
	}
	if !yes {
		if !a.interactive() {
			a.Note("added, not enabled: enable it with  writ connector enable %s  (or add it with --yes)", c.GetName())
			return nil
		}
		fmt.Fprintf(a.Out, "Enable it for this machine? It is software that nobody reviewed: guarded isolation, network open.  [y/N] ")
		line, _ := bufio.NewReader(a.streams.In).ReadString('\n')
		if s := strings.ToLower(strings.TrimSpace(line)); s != "y" && s != "yes" {
			a.Line("not enabled. Enable it later with  writ connector enable %s", c.GetName())
			return nil
		}
	}
	if _, err := conn.Connectors.SetConnectorEnabled(cmd.Context(), &registryv1.SetConnectorEnabledRequest{Name: c.GetName(), Enabled: true}); err != nil {
		return err
	}
	return a.testConnector(cmd, conn, c.GetName())
}

func isLauncher(c *registryv1.Connector) bool {
	switch filepath.Base(c.GetCommand()) {
	case "npx", "uvx", "bunx", "pnpx":
	default:
		return false
	}
	for _, arg := range c.GetArgs() {
		if at := strings.LastIndex(arg, "@"); at > 0 && !strings.HasPrefix(arg, "-") {
			return false
		}
	}
	return true
}

func starts(c *registryv1.Connector) string {
	if c.GetUrl() != "" {
		return c.GetUrl()
	}
	return strings.Join(append([]string{c.GetCommand()}, c.GetArgs()...), " ")
}

func (a *app) testConnector(cmd *cobra.Command, conn *client.Conn, name string) error {
	done := a.progress("starting " + name + " and listing its tools")
	resp, err := conn.Connectors.TestConnector(cmd.Context(), &registryv1.TestConnectorRequest{Name: name})
	done()
	if err != nil {
		return err
	}
	c := resp.GetConnector()
	if a.json {
		if err := a.Message(resp); err != nil {
			return err
		}
	} else if c.GetState() == registryv1.ConnectorState_CONNECTOR_STATE_ERROR {
		a.Line("%s %s: %s", c.GetName(), a.Bad("does not work"), ui.Safe(c.GetProblem(), true))
		a.Line("  see  writ connector logs %s", c.GetName())
	} else {
		a.Line("%s %s in %.1f s · %d tools · %d only read (the server's own word)", c.GetName(), a.Good("connected"),
			float64(resp.GetDurationMs())/1000, c.GetToolCount(), resp.GetReadOnlyHints())
		if resp.GetIsolation() != "" {
			a.Line("  %s", ui.Safe(resp.GetIsolation(), false))
		}
	}
	if c.GetState() == registryv1.ConnectorState_CONNECTOR_STATE_ERROR {
		return exit(ExitFailed)
	}
	return nil
}

// progress says on standard error what is waited for, once it takes longer than a moment. It returns what ends it.
func (a *app) progress(what string) (done func()) {
	if a.json || !a.interactive() {
		return func() {}
	}
	t := time.AfterFunc(time.Second, func() { a.Note("%s", a.Dim(what+" …")) })
	return func() { t.Stop() }
}

func (a *app) connectorList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "list connectors", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := a.reader()
			if err != nil {
				return err
			}
			defer conn.Close()
			var rows [][]string
			for token := ""; ; {
				resp, err := conn.Connectors.ListConnectors(cmd.Context(), &registryv1.ListConnectorsRequest{PageSize: 200, PageToken: token})
				if err != nil {
					return err
				}
				if a.json {
					if err := a.Message(resp); err != nil {
						return err
					}
				}
				for _, c := range resp.GetConnectors() {
					rows = append(rows, []string{c.GetName(), a.state(c.GetState()), fmt.Sprint(c.GetToolCount()), ui.Safe(starts(c), false)})
					if c.GetProblem() != "" {
						rows = append(rows, []string{"", "", "", ui.Safe(c.GetProblem(), false)})
					}
				}
				if token = resp.GetNextPageToken(); token == "" {
					break
				}
			}
			switch {
			case a.json:
			case len(rows) == 0:
				a.Line("no connectors. Add one with  writ connector add NAME -- PROGRAM …")
			default:
				a.Table([]string{"NAME", "STATE", "TOOLS", "STARTS"}, rows)
			}
			return nil
		},
	}
}

func (a *app) state(s registryv1.ConnectorState) string {
	w := word(s, "CONNECTOR_STATE_")
	switch s {
	case registryv1.ConnectorState_CONNECTOR_STATE_CONNECTED, registryv1.ConnectorState_CONNECTOR_STATE_READY:
		return a.Good(w)
	case registryv1.ConnectorState_CONNECTOR_STATE_ERROR, registryv1.ConnectorState_CONNECTOR_STATE_NEEDS_AUTHENTICATION:
		return a.Bad(w)
	}
	return w
}

func (a *app) connectorTest() *cobra.Command {
	return &cobra.Command{
		Use: "test NAME", Short: "start a connector, list its tools, and say what was found", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := a.dial(client.Approver)
			if err != nil {
				return err
			}
			defer conn.Close()
			return a.testConnector(cmd, conn, args[0])
		},
	}
}

func (a *app) connectorLogs() *cobra.Command {
	var lines int32
	cmd := &cobra.Command{
		Use: "logs NAME", Short: "the last lines of a server's standard error", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := a.dial(client.Approver)
			if err != nil {
				return err
			}
			defer conn.Close()
			resp, err := conn.Connectors.GetConnectorLogs(cmd.Context(), &registryv1.GetConnectorLogsRequest{Name: args[0], Lines: lines})
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(resp)
			}
			for _, l := range resp.GetLines() {
				a.Line("%s", ui.Safe(l, false))
			}
			if n := resp.GetNoiseLines(); n > 0 {
				a.Note("%d lines on its standard output were no protocol and were skipped", n)
			}
			return nil
		},
	}
	cmd.Flags().Int32VarP(&lines, "lines", "n", 100, "how many")
	return cmd
}

func (a *app) connectorSwitch(verb string, on bool) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: verb + " a connector", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := a.dial(client.Approver)
			if err != nil {
				return err
			}
			defer conn.Close()
			resp, err := conn.Connectors.SetConnectorEnabled(cmd.Context(), &registryv1.SetConnectorEnabledRequest{Name: args[0], Enabled: on})
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(resp)
			}
			a.Line("%s %sd", args[0], verb)
			return nil
		},
	}
}

func (a *app) connectorRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "remove a connector and end its process", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn, err := a.dial(client.Approver)
			if err != nil {
				return err
			}
			defer conn.Close()
			resp, err := conn.Connectors.DeleteConnector(cmd.Context(), &registryv1.DeleteConnectorRequest{Name: args[0]})
			if err != nil {
				return err
			}
			if a.json {
				return a.Message(resp)
			}
			a.Line("%s removed", args[0])
			return nil
		},
	}
}
