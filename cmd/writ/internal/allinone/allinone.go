// Package allinone is the embedded form: the six services in one process, on one home, behind one address.
//
// The services talk over an in-process channel on which each has a fixed identity; clients come in over a unix socket
// and loopback TCP with a token. Start order is evidence, permission, registry, exec, mcp-host, gateway; stop order the
// reverse.
package allinone

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	evidence "github.com/writ-dev/writ/evidence-svc"
	exec "github.com/writ-dev/writ/exec-svc"
	gateway "github.com/writ-dev/writ/gateway-svc"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/config"
	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/internal/inproc"
	"github.com/writ-dev/writ/internal/sandbox"
	"github.com/writ-dev/writ/internal/server"
	"github.com/writ-dev/writ/internal/telemetry"
	mcphost "github.com/writ-dev/writ/mcp-host-svc"
	permission "github.com/writ-dev/writ/permission-svc"
	registry "github.com/writ-dev/writ/registry-svc"
)

// Names of the services: their identities on the channel, their key files and stores.
const (
	evidenceName   = "evidence"
	permissionName = "permission"
	registryName   = "registry"
	mcphostName    = "mcp-host"
	execName       = "exec"
	gatewayName    = "gateway"
)

// stopPatience is how long a stop may take: running commands are ended and sealed first.
const stopPatience = 20 * time.Second

// Config is what `writ up` reads from flags, environment and file.
type Config struct {
	// Home is $WRIT_HOME, open.
	Home *home.Home
	// Settings are what writ.yaml, environment and flags say; MCPFile is absolute.
	Settings config.Writ
	// Version is the release.
	Version string
	// Logger gets everything.
	Logger *slog.Logger
}

// service is what all six have in common.
type service interface {
	Register(grpc.ServiceRegistrar)
	ServiceNames() []string
	Run(context.Context) error
	Close(context.Context) error
	Health(context.Context) error
}

// Server is a running system.
type Server struct {
	cfg       Config
	telemetry *telemetry.Telemetry
	channel   *inproc.Channel
	server    *server.Server
	services  []service // in start order
	lock      *home.Lock
	listeners []net.Listener
	probe     sandbox.Capabilities
}

// New locks the home and builds the six services. It serves nothing until Run.
func New(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{cfg: cfg}
	if err := s.assemble(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Server) assemble(ctx context.Context) (err error) {
	cfg := s.cfg
	if s.lock, err = cfg.Home.Lock(); err != nil {
		return err
	}
	deployment, err := cfg.Home.DeploymentID()
	if err != nil {
		return err
	}
	if s.telemetry, err = telemetry.New(ctx, telemetry.Options{Version: cfg.Version, Deployment: deployment, Logger: cfg.Logger}); err != nil {
		return err
	}
	tokens, err := auth.EmbeddedTokens(cfg.Home)
	if err != nil {
		return err
	}
	opts := server.Options{Logger: cfg.Logger, TracerProvider: s.telemetry.Provider(gatewayName), Authenticator: tokens, Overrides: evidence.AccessOverrides()}
	if s.server, err = server.New(opts); err != nil {
		return err
	}
	if s.channel, err = inproc.New(inproc.Options{Options: opts, Providers: s.providerOf}); err != nil {
		return err
	}
	s.probe = sandbox.Probe(ctx)
	if err := s.build(ctx, deployment); err != nil {
		return err
	}
	for _, svc := range s.services {
		svc.Register(s.server)
		svc.Register(s.channel)
		s.server.Watch(svc.ServiceNames(), svc.Health)
	}
	s.telemetry.Attach(telemetry.ServiceSink(coltracepb.NewTraceServiceClient(s.channel.As("telemetry"))))
	return nil
}

// keys are the services' signing keys.
type keys map[string]struct {
	private ed25519.PrivateKey
	id      string
}

func (s *Server) keys() (keys, error) {
	out := keys{}
	for _, name := range []string{evidenceName, permissionName, mcphostName, execName, gatewayName} {
		private, id, err := s.cfg.Home.LoadOrCreateKey(name)
		if err != nil {
			return nil, err
		}
		out[name] = struct {
			private ed25519.PrivateKey
			id      string
		}{private, id}
	}
	return out, nil
}

func (k keys) signer(name, audience string) evidence.Signer {
	public, _ := k[name].private.Public().(ed25519.PublicKey)
	return evidence.Signer{Keys: map[string]ed25519.PublicKey{k[name].id: public}, Audience: audience}
}

func (s *Server) build(ctx context.Context, deployment string) error {
	k, err := s.keys()
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context, string, keys) (service, error){
		s.evidence, s.permission, s.registry, s.exec, s.mcphost, s.gateway,
	} {
		svc, err := step(ctx, deployment, k)
		if err != nil {
			return err
		}
		s.services = append(s.services, svc)
	}
	return nil
}

