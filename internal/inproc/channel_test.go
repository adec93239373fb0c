package inproc_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/inproc"
	"github.com/writ-dev/writ/internal/server"
	"github.com/writ-dev/writ/internal/telemetry"
	"github.com/writ-dev/writ/internal/testkit"
)

// authority is permission's door with a behaviour that a test chooses.
type authority struct {
	permissionv1.UnimplementedAuthorizationServiceServer
	authorize func(context.Context, *permissionv1.AuthorizeRequest) error
	watch     func(grpc.ServerStreamingServer[permissionv1.WatchDecisionResponse]) error
}

func (a *authority) Authorize(ctx context.Context, r *permissionv1.AuthorizeRequest) (*permissionv1.AuthorizeResponse, error) {
	return &permissionv1.AuthorizeResponse{}, a.authorize(ctx, r)
}

func (a *authority) WatchDecision(_ *permissionv1.WatchDecisionRequest, s grpc.ServerStreamingServer[permissionv1.WatchDecisionResponse]) error {
	return a.watch(s)
}

func request() *permissionv1.AuthorizeRequest {
	return &permissionv1.AuthorizeRequest{Turn: "t_1", Call: "c1", Tool: "echo", Arguments: []byte("{}")}
}

// Who calls is fixed in the view. Nothing in the metadata or the context changes it (design, Trust 5).
func TestAViewsIdentityCannotBeChanged(t *testing.T) {
	testkit.NoLeaks(t)
	ch, _ := testkit.Channel(t)
	var seen auth.Identity
	permissionv1.RegisterAuthorizationServiceServer(ch, &authority{authorize: func(ctx context.Context, _ *permissionv1.AuthorizeRequest) error {
		seen, _ = auth.FromContext(ctx)
		return nil
	}})
	planted, _ := proto.Marshal(testkit.Approver("alice").Principal)
	spoofed := metadata.AppendToOutgoingContext(t.Context(),
		"authorization", "Bearer approver", "writ-on-behalf-of-bin", string(planted), "writ-service", "evidence", "x-service", "evidence")
	spoofed = auth.NewContext(spoofed, auth.Identity{Peer: &commonv1.Principal{Id: "forged"}, Subject: &commonv1.Principal{Id: "forged"}})

	gateway := permissionv1.NewAuthorizationServiceClient(ch.As("gateway"))
	if _, err := gateway.Authorize(spoofed, request()); err != nil {
		t.Fatal(err)
	}
	if seen.Peer.GetId() != "gateway" || seen.Subject.GetId() != "gateway" || seen.Delegated() || seen.Credential.Has(commonv1.Role_ROLE_APPROVER) {
		t.Errorf("the gateway's view was seen as %+v", seen)
	}

	// The same context on the channel itself, and one that went through a service's view before, have no identity of a
	// service: only the token counts.
	if _, err := permissionv1.NewAuthorizationServiceClient(ch).Authorize(t.Context(), request()); errs.ReasonOf(err) != "UNAUTHENTICATED" {
		t.Errorf("no token: %v", err)
	}
	if _, err := permissionv1.NewAuthorizationServiceClient(ch.WithToken("caller")).Authorize(t.Context(), request()); err != nil || seen.Peer.GetId() != "caller" {
		t.Errorf("by token: %v %+v", err, seen)
	}
	if _, err := gateway.Authorize(auth.OnBehalfOf(t.Context(), testkit.Caller("bot").Principal), request()); err != nil || seen.Subject.GetId() != "bot" || seen.AssertedBy != "gateway" {
		t.Errorf("on behalf: %v %+v", err, seen)
	}
	if _, err := permissionv1.NewAuthorizationServiceClient(ch.WithToken("caller")).Authorize(auth.OnBehalfOf(t.Context(), testkit.Approver("alice").Principal), request()); errs.ReasonOf(err) != "ON_BEHALF_REFUSED" {
		t.Errorf("on behalf by a caller: %v", err)
	}
}

// turns answers through permission, as the gateway goes through a service.
type turns struct {
	registryv1.UnimplementedTurnServiceServer
	next func(context.Context) error
}

