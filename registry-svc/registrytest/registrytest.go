// Package registrytest runs registry-svc inside a test, as net/http/httptest runs a web server: with its access rules,
// over the channel that services in one process use.
package registrytest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/inproc"
	"github.com/writ-dev/writ/internal/server"
	registry "github.com/writ-dev/writ/registry-svc"
)

// Server is a running registry.
type Server struct {
	Registry *registry.Server
	channel  *inproc.Channel
	mu       sync.Mutex
	tokens   map[string]auth.Credential
	stop     func()
}

// Start runs a registry until the test ends or Stop is called.
func Start(tb testing.TB, cfg registry.Config, opts ...registry.Option) *Server {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	reg, err := registry.New(ctx, cfg, opts...)
	if err != nil {
		cancel()
		tb.Fatal(err)
	}
	s := &Server{Registry: reg, tokens: map[string]auth.Credential{}}
	s.channel, err = inproc.New(inproc.Options{Options: server.Options{Authenticator: s, Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		cancel()
		tb.Fatal(err)
	}
	reg.Register(s.channel)
	var wg sync.WaitGroup
	wg.Go(func() { _ = reg.Run(ctx) })
	s.stop = sync.OnceFunc(func() {
		bounded, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		s.channel.Close(bounded)
		cancel()
		wg.Wait()
		if err := reg.Close(context.Background()); err != nil {
			tb.Error(err)
		}
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

// Caller is a connection of an agent of that name in the namespace "default": it may act as any agent, up to Bypass,
// in any folder that is not forbidden to all.
func (s *Server) Caller(name string) grpc.ClientConnInterface {
	return s.As(auth.Credential{
		ID: "caller-" + name, Namespace: "default", Agents: []string{auth.Any}, MaxMode: commonv1.Mode_MODE_BYPASS, WorkspaceRoots: []string{auth.Any},
		Principal: &commonv1.Principal{Id: name, Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT},
		Roles:     []commonv1.Role{commonv1.Role_ROLE_CALLER},
	})
}

// Operator is a connection of a person who is caller, approver and operator in the namespace "default".
func (s *Server) Operator(name string) grpc.ClientConnInterface {
	return s.As(auth.Credential{
		ID: "operator-" + name, Namespace: "default", Agents: []string{auth.Any}, MaxMode: commonv1.Mode_MODE_BYPASS, WorkspaceRoots: []string{auth.Any},
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
