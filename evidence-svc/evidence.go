// Package evidence is evidence-svc: what happened. It keeps claims, receipts with their openings, blobs and spans.
//
// It serves ClaimService, ReceiptService, BlobService and TraceService of writ.evidence.v1, and OpenTelemetry's
// collector for traces. Alone it needs nothing but the keys that it is told to trust.
package evidence

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
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/writ-dev/writ/clients/go/writtoken"
	"github.com/writ-dev/writ/evidence-svc/internal/blob"
	"github.com/writ-dev/writ/evidence-svc/internal/claim"
	"github.com/writ-dev/writ/evidence-svc/internal/store"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/executor"
	"github.com/writ-dev/writ/internal/receipt"
)

// service is the name that stands in countersignatures.
const service = "evidence"

// Config is what a server is made from. Its zero value keeps everything in a private folder that Close removes, makes
// a key of its own, and trusts nobody.
type Config struct {
	// Dir holds evidence.db, traces.db and the folder blobs. Empty: a private temporary folder.
	Dir string
	// Database, TraceDatabase and BlobDir override the places in Dir one by one.
	Database, TraceDatabase, BlobDir string
	// Key countersigns, KeyID names it in envelopes. Nil: a new key for this process; empty: the key's thumbprint.
	Key   ed25519.PrivateKey
	KeyID string
	// Signers says which service may sign with which keys, and take claims for which audience, by the name under which
	// the service is authenticated.
	Signers map[string]Signer
	// TrustedIssuers are the keys of issuers of writs, by `iss`.
	TrustedIssuers map[string]map[string]ed25519.PublicKey
	// PermissionIssuer is the `iss` whose keys are read through Clients.Authorization. Empty: it is not asked.
	PermissionIssuer string
	// Skew is the difference between clocks that is tolerated. 0: 5 s.
	Skew time.Duration
	// Limits bound what is kept and taken.
	Limits Limits
}

// Signer is a service whose statements are accepted.
type Signer struct {
	// Keys are its public keys by key id.
	Keys map[string]ed25519.PublicKey
	// Audience is the `aud` of the writs with which it may claim. Empty: it executes nothing.
	Audience string
}

// Limits are settings with a default for 0. Names in errors are those of docs/limits.md.
type Limits struct {
	ArgumentsMaxBytes     int64         // arguments_max_bytes: in an opening; 1 MiB
	ResultsInlineMaxBytes int64         // results_inline_max_bytes: in an opening; 1 MiB
	PayloadRowMaxBytes    int64         // payload_row_max_bytes: kept in the receipt's own transaction, larger is a blob; 64 KiB
	BlobMaxBytes          int64         // blob_max_bytes: 1 GiB
	OpenClaimsMax         int64         // open_claims_max: durable and unsealed, of one namespace; 10,000
	ReservedClaimsMax     int64         // reserved_claims_max: of read classes, in memory; 65,536
	ReservedClaimsFor     time.Duration // reserved_claims_for_ms: 1 h
	RefusalWindow         time.Duration // refusal_window_ms: in which identical refusals are counted in one receipt; 1 min
	RefusalKinds          int64         // refusal_kinds: different refusals that are remembered for that; 4,096
	TraceQueueMax         int64         // trace_queue_max: spans that wait to be stored; 8,192
	TraceSpansMax         int64         // trace_spans_max: of one trace; 2,000
	TracesMax             int64         // traces_max: 50,000
}

func (l Limits) withDefaults() Limits {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.ArgumentsMaxBytes, 1<<20)
	def(&l.ResultsInlineMaxBytes, 1<<20)
	def(&l.PayloadRowMaxBytes, 64<<10)
	def(&l.BlobMaxBytes, 1<<30)
	def(&l.OpenClaimsMax, 10_000)
	def(&l.ReservedClaimsMax, 1<<16)
	def((*int64)(&l.ReservedClaimsFor), int64(time.Hour))
	def((*int64)(&l.RefusalWindow), int64(time.Minute))
	def(&l.RefusalKinds, 4096)
	def(&l.TraceQueueMax, 8192)
	def(&l.TraceSpansMax, 2000)
	def(&l.TracesMax, 50_000)
	return l
}

// Clients are the services that evidence-svc may ask.
type Clients struct {
	// Authorization publishes the keys of PermissionIssuer.
	Authorization permissionv1.AuthorizationServiceClient
}

// Option gives the server a dependency.
type Option func(*Server)

// WithLogger sets the logger; without it nothing is logged.
func WithLogger(l *slog.Logger) Option { return func(s *Server) { s.log = l } }

