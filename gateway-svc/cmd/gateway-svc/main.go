// Command gateway-svc runs gateway-svc alone, before services that it reaches over gRPC. See -help.
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

	gateway "github.com/writ-dev/writ/gateway-svc"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/internal/sandbox"
	"github.com/writ-dev/writ/internal/standalone"
	"github.com/writ-dev/writ/internal/telemetry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "gateway-svc:", err)
		os.Exit(1)
	}
}

type flags struct {
	home, listen, socket, token                      string
	permission, registry, evidence, mcpHost, sandbox string
}

func parse(args []string, out io.Writer) (f flags, err error) {
	set := flag.NewFlagSet("gateway-svc", flag.ContinueOnError)
	set.SetOutput(out)
	set.StringVar(&f.home, "home", "", "folder with tokens and keys; default $WRIT_HOME, then ~/.writ")
	set.StringVar(&f.listen, "listen", "", "TCP address on loopback, such as 127.0.0.1:7410; default: none")
	set.StringVar(&f.socket, "socket", "", "unix socket; default HOME/gateway.sock")
	set.StringVar(&f.permission, "permission", "", "gRPC target of the permission service, such as unix:/path; required")
	set.StringVar(&f.registry, "registry", "", "gRPC target of the registry; required")
	set.StringVar(&f.evidence, "evidence", "", "gRPC target of evidence; required")
	set.StringVar(&f.mcpHost, "mcp-host", "", "gRPC target of mcp-host; default: none, so that no MCP tool can be called")
	set.StringVar(&f.sandbox, "exec", "", "gRPC target of exec; default: none, so that no command can be run")
	set.StringVar(&f.token, "token", "", "file with the service token that the peers know the gateway by; required")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("%q is not expected; see -help", set.Arg(0))
	}
	for name, value := range map[string]string{"permission": f.permission, "registry": f.registry, "evidence": f.evidence, "token": f.token} {
		if value == "" {
			return f, fmt.Errorf("-%s is missing; see -help", name)
		}
	}
	return f, nil
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
	deployment, err := h.DeploymentID()
	if err != nil {
		return err
	}
	key, keyID, err := h.LoadOrCreateKey(gateway.ServiceName)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(out, nil))
	tel, err := telemetry.New(ctx, telemetry.Options{Logger: log, Deployment: deployment})
	if err != nil {
		return err
	}
	clients, peers := dial(f, tel)
	if err := peers.Err(); err != nil {
		return errors.Join(err, peers.Close())
	}
	gw, err := gateway.New(ctx, gateway.Config{Info: gateway.Info{Deployment: deployment}},
		gateway.WithLogger(log), gateway.WithTracerProvider(tel.Provider(gateway.ServiceName)), gateway.WithClients(clients), gateway.WithKey(key, keyID))
	if err != nil {
		return errors.Join(err, peers.Close())
	}
	err = standalone.Serve(ctx, standalone.Options{
		Name: gateway.ServiceName, Home: h, Socket: f.socket, Listen: f.listen, Logger: log, Telemetry: tel,
	}, gw)
	bounded, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, gw.Close(bounded), peers.Close(), tel.Shutdown(bounded))
}

// dial connects to the peers; each connects at its first call.
func dial(f flags, tel *telemetry.Telemetry) (c gateway.Clients, peers *standalone.Peers) {
	peers = standalone.Dialer(gateway.ServiceName, f.token, tel)
	peers.Connect(f.permission, func(conn grpc.ClientConnInterface) {
		c.Authorization, c.Cards = permissionv1.NewAuthorizationServiceClient(conn), permissionv1.NewCardServiceClient(conn)
	})
	peers.Connect(f.registry, func(conn grpc.ClientConnInterface) { c.Turns = registryv1.NewTurnServiceClient(conn) })
	peers.Connect(f.evidence, func(conn grpc.ClientConnInterface) {
		c.Receipts, c.Claims = evidencev1.NewReceiptServiceClient(conn), evidencev1.NewClaimServiceClient(conn)
	})
	peers.Connect(f.mcpHost, func(conn grpc.ClientConnInterface) { c.MCPHost = mcphostv1.NewExecutionServiceClient(conn) })
	peers.Connect(f.sandbox, func(conn grpc.ClientConnInterface) { c.Exec = execv1.NewRunServiceClient(conn) })
	return c, peers
}
