package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/inproc"
	"github.com/writ-dev/writ/internal/server"
	"github.com/writ-dev/writ/internal/testkit"
)

// authority is a service whose behaviour a test chooses.
type authority struct {
	permissionv1.UnimplementedAuthorizationServiceServer
	authorize func(context.Context, *permissionv1.AuthorizeRequest) (*permissionv1.AuthorizeResponse, error)
	watch     func(grpc.ServerStreamingServer[permissionv1.WatchDecisionResponse]) error
}

func (a *authority) Authorize(ctx context.Context, r *permissionv1.AuthorizeRequest) (*permissionv1.AuthorizeResponse, error) {
	return a.authorize(ctx, r)
}

func (a *authority) WatchDecision(_ *permissionv1.WatchDecisionRequest, s grpc.ServerStreamingServer[permissionv1.WatchDecisionResponse]) error {
	return a.watch(s)
}

// logs is a slog destination that tests read.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// ways are the two roads to a service. Everything below holds on both.
var ways = map[string]func(t *testing.T, a *authority, opts server.Options) grpc.ClientConnInterface{
	"in process": func(t *testing.T, a *authority, opts server.Options) grpc.ClientConnInterface {
		ch, err := inproc.New(inproc.Options{Options: opts})
		if err != nil {
			t.Fatal(err)
		}
		permissionv1.RegisterAuthorizationServiceServer(ch, a)
		t.Cleanup(func() { ch.Close(context.Background()) })
		return ch.WithToken("caller")
	},
	"unix socket": func(t *testing.T, a *authority, opts server.Options) grpc.ClientConnInterface {
		s, err := server.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		permissionv1.RegisterAuthorizationServiceServer(s, a)
		return dial(t, serve(t, s), "caller")
	},
}

// serve runs s on a socket until the test ends.
func serve(t *testing.T, s *server.Server) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := server.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return path
}

func dial(t *testing.T, path, token string) *grpc.ClientConn {
	t.Helper()
	conn, err := server.Dial("unix:"+path, server.DialOptions{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func onBothWays(t *testing.T, a *authority, run func(t *testing.T, c permissionv1.AuthorizationServiceClient, log *logs)) {
	t.Helper()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			testkit.NoLeaks(t)
			log := &logs{}
			conn := way(t, a, server.Options{
				Logger:        slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
				Authenticator: testkit.People(testkit.Caller("caller"), testkit.Approver("approver")),
			})
			run(t, permissionv1.NewAuthorizationServiceClient(conn), log)
		})
	}
}

var request = &permissionv1.AuthorizeRequest{Turn: "t_1", Call: "c1", Tool: "echo", Arguments: []byte(`{"secret":"payload"}`)}

func infos(err error) (n int) {
	for _, d := range status.Convert(err).Details() {
		if _, ok := d.(*errdetails.ErrorInfo); ok {
			n++
		}
	}
	return n
}

// A handler knows the caller, and the caller gets the handler's answer.
func TestACallArrivesWithItsIdentity(t *testing.T) {
	a := &authority{authorize: func(ctx context.Context, r *permissionv1.AuthorizeRequest) (*permissionv1.AuthorizeResponse, error) {
		id, ok := auth.FromContext(ctx)
		if !ok || id.Subject.GetId() != "caller" || id.Namespace() != "default" {
			t.Errorf("%+v", id)
		}
		if md, _ := metadata.FromIncomingContext(ctx); strings.Join(md.Get("x-mine"), "") != "1" || len(md.Get("authorization")) > 0 {
			t.Errorf("%v", md)
		}
		return &permissionv1.AuthorizeResponse{Decision: &permissionv1.AuthorizeResponse_Denied{Denied: &permissionv1.Denied{Why: r.GetTool()}}}, nil
	}}
	onBothWays(t, a, func(t *testing.T, c permissionv1.AuthorizationServiceClient, log *logs) {
		resp, err := c.Authorize(metadata.AppendToOutgoingContext(t.Context(), "x-mine", "1"), request)
		if err != nil || resp.GetDenied().GetWhy() != "echo" {
			t.Errorf("%v %v", resp, err)
		}
		testkit.WaitFor(t, 5*time.Second, func() bool { return strings.Contains(log.String(), "AuthorizationService/Authorize") })
		line := log.String()
		for _, want := range []string{"code=OK", "turn=t_1", "call=c1", "credential=caller", "namespace=default", "duration="} {
			if !strings.Contains(line, want) {
				t.Errorf("the log lacks %q: %s", want, line)
			}
		}
		if strings.Contains(line, "payload") || strings.Contains(line, "Bearer") {
			t.Errorf("the log has a payload or a token: %s", line)
		}
	})
}