// WithTracerProvider sets where the server's own spans go; without it nowhere.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(s *Server) { s.tracer = p.Tracer("github.com/writ-dev/writ/evidence-svc") }
}

// WithClock sets the clock.
func WithClock(now func() time.Time) Option { return func(s *Server) { s.now = now } }

// WithClients sets the services to ask.
func WithClients(c Clients) Option { return func(s *Server) { s.clients = c } }

// WithKeySource sets where the keys of an issuer of writs are found, beside Config.TrustedIssuers.
func WithKeySource(issuer string, source writtoken.KeySource) Option {
	return func(s *Server) { s.issuers[issuer] = source }
}

// Server is evidence-svc.
type Server struct {
	evidencev1.UnimplementedClaimServiceServer
	evidencev1.UnimplementedReceiptServiceServer
	evidencev1.UnimplementedBlobServiceServer
	evidencev1.UnimplementedTraceServiceServer

	cfg     Config
	limits  Limits
	log     *slog.Logger
	tracer  trace.Tracer
	now     func() time.Time
	clients Clients
	issuers map[string]writtoken.KeySource

	temp     string
	store    store.Store
	blobs    *blob.Files
	book     *claim.Book
	tokens   claim.Tokens
	refusals *refusals
	spans    *spanQueue

	signersMu sync.Mutex
	signers   atomic.Pointer[map[string]Signer]
}

// New opens the stores and loads the open claims.
func New(ctx context.Context, cfg Config, opts ...Option) (*Server, error) {
	s := &Server{
		cfg: cfg, limits: cfg.Limits.withDefaults(), log: slog.New(slog.DiscardHandler), now: time.Now,
		tracer: noop.NewTracerProvider().Tracer(""), issuers: map[string]writtoken.KeySource{},
	}
	for issuer, keys := range cfg.TrustedIssuers {
		s.issuers[issuer] = writtoken.StaticKeys(keys)
	}
	for _, o := range opts {
		o(s)
	}
	if err := s.keys(); err != nil {
		return nil, err
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *Server) keys() error {
	if s.cfg.Key == nil {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return err
		}
		s.cfg.Key, s.cfg.KeyID = key, ""
	}
	if len(s.cfg.Key) != ed25519.PrivateKeySize {
		return errors.New("Config.Key is no Ed25519 private key")
	}
	if s.cfg.KeyID == "" {
		s.cfg.KeyID = writtoken.KeyID(s.cfg.Key.Public().(ed25519.PublicKey))
	}
	if s.cfg.PermissionIssuer != "" && s.clients.Authorization != nil {
		s.issuers[s.cfg.PermissionIssuer] = &writtoken.RefreshingKeys{Now: s.now, Fetch: func(ctx context.Context) (map[string]ed25519.PublicKey, error) {
			return executor.FetchKeys(ctx, s.clients.Authorization, s.cfg.PermissionIssuer)
		}}
	}
	return nil
}

func (s *Server) open(ctx context.Context) (err error) {
	dir := s.cfg.Dir
	if dir == "" {
		if s.temp, err = os.MkdirTemp("", "writ-evidence-"); err != nil {
			return err
		}
		dir = s.temp
	}
	place := func(own, name string) string {
		if own != "" {
			return own
		}
		return filepath.Join(dir, name)
	}
	if s.blobs, err = blob.Open(place(s.cfg.BlobDir, "blobs")); err != nil {
		return fmt.Errorf("blobs: %w", err)
	}
	if s.store, err = store.OpenSQLite(ctx, place(s.cfg.Database, "evidence.db")); err != nil {
		return err
	}
	if s.spans, err = s.openSpans(ctx, place(s.cfg.TraceDatabase, "traces.db")); err != nil {
		return err
	}
	secret, err := s.store.Secret(ctx)
	if err != nil {
		return err
	}
	s.tokens = claim.NewTokens(secret)
	s.book = claim.NewBook(int(s.limits.ReservedClaimsMax), s.limits.ReservedClaimsFor)
	s.refusals = newRefusals(s.limits.RefusalWindow, int(s.limits.RefusalKinds))
	if err := s.loadClaims(ctx); err != nil {
		return err
	}
	none := map[string]Signer{}
	s.signers.Store(&none)
	own := store.Key{ID: s.cfg.KeyID, Service: service, Public: s.cfg.Key.Public().(ed25519.PublicKey)}
	if err := s.store.KeepKeys(ctx, []store.Key{own}, s.now()); err != nil {
		return err
	}
	for name, signer := range s.cfg.Signers {
		if err := s.TrustSigner(ctx, name, signer); err != nil {
			return err
		}
	}
	return nil
}

