// Command permission-svc runs permission-svc alone. See -help.
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
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"

	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/internal/sandbox"
	"github.com/writ-dev/writ/internal/standalone"
	"github.com/writ-dev/writ/internal/telemetry"
	permission "github.com/writ-dev/writ/permission-svc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "permission-svc:", err)
		os.Exit(1)
	}
}

type flags struct {
	home, listen, socket, registry, evidence, token string
	keyLifetime, writLifetime, decisionMaxAge       time.Duration
}

func parse(args []string, out io.Writer) (f flags, err error) {
	set := flag.NewFlagSet("permission-svc", flag.ContinueOnError)
	set.SetOutput(out)
	set.StringVar(&f.home, "home", "", "folder with tokens, keys and stores; default $WRIT_HOME, then ~/.writ")
	set.StringVar(&f.listen, "listen", "", "TCP address on loopback, such as 127.0.0.1:7411; default: none")
	set.StringVar(&f.socket, "socket", "", "unix socket; default HOME/permission.sock")
	set.StringVar(&f.registry, "registry", "", "gRPC target of the ResolverService; without it no call is authorized")
	set.StringVar(&f.evidence, "evidence", "", "gRPC target of the ReceiptService; without it denials have no receipt")
	set.StringVar(&f.token, "token", "", "file with the service token that both know this service by")
	set.DurationVar(&f.keyLifetime, "key-lifetime", 0, "after what time the key that signs writs is rotated; default 720h")
	set.DurationVar(&f.writLifetime, "writ-lifetime", 0, "how long a writ is good; default 60s")
	set.DurationVar(&f.decisionMaxAge, "decision-max-age", 0, "how long after a person's answer a writ may be minted for it; default 1h")
	err = set.Parse(args)
	if err == nil && set.NArg() > 0 {
		err = fmt.Errorf("%q is not expected; see -help", set.Arg(0))
	}
	return f, err
}

func config(f flags, h *home.Home) (cfg permission.Config, err error) {
	cfg = permission.Config{
		StorePath: h.DataFile(permission.ServiceName), KeysDir: filepath.Join(filepath.Dir(h.KeyFile(permission.ServiceName)), "writs"),
		KeyLifetime: f.keyLifetime, WritLifetime: f.writLifetime, DecisionMaxAge: f.decisionMaxAge,
	}
	if cfg.Deployment, err = h.DeploymentID(); err != nil {
		return cfg, err
	}
	cfg.ServiceKey, cfg.ServiceKeyID, err = h.LoadOrCreateKey(permission.ServiceName)
	return cfg, err
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
	svc, err := permission.New(ctx, cfg, permission.WithLogger(log), permission.WithTracerProvider(tel.Provider(permission.ServiceName)), permission.WithClients(clients))
	if err != nil {
		return errors.Join(err, peers.Close())
	}
	err = standalone.Serve(ctx, standalone.Options{
		Name: permission.ServiceName, Home: h, Socket: f.socket, Listen: f.listen, Logger: log, Telemetry: tel,
	}, svc)
	bounded, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, svc.Close(bounded), peers.Close(), tel.Shutdown(bounded))
}

// dial connects to the peers; each connects at its first call.
func dial(f flags, tel *telemetry.Telemetry) (c permission.Clients, peers *standalone.Peers) {
	peers = standalone.Dialer(permission.ServiceName, f.token, tel)
	peers.Connect(f.registry, func(conn grpc.ClientConnInterface) { c.Resolver = registryv1.NewResolverServiceClient(conn) })
	peers.Connect(f.evidence, func(conn grpc.ClientConnInterface) { c.Receipts = evidencev1.NewReceiptServiceClient(conn) })
	return c, peers
}
