// Package gatewaytest runs gateway-svc inside a test, as net/http/httptest runs a web server: with its access rules, over
// the channel that services in one process use. Plane stands in for the other services.
package gatewaytest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	gateway "github.com/writ-dev/writ/gateway-svc"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/inproc"
	"github.com/writ-dev/writ/internal/server"
)

// Server is a running gateway.
type Server struct {
	Gateway *gateway.Server
	channel *inproc.Channel
	mu      sync.Mutex
	tokens  map[string]auth.Credential
	stop    func()
}

// Start runs a gateway before a plane until the test ends or Stop is called. A second one before the same plane is the
// gateway after a restart, or a second replica.
func Start(tb testing.TB, cfg gateway.Config, plane *Plane, opts ...gateway.Option) *Server {
	return StartTraced(tb, cfg, plane, func(string) trace.TracerProvider { return noop.NewTracerProvider() }, opts...)
}

// StartTraced is Start with a tracer provider for each service, by its short name.
func StartTraced(tb testing.TB, cfg gateway.Config, plane *Plane, providers func(service string) trace.TracerProvider, opts ...gateway.Option) *Server {
	tb.Helper()
	s := &Server{tokens: map[string]auth.Credential{}}
	log := slog.New(slog.DiscardHandler)
	var err error
	s.channel, err = inproc.New(inproc.Options{Options: server.Options{Authenticator: s, Logger: log}, Providers: providers})
	if err != nil {
		tb.Fatal(err)
	}
	plane.Register(s.channel)
	opts = append([]gateway.Option{
		gateway.WithLogger(log), gateway.WithTracerProvider(providers("gateway")), gateway.WithClients(Clients(s.channel)),
	}, opts...)
	if s.Gateway, err = gateway.New(context.Background(), cfg, opts...); err != nil {
		tb.Fatal(err)
	}
	s.Gateway.Register(s.channel)
	s.run(tb)
	return s
}

func (s *Server) run(tb testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Gateway.Run(ctx) })
	s.stop = sync.OnceFunc(func() {
		bounded, done := context.WithTimeout(context.Background(), 10*time.Second)
		defer done()
		cancel()
		wg.Wait()
		if err := s.Gateway.Close(bounded); err != nil {
			tb.Error(err)
		}
		if !s.channel.Close(bounded) {
			tb.Error("a handler does not end")
		}
	})
	tb.Cleanup(s.stop)
}

// Clients are clients of everything that is registered on one channel, in the gateway's name.
func Clients(ch *inproc.Channel) gateway.Clients {
	own, forwarding := ch.As(gateway.ServiceName), ch.Forwarding(gateway.ServiceName)
	return gateway.Clients{
		Authorization:    permissionv1.NewAuthorizationServiceClient(own),
		Cards:            permissionv1.NewCardServiceClient(own),
		Turns:            registryv1.NewTurnServiceClient(own),
		MCPHost:          mcphostv1.NewExecutionServiceClient(own),
		Exec:             execv1.NewRunServiceClient(own),
		Receipts:         evidencev1.NewReceiptServiceClient(own),
		Claims:           evidencev1.NewClaimServiceClient(own),
		CardsAsCaller:    permissionv1.NewCardServiceClient(forwarding),
		ReceiptsAsCaller: evidencev1.NewReceiptServiceClient(forwarding),
	}
}

// Stop ends the gateway. Calls that run at the plane go on.
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
		ID: "caller-" + name, Namespace: auth.DefaultNamespace, Principal: Agent(name),
		Roles: []commonv1.Role{commonv1.Role_ROLE_CALLER},
	})
}

// Approver is a connection of a person who is caller, approver and operator in the namespace "default".
func (s *Server) Approver(name string) grpc.ClientConnInterface {
	p := Agent(name)
	p.Kind = commonv1.PrincipalKind_PRINCIPAL_KIND_HUMAN
	return s.As(auth.Credential{
		ID: "approver-" + name, Namespace: auth.DefaultNamespace, Principal: p,
		Roles: []commonv1.Role{commonv1.Role_ROLE_CALLER, commonv1.Role_ROLE_APPROVER, commonv1.Role_ROLE_OPERATOR},
	})
}

// As is a connection with a credential of the test's own.
func (s *Server) As(cred auth.Credential) grpc.ClientConnInterface {
	token := cred.ID + "@" + cred.Namespace
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = cred
	return s.channel.WithToken(token)
}

// Calls is a client of CallService.
func (s *Server) Calls(conn grpc.ClientConnInterface) gatewayv1.CallServiceClient {
	return gatewayv1.NewCallServiceClient(conn)
}

// Agent is an agent in the namespace "default".
func Agent(name string) *commonv1.Principal {
	return &commonv1.Principal{Id: name, Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT, Namespace: auth.DefaultNamespace}
}