func (s *Server) log(name string) *slog.Logger              { return s.cfg.Logger.With("service", name) }
func (s *Server) provider(name string) trace.TracerProvider { return s.telemetry.Provider(name) }

// providerOf finds a service's tracer provider by the name in its contract's package, where mcp-host has no hyphen.
func (s *Server) providerOf(service string) trace.TracerProvider {
	if service == "mcphost" {
		service = mcphostName
	}
	return s.telemetry.Provider(service)
}

func issuer(deployment string) string         { return "urn:writ:" + deployment + ":permission" }
func audience(deployment, name string) string { return "urn:writ:" + deployment + ":" + name }
func named(name string, svc service, err error) (service, error) {
	if err != nil {
		return nil, fmt.Errorf("%s-svc: %w", name, err)
	}
	return svc, nil
}

func (s *Server) evidence(ctx context.Context, deployment string, k keys) (service, error) {
	signers := map[string]evidence.Signer{
		mcphostName:    k.signer(mcphostName, audience(deployment, mcphostName)),
		execName:       k.signer(execName, audience(deployment, execName)),
		permissionName: k.signer(permissionName, ""),
		gatewayName:    k.signer(gatewayName, ""),
	}
	svc, err := evidence.New(ctx, evidence.Config{
		Database: s.cfg.Home.DataFile(evidenceName), TraceDatabase: s.cfg.Home.DataFile("traces"), BlobDir: s.cfg.Home.BlobDir(),
		Key: k[evidenceName].private, KeyID: k[evidenceName].id, Signers: signers, PermissionIssuer: issuer(deployment),
	}, evidence.WithLogger(s.log(evidenceName)), evidence.WithTracerProvider(s.provider(evidenceName)),
		evidence.WithClients(evidence.Clients{Authorization: permissionv1.NewAuthorizationServiceClient(s.channel.As(evidenceName))}))
	return named(evidenceName, svc, err)
}

func (s *Server) permission(ctx context.Context, deployment string, k keys) (service, error) {
	as := s.channel.As(permissionName)
	svc, err := permission.New(ctx, permission.Config{
		StorePath: s.cfg.Home.DataFile(permissionName), Deployment: deployment, KeysDir: filepath.Join(s.cfg.Home.Root, "keys", "writs"),
		WritLifetime: s.cfg.Settings.Permission.WritLifetime, DecisionMaxAge: s.cfg.Settings.Permission.DecisionMaxAge,
		ServiceKey: k[permissionName].private, ServiceKeyID: k[permissionName].id,
	}, permission.WithLogger(s.log(permissionName)), permission.WithTracerProvider(s.provider(permissionName)),
		permission.WithClients(permission.Clients{Resolver: registryv1.NewResolverServiceClient(as), Receipts: evidencev1.NewReceiptServiceClient(as)}))
	return named(permissionName, svc, err)
}