func (s *turns) OpenTurn(ctx context.Context, _ *registryv1.OpenTurnRequest) (*registryv1.OpenTurnResponse, error) {
	return &registryv1.OpenTurnResponse{}, s.next(ctx)
}

// A service passes a call on as its caller's own, or as its own for its caller; and a service's identity does not leak
// from the call that it serves into the calls that it makes.
func TestASecondHop(t *testing.T) {
	ch, _ := testkit.Channel(t)
	var seen auth.Identity
	permissionv1.RegisterAuthorizationServiceServer(ch, &authority{authorize: func(ctx context.Context, _ *permissionv1.AuthorizeRequest) error {
		seen, _ = auth.FromContext(ctx)
		if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("x-outer")) > 0 {
			t.Error("metadata of the outer call arrived")
		}
		return nil
	}})
	hop := &turns{}
	registryv1.RegisterTurnServiceServer(ch, hop)
	open := func() error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-outer", "1")
		_, err := registryv1.NewTurnServiceClient(ch.WithToken("caller")).OpenTurn(ctx, &registryv1.OpenTurnRequest{})
		return err
	}
	through := func(cc grpc.ClientConnInterface, wrap func(context.Context) context.Context) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := permissionv1.NewAuthorizationServiceClient(cc).Authorize(wrap(ctx), request())
			return err
		}
	}
	same := func(ctx context.Context) context.Context { return ctx }

	hop.next = through(ch.Forwarding("registry"), same)
	if err := open(); err != nil || seen.Peer.GetId() != "caller" || seen.Delegated() {
		t.Errorf("forwarded: %v %+v", err, seen)
	}
	hop.next = through(ch.As("registry"), auth.Delegate)
	if err := open(); err != nil || seen.Peer.GetId() != "registry" || seen.Subject.GetId() != "caller" || seen.Namespace() != "default" {
		t.Errorf("delegated: %v %+v", err, seen)
	}
	hop.next = through(ch.As("registry"), same)
	if err := open(); err != nil || seen.Subject.GetId() != "registry" {
		t.Errorf("for itself: %v %+v", err, seen)
	}
	hop.next = through(ch, same)
	if err := open(); errs.ReasonOf(err) != "UNAUTHENTICATED" {
		t.Errorf("with nothing: %v", err)
	}
}

type secretKey struct{}

// What a socket keeps apart stays apart: context values, and each side's own copy of a message.
func TestTheTwoSidesAreIsolated(t *testing.T) {
	ch, _ := testkit.Channel(t)
	permissionv1.RegisterAuthorizationServiceServer(ch, &authority{authorize: func(ctx context.Context, r *permissionv1.AuthorizeRequest) error {
		if ctx.Value(secretKey{}) != nil {
			t.Error("a context value leaked")
		}
		r.Tool, r.Arguments[0] = "changed", 'X'
		return nil
	}})
	r := request()
	ctx := context.WithValue(t.Context(), secretKey{}, "secret")
	if _, err := permissionv1.NewAuthorizationServiceClient(ch.WithToken("caller")).Authorize(ctx, r); err != nil {
		t.Fatal(err)
	}
	if r.GetTool() != "echo" || string(r.GetArguments()) != "{}" {
		t.Errorf("the handler changed the caller's message: %v", r)
	}
}

// A refusal of a stream is its status, never a bare end of file.
func TestARefusedStreamSaysWhy(t *testing.T) {
	ch, _ := testkit.Channel(t)
	registryv1.RegisterTurnServiceServer(ch, &turns{})
	for range 200 {
		stream, err := registryv1.NewTurnServiceClient(ch.WithToken("caller")).WatchTurns(t.Context(), &registryv1.WatchTurnsRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if errs.ReasonOf(err) != "ACCESS_DENIED" {
			t.Fatalf("%v", err)
		}
	}
}

func TestAMethodThatNobodyServes(t *testing.T) {
	ch, _ := testkit.Channel(t)
	_, err := permissionv1.NewAuthorizationServiceClient(ch.As("gateway")).Authorize(t.Context(), request())
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("%v", err)
	}
}

