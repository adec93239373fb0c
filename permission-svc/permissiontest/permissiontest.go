// Package permissiontest runs permission-svc inside a test, as net/http/httptest runs a web server: with its access
// rules, over the channel that services in one process use, beside a resolver and a receipt service that the test holds.
package permissiontest

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/inproc"
	"github.com/writ-dev/writ/internal/server"
	permission "github.com/writ-dev/writ/permission-svc"
)

// Server is a running permission-svc.
type Server struct {
	Permission *permission.Server
	// Registry answers for the turns that the test opened in it.
	Registry *Registry
	// Evidence keeps what was sealed.
	Evidence *Evidence
	channel  *inproc.Channel
	mu       sync.Mutex
	tokens   map[string]auth.Credential
	stop     func()
}

// Start runs a permission-svc until the test ends or Stop is called.
func Start(tb testing.TB, cfg permission.Config, opts ...permission.Option) *Server {
	tb.Helper()
	return StartWith(tb, NewRegistry(), NewEvidence(), cfg, opts...)
}

// StartWith is Start with a registry and an evidence of an earlier server, as after a restart.
func StartWith(tb testing.TB, reg *Registry, ev *Evidence, cfg permission.Config, opts ...permission.Option) *Server {
	tb.Helper()
	s := &Server{Registry: reg, Evidence: ev, tokens: map[string]auth.Credential{}}
	var err error
	s.channel, err = inproc.New(inproc.Options{Options: server.Options{Authenticator: s, Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	peer := s.channel.As(permission.ServiceName)
	s.Permission, err = permission.New(ctx, cfg, append([]permission.Option{permission.WithClients(permission.Clients{
		Resolver: registryv1.NewResolverServiceClient(peer), Receipts: evidencev1.NewReceiptServiceClient(peer),
	})}, opts...)...)
	if err != nil {
		cancel()
		tb.Fatal(err)
	}
	registryv1.RegisterResolverServiceServer(s.channel, reg)
	evidencev1.RegisterReceiptServiceServer(s.channel, ev)
	s.Permission.Register(s.channel)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Permission.Run(ctx) })
	s.stop = sync.OnceFunc(func() {
		bounded, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		cancel()
		wg.Wait()
		if err := s.Permission.Close(bounded); err != nil {
			tb.Error(err)
		}
		s.channel.Close(bounded)
	})
	tb.Cleanup(s.stop)
	return s
}

// Stop ends the server; its store stays where Config.StorePath says.
func (s *Server) Stop() { s.stop() }

// Authenticate knows the tokens of this server's own connections.
func (s *Server) Authenticate(_ context.Context, token string) (auth.Credential, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cred, ok := s.tokens[token]
	if !ok {
		return cred, auth.ErrUnknownToken
	}
	return cred, nil
}

// Caller is a connection of an agent of that name in the namespace "default".
func (s *Server) Caller(name string) grpc.ClientConnInterface {
	return s.As(auth.Credential{
		ID: "caller-" + name, Namespace: "default", Agents: []string{auth.Any}, MaxMode: commonv1.Mode_MODE_BYPASS,
		Principal: &commonv1.Principal{Id: name, Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT}, Roles: []commonv1.Role{commonv1.Role_ROLE_CALLER},
	})
}

// Approver is a connection of a person who is caller, approver and operator in the namespace "default".
func (s *Server) Approver(name string) grpc.ClientConnInterface {
	return s.As(auth.Credential{
		ID: "approver-" + name, Namespace: "default", Agents: []string{auth.Any}, MaxMode: commonv1.Mode_MODE_BYPASS,
		Principal: &commonv1.Principal{Id: name, Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_HUMAN},
		Roles:     []commonv1.Role{commonv1.Role_ROLE_CALLER, commonv1.Role_ROLE_APPROVER, commonv1.Role_ROLE_OPERATOR},
	})
}

// Service is a connection of one of the other services.
func (s *Server) Service(name string) grpc.ClientConnInterface { return s.channel.As(name) }

// As is a connection with a credential of the test's own, for this project's tests.
func (s *Server) As(cred auth.Credential) grpc.ClientConnInterface {
	token := cred.ID + "@" + cred.Namespace
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = cred
	return s.channel.WithToken(token)
}

// Eventually polls a condition until it holds, and fails the test when it does not within ten seconds.
func Eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			tb.Fatalf("it never came to this: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Roles lets a test run over all of them.
func Roles() []commonv1.Role {
	return slices.Clone([]commonv1.Role{commonv1.Role_ROLE_CALLER, commonv1.Role_ROLE_APPROVER, commonv1.Role_ROLE_OPERATOR, commonv1.Role_ROLE_SERVICE})
}