func (s *Server) registry(ctx context.Context, _ string, _ keys) (service, error) {
	as := s.channel.As(registryName)
	agents := map[string]registry.Agent{}
	for name, a := range s.cfg.Settings.Agents {
		agents[name] = registry.Agent(a)
	}
	svc, err := registry.New(ctx, registry.Config{
		StorePath: s.cfg.Home.DataFile(registryName), MCPFile: s.cfg.Settings.MCPFile, Variables: s.cfg.Settings.Variables, Agents: agents,
		Forbidden: []string{s.cfg.Home.Root}, WorkspaceRoots: s.cfg.Settings.WorkspaceRoots,
	}, registry.WithLogger(s.log(registryName)), registry.WithTracerProvider(s.provider(registryName)),
		registry.WithClients(registry.Clients{
			Servers: mcphostv1.NewServerServiceClient(as), Settings: permissionv1.NewSettingsServiceClient(as), Cards: permissionv1.NewCardServiceClient(as),
		}))
	return named(registryName, svc, err)
}

func (s *Server) exec(ctx context.Context, deployment string, k keys) (service, error) {
	as := s.channel.As(execName)
	svc, err := exec.New(ctx, exec.Config{Deployment: deployment, Namespaces: []string{auth.DefaultNamespace}, Mask: []string{s.cfg.Home.Root}},
		exec.WithLogger(s.log(execName)), exec.WithTracerProvider(s.provider(execName)), exec.WithKey(k[execName].private, k[execName].id),
		exec.WithClients(exec.Clients{
			Claims: evidencev1.NewClaimServiceClient(as), Receipts: evidencev1.NewReceiptServiceClient(as),
			Authorization: permissionv1.NewAuthorizationServiceClient(as),
		}))
	return named(execName, svc, err)
}

func (s *Server) mcphost(ctx context.Context, deployment string, k keys) (service, error) {
	as := s.channel.As(mcphostName)
	svc, err := mcphost.New(ctx, mcphost.Config{
		Namespaces: []string{auth.DefaultNamespace},
		Deployment: deployment, StorePath: s.cfg.Home.DataFile(mcphostName), Mask: s.serverMask(),
		ServersDir: filepath.Join(s.cfg.Home.Root, "servers"),
	}, mcphost.WithLogger(s.log(mcphostName)), mcphost.WithTracerProvider(s.provider(mcphostName)), mcphost.WithKey(k[mcphostName].private, k[mcphostName].id),
		mcphost.WithClients(mcphost.Clients{
			Claims: evidencev1.NewClaimServiceClient(as), Receipts: evidencev1.NewReceiptServiceClient(as), Blobs: evidencev1.NewBlobServiceClient(as),
			Authorization: permissionv1.NewAuthorizationServiceClient(as),
		}))
	return named(mcphostName, svc, err)
}

// serverMask lists what no MCP server may see: the home, and the sockets of container engines, since whoever reaches one
// of those is root.
func (s *Server) serverMask() []string {
	mask := []string{s.cfg.Home.Root}
	for _, path := range []string{"/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock"} {
		if _, err := os.Lstat(path); err == nil {
			mask = append(mask, path)
		}
	}
	return mask
}

