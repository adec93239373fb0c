// Package mcphost is mcp-host-svc: it keeps the sessions of MCP servers and runs
// calls of their tools, for a caller that it does not trust. A writ says what may
// be called; the host verifies it, compares it with the newest listing of the
// server, claims the call at evidence-svc before the first byte goes out, and
// seals a receipt before it answers.
package mcphost

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/executor"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/sandbox"
	"github.com/writ-dev/writ/internal/telemetry"

	"github.com/writ-dev/writ/mcp-host-svc/internal/execution"
	"github.com/writ-dev/writ/mcp-host-svc/internal/lifecycle"
	"github.com/writ-dev/writ/mcp-host-svc/internal/process"
	"github.com/writ-dev/writ/mcp-host-svc/internal/provider"
	"github.com/writ-dev/writ/mcp-host-svc/internal/server"
	"github.com/writ-dev/writ/mcp-host-svc/internal/session"
	"github.com/writ-dev/writ/mcp-host-svc/internal/store"
	"github.com/writ-dev/writ/mcp-host-svc/internal/wire"
)

// ServiceName is the name under which the service is authenticated and signs.
const ServiceName = "mcp-host"

// Config is plain data; the zero value works for one process and no restart.
type Config struct {
	// Deployment is the deployment's id; issuer and audience are made of it.
	Deployment string
	// Audience of accepted writs; empty: urn:writ:<deployment>:mcp-host.
	Audience string
	// Namespaces that are served; empty: all.
	Namespaces []string
	// TrustedIssuers are key files (JWK Set) by issuer. A permission service
	// among the Clients is trusted as urn:writ:<deployment>:permission.
	TrustedIssuers map[string]string
	// StorePath is the file of the store; empty: a temporary one.
	StorePath string
	// ServersDir holds a folder for each server, in which it starts (R71);
	// empty: a temporary one.
	ServersDir string
	// Mask lists existing paths that no server may see: $WRIT_HOME.
	Mask []string
	// Path is where programs are searched; empty: the host's own PATH.
	Path string
	// NpmCache is what npm is told to use as its cache; empty: its default.
	NpmCache string
	// Limits are named in docs/limits.md; a zero is the default.
	Limits Limits
}

// Clients are the services that this one calls.
type Clients struct {
	Claims   evidencev1.ClaimServiceClient
	Receipts evidencev1.ReceiptServiceClient
	Blobs    evidencev1.BlobServiceClient
	// Authorization publishes the keys of writs; nil where TrustedIssuers has all.
	Authorization permissionv1.AuthorizationServiceClient
}

// Option gives the server a dependency.
type Option func(*Server)

// WithLogger sets the logger; the default discards.
func WithLogger(l *slog.Logger) Option { return func(s *Server) { s.log = l } }

// WithTracerProvider sets where spans go; the default is nowhere.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(s *Server) { s.tracer = p.Tracer("github.com/writ-dev/writ/mcp-host-svc") }
}

// WithClock sets the clock of sessions, events, receipts and writs.
func WithClock(now func() time.Time) Option { return func(s *Server) { s.now = now } }

// WithClients sets the peers. Claims, Receipts and Blobs are needed.
func WithClients(c Clients) Option { return func(s *Server) { s.clients = c } }

// WithKey sets the key that signs receipts; the default is a new one.
func WithKey(key ed25519.PrivateKey, keyID string) Option {
	return func(s *Server) { s.key, s.keyID = key, keyID }
}

// WithIssuer trusts one more issuer.
func WithIssuer(issuer string, keys writtoken.KeySource) Option {
	return func(s *Server) { s.issuers[issuer] = keys }
}

// withStarter starts servers another way than through the sandbox, for tests of
// what has nothing to do with isolation.
func withStarter(st process.Starter) Option { return func(s *Server) { s.starter = st } }

type event = *commonv1.ExecutionEvent

