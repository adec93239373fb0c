// Package exec is exec-svc: it runs commands in a sandbox, for a caller that it
// does not trust. A writ says what may be run; the executor verifies it, claims
// the call at evidence-svc before the effect, says what the kernel really
// enforced, and seals a receipt before it answers.
package exec

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	"github.com/writ-dev/writ/clients/go/writtoken"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/executor"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/sandbox"
)

// ServiceName is the name under which the service is authenticated and signs.
const ServiceName = "exec"

// Config is plain data; the zero value works for one process and no restart.
type Config struct {
	// Deployment is the deployment's id; issuer and audience are made of it.
	Deployment string
	// Audience of accepted writs; empty: urn:writ:<deployment>:exec.
	Audience string
	// Namespaces that are served; empty: all.
	Namespaces []string
	// TrustedIssuers are key files (JWK Set) by issuer. A permission service
	// among the Clients is trusted as urn:writ:<deployment>:permission.
	TrustedIssuers map[string]string
	// Mask lists existing paths that no sandboxed command may see: $WRIT_HOME.
	Mask []string
	// Limits are named in docs/limits.md; a zero is the default.
	Limits Limits
}

// Limits of the service, by their names as settings.
type Limits struct {
	ArgumentsMaxBytes int64         // arguments_max_bytes, 1 MiB
	OutputMaxBytes    int64         // exec_output_max_bytes, 256 KiB of each stream
	RunsMax           int           // exec_runs_max, 64 at a time
	ProcessesMax      int           // exec_processes_max, 1024 of one command
	MemoryMaxBytes    int64         // exec_memory_max_bytes, 4 GiB of one command
	FileMaxBytes      int64         // exec_file_max_bytes, 16 GiB of one file
	KillGrace         time.Duration // exec_kill_grace_ms, 5 s from TERM to KILL
	KeptMax           int           // exec_kept_max, 64 ended runs that can be attached
	KeptFor           time.Duration // exec_kept_for_ms, 10 min
	SealPatience      time.Duration // exec_seal_patience_ms, 30 s of trying to seal
}

func (l Limits) withDefaults() Limits {
	or := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	orInt := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	orTime := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	or(&l.ArgumentsMaxBytes, 1<<20)
	or(&l.OutputMaxBytes, 256<<10)
	or(&l.MemoryMaxBytes, 4<<30)
	or(&l.FileMaxBytes, 16<<30)
	orInt(&l.RunsMax, 64)
	orInt(&l.ProcessesMax, 1024)
	orInt(&l.KeptMax, 64)
	orTime(&l.KillGrace, 5*time.Second)
	orTime(&l.KeptFor, 10*time.Minute)
	orTime(&l.SealPatience, 30*time.Second)
	return l
}

// LimitValues are the limits in force by their names in docs/limits.md: bytes,
// counts, and milliseconds for times.
func (s *Server) LimitValues() map[string]int64 {
	l := s.limits
	return map[string]int64{
		"arguments_max_bytes": l.ArgumentsMaxBytes, "exec_output_max_bytes": l.OutputMaxBytes, "exec_runs_max": int64(l.RunsMax),
		"exec_processes_max": int64(l.ProcessesMax), "exec_memory_max_bytes": l.MemoryMaxBytes, "exec_file_max_bytes": l.FileMaxBytes,
		"exec_kill_grace_ms": int64(l.KillGrace / time.Millisecond), "exec_kept_max": int64(l.KeptMax), "exec_kept_for_ms": int64(l.KeptFor / time.Millisecond),
		"exec_seal_patience_ms": int64(l.SealPatience / time.Millisecond),
	}
}

// Clients are the services that this one calls.
type Clients struct {
	Claims   evidencev1.ClaimServiceClient
	Receipts evidencev1.ReceiptServiceClient
	// Authorization publishes the keys of writs; nil where TrustedIssuers has all.
	Authorization permissionv1.AuthorizationServiceClient
}

// Option gives the server a dependency.
type Option func(*Server)

// WithLogger sets the logger; the default discards.
func WithLogger(l *slog.Logger) Option { return func(s *Server) { s.log = l } }

