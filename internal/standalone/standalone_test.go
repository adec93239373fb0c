package standalone_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/writ-dev/writ/internal/home"
	"github.com/writ-dev/writ/internal/standalone"
	"github.com/writ-dev/writ/internal/telemetry"
)

type service struct{ run func(context.Context) error }

func (service) Register(grpc.ServiceRegistrar)  {}
func (service) ServiceNames() []string          { return nil }
func (s service) Run(ctx context.Context) error { return s.run(ctx) }
func (service) Health(context.Context) error    { return nil }
func options(t *testing.T) standalone.Options {
	t.Helper()
	dir, err := os.MkdirTemp("", "w") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h, err := home.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	tel, err := telemetry.New(t.Context(), telemetry.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	return standalone.Options{Name: "x", Home: h, Logger: slog.New(slog.DiscardHandler), Telemetry: tel}
}

// A service whose background work fails ends with what happened, and does not go on half at work.
func TestAServiceThatIsHalfAtWorkEnds(t *testing.T) {
	broken := errors.New("the store is gone")
	err := standalone.Serve(t.Context(), options(t), service{func(context.Context) error { return broken }})
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// The end that was asked for is none of its errors.
func TestAnEndThatWasAskedFor(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := standalone.Serve(ctx, options(t), service{func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }})
	if err != nil {
		t.Errorf("%v", err)
	}
}

// A listener that others could reach does not start (R134).
func TestNoListenerBeyondLoopback(t *testing.T) {
	o := options(t)
	o.Listen = "0.0.0.0:0"
	err := standalone.Serve(t.Context(), o, service{func(context.Context) error { return nil }})
	if err == nil || !strings.Contains(err.Error(), "0.0.0.0:0") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(o.Home.Root + "/x.sock"); !os.IsNotExist(err) {
		t.Errorf("the socket stayed: %v", err)
	}
}

func TestAPeerNeedsItsToken(t *testing.T) {
	p := standalone.Dialer("x", "/nowhere/token", options(t).Telemetry)
	p.Connect("unix:/x", func(grpc.ClientConnInterface) { t.Error("connected without the token") })
	if p.Err() == nil || p.Close() != nil {
		t.Errorf("%v", p.Err())
	}
}
