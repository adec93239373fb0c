package server

import (
	"context"
	"errors"
	"sync"

	middleware "github.com/grpc-ecosystem/go-grpc-middleware/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/errs"
)

var errStopping = errors.New("the server is stopping")

func shuttingDown() error {
	return errs.New(codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN, "", "the server is stopping",
		"Connect again, and re-attach with the last cursor.")
}

// calls knows the calls in progress, so that a stop can end and await them.
type calls struct {
	streams context.Context // ends when the stop begins
	endAll  context.Context // ends when the stop's patience does
	end     context.CancelCauseFunc
	endHard context.CancelCauseFunc

	mu       sync.Mutex
	running  int
	stopping bool
	idle     chan struct{} // closed when stopping and none is running
}

func newCalls() *calls {
	c := &calls{idle: make(chan struct{})}
	c.streams, c.end = context.WithCancelCause(context.Background())
	c.endAll, c.endHard = context.WithCancelCause(context.Background())
	return c
}

func (c *calls) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return false
	}
	c.running++
	return true
}

func (c *calls) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if c.stopping && c.running == 0 {
		close(c.idle)
	}
}

func (c *calls) stop(ctx context.Context) (clean bool) {
	c.mu.Lock()
	first := !c.stopping
	c.stopping = true
	if first && c.running == 0 {
		close(c.idle)
	}
	c.mu.Unlock()
	c.end(errStopping)
	select {
	case <-c.idle:
		return true
	case <-ctx.Done():
		c.endHard(errStopping)
		return false
	}
}

// run puts a call under the stop that ends it.
func (c *calls) run(ctx context.Context, until context.Context, call func(context.Context) error) error {
	if !c.enter() {
		return shuttingDown()
	}
	defer c.leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(until, func() { cancel(errStopping) })()
	err := call(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errStopping) {
		return shuttingDown()
	}
	return err
}

func (c *calls) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	err = c.run(ctx, c.endAll, func(ctx context.Context) (err error) {
		resp, err = handler(ctx, req)
		return err
	})
	return resp, err
}

func (c *calls) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return c.run(ss.Context(), c.streams, func(ctx context.Context) error {
		return handler(srv, &middleware.WrappedServerStream{ServerStream: ss, WrappedContext: ctx})
	})
}
