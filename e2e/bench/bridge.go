package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
)

// bridgeCommand makes this program the bridge: bench bridge SOCKET SERVER. It is a process of its own, as Writ is.
const (
	bridgeCommand = "bridge"
	bridgeMethod  = "/bench.Bridge/Call"
)

// bridge is what every gateway has to do at least: take tool and arguments, forward them, answer the result's bytes.
type bridge struct{ server *stdio }

func (b *bridge) call(ctx context.Context, req *gatewayv1.CallToolRequest) (*commonv1.Outcome, error) {
	result, err := b.server.tool(ctx, req.GetTool(), req.GetArguments())
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &commonv1.Outcome{State: commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, Result: result}, nil
}

func bridgeDesc() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "bench.Bridge", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			req := new(gatewayv1.CallToolRequest)
			if err := decode(req); err != nil {
				return nil, err
			}
			return srv.(*bridge).call(ctx, req)
		}}},
	}
}

// serveBridge is the bridge's process. It ends with SIGTERM, or when its parent closes its standard input.
func serveBridge(socket, program string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	s, err := startStdio(ctx, program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	srv := grpc.NewServer()
	srv.RegisterService(bridgeDesc(), &bridge{server: s})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	go func() { // ends with the pipe
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	<-ctx.Done()
	srv.Stop()
	return <-served
}

func openBridge(ctx context.Context, socket, echo string) ([]target, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, bridgeCommand, socket, echo)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(quickConnect()))
	closeAll := func() error {
		if conn != nil {
			_ = conn.Close()
		}
		_ = in.Close()
		kill := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("bridge: %w", err)
		}
		return nil
	}
	t := []target{{name: "bridge", close: closeAll, call: func(ctx context.Context) error {
		out := new(commonv1.Outcome)
		err := conn.Invoke(ctx, bridgeMethod, &gatewayv1.CallToolRequest{Tool: toolName, Arguments: []byte(arguments)}, out, grpc.WaitForReady(true))
		return check(out.GetResult(), err)
	}}}
	if err != nil {
		return t, err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	return t, t[0].call(ctx) // waits until it listens
}