func (s *Server) gateway(ctx context.Context, deployment string, k keys) (service, error) {
	as, forward := s.channel.As(gatewayName), s.channel.Forwarding(gatewayName)
	info := gateway.Info{Version: s.cfg.Version, Deployment: deployment, Isolation: s.Isolation(), Limits: map[string]int64{}}
	for _, svc := range s.services {
		info.Services = append(info.Services, svc.ServiceNames()...)
		if l, ok := svc.(interface{ LimitValues() map[string]int64 }); ok {
			maps.Copy(info.Limits, l.LimitValues())
		}
	}
	info.Services = append(info.Services, "writ.gateway.v1.CallService", "writ.common.v1.ServerInfoService")
	svc, err := gateway.New(ctx, gateway.Config{Info: info}, gateway.WithLogger(s.log(gatewayName)), gateway.WithTracerProvider(s.provider(gatewayName)),
		gateway.WithKey(k[gatewayName].private, k[gatewayName].id),
		gateway.WithClients(gateway.Clients{
			Authorization: permissionv1.NewAuthorizationServiceClient(as), Cards: permissionv1.NewCardServiceClient(as),
			Turns: registryv1.NewTurnServiceClient(as), MCPHost: mcphostv1.NewExecutionServiceClient(as), Exec: execv1.NewRunServiceClient(as),
			Receipts: evidencev1.NewReceiptServiceClient(as), Claims: evidencev1.NewClaimServiceClient(as),
			ReceiptsAsCaller: evidencev1.NewReceiptServiceClient(forward), CardsAsCaller: permissionv1.NewCardServiceClient(forward),
		}))
	return named(gatewayName, svc, err)
}

// Isolation says in words what this machine can enforce.
func (s *Server) Isolation() []string {
	command, _ := s.probe.Best(sandbox.ProfileCommand)
	server, _ := s.probe.Best(sandbox.ProfileServer)
	return []string{"commands " + string(command), "servers " + string(server)}
}

// Listen opens the socket and, where one is configured, the loopback address.
func (s *Server) Listen() (err error) {
	listen := s.cfg.Settings.Listen
	unix, err := server.ListenUnix(listen.Socket)
	if err != nil {
		return err
	}
	s.listeners = append(s.listeners, unix)
	if listen.GRPC == "none" {
		return nil
	}
	exposure := server.Exposure{Authenticated: true, External: listen.TLS.External}
	if listen.TLS.Certificate != "" {
		cert, err := tls.LoadX509KeyPair(listen.TLS.Certificate, listen.TLS.Key)
		if err != nil {
			return fmt.Errorf("listen.tls: %w", err)
		}
		exposure.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	tcp, err := server.ListenTCP(listen.GRPC, exposure)
	if err != nil {
		return err
	}
	s.listeners = append(s.listeners, tcp)
	return nil
}

// Addresses lists what is listened on.
func (s *Server) Addresses() (out []string) {
	for _, l := range s.listeners {
		addr := l.Addr().String()
		if l.Addr().Network() == "unix" {
			addr = "unix:" + addr
		}
		out = append(out, addr)
	}
	return out
}

// Run serves until ctx ends or a service fails, then stops everything in order and releases the home.
func (s *Server) Run(ctx context.Context) error {
	defer s.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, len(s.services)+1)
	var background, serving sync.WaitGroup
	for _, svc := range s.services {
		background.Go(func() {
			if err := svc.Run(ctx); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("%s: %w", svc.ServiceNames()[0], err)
			}
		})
	}
	serving.Go(func() {
		if err := s.server.Serve(ctx, s.listeners...); err != nil && ctx.Err() == nil {
			failed <- err
		}
	})
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		cancel()
	}
	serving.Wait()
	err = errors.Join(err, s.stop())
	background.Wait()
	return err
}

// stop ends the services in reverse order. Executors seal what they end, and the last spans are stored, so evidence-svc
// ends last, and the channel after it.
func (s *Server) stop() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	for i := len(s.services) - 1; i >= 0; i-- {
		if i == 0 && s.telemetry != nil {
			err = errors.Join(err, s.telemetry.Flush(ctx))
		}
		err = errors.Join(err, s.services[i].Close(ctx))
	}
	s.services = nil
	return err
}

// close releases what New took. It may be called on a half-built server.
func (s *Server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	if err := s.stop(); err != nil {
		s.cfg.Logger.Warn("stop", "error", err)
	}
	for _, l := range s.listeners {
		_ = l.Close()
	}
	if s.channel != nil {
		s.channel.Close(ctx)
	}
	if s.telemetry != nil {
		_ = s.telemetry.Shutdown(ctx)
	}
	if s.lock != nil {
		_ = s.lock.Release()
	}
}
