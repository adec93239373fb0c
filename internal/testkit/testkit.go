// Package testkit is what the tests of every service need: identities, an in-process channel that knows them, a sink
// for spans, and waiting without sleeping.
package testkit

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/inproc"
	"github.com/writ-dev/writ/internal/server"
	"github.com/writ-dev/writ/internal/telemetry"
)

// WaitFor polls cond until it holds, and fails the test when it does not within the deadline.
func WaitFor(t testing.TB, deadline time.Duration, cond func() bool) {
	t.Helper()
	timeout := time.NewTimer(deadline)
	defer timeout.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-timeout.C:
			t.Fatalf("not within %v", deadline)
		}
	}
}

// NoLeaks fails the test if it leaves goroutines behind. Call it first, so that it looks after every other cleanup.
func NoLeaks(t testing.TB) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// Quiet is a logger that says nothing.
func Quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// Credential makes a credential in the namespace "default" that may open turns for any agent in any folder, up to Auto
// for an agent and up to Bypass for a person.
func Credential(id string, kind commonv1.PrincipalKind, roles ...commonv1.Role) auth.Credential {
	c := auth.Credential{
		ID: id, Namespace: auth.DefaultNamespace, Roles: roles, Agents: []string{auth.Any}, WorkspaceRoots: []string{auth.Any},
		Principal: &commonv1.Principal{Id: id, Kind: kind, Namespace: auth.DefaultNamespace}, MaxMode: commonv1.Mode_MODE_AUTO,
	}
	if kind == commonv1.PrincipalKind_PRINCIPAL_KIND_HUMAN {
		c.MaxMode = commonv1.Mode_MODE_BYPASS
	}
	return c
}

// Caller is an agent's credential, as the embedded form makes it.
func Caller(id string) auth.Credential {
	return Credential(id, commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT, commonv1.Role_ROLE_CALLER)
}

// Approver is a person's credential, as the embedded form makes it.
func Approver(id string) auth.Credential {
	return Credential(id, commonv1.PrincipalKind_PRINCIPAL_KIND_HUMAN,
		commonv1.Role_ROLE_CALLER, commonv1.Role_ROLE_APPROVER, commonv1.Role_ROLE_OPERATOR)
}

// Tokens authenticates credentials by their ids: the token of the credential "caller" is "caller". For tests only.
type Tokens map[string]auth.Credential

// People makes Tokens of credentials.
func People(creds ...auth.Credential) Tokens {
	t := Tokens{}
	for _, c := range creds {
		t[c.ID] = c
	}
	return t
}

// Authenticate is auth.Authenticator.
func (t Tokens) Authenticate(_ context.Context, bearer string) (auth.Credential, error) {
	if c, ok := t[bearer]; ok {
		return c, nil
	}
	return auth.Credential{}, auth.ErrUnknownToken
}

// Channel is a running in-process channel with the agent "caller" and the person "approver", and the given ones beside.
// Views: channel.WithToken("caller"), channel.As("gateway"). Spans go to the Sink. Everything ends with the test.
func Channel(t testing.TB, creds ...auth.Credential) (*inproc.Channel, *Sink) {
	t.Helper()
	sink := NewSink(t)
	ch, err := inproc.New(inproc.Options{
		Options: server.Options{
			Logger:        Quiet(),
			Authenticator: People(append([]auth.Credential{Caller(auth.CallerToken), Approver(auth.ApproverToken)}, creds...)...),
		},
		Providers: sink.Provider,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if !ch.Close(ctx) {
			t.Error("a handler on the in-process channel does not end")
		}
	})
	return ch, sink
}

// Register registers services on a channel: Register(ch, svc) for whatever has Register(grpc.ServiceRegistrar).
func Register(r grpc.ServiceRegistrar, services ...interface{ Register(grpc.ServiceRegistrar) }) {
	for _, s := range services {
		s.Register(r)
	}
}

// Sink collects the spans of a test.
type Sink struct {
	*telemetry.Telemetry
	mu    sync.Mutex
	spans []Span
}

// Span is a span with the service that made it.
type Span struct {
	*tracepb.Span
	Service string
}

// Attr is the text of a string attribute, "" if it is not there.
func (s Span) Attr(key string) string {
	for _, kv := range s.GetAttributes() {
		if kv.GetKey() == key {
			return kv.GetValue().GetStringValue()
		}
	}
	return ""
}

// NewSink makes a sink with tracer providers (Sink.Provider) that ends with the test.
func NewSink(t testing.TB) *Sink {
	t.Helper()
	s := &Sink{}
	tel, err := telemetry.New(context.Background(), telemetry.Options{Sink: s, Logger: Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	s.Telemetry = tel
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := tel.Shutdown(ctx); err != nil {
			t.Errorf("telemetry: %v", err)
		}
	})
	return s
}

// Export is telemetry.Sink.
func (s *Sink) Export(_ context.Context, rs []*tracepb.ResourceSpans) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rs {
		service := ""
		for _, kv := range r.GetResource().GetAttributes() {
			if kv.GetKey() == "service.name" {
				service = kv.GetValue().GetStringValue()
			}
		}
		for _, scope := range r.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				s.spans = append(s.spans, Span{span, service})
			}
		}
	}
	return nil
}

// Spans returns every span that has ended so far.
func (s *Sink) Spans(t testing.TB) []Span {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Span(nil), s.spans...)
}
