package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"

	"go.opentelemetry.io/otel/trace"

	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/telemetry"
)

// Bounds of every server that are not worth a setting.
const (
	maxHeaderBytes  = 64 << 10
	maxStreams      = 1000             // at once over one connection
	handshakeLimit  = 10 * time.Second // TLS and HTTP/2
	healthInterval  = 5 * time.Second  // between looks at a service's Health
	clientKeepalive = 10 * time.Second // the shortest interval at which a client may ping
	lastPatience    = time.Second      // for what should end at once
)

// Server serves the registered services on any number of listeners. Register everything before Serve.
type Server struct {
	opts   Options
	chain  *Chain
	grpc   *grpc.Server
	health *health.Server
	checks []check
}

type check struct {
	services []string
	healthy  func(context.Context) error
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// New makes a server with health and reflection. It listens nowhere yet.
func New(opts Options) (*Server, error) {
	chain, err := NewChain(opts, nil)
	if err != nil {
		return nil, err
	}
	opts = chain.opts
	s := &Server{opts: opts, chain: chain, health: health.NewServer()}
	s.grpc = grpc.NewServer(
		grpc.StatsHandler(serverStats(opts.TracerProvider)),
		grpc.ChainUnaryInterceptor(chain.Unary()...),
		grpc.ChainStreamInterceptor(chain.Stream()...),
		grpc.MaxRecvMsgSize(opts.MaxMessageBytes),
		grpc.MaxSendMsgSize(opts.MaxMessageBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshakeLimit),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: clientKeepalive, PermitWithoutStream: true}),
	)
	s.RegisterService(&healthpb.Health_ServiceDesc, s.health)
	return s, nil
}

func serverStats(tp trace.TracerProvider) stats.Handler {
	return otelgrpc.NewServerHandler(statsOptions(tp)...)
}

func statsOptions(tp trace.TracerProvider) []otelgrpc.Option {
	if tp == nil {
		tp = noop.NewTracerProvider()
	}
	return []otelgrpc.Option{
		otelgrpc.WithTracerProvider(tp), otelgrpc.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelgrpc.WithPropagators(telemetry.Propagator()),
		otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool { return !telemetry.Quiet(info.FullMethodName) }),
	}
}

// RegisterService makes a service callable, with health SERVING. Methods of it that have no access rule are reported in
// the log, and refused when called.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	s.chain.Report(desc)
	s.grpc.RegisterService(desc, impl)
	s.health.SetServingStatus(desc.ServiceName, healthpb.HealthCheckResponse_SERVING)
}

// Watch asks healthy at intervals while the server runs, and reports its answer as the health of the services.
func (s *Server) Watch(services []string, healthy func(context.Context) error) {
	s.checks = append(s.checks, check{services, healthy})
}

// GetServiceInfo lists what is registered.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo { return s.grpc.GetServiceInfo() }

// Serve serves on the listeners until ctx ends or one of them fails, then stops: health says NOT_SERVING, streams end
// with SHUTTING_DOWN, calls in progress have StopTimeout to end, and what is left is cancelled. It closes the listeners
// and returns when everything has ended but handlers that ignore cancellation. A stop that was asked for is no error.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	reflection.RegisterV1(s)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, l := range listeners {
		wg.Go(func() {
			if err := s.grpc.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				cancel(err)
			}
		})
	}
	wg.Go(func() { s.watchHealth(ctx) })
	<-ctx.Done()
	s.stop()
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

func (s *Server) stop() {
	s.health.Shutdown()
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.StopTimeout)
	defer cancel()
	graceful := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(graceful)
	}()
	if s.chain.Stop(ctx) {
		// Every handler is done; what GracefulStop still waits for is clients that don't hang up.
		await(graceful, lastPatience)
	}
	s.grpc.Stop()
	if !await(graceful, lastPatience) {
		s.opts.Logger.Error("a handler ignores its cancelled context; the server stops without it")
	}
}

// await tells whether done is closed within patience.
func await(done <-chan struct{}, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

func (s *Server) watchHealth(ctx context.Context) {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		for _, c := range s.checks {
			status := healthpb.HealthCheckResponse_SERVING
			if err := c.healthy(ctx); err != nil && ctx.Err() == nil {
				status = healthpb.HealthCheckResponse_NOT_SERVING
				s.opts.Logger.Warn("service is not healthy", "services", c.services, "error", err)
			}
			for _, name := range c.services {
				s.health.SetServingStatus(name, status)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// DialOptions say how a service or the command line reaches a server.
type DialOptions struct {
	// Token is presented with every call.
	Token string
	// TLS of the connection. Nil: none, for unix sockets and loopback.
	TLS *tls.Config
	// TracerProvider makes the client spans. Nil: none.
	TracerProvider trace.TracerProvider
	// MaxMessageBytes bounds one message. 0: DefaultMaxMessageBytes.
	MaxMessageBytes int
}

// Dial makes a connection that carries trace context, auth.OnBehalfOf and the token. target is gRPC's: "unix:/path",
// "dns:///host:port". It connects at the first call.
func Dial(target string, opts DialOptions) (*grpc.ClientConn, error) {
	if opts.MaxMessageBytes == 0 {
		opts.MaxMessageBytes = DefaultMaxMessageBytes
	}
	transport := insecure.NewCredentials()
	if opts.TLS != nil {
		transport = credentials.NewTLS(opts.TLS)
	}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(statsOptions(opts.TracerProvider)...)),
		grpc.WithUnaryInterceptor(auth.UnaryClientInterceptor()),
		grpc.WithStreamInterceptor(auth.StreamClientInterceptor()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(opts.MaxMessageBytes), grpc.MaxCallSendMsgSize(opts.MaxMessageBytes)),
	}
	if opts.Token != "" {
		dial = append(dial, grpc.WithPerRPCCredentials(auth.Token(opts.Token, opts.TLS != nil)))
	}
	return grpc.NewClient(target, dial...)
}
