// Package standalone runs one service alone: its own listeners, the home's tokens, and connections to its peers.
package standalone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"

	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/internal/server"
	"github.com/writ-dev/writ/internal/telemetry"
)

// Service is what every service's root package offers.
type Service interface {
	Register(grpc.ServiceRegistrar)
	ServiceNames() []string
	Run(context.Context) error
	Health(context.Context) error
}

// Options say where a service is served.
type Options struct {
	// Name is the service's: of its spans, and of its socket in the home.
	Name string
	Home *home.Home
	// Socket is the unix socket; empty: HOME/<name>.sock.
	Socket string
	// Listen is a TCP address on loopback; empty: none.
	Listen    string
	Logger    *slog.Logger
	Telemetry *telemetry.Telemetry
	// Overrides are access rules of third-party services; nil: the kit's own.
	Overrides map[string]auth.Rule
}

// Serve serves until ctx ends, or until the service's background work fails, which is an error: a service that is only
// half at work says so by ending. It does not close the service.
func Serve(ctx context.Context, o Options, svc Service) error {
	tokens, err := auth.EmbeddedTokens(o.Home)
	if err != nil {
		return err
	}
	srv, err := server.New(server.Options{
		Logger: o.Logger, TracerProvider: o.Telemetry.Provider(o.Name), Authenticator: tokens, Overrides: o.Overrides,
	})
	if err != nil {
		return err
	}
	svc.Register(srv)
	srv.Watch(svc.ServiceNames(), svc.Health)
	listeners, err := o.listen()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error // written before background ends, read after
	var background sync.WaitGroup
	background.Go(func() {
		if err := svc.Run(ctx); err != nil && ctx.Err() == nil {
			failed = fmt.Errorf("background work ended: %w", err)
			cancel()
		}
	})
	err = srv.Serve(ctx, listeners...)
	cancel()
	background.Wait()
	return errors.Join(failed, err)
}

func (o Options) listen() ([]net.Listener, error) {
	socket := o.Socket
	if socket == "" {
		socket = filepath.Join(o.Home.Root, o.Name+".sock")
	}
	unix, err := server.ListenUnix(socket)
	if err != nil || o.Listen == "" {
		return []net.Listener{unix}, err
	}
	tcp, err := server.ListenTCP(o.Listen, server.Exposure{Authenticated: true})
	if err != nil {
		return nil, errors.Join(err, unix.Close())
	}
	return []net.Listener{unix, tcp}, nil
}

// Peers are the connections of a service to the others.
type Peers struct {
	opts server.DialOptions
	open []*grpc.ClientConn
	err  error
}

// Dialer prepares connections that carry the service token in the file; empty: none.
func Dialer(name, tokenFile string, tel *telemetry.Telemetry) *Peers {
	p := &Peers{opts: server.DialOptions{TracerProvider: tel.Provider(name)}}
	if tokenFile != "" {
		p.opts.Token, p.err = auth.ReadToken(tokenFile)
	}
	return p
}

// Connect hands a connection to use; it connects at its first call. Nothing happens where target is empty, or after an
// error.
func (p *Peers) Connect(target string, use func(grpc.ClientConnInterface)) {
	if target == "" || p.err != nil {
		return
	}
	conn, err := server.Dial(target, p.opts)
	if err != nil {
		p.err = fmt.Errorf("%s: %w", target, err)
		return
	}
	p.open = append(p.open, conn)
	use(conn)
}

// Err is the first error of Dialer or Connect.
func (p *Peers) Err() error { return p.err }

// Close ends the connections.
func (p *Peers) Close() (err error) {
	for _, conn := range p.open {
		err = errors.Join(err, conn.Close())
	}
	return err
}
