// Command mcp-host-svc runs mcp-host-svc alone. See -help.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/internal/sandbox"
	"github.com/writ-dev/writ/internal/server"
	"github.com/writ-dev/writ/internal/telemetry"
	mcphost "github.com/writ-dev/writ/mcp-host-svc"
)

const closeWithin = 20 * time.Second

func main() {
	sandbox.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mcp-host-svc:", err)
		os.Exit(1)
	}
}

type flags struct {
	home, deployment, listen, socket, evidence, permission, token string
	issuers                                                       map[string]string
}

func parse(args []string, out io.Writer) (f flags, err error) {
	f.issuers = map[string]string{}
	set := flag.NewFlagSet("mcp-host-svc", flag.ContinueOnError)
	set.SetOutput(out)
	set.StringVar(&f.home, "home", "", "folder with tokens and keys, hidden from every MCP server; default $WRIT_HOME, then ~/.writ")
	set.StringVar(&f.deployment, "deployment", "", "deployment id, part of issuer and audience; default HOME/deployment-id")
	set.StringVar(&f.listen, "listen", "", "TCP address on loopback, such as 127.0.0.1:7412; default: none")
	set.StringVar(&f.socket, "socket", "", "unix socket; default HOME/mcp-host.sock")
	set.StringVar(&f.evidence, "evidence", "", "gRPC target of the evidence service, such as unix:/path; needed")
	set.StringVar(&f.permission, "permission", "", "gRPC target of the permission service whose keys are trusted; default: none")
	set.StringVar(&f.token, "token", "", "file with the service token that peers know this service by")
	set.Func("trusted-issuer", "ISSUER=FILE, a JWK Set with the issuer's keys; may be given many times", func(s string) error {
		issuer, file, ok := strings.Cut(s, "=")
		if !ok || issuer == "" || file == "" {
			return fmt.Errorf("%q is not ISSUER=FILE", s)
		}
		f.issuers[issuer] = file
		return nil
	})
	err = set.Parse(args)
	switch {
	case err == nil && set.NArg() > 0:
		err = fmt.Errorf("%q is not expected; see -help", set.Arg(0))
	case err == nil && f.evidence == "":
		err = errors.New("-evidence is needed: nothing runs without a claim and a receipt; see -help")
	}
	return f, err
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
	log := slog.New(slog.NewJSONHandler(out, nil))
	tel, err := telemetry.New(ctx, telemetry.Options{Logger: log})
	if err != nil {
		return err
	}
	clients, hangUp, err := dial(f, tel)
	if err != nil {
		return errors.Join(err, hangUp())
	}
	svc, err := build(ctx, f, h, log, tel, clients)
	if err != nil {
		return errors.Join(err, hangUp())
	}
	err = serve(ctx, f, h, log, tel, svc)
	bounded, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	return errors.Join(err, svc.Close(bounded), hangUp(), tel.Shutdown(bounded))
}

func build(ctx context.Context, f flags, h *home.Home, log *slog.Logger, tel *telemetry.Telemetry, clients mcphost.Clients) (*mcphost.Server, error) {
	key, keyID, err := h.LoadOrCreateKey(mcphost.ServiceName)
	if err != nil {
		return nil, err
	}
	if f.deployment == "" {
		if f.deployment, err = h.DeploymentID(); err != nil {
			return nil, err
		}
	}
	cfg := mcphost.Config{Deployment: f.deployment, TrustedIssuers: f.issuers, Mask: []string{h.Root}, StorePath: h.DataFile(mcphost.ServiceName), ServersDir: filepath.Join(h.Root, "servers")}
	return mcphost.New(ctx, cfg, mcphost.WithLogger(log), mcphost.WithTracerProvider(tel.Provider(mcphost.ServiceName)), mcphost.WithClients(clients), mcphost.WithKey(key, keyID))
}

func serve(ctx context.Context, f flags, h *home.Home, log *slog.Logger, tel *telemetry.Telemetry, svc *mcphost.Server) error {
	tokens, err := auth.EmbeddedTokens(h)
	if err != nil {
		return err
	}
	srv, err := server.New(server.Options{Logger: log, TracerProvider: tel.Provider(mcphost.ServiceName), Authenticator: tokens})
	if err != nil {
		return err
	}
	svc.Register(srv)
	srv.Watch(svc.ServiceNames(), svc.Health)
	if f.socket == "" {
		f.socket = h.Root + "/mcp-host.sock"
	}
	unix, err := server.ListenUnix(f.socket)
	if err != nil {
		return err
	}
	listeners := []net.Listener{unix}
	if f.listen != "" {
		tcp, err := server.ListenTCP(f.listen, server.Exposure{Authenticated: true})
		if err != nil {
			return errors.Join(err, unix.Close())
		}
		listeners = append(listeners, tcp)
	}
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() {
		if err := svc.Run(ctx); err != nil {
			log.Error("background work ended", "error", err)
		}
	})
	err = srv.Serve(ctx, listeners...)
	cancel()
	background.Wait()
	return err
}

// dial connects to the peers; each connects at its first call.
func dial(f flags, tel *telemetry.Telemetry) (c mcphost.Clients, hangUp func() error, err error) {
	var open []*grpc.ClientConn
	hangUp = func() (err error) {
		for _, conn := range open {
			err = errors.Join(err, conn.Close())
		}
		return err
	}
	opts := server.DialOptions{TracerProvider: tel.Provider(mcphost.ServiceName)}
	if f.token != "" {
		if opts.Token, err = auth.ReadToken(f.token); err != nil {
			return c, hangUp, err
		}
	}
	connect := func(target string) *grpc.ClientConn {
		if target == "" || err != nil {
			return nil
		}
		var conn *grpc.ClientConn
		if conn, err = server.Dial(target, opts); err == nil {
			open = append(open, conn)
		}
		return conn
	}
	if conn := connect(f.evidence); conn != nil {
		c.Claims, c.Receipts, c.Blobs = evidencev1.NewClaimServiceClient(conn), evidencev1.NewReceiptServiceClient(conn), evidencev1.NewBlobServiceClient(conn)
	}
	if conn := connect(f.permission); conn != nil {
		c.Authorization = permissionv1.NewAuthorizationServiceClient(conn)
	}
	return c, hangUp, err
}