// loadClaims fills the book with what was open when the last process ended. The writs were verified then.
func (s *Server) loadClaims(ctx context.Context) error {
	open, err := s.store.OpenClaims(ctx)
	if err != nil {
		return err
	}
	for _, c := range open {
		_, claims, err := writtoken.Unverified(c.Writ)
		if err != nil {
			return fmt.Errorf("the open claim of %s in namespace %s has no readable writ: %w", c.Call, c.Namespace, err)
		}
		s.book.Add(&claim.Entry{
			Key: claim.Key{Namespace: c.Namespace, Call: c.Call}, ID: c.ID, Executor: c.Executor, Claimed: c.Claimed,
			Writ: c.Writ, Claims: claims,
		})
	}
	return nil
}

// Register adds the services to a server or a channel. What stands before them has to authenticate (internal/auth) and
// validate; OTLP's method is for AccessOverrides.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	evidencev1.RegisterClaimServiceServer(r, s)
	evidencev1.RegisterReceiptServiceServer(r, s)
	evidencev1.RegisterBlobServiceServer(r, s)
	evidencev1.RegisterTraceServiceServer(r, s)
	collectorpb.RegisterTraceServiceServer(r, collector{server: s})
}

// AccessOverrides is auth.DefaultOverrides with OpenTelemetry's collector for services only.
func AccessOverrides() map[string]auth.Rule {
	o := auth.DefaultOverrides()
	o["/opentelemetry.proto.collector.trace.v1.TraceService/"] = auth.Rule{
		AccessRule: &commonv1.AccessRule{Roles: []commonv1.Role{commonv1.Role_ROLE_SERVICE}},
	}
	return o
}

// ServiceNames are the services that Register adds.
func (s *Server) ServiceNames() []string {
	return []string{
		evidencev1.ClaimService_ServiceDesc.ServiceName, evidencev1.ReceiptService_ServiceDesc.ServiceName,
		evidencev1.BlobService_ServiceDesc.ServiceName, evidencev1.TraceService_ServiceDesc.ServiceName,
		collectorpb.TraceService_ServiceDesc.ServiceName,
	}
}

// Run stores spans and forgets old reservations until ctx ends. Without it spans are dropped; nothing else needs it.
func (s *Server) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	var storing sync.WaitGroup
	storing.Go(func() { s.spans.run(ctx) })
	defer storing.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.book.Prune(s.now())
		}
	}
}

// Close stores the spans that wait and closes the stores. Run has to have ended.
func (s *Server) Close(ctx context.Context) error {
	s.spans.flush(ctx)
	return s.close()
}

func (s *Server) close() error {
	var err error
	if s.store != nil {
		err = errors.Join(err, s.store.Close())
	}
	if s.spans != nil {
		err = errors.Join(err, s.spans.traces.Close())
	}
	if s.temp != "" {
		err = errors.Join(err, os.RemoveAll(s.temp))
	}
	return err
}

// Health fails when the store can't be read.
func (s *Server) Health(ctx context.Context) error {
	_, err := s.store.Keys(ctx)
	return storeError(err)
}

// PublicKey is the key that countersignatures are verified with, and its id.
func (s *Server) PublicKey() (keyID string, key ed25519.PublicKey) {
	return s.cfg.KeyID, s.cfg.Key.Public().(ed25519.PublicKey)
}

// LimitValues are the limits by their settings' names, for GetServerInfo.
func (s *Server) LimitValues() map[string]int64 {
	return map[string]int64{
		"arguments_max_bytes": s.limits.ArgumentsMaxBytes, "results_inline_max_bytes": s.limits.ResultsInlineMaxBytes,
		"payload_row_max_bytes": s.limits.PayloadRowMaxBytes, "blob_max_bytes": s.limits.BlobMaxBytes,
		"open_claims_max": s.limits.OpenClaimsMax, "reserved_claims_max": s.limits.ReservedClaimsMax,
		"statement_max_bytes": receipt.MaxStatement, "trace_spans_max": s.limits.TraceSpansMax, "traces_max": s.limits.TracesMax,
		"trace_queue_max": s.limits.TraceQueueMax, "refusal_kinds": s.limits.RefusalKinds,
		"refusal_window_ms": s.limits.RefusalWindow.Milliseconds(), "reserved_claims_for_ms": s.limits.ReservedClaimsFor.Milliseconds(),
	}
}