// Server is the service.
type Server struct {
	mcphostv1.UnimplementedExecutionServiceServer
	mcphostv1.UnimplementedServerServiceServer

	cfg     Config
	limits  Limits
	log     *slog.Logger
	tracer  trace.Tracer
	now     func() time.Time
	clients Clients
	issuers map[string]writtoken.KeySource
	key     ed25519.PrivateKey
	keyID   string
	starter process.Starter

	verifier *writtoken.Verifier
	sealer   *receipt.Sealer
	store    store.Store
	servers  *server.Set
	runs     *execution.Table[event]
	used     usedWrits
	tempDir  string // removed by Close; empty: none
	started  time.Time

	stop    context.Context // ends when Close begins
	stopNow context.CancelCauseFunc
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// New makes a server and takes up what its store remembers. It starts no MCP
// server. It fails on a configuration that can't work.
func New(ctx context.Context, cfg Config, opts ...Option) (*Server, error) {
	s := &Server{cfg: cfg, limits: cfg.Limits.withDefaults(), log: slog.New(slog.DiscardHandler), now: time.Now,
		tracer: noop.NewTracerProvider().Tracer(""), issuers: map[string]writtoken.KeySource{}}
	for _, o := range opts {
		o(s)
	}
	if s.clients.Claims == nil || s.clients.Receipts == nil || s.clients.Blobs == nil {
		return nil, errors.New("mcp-host: clients for evidence's ClaimService, ReceiptService and BlobService are needed; give them by WithClients")
	}
	if s.cfg.Deployment == "" {
		s.cfg.Deployment = "local"
	}
	if s.cfg.Audience == "" {
		s.cfg.Audience = "urn:writ:" + s.cfg.Deployment + ":mcp-host"
	}
	if s.cfg.Path == "" {
		s.cfg.Path = os.Getenv("PATH")
	}
	if err := executor.Trust(s.issuers, s.cfg.Deployment, s.cfg.TrustedIssuers, s.clients.Authorization, s.now); err != nil {
		return nil, fmt.Errorf("mcp-host: %w", err)
	}
	if s.key == nil {
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("mcp-host: key: %w", err)
		}
		s.key, s.keyID = private, writtoken.KeyID(public)
	}
	s.started = s.now()
	s.verifier = &writtoken.Verifier{Issuers: s.issuers, Audience: s.cfg.Audience, Namespaces: s.cfg.Namespaces, Now: s.now}
	s.sealer = receipt.NewSealer(s.clients.Receipts, ServiceName, s.key, s.keyID)
	s.runs = execution.NewTable[event](s.limits.KeptMax, s.limits.KeptFor, s.now)
	s.stop, s.stopNow = context.WithCancelCause(context.Background())
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

// prepare makes folders, ends what a killed host left, and restores the servers.
func (s *Server) prepare(ctx context.Context) (err error) {
	if s.cfg.ServersDir == "" {
		if s.tempDir, err = os.MkdirTemp("", "writ-mcp-host-"); err != nil {
			return fmt.Errorf("mcp-host: servers_dir: %w", err)
		}
		s.cfg.ServersDir = s.tempDir
	}
	if s.starter == nil {
		s.starter = &process.Sandboxed{Scope: s.scopePrefix(), Mask: s.cfg.Mask}
		s.sweep(ctx)
	}
	if s.store, err = store.OpenSQLite(ctx, s.cfg.StorePath); err != nil {
		return err
	}
	s.servers = server.NewSet(s.serverConfig())
	known, err := s.store.Servers(ctx)
	if err != nil {
		return err
	}
	for _, k := range known {
		spec, err := decodeSpec(k.Spec)
		if err != nil {
			return fmt.Errorf("mcp-host: stored server %s/%s: %w", k.Namespace, k.Name, err)
		}
		_, _ = s.servers.Apply(s.specOf(spec)) // what does not resolve now is told when it is needed
	}
	listings, err := s.store.Listings(ctx)
	if err != nil {
		return err
	}
	eras, err := s.store.Eras(ctx)
	if err != nil {
		return err
	}
	s.servers.Restore(listings, eras)
	return nil
}

func (s *Server) serverConfig() server.Config {
	l := s.limits
	home, _ := os.UserHomeDir() // without one the variable is left out
	return server.Config{
		Starter: s.starter, Resolver: provider.NewResolver(s.cfg.Path),
		Base: provider.Base{Path: s.cfg.Path, Home: home, Lang: or(os.Getenv("LANG"), "C.UTF-8"), TempDir: "/tmp", User: os.Getenv("USER"), NpmCache: s.cfg.NpmCache},
		Dir:  s.serverDir, StartBudget: l.StartTimeout, ListTimeout: l.ListTimeout, ListingMaxAge: l.ListingMaxAge,
		Lifecycle: lifecycle.Config{BackoffFirst: time.Second, BackoffMost: l.BackoffMax, Steady: 10 * time.Second},
		Session: session.Config{
			ProbeTimeout: l.DiscoverTimeout, StopGrace: l.StopGrace, StderrBytes: l.LogBytes,
			List: session.ListLimits{Pages: l.ListMaxPages, Tools: l.ListMaxTools, Bytes: l.ListMaxBytes},
			Wire: wire.Options{MaxLine: l.LineMaxBytes, MaxReverse: l.ServerRequestsMax},
		},
		Store: s.store, Started: s.serverStarted, Trace: telemetry.Traceparent, Now: s.now, Logger: s.log,
	}
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// serverDir is the folder in which a server without one of its own starts. It is
// not the workspace, so a relative path resolves outside the roots (R71, R72).
func (s *Server) serverDir(k server.Key) (string, error) {
	name := k.Name
	if k.Namespace != defaultNamespace {
		name += "@" + fmt.Sprintf("%x", k.Namespace)
	}
	dir, err := filepath.Abs(filepath.Join(s.cfg.ServersDir, name))
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	return dir, err
}

func (s *Server) scopePrefix() string { return "writ-mcp-host:" + s.cfg.Deployment + ":" }

// sweep ends processes that a killed host left.
func (s *Server) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found, err := sandbox.Sweep(ctx, s.scopePrefix())
	if err != nil {
		s.log.Error("processes of a killed host are still alive", "error", err)
	}
	for _, f := range found {
		s.log.Warn("ended a process of a killed host", "pid", f.PID, "comm", f.Comm)
	}
}

// Register adds the services to a gRPC server or an in-process channel.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	mcphostv1.RegisterExecutionServiceServer(r, s)
	mcphostv1.RegisterServerServiceServer(r, s)
}

