// Command registry-svc runs registry-svc alone. See -help.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"gopkg.in/yaml.v3"

	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/internal/sandbox"
	"github.com/writ-dev/writ/internal/standalone"
	"github.com/writ-dev/writ/internal/telemetry"
	registry "github.com/writ-dev/writ/registry-svc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "registry-svc:", err)
		os.Exit(1)
	}
}

type flags struct {
	home, listen, socket, store, mcp, config, host, permission, token string
}

func parse(args []string, out io.Writer) (f flags, err error) {
	set := flag.NewFlagSet("registry-svc", flag.ContinueOnError)
	set.SetOutput(out)
	set.StringVar(&f.home, "home", "", "folder with tokens and stores; default $WRIT_HOME, then ~/.writ")
	set.StringVar(&f.listen, "listen", "", "TCP address on loopback, such as 127.0.0.1:7411; default: none")
	set.StringVar(&f.socket, "socket", "", "unix socket; default HOME/registry.sock")
	set.StringVar(&f.store, "store", "", "SQLite file; default HOME/data/registry.db")
	set.StringVar(&f.mcp, "mcp", "", "mcp.json in any of its shapes; default HOME/mcp.json")
	set.StringVar(&f.config, "config", "", "YAML with variables, agents and workspace_roots; default: none")
	set.StringVar(&f.host, "mcp-host", "", "gRPC target of mcp-host, such as unix:/path; default: none, so that no connector can be listed")
	set.StringVar(&f.permission, "permission", "", "gRPC target of the permission service; default: none, so that every turn is Manual")
	set.StringVar(&f.token, "token", "", "file with the service token that peers know this service by")
	err = set.Parse(args)
	if err == nil && set.NArg() > 0 {
		err = fmt.Errorf("%q is not expected; see -help", set.Arg(0))
	}
	return f, err
}

// settings are what the YAML file may hold.
type settings struct {
	Variables      map[string]map[string]string `yaml:"variables"`
	Agents         map[string]registry.Agent    `yaml:"agents"`
	WorkspaceRoots []string                     `yaml:"workspace_roots"`
	Forbidden      []string                     `yaml:"forbidden"`
}

func config(f flags, h *home.Home) (registry.Config, error) {
	var s settings
	if f.config != "" {
		file, err := os.Open(f.config)
		if err != nil {
			return registry.Config{}, err
		}
		defer file.Close()
		decoder := yaml.NewDecoder(file)
		decoder.KnownFields(true)
		if err := decoder.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
			return registry.Config{}, fmt.Errorf("%s: %w", f.config, err)
		}
	}
	return registry.Config{
		StorePath: or(f.store, h.DataFile("registry")), MCPFile: or(f.mcp, h.Root+"/mcp.json"), Variables: s.Variables, Agents: s.Agents,
		Forbidden: append(s.Forbidden, h.Root), WorkspaceRoots: s.WorkspaceRoots,
	}, nil
}

func or(value, otherwise string) string {
	if value != "" {
		return value
	}
	return otherwise
}

func run(ctx context.Context, args []string, out io.Writer) error {
	f, err := parse(args, out)
	if err != nil {
		return err
	}
	if err := sandbox.SetUndumpable(); err != nil {
		return err
	}
	h, err := home.Open(f.home)
	if err != nil {
		return err
	}
	cfg, err := config(f, h)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(out, nil))
	tel, err := telemetry.New(ctx, telemetry.Options{Logger: log})
	if err != nil {
		return err
	}
	clients, peers := dial(f, tel)
	if err := peers.Err(); err != nil {
		return errors.Join(err, peers.Close())
	}
	reg, err := registry.New(ctx, cfg, registry.WithLogger(log), registry.WithTracerProvider(tel.Provider("registry")), registry.WithClients(clients))
	if err != nil {
		return errors.Join(err, peers.Close())
	}
	err = standalone.Serve(ctx, standalone.Options{
		Name: "registry", Home: h, Socket: f.socket, Listen: f.listen, Logger: log, Telemetry: tel,
	}, reg)
	bounded, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, reg.Close(bounded), peers.Close(), tel.Shutdown(bounded))
}

// dial connects to the peers; each connects at its first call.
func dial(f flags, tel *telemetry.Telemetry) (c registry.Clients, peers *standalone.Peers) {
	peers = standalone.Dialer("registry", f.token, tel)
	peers.Connect(f.host, func(conn grpc.ClientConnInterface) { c.Servers = mcphostv1.NewServerServiceClient(conn) })
	peers.Connect(f.permission, func(conn grpc.ClientConnInterface) {
		c.Settings, c.Cards = permissionv1.NewSettingsServiceClient(conn), permissionv1.NewCardServiceClient(conn)
	})
	return c, peers
}