// WithTracerProvider sets where spans go; the default is nowhere.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(s *Server) { s.tracer = p.Tracer("github.com/writ-dev/writ/exec-svc") }
}

// WithClock sets the clock of events, receipts and writs.
func WithClock(now func() time.Time) Option { return func(s *Server) { s.now = now } }

// WithClients sets the peers. Claims and Receipts are needed.
func WithClients(c Clients) Option { return func(s *Server) { s.clients = c } }

// WithKey sets the key that signs receipts; the default is a new one.
func WithKey(key ed25519.PrivateKey, keyID string) Option {
	return func(s *Server) { s.key, s.keyID = key, keyID }
}

// WithIssuer trusts one more issuer.
func WithIssuer(issuer string, keys writtoken.KeySource) Option {
	return func(s *Server) { s.issuers[issuer] = keys }
}

// Server is the service.
type Server struct {
	execv1.UnimplementedRunServiceServer
	execv1.UnimplementedCapabilityServiceServer

	cfg     Config
	limits  Limits
	log     *slog.Logger
	tracer  trace.Tracer
	now     func() time.Time
	clients Clients
	issuers map[string]writtoken.KeySource
	key     ed25519.PrivateKey
	keyID   string

	verifier *writtoken.Verifier
	sealer   *receipt.Sealer
	runs     *registry

	stop    context.Context // ends when Close begins
	stopNow context.CancelFunc
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup

	probe sync.Mutex
	caps  *sandbox.Capabilities
}

// New makes a server. It fails on a configuration that can't work.
func New(_ context.Context, cfg Config, opts ...Option) (*Server, error) {
	s := &Server{cfg: cfg, limits: cfg.Limits.withDefaults(), log: slog.New(slog.DiscardHandler), now: time.Now,
		tracer: noop.NewTracerProvider().Tracer(""), issuers: map[string]writtoken.KeySource{}}
	for _, o := range opts {
		o(s)
	}
	if s.clients.Claims == nil || s.clients.Receipts == nil {
		return nil, errors.New("exec: clients for evidence's ClaimService and ReceiptService are needed; give them by WithClients")
	}
	if s.cfg.Deployment == "" {
		s.cfg.Deployment = "local"
	}
	if s.cfg.Audience == "" {
		s.cfg.Audience = "urn:writ:" + s.cfg.Deployment + ":exec"
	}
	if err := executor.Trust(s.issuers, s.cfg.Deployment, s.cfg.TrustedIssuers, s.clients.Authorization, s.now); err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	if s.key == nil {
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("exec: key: %w", err)
		}
		s.key, s.keyID = private, writtoken.KeyID(public)
	}
	s.verifier = &writtoken.Verifier{Issuers: s.issuers, Audience: s.cfg.Audience, Namespaces: s.cfg.Namespaces, Now: s.now}
	s.sealer = receipt.NewSealer(s.clients.Receipts, ServiceName, s.key, s.keyID)
	s.runs = newRegistry(s.limits, s.now)
	s.stop, s.stopNow = context.WithCancel(context.Background())
	return s, nil
}

// Register adds the services to a gRPC server or an in-process channel.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	execv1.RegisterRunServiceServer(r, s)
	execv1.RegisterCapabilityServiceServer(r, s)
}

// ServiceNames are the full names of the services that Register adds.
func (s *Server) ServiceNames() []string {
	return []string{execv1.RunService_ServiceDesc.ServiceName, execv1.CapabilityService_ServiceDesc.ServiceName}
}

// PublicKey is the key that verifies this executor's statements.
func (s *Server) PublicKey() (keyID string, key ed25519.PublicKey) {
	return s.keyID, s.key.Public().(ed25519.PublicKey)
}

// Run recovers what an earlier process left, then waits for ctx to end.
func (s *Server) Run(ctx context.Context) error {
	if err := s.recover(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// Close ends running commands, seals them as cancelled, and waits for that
// until ctx ends. Later calls are refused.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stopNow()
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("exec: %d runs have not ended: %w", s.runs.live(), context.Cause(ctx))
	}
}

// Health is an error when the service can't take calls.
func (s *Server) Health(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("exec: shutting down")
	}
	return nil
}

// enter counts a run; it is false once Close began.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}
