// Package permission is permission-svc: what may happen. It decides calls, asks people by cards, remembers their answers,
// and signs writs. It takes no fact about a tool from its caller, and it grants nothing that a person did not grant.
//
// It works alone: it needs a resolver for what a turn froze, and, where denials are to be recorded, a receipt service.
package permission

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
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/permission-svc/internal/keyring"
	"github.com/writ-dev/writ/permission-svc/internal/store"
)

// ServiceName is the name under which this service signs receipts and is authenticated.
const ServiceName = "permission"

// Config is what a person settles. The zero value works: a temporary store with its keys, and the defaults below.
type Config struct {
	// Deployment is the id of the installation; it stands in issuer and audience of every writ. Empty: "local".
	Deployment string
	// StorePath is the SQLite file. Empty: a temporary one that Close removes.
	StorePath string
	// KeysDir is the folder for the private keys that sign writs (0700, files 0600). Empty: they lie in the store.
	KeysDir string
	// KeyLifetime is after what time the signing key is rotated. 0: 30 days; negative: only by RotateKey.
	KeyLifetime time.Duration
	// WritLifetime is how long a writ is good. 0: 60 s.
	WritLifetime time.Duration
	// DecisionMaxAge is how long after a person's answer a writ may still be minted for it. 0: 1 h.
	DecisionMaxAge time.Duration
	// ServiceKey signs receipts, ServiceKeyID is its id. Empty: one for the life of this process.
	ServiceKey   ed25519.PrivateKey
	ServiceKeyID string
	// Limits are the bounds of this service.
	Limits Limits
}

// Limits are bounds by the names of docs/limits.md. 0 stands for the default.
type Limits struct {
	ArgumentsBytes        int   // arguments_max_bytes: 1 MiB
	PreviewBytes          int   // preview_max_bytes: what a card can show; more can't be approved: 256 KiB
	PreviewArguments      int   // preview_max_arguments: 256
	OpenCardsPerTurn      int64 // open_cards_max_per_turn: 64
	OpenCardsPerPrincipal int64 // open_cards_max_per_principal: 1000
	ClassifyTools         int   // classify_tools_max: 5000
	PageBytes             int   // page_max_bytes: a page of cards ends after so many bytes: 2 MiB
}

func (c Config) withDefaults() Config {
	def(&c.Deployment, "local")
	def(&c.KeyLifetime, 30*24*time.Hour)
	def(&c.WritLifetime, time.Minute)
	def(&c.DecisionMaxAge, time.Hour)
	def(&c.Limits.ArgumentsBytes, 1<<20)
	def(&c.Limits.PreviewBytes, 256<<10)
	def(&c.Limits.PreviewArguments, 256)
	def(&c.Limits.OpenCardsPerTurn, 64)
	def(&c.Limits.OpenCardsPerPrincipal, 1000)
	def(&c.Limits.ClassifyTools, 5000)
	def(&c.Limits.PageBytes, 2<<20)
	return c
}

func def[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Clients are the peers.
type Clients struct {
	// Resolver says what a turn froze: registry-svc, or an embedder in its place. Without it no call is authorized.
	Resolver registryv1.ResolverServiceClient
	// Receipts is evidence-svc. Without it denials and cancellations have no receipt.
	Receipts evidencev1.ReceiptServiceClient
}

// Option sets a dependency.
type Option func(*Server)

// WithLogger sets the logger.
func WithLogger(l *slog.Logger) Option { return func(s *Server) { s.log = l } }

// WithTracerProvider sets where spans go.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(s *Server) { s.tracer = p.Tracer("github.com/writ-dev/writ/permission-svc") }
}

// WithClock sets the clock.
func WithClock(now func() time.Time) Option { return func(s *Server) { s.now = now } }

// WithClients sets the peers.
func WithClients(c Clients) Option { return func(s *Server) { s.clients = c } }

// Server is permission-svc.
type Server struct {
	cfg     Config
	log     *slog.Logger
	tracer  trace.Tracer
	now     func() time.Time
	clients Clients

	store     store.Store
	keys      *keyring.Ring
	sealer    *receipt.Sealer
	changes   hub
	stopping  chan struct{}
	closeOnce sync.Once
	closeErr  error
}