// Bad input names the field, in a BadRequest and in the one ErrorInfo; the handler never sees it.
func TestTheContractsRulesAreEnforced(t *testing.T) {
	a := &authority{authorize: func(context.Context, *permissionv1.AuthorizeRequest) (*permissionv1.AuthorizeResponse, error) {
		t.Error("the handler was reached")
		return nil, nil
	}}
	onBothWays(t, a, func(t *testing.T, c permissionv1.AuthorizationServiceClient, _ *logs) {
		_, err := c.Authorize(t.Context(), &permissionv1.AuthorizeRequest{Turn: "t_1", Call: "no spaces", Tool: "echo"})
		if status.Code(err) != codes.InvalidArgument || errs.ReasonOf(err) != "FIELD_INVALID" || errs.Metadata(err)["field"] != "call" || infos(err) != 1 {
			t.Errorf("%v %v", err, errs.Metadata(err))
		}
		for _, d := range status.Convert(err).Details() {
			if br, ok := d.(*errdetails.BadRequest); ok && br.GetFieldViolations()[0].GetField() == "call" {
				return
			}
		}
		t.Error("no BadRequest that names the field")
	})
}

// Errors keep their reason; what nobody foresaw, a panic among it, is told to the log under the id that the client has.
func TestErrorsReachTheClientAsTheyShould(t *testing.T) {
	var fail func() error
	a := &authority{authorize: func(context.Context, *permissionv1.AuthorizeRequest) (*permissionv1.AuthorizeResponse, error) {
		return nil, fail()
	}}
	onBothWays(t, a, func(t *testing.T, c permissionv1.AuthorizationServiceClient, log *logs) {
		fail = func() error {
			return errs.New(codes.FailedPrecondition, permissionv1.ErrorReason_ERROR_REASON_CARD_DECIDED, "cards/k_1", "the card is decided", "Read it.")
		}
		_, err := c.Authorize(t.Context(), request)
		if status.Code(err) != codes.FailedPrecondition || errs.ReasonOf(err) != "CARD_DECIDED" || errs.Metadata(err)["name"] != "cards/k_1" || infos(err) != 1 {
			t.Errorf("%v", err)
		}
		for name, hidden := range map[string]func() error{
			"an unknown error": func() error { return errors.New("inner text 42") },
			"a panic":          func() error { panic("inner text 42") },
		} {
			fail = hidden
			_, err := c.Authorize(t.Context(), request)
			id := errs.Metadata(err)["id"]
			if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "42") || id == "" || infos(err) != 1 {
				t.Errorf("%s: %v", name, err)
			}
			testkit.WaitFor(t, 5*time.Second, func() bool {
				return strings.Contains(log.String(), id) && strings.Contains(log.String(), "inner text 42")
			})
		}
	})
}

