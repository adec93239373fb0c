// Package inproc is the way between services in one process: a channel on which they register as on a gRPC server and
// which they call as a gRPC connection.
//
// A call keeps what a socket gives it: metadata, deadline, cancellation, status details, streams, the size limit, and
// messages of its own on each side. It passes the same interceptors. Who calls is fixed in the view that the caller was
// given, and nothing that a call carries can change it.
package inproc

import (
	"context"
	"errors"
	"io"

	"github.com/fullstorydev/grpchan/inprocgrpc"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"

	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/server"
	"github.com/writ-dev/writ/internal/telemetry"
)

// Options of a Channel. The zero value works.
type Options struct {
	server.Options
	// Providers finds the tracer provider of each service. Nil: Options.TracerProvider for all, or none.
	Providers telemetry.Providers
}

// Channel carries calls inside the process. Used as a connection itself, it knows callers by their bearer token; a
// service gets a view of its own by As. Register everything before the first call.
type Channel struct {
	inner     inprocgrpc.Channel
	chain     *server.Chain
	providers telemetry.Providers
	bearer    view
}

var (
	_ grpc.ServiceRegistrar    = (*Channel)(nil)
	_ grpc.ClientConnInterface = (*Channel)(nil)
)

// New makes a channel. It fails where server.NewChain does.
func New(opts Options) (*Channel, error) {
	c := &Channel{providers: providers(opts)}
	chain, err := server.NewChain(opts.Options, peer)
	if err != nil {
		return nil, err
	}
	c.chain = chain
	unary := append([]grpc.UnaryServerInterceptor{telemetry.UnaryServerInterceptor(c.providers)}, chain.Unary()...)
	stream := append([]grpc.StreamServerInterceptor{telemetry.StreamServerInterceptor(c.providers)}, chain.Stream()...)
	c.inner.WithServerUnaryInterceptor(server.JoinUnary(unary...))
	c.inner.WithServerStreamInterceptor(server.JoinStream(stream...))
	c.bearer = view{channel: c, provider: noop.NewTracerProvider()}
	return c, nil
}

func providers(opts Options) telemetry.Providers {
	if opts.Providers != nil {
		return opts.Providers
	}
	if opts.TracerProvider != nil {
		return func(string) trace.TracerProvider { return opts.TracerProvider }
	}
	none := noop.NewTracerProvider()
	return func(string) trace.TracerProvider { return none }
}

// RegisterService makes a service callable. Methods of it that have no access rule are reported in the log.
func (c *Channel) RegisterService(desc *grpc.ServiceDesc, impl any) {
	c.chain.Report(desc)
	c.inner.RegisterService(desc, impl)
}

// GetServiceInfo lists what is registered.
func (c *Channel) GetServiceInfo() map[string]grpc.ServiceInfo { return c.inner.GetServiceInfo() }

// As is the view of one of the process's services, by its short name ("gateway"). Its calls carry the role service.
func (c *Channel) As(service string) grpc.ClientConnInterface {
	cred := auth.ServiceCredential(service)
	return &view{channel: c, credential: &cred, provider: c.providers(service)}
}

// WithToken is a view that presents a bearer token with every call, as a client over a socket does.
func (c *Channel) WithToken(token string) grpc.ClientConnInterface {
	return &view{channel: c, token: token, provider: noop.NewTracerProvider()}
}

// Forwarding is the view by which a service passes calls on as its caller's own: each call presents the bearer token of
// the served call that its context belongs to.
func (c *Channel) Forwarding(service string) grpc.ClientConnInterface {
	return &view{channel: c, forward: true, provider: c.providers(service)}
}

// Close refuses new calls, ends streams, and waits for calls in progress until ctx ends; then it cancels them. It
// returns whether all had ended by themselves.
func (c *Channel) Close(ctx context.Context) bool { return c.chain.Stop(ctx) }

// Invoke makes a unary call.
func (c *Channel) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	return c.bearer.Invoke(ctx, method, req, resp, opts...)
}

// NewStream opens a stream.
func (c *Channel) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.bearer.NewStream(ctx, desc, method, opts...)
}

// view is the channel in the hands of one caller.
type view struct {
	channel    *Channel
	credential *auth.Credential // nil: the caller is known by its token
	token      string
	forward    bool
	provider   trace.TracerProvider
}

type credentialKey struct{}

// peer reads the identity that a view put into the call. It lies in the client's context, which the server's code can
// look up but which nothing on the wire, metadata least of all, can write.
func peer(ctx context.Context) (auth.Credential, bool) {
	client := inprocgrpc.ClientContext(ctx)
	if client == nil {
		return auth.Credential{}, false
	}
	cred, ok := client.Value(credentialKey{}).(*auth.Credential)
	if !ok || cred == nil {
		return auth.Credential{}, false
	}
	return *cred, true
}

// prepare sets who calls. A view without an identity clears one that an outer call may have left in ctx.
func (v *view) prepare(ctx context.Context) (context.Context, error) {
	if v.forward {
		ctx = auth.ForwardToken(ctx)
	}
	if v.token != "" {
		ctx = auth.WithToken(ctx, v.token)
	}
	ctx, err := auth.Outgoing(ctx)
	return context.WithValue(ctx, credentialKey{}, v.credential), err
}

func (v *view) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	ctx, err := v.prepare(ctx)
	if err != nil {
		return err
	}
	return telemetry.Invoke(ctx, v.provider, method, func(ctx context.Context) error {
		return v.channel.inner.Invoke(ctx, method, req, resp, opts...)
	})
}

func (v *view) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, err := v.prepare(ctx)
	if err != nil {
		return nil, err
	}
	return telemetry.NewStream(ctx, v.provider, desc, method, func(ctx context.Context) (grpc.ClientStream, error) {
		cs, err := v.channel.inner.NewStream(ctx, desc, method, opts...)
		if err != nil || desc.ClientStreams {
			return cs, err
		}
		return oneRequest{cs}, nil
	})
}

// oneRequest is a stream with a single request. As on grpc-go's own connections, sending it fails only for the
// caller's reasons: a server that has refused already answers through RecvMsg, where the status is.
type oneRequest struct{ grpc.ClientStream }

func (s oneRequest) SendMsg(m any) error {
	if err := s.ClientStream.SendMsg(m); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