// New opens the store and the keys. It talks to no peer.
func New(ctx context.Context, cfg Config, opts ...Option) (*Server, error) {
	s := &Server{
		cfg: cfg.withDefaults(), log: slog.New(slog.DiscardHandler), now: time.Now, tracer: noop.NewTracerProvider().Tracer(""),
		stopping: make(chan struct{}),
	}
	for _, o := range opts {
		o(s)
	}
	if err := s.serviceKey(); err != nil {
		return nil, err
	}
	var err error
	if s.store, err = store.OpenSQLite(ctx, s.cfg.StorePath); err != nil {
		return nil, err
	}
	s.keys, err = keyring.Open(ctx, keyring.Options{Store: s.store, Dir: s.cfg.KeysDir, Lifetime: s.cfg.KeyLifetime, Now: s.now})
	if err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	if s.clients.Receipts != nil {
		s.sealer = receipt.NewSealer(s.clients.Receipts, ServiceName, s.cfg.ServiceKey, s.cfg.ServiceKeyID)
	}
	return s, nil
}

func (s *Server) serviceKey() error {
	if s.cfg.ServiceKey == nil {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return err
		}
		s.cfg.ServiceKey = key
	}
	if len(s.cfg.ServiceKey) != ed25519.PrivateKeySize {
		return fmt.Errorf("configuration: ServiceKey has %d bytes, an Ed25519 key has %d", len(s.cfg.ServiceKey), ed25519.PrivateKeySize)
	}
	def(&s.cfg.ServiceKeyID, writtoken.KeyID(s.cfg.ServiceKey.Public().(ed25519.PublicKey)))
	return nil
}

// ReceiptKey is the public key of this service's receipts, for evidence-svc.
func (s *Server) ReceiptKey() (keyID string, key ed25519.PublicKey) {
	return s.cfg.ServiceKeyID, s.cfg.ServiceKey.Public().(ed25519.PublicKey)
}

// Issuer is what stands in `iss` of every writ.
func (s *Server) Issuer() string { return "urn:writ:" + s.cfg.Deployment + ":permission" }

// SigningKeys are the public keys of writs by their ids, for executors in the same process.
func (s *Server) SigningKeys() map[string]ed25519.PublicKey {
	out := map[string]ed25519.PublicKey{}
	for _, k := range s.keys.Keys() {
		out[k.KID] = k.Public
	}
	return out
}

// RotateKey takes the next signing key at once. Writs that are out stay good.
func (s *Server) RotateKey(ctx context.Context) error { return s.keys.Rotate(ctx) }

// Register adds the services to a gRPC server or an in-process channel.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	permissionv1.RegisterAuthorizationServiceServer(r, &authorizationService{Server: s})
	permissionv1.RegisterCardServiceServer(r, &cardService{Server: s})
	permissionv1.RegisterGrantServiceServer(r, &grantService{Server: s})
	permissionv1.RegisterSettingsServiceServer(r, &settingsService{Server: s})
}

// ServiceNames are the fully qualified services that Register adds.
func (s *Server) ServiceNames() []string {
	return []string{
		permissionv1.AuthorizationService_ServiceDesc.ServiceName, permissionv1.CardService_ServiceDesc.ServiceName,
		permissionv1.GrantService_ServiceDesc.ServiceName, permissionv1.SettingsService_ServiceDesc.ServiceName,
	}
}

// LimitValues are the bounds by their names, for GetServerInfo.
func (s *Server) LimitValues() map[string]int64 {
	l := s.cfg.Limits
	return map[string]int64{
		"arguments_max_bytes": int64(l.ArgumentsBytes), "preview_max_bytes": int64(l.PreviewBytes), "preview_max_arguments": int64(l.PreviewArguments),
		"open_cards_max_per_turn": l.OpenCardsPerTurn, "open_cards_max_per_principal": l.OpenCardsPerPrincipal, "classify_tools_max": int64(l.ClassifyTools),
		"page_max_bytes": int64(l.PageBytes), "decision_max_age_ms": s.cfg.DecisionMaxAge.Milliseconds(), "writ_lifetime_ms": s.cfg.WritLifetime.Milliseconds(),
	}
}

// Run rotates keys and seals the receipts of answers whose caller did not come back, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		if s.keys.Due() {
			if err := s.keys.Rotate(ctx); err != nil {
				s.log.Error("permission.key_rotation_failed", "error", err)
			}
		}
		changed := s.changes.wait()
		s.sealUnended(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-s.stopping:
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

// Health fails when the store does not answer.
func (s *Server) Health(ctx context.Context) error { return s.store.Ping(ctx) }

// Close ends the watches and closes the store.
func (s *Server) Close(context.Context) error {
	s.closeOnce.Do(func() {
		close(s.stopping)
		s.closeErr = s.store.Close()
	})
	return s.closeErr
}

// hub wakes everybody who waits for a change.
type hub struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that is closed at the next change. Take it before reading the state.
func (h *hub) wait() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ch == nil {
		h.ch = make(chan struct{})
	}
	return h.ch
}

func (h *hub) notify() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ch != nil {
		close(h.ch)
		h.ch = nil
	}
}