// ServiceNames are the full names of the services that Register adds.
func (s *Server) ServiceNames() []string {
	return []string{mcphostv1.ExecutionService_ServiceDesc.ServiceName, mcphostv1.ServerService_ServiceDesc.ServiceName}
}

// PublicKey is the key that verifies this executor's statements.
func (s *Server) PublicKey() (keyID string, key ed25519.PublicKey) {
	return s.keyID, s.key.Public().(ed25519.PublicKey)
}

// Run seals what an earlier process left open, then waits for ctx to end.
func (s *Server) Run(ctx context.Context) error {
	if err := s.recover(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// Close cancels running calls, seals them, and ends every MCP server (R57). It
// waits for that until ctx ends. Later calls are refused.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	if again {
		return nil
	}
	s.stopNow(errShutdown)
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("mcp-host: calls have not ended: %w", context.Cause(ctx))
	}
	return errors.Join(err, s.servers.Close(ctx), s.discard())
}

func (s *Server) discard() (err error) {
	if s.store != nil {
		err = s.store.Close()
	}
	if s.tempDir != "" {
		err = errors.Join(err, os.RemoveAll(s.tempDir))
	}
	return err
}

// Health is an error when the service can't take calls.
func (s *Server) Health(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("mcp-host: shutting down")
	}
	return nil
}

// enter counts a call; it is false once Close began.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}
