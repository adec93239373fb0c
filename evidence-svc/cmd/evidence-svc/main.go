// Command evidence-svc runs evidence-svc alone. See -help.
package main

import (
	"context"
	"crypto/ed25519"
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
	"gopkg.in/yaml.v3"

	"github.com/writ-dev/writ/clients/go/writtoken"
	evidence "github.com/writ-dev/writ/evidence-svc"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/internal/sandbox"
	"github.com/writ-dev/writ/internal/standalone"
	"github.com/writ-dev/writ/internal/telemetry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "evidence-svc:", err)
		os.Exit(1)
	}
}

type flags struct {
	home, listen, socket, config, permission, token string
}

func parse(args []string, out io.Writer) (f flags, err error) {
	set := flag.NewFlagSet("evidence-svc", flag.ContinueOnError)
	set.SetOutput(out)
	set.StringVar(&f.home, "home", "", "folder with tokens, keys and stores; default $WRIT_HOME, then ~/.writ")
	set.StringVar(&f.listen, "listen", "", "TCP address on loopback, such as 127.0.0.1:7412; default: none")
	set.StringVar(&f.socket, "socket", "", "unix socket; default HOME/evidence.sock")
	set.StringVar(&f.config, "config", "", "YAML with signers, trusted_issuers and permission_issuer; default: none, so that nothing can be claimed or sealed")
	set.StringVar(&f.permission, "permission", "", "gRPC target of the permission service whose keys are those of permission_issuer")
	set.StringVar(&f.token, "token", "", "file with the service token that the permission service knows this service by")
	err = set.Parse(args)
	if err == nil && set.NArg() > 0 {
		err = fmt.Errorf("%q is not expected; see -help", set.Arg(0))
	}
	return f, err
}

// settings are what the YAML file may hold. Key files are JWK sets (RFC 7517) of Ed25519 keys; a relative name is looked
// for beside the YAML file.
type settings struct {
	Signers map[string]struct {
		Audience string `yaml:"audience"`
		KeyFile  string `yaml:"key_file"`
	} `yaml:"signers"`
	TrustedIssuers map[string]struct {
		KeyFile string `yaml:"key_file"`
	} `yaml:"trusted_issuers"`
	PermissionIssuer string `yaml:"permission_issuer"`
}

func config(f flags, h *home.Home) (evidence.Config, error) {
	cfg := evidence.Config{
		Database: h.DataFile("evidence"), TraceDatabase: h.DataFile("traces"), BlobDir: h.BlobDir(),
		Signers: map[string]evidence.Signer{}, TrustedIssuers: map[string]map[string]ed25519.PublicKey{},
	}
	var err error
	if cfg.Key, cfg.KeyID, err = h.LoadOrCreateKey("evidence"); err != nil {
		return cfg, err
	}
	s, err := readSettings(f.config)
	if err != nil {
		return cfg, err
	}
	cfg.PermissionIssuer = s.PermissionIssuer
	for name, signer := range s.Signers {
		keys, err := readKeys(f.config, signer.KeyFile)
		if err != nil {
			return cfg, fmt.Errorf("%s: signers.%s: %w", f.config, name, err)
		}
		cfg.Signers[name] = evidence.Signer{Audience: signer.Audience, Keys: keys}
	}
	for issuer, from := range s.TrustedIssuers {
		if cfg.TrustedIssuers[issuer], err = readKeys(f.config, from.KeyFile); err != nil {
			return cfg, fmt.Errorf("%s: trusted_issuers.%s: %w", f.config, issuer, err)
		}
	}
	return cfg, nil
}

func readSettings(path string) (s settings, err error) {
	if path == "" {
		return s, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer file.Close()
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	if err := decoder.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func readKeys(beside, name string) (map[string]ed25519.PublicKey, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(beside), name)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("key_file: %w", err)
	}
	keys, err := writtoken.ParseKeySet(b)
	if err != nil {
		return nil, fmt.Errorf("key_file %s: %w", name, err)
	}
	return keys, nil
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
	ev, err := evidence.New(ctx, cfg, evidence.WithLogger(log), evidence.WithTracerProvider(tel.Provider("evidence")), evidence.WithClients(clients))
	if err != nil {
		return errors.Join(err, peers.Close())
	}
	err = standalone.Serve(ctx, standalone.Options{
		Name: "evidence", Home: h, Socket: f.socket, Listen: f.listen, Logger: log, Telemetry: tel, Overrides: evidence.AccessOverrides(),
	}, ev)
	bounded, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, ev.Close(bounded), peers.Close(), tel.Shutdown(bounded))
}

// dial connects to the peers; each connects at its first call.
func dial(f flags, tel *telemetry.Telemetry) (c evidence.Clients, peers *standalone.Peers) {
	peers = standalone.Dialer("evidence", f.token, tel)
	peers.Connect(f.permission, func(conn grpc.ClientConnInterface) {
		c.Authorization = permissionv1.NewAuthorizationServiceClient(conn)
	})
	return c, peers
}
