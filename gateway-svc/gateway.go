// Package gateway is the door: it conducts a call across the services of Writ and streams its events to any number of
// watchers. It is a convenience, not a guard, and it holds nothing that it cannot lose.
package gateway

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/writ-dev/writ/gateway-svc/internal/conduct"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/internal/receipt"
)

// ServiceName is the name under which the gateway authenticates and signs.
const ServiceName = "gateway"

// Clients are the services that a call passes. Their connections authenticate as the service "gateway".
type Clients struct {
	Authorization permissionv1.AuthorizationServiceClient
	Cards         permissionv1.CardServiceClient
	Turns         registryv1.TurnServiceClient
	// MCPHost and Exec are the executors; one of them may be missing.
	MCPHost  mcphostv1.ExecutionServiceClient
	Exec     execv1.RunServiceClient
	Receipts evidencev1.ReceiptServiceClient
	Claims   evidencev1.ClaimServiceClient
	// CardsAsCaller and ReceiptsAsCaller present the caller's own token (inproc.Channel.Forwarding). An approver or
	// operator sees the calls of others through them; without them only its own.
	CardsAsCaller    permissionv1.CardServiceClient
	ReceiptsAsCaller evidencev1.ReceiptServiceClient
}

// Config is plain data; its zero value works.
type Config struct {
	// Limits; a value of 0 means the default.
	Limits Limits
	// Info is what GetServerInfo answers.
	Info Info
}

// Info describes the whole server, of which the gateway is the door.
type Info struct {
	// Version is the release; "devel" when empty.
	Version string
	// Deployment is the deployment's id.
	Deployment string
	// Services are the fully qualified gRPC services that are served; the gateway's own when empty.
	Services []string
	// Features are the optional features that are on.
	Features []string
	// Limits are the limits of the other services; the gateway adds its own.
	Limits map[string]int64
	// Isolation says what this machine can enforce around a process, probed.
	Isolation []string
}

// Option sets a dependency.
type Option func(*Server)

// WithLogger sets the logger; slog.Default without it.
func WithLogger(l *slog.Logger) Option { return func(s *Server) { s.log = l } }

// WithTracerProvider sets where spans go; nowhere without it.
func WithTracerProvider(p trace.TracerProvider) Option { return func(s *Server) { s.provider = p } }

// WithClock sets the clock; time.Now without it.
func WithClock(now func() time.Time) Option { return func(s *Server) { s.now = now } }

// WithClients sets the peers. New fails without Authorization, Cards, Turns, Receipts and Claims.
func WithClients(c Clients) Option { return func(s *Server) { s.clients = c } }

// WithKey sets the key that signs the receipts of calls that end in the gateway. Without it a temporary one is made.
func WithKey(key ed25519.PrivateKey, keyID string) Option {
	return func(s *Server) { s.key, s.keyID = key, keyID }
}

// Server serves CallService and ServerInfoService. Make one with New.
type Server struct {
	gatewayv1.UnimplementedCallServiceServer
	commonv1.UnimplementedServerInfoServiceServer

	cfg      Config
	limits   Limits
	clients  Clients
	log      *slog.Logger
	provider trace.TracerProvider
	now      func() time.Time
	key      ed25519.PrivateKey
	keyID    string

	set        *conduct.Set
	permission *permissionPeer
	record     *evidencePeer
	turns      *registryPeer

	opened chan struct{} // a watch was opened
	fresh  atomic.Bool   // the approved cards have to be read once more
	mu     sync.Mutex
	closed bool
}

// New makes a server. It conducts from the first request on; Run adds what happens without one.
func New(_ context.Context, cfg Config, opts ...Option) (*Server, error) {
	s := &Server{cfg: cfg, limits: cfg.Limits.withDefaults(), log: slog.Default(), provider: noop.NewTracerProvider(), now: time.Now, opened: make(chan struct{}, 1)}
	for _, o := range opts {
		o(s)
	}
	if err := s.clients.complete(); err != nil {
		return nil, err
	}
	if err := s.ensureKey(); err != nil {
		return nil, err
	}
	s.permission = &permissionPeer{authorization: s.clients.Authorization, cards: s.clients.Cards}
	s.turns = &registryPeer{turns: s.clients.Turns}
	s.record = &evidencePeer{
		claims: s.clients.Claims, receipts: s.clients.Receipts,
		sealer: receipt.NewSealer(s.clients.Receipts, ServiceName, s.key, s.keyID),
	}
	s.set = conduct.NewSet(conduct.Deps{
		Permission: s.permission, Executors: s.clients.executors(), Record: s.record, Turns: s.turns,
		Tracer: tracer{s.provider.Tracer(scope)}, Status: outcomeStatus, ReadWrit: readWrit, Log: s.log, Now: s.now,
	}, s.limits.conduct())
	return s, nil
}

func (c Clients) complete() error {
	var missing string
	switch {
	case c.Authorization == nil:
		missing = "Authorization"
	case c.Cards == nil:
		missing = "Cards"
	case c.Turns == nil:
		missing = "Turns"
	case c.Receipts == nil:
		missing = "Receipts"
	case c.Claims == nil:
		missing = "Claims"
	default:
		return nil
	}
	return errs.New(codes.FailedPrecondition, commonv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE, "Clients."+missing,
		"the gateway has no client for Clients."+missing, "Pass it with WithClients.")
}

func (c Clients) executors() map[string]conduct.Executor {
	m := map[string]conduct.Executor{}
	if c.MCPHost != nil {
		m[mcpHost] = mcpHostPeer{c.MCPHost}
	}
	if c.Exec != nil {
		m[execName] = execPeer{c.Exec}
	}
	return m
}

func (s *Server) ensureKey() error {
	if s.key != nil {
		return nil
	}
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	s.key, s.keyID = key, home.KeyID(public)
	return nil
}

// PublicKey is the key that verifies the receipts that the gateway signed, with its id.
func (s *Server) PublicKey() (keyID string, key ed25519.PublicKey) {
	return s.keyID, s.key.Public().(ed25519.PublicKey)
}

// Register makes the services callable.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	gatewayv1.RegisterCallServiceServer(r, s)
	commonv1.RegisterServerInfoServiceServer(r, s)
}

// ServiceNames are the fully qualified names of what Register registers.
func (s *Server) ServiceNames() []string {
	return []string{gatewayv1.CallService_ServiceDesc.ServiceName, commonv1.ServerInfoService_ServiceDesc.ServiceName}
}

// Close stops conducting: streams end with SHUTTING_DOWN, the calls go on where they run. It waits for every conductor
// or for ctx.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return s.set.Close(ctx)
}

// Health is nil while the server conducts.
func (s *Server) Health(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return statusError(conduct.ErrStopping, "")
	}
	return nil
}

// LimitValues are the limits in force, by their names in docs/limits.md.
func (s *Server) LimitValues() map[string]int64 { return s.limits.Map() }

// GetServerInfo describes the server.
func (s *Server) GetServerInfo(context.Context, *commonv1.GetServerInfoRequest) (*commonv1.GetServerInfoResponse, error) {
	i := s.cfg.Info
	answer := &commonv1.GetServerInfoResponse{
		Version: i.Version, Deployment: i.Deployment, Services: i.Services, Features: i.Features,
		Limits: map[string]int64{}, Isolation: i.Isolation,
	}
	if answer.Version == "" {
		answer.Version = "devel"
	}
	if len(answer.Services) == 0 {
		answer.Services = s.ServiceNames()
	}
	for name, value := range i.Limits {
		answer.Limits[name] = value
	}
	for name, value := range s.limits.Map() {
		answer.Limits[name] = value
	}
	return answer, nil
}