// One trace over both hops: client and server spans in a chain, each by the service that it belongs to, with the rpc
// conventions (R110); and it is recorded for evidence although the caller did not sample it, the flag going on as it was.
func TestOneTraceOverTwoHops(t *testing.T) {
	for _, flag := range []string{"00", "01"} {
		ch, sink := testkit.Channel(t)
		var inner string
		permissionv1.RegisterAuthorizationServiceServer(ch, &authority{authorize: func(ctx context.Context, _ *permissionv1.AuthorizeRequest) error {
			inner, _ = telemetry.Traceparent(ctx)
			return errs.New(codes.NotFound, commonv1.ErrorReason_ERROR_REASON_FIELD_INVALID, "x", "m", "n")
		}})
		registryv1.RegisterTurnServiceServer(ch, &turns{next: func(ctx context.Context) error {
			_, err := permissionv1.NewAuthorizationServiceClient(ch.As("registry")).Authorize(ctx, request())
			return err
		}})
		const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
		ctx := telemetry.WithTraceparent(t.Context(), "00-"+trace+"-"+parent+"-"+flag, "vendor=1")
		_, err := registryv1.NewTurnServiceClient(ch.Forwarding("gateway")).OpenTurn(auth.WithToken(ctx, "caller"), &registryv1.OpenTurnRequest{})
		if status.Code(err) != codes.NotFound {
			t.Fatal(err)
		}
		if !strings.HasPrefix(inner, "00-"+trace+"-") || !strings.HasSuffix(inner, "-"+flag) {
			t.Errorf("flag %s: the innermost hop is at %s", flag, inner)
		}
		byID := map[string]testkit.Span{}
		spans := sink.Spans(t)
		for _, s := range spans {
			byID[string(s.GetSpanId())] = s
		}
		var chain []string
		for _, s := range spans {
			if s.GetName() != "writ.permission.v1.AuthorizationService/Authorize" || s.Service != "writ-permission" {
				continue
			}
			if s.Attr("rpc.response.status_code") != "NOT_FOUND" || s.Attr("error.type") != "FIELD_INVALID" || s.Attr("rpc.system.name") != "grpc" || s.Attr("writ.turn") != "t_1" {
				t.Errorf("attributes: %v", s.GetAttributes())
			}
			for ok := true; ok; s, ok = byID[string(s.GetParentSpanId())] {
				chain = append(chain, s.Service)
			}
		}
		if got := strings.Join(chain, " < "); got != "writ-permission < writ-registry < writ-registry < writ-gateway" {
			t.Errorf("flag %s: the chain is %s", flag, got)
		}
	}
}

// Closing ends watches, waits for calls, and refuses later ones.
func TestCloseEndsTheChannel(t *testing.T) {
	testkit.NoLeaks(t)
	ch, err := inproc.New(inproc.Options{Options: server.Options{Logger: testkit.Quiet()}})
	if err != nil {
		t.Fatal(err)
	}
	permissionv1.RegisterAuthorizationServiceServer(ch, &authority{watch: func(s grpc.ServerStreamingServer[permissionv1.WatchDecisionResponse]) error {
		if err := s.Send(&permissionv1.WatchDecisionResponse{}); err != nil {
			return err
		}
		<-s.Context().Done()
		return s.Context().Err()
	}})
	c := permissionv1.NewAuthorizationServiceClient(ch.As("gateway"))
	stream, err := c.WatchDecision(t.Context(), &permissionv1.WatchDecisionRequest{Turn: "t", Call: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if !ch.Close(ctx) {
		t.Error("a watch outlived the close")
	}
	if _, err := stream.Recv(); errs.ReasonOf(err) != "SHUTTING_DOWN" {
		t.Errorf("the watcher was told %v", err)
	}
	if _, err := c.Authorize(t.Context(), request()); errs.ReasonOf(err) != "SHUTTING_DOWN" {
		t.Errorf("a late call: %v", err)
	}
}