// 5 MiB over a way that takes 4: refused, both ways, with the limit's name.
func TestMessagesAreBounded(t *testing.T) {
	a := &authority{authorize: func(_ context.Context, r *permissionv1.AuthorizeRequest) (*permissionv1.AuthorizeResponse, error) {
		return &permissionv1.AuthorizeResponse{Decision: &permissionv1.AuthorizeResponse_Denied{Denied: &permissionv1.Denied{Why: strings.Repeat("x", 5<<20)}}}, nil
	}}
	onBothWays(t, a, func(t *testing.T, c permissionv1.AuthorizationServiceClient, _ *logs) {
		big := &permissionv1.AuthorizeRequest{Turn: "t_1", Call: "c1", Tool: "echo", Arguments: make([]byte, 5<<20)}
		for name, r := range map[string]*permissionv1.AuthorizeRequest{"request": big, "answer": request} {
			if _, err := c.Authorize(t.Context(), r); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestADeadlineReachesTheHandler(t *testing.T) {
	a := &authority{authorize: func(ctx context.Context, _ *permissionv1.AuthorizeRequest) (*permissionv1.AuthorizeResponse, error) {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("no deadline")
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	onBothWays(t, a, func(t *testing.T, c permissionv1.AuthorizationServiceClient, _ *logs) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := c.Authorize(ctx, request); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%v", err)
		}
	})
}

// A stream delivers, ends with the client's cancellation, and its error has a reason.
func TestStreamsDeliverAndEnd(t *testing.T) {
	ended := make(chan struct{}, 8)
	a := &authority{watch: func(s grpc.ServerStreamingServer[permissionv1.WatchDecisionResponse]) error {
		defer func() { ended <- struct{}{} }()
		if id, ok := auth.FromContext(s.Context()); !ok || id.Subject.GetId() != "caller" {
			t.Errorf("%+v", id)
		}
		for i := 0; ; i++ {
			if err := s.Send(&permissionv1.WatchDecisionResponse{Card: &permissionv1.Card{}}); err != nil {
				return err
			}
			if i == 2 {
				<-s.Context().Done()
				return s.Context().Err()
			}
		}
	}}
	onBothWays(t, a, func(t *testing.T, c permissionv1.AuthorizationServiceClient, _ *logs) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := c.WatchDecision(ctx, &permissionv1.WatchDecisionRequest{Turn: "t_1", Call: "c1"})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
			t.Errorf("%v", err)
		}
		<-ended
		bad, err := c.WatchDecision(t.Context(), &permissionv1.WatchDecisionRequest{})
		if err == nil {
			_, err = bad.Recv()
		}
		if errs.ReasonOf(err) != "FIELD_INVALID" || infos(err) != 1 {
			t.Errorf("a stream's bad request: %v", err)
		}
	})
}

// An open watch does not keep a server from stopping; it is told to come back.
func TestAStopEndsWatches(t *testing.T) {
	testkit.NoLeaks(t)
	s, err := server.New(server.Options{Logger: testkit.Quiet(), Authenticator: testkit.People(testkit.Caller("caller"))})
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{watch: func(s grpc.ServerStreamingServer[permissionv1.WatchDecisionResponse]) error {
		if err := s.Send(&permissionv1.WatchDecisionResponse{}); err != nil {
			return err
		}
		<-s.Context().Done()
		return s.Context().Err()
	}}
	permissionv1.RegisterAuthorizationServiceServer(s, a)
	l, err := server.ListenUnix(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	conn := dial(t, l.(interface{ Path() string }).Path(), "caller")
	stream, err := permissionv1.NewAuthorizationServiceClient(conn).WatchDecision(t.Context(), &permissionv1.WatchDecisionRequest{Turn: "t", Call: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || errs.ReasonOf(err) != "SHUTTING_DOWN" || errs.Metadata(err)["next"] == "" {
		t.Errorf("%v", err)
	}
	if err := <-done; err != nil {
		t.Errorf("%v", err)
	}
}

// A handler that ignores everything costs the stop its patience and no more.
func TestAStopIsBounded(t *testing.T) {
	s, err := server.New(server.Options{Logger: testkit.Quiet(), StopTimeout: 50 * time.Millisecond, Authenticator: testkit.People(testkit.Caller("caller"))})
	if err != nil {
		t.Fatal(err)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	permissionv1.RegisterAuthorizationServiceServer(s, &authority{authorize: func(context.Context, *permissionv1.AuthorizeRequest) (*permissionv1.AuthorizeResponse, error) {
		close(entered)
		<-release
		return &permissionv1.AuthorizeResponse{}, nil
	}})
	l, err := server.ListenUnix(filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	conn := dial(t, l.(interface{ Path() string }).Path(), "caller")
	answered := make(chan error, 1)
	go func() {
		_, err := permissionv1.NewAuthorizationServiceClient(conn).Authorize(context.Background(), request)
		answered <- err
	}()
	<-entered
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := <-answered; err == nil {
		t.Error("the caller was told that it went well")
	}
	close(release)
}

func TestHealthAndReflection(t *testing.T) {
	s, err := server.New(server.Options{Logger: testkit.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	permissionv1.RegisterAuthorizationServiceServer(s, &authority{})
	var mu sync.Mutex
	sick := errors.New("the store is full")
	s.Watch([]string{"writ.permission.v1.AuthorizationService"}, func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		return sick
	})
	probe := healthpb.NewHealthClient(dial(t, serve(t, s), "")) // a probe has no token
	state := func(service string) healthpb.HealthCheckResponse_ServingStatus {
		r, err := probe.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStatus()
	}
	if state("") != healthpb.HealthCheckResponse_SERVING {
		t.Error("the server as a whole")
	}
	testkit.WaitFor(t, 5*time.Second, func() bool {
		return state("writ.permission.v1.AuthorizationService") == healthpb.HealthCheckResponse_NOT_SERVING
	})
	if _, err := probe.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nobody"}); status.Code(err) != codes.NotFound || infos(err) != 1 {
		t.Errorf("an unknown service: %v", err)
	}
	if _, ok := s.GetServiceInfo()["grpc.reflection.v1.ServerReflection"]; !ok {
		t.Error("no reflection")
	}
}

// A caller's on-behalf-of is refused, over a socket too.
func TestOnBehalfOfOverASocket(t *testing.T) {
	onBothWays(t, &authority{}, func(t *testing.T, c permissionv1.AuthorizationServiceClient, _ *logs) {
		_, err := c.Authorize(auth.OnBehalfOf(t.Context(), testkit.Approver("alice").Principal), request)
		if errs.ReasonOf(err) != "ON_BEHALF_REFUSED" {
			t.Errorf("%v", err)
		}
		_, err = c.ListKeys(t.Context(), &permissionv1.ListKeysRequest{})
		if errs.ReasonOf(err) != "UNIMPLEMENTED" || errors.Is(err, io.EOF) {
			t.Errorf("%v", err)
		}
	})
}
