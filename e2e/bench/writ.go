package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/home"
)

// startPatience bounds the start and the stop of `writ up`.
const startPatience = 30 * time.Second

// writ is a running `writ up` on a home of its own, with two connections: the person's for what is set up, the agent's
// for what is measured.
type writ struct {
	cmd    *exec.Cmd
	gone   chan struct{}
	person *grpc.ClientConn
	agent  *grpc.ClientConn
	log    string
}

// openWrit starts Writ and settles the echo server's tool twice: the connector "r" is classed read, "e" external mutation
// and always allowed. Each has a process of its own. One open turn has both.
func openWrit(ctx context.Context, root, program, echo string) ([]target, error) {
	h, err := home.Open(root)
	if err != nil {
		return nil, err
	}
	if _, err := auth.EmbeddedTokens(h); err != nil {
		return nil, err
	}
	w := &writ{log: filepath.Join(h.LogDir(), "bench.log"), gone: make(chan struct{})}
	none := []target{{name: "writ", close: w.close}}
	if err := w.start(h, program); err != nil {
		return none, err
	}
	if err := w.connect(ctx, h); err != nil {
		return none, errors.Join(err, w.tail())
	}
	turn, err := w.settle(ctx, echo)
	if err != nil {
		return none, errors.Join(err, w.tail())
	}
	return []target{
		{name: "read", call: w.caller(turn, "mcp.r."+toolName)},
		{name: "effect", call: w.caller(turn, "mcp.e."+toolName), close: w.close},
	}, nil
}

func (w *writ) start(h *home.Home, program string) error {
	log, err := os.OpenFile(w.log, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	w.cmd = exec.Command(program, "up", "--home", h.Root, "--listen", "none")
	w.cmd.Stdout, w.cmd.Stderr, w.cmd.Dir = log, log, h.Root
	if err := w.cmd.Start(); err != nil {
		w.cmd = nil
		return err
	}
	go func() {
		defer close(w.gone)
		_ = w.cmd.Wait() // close looks at how it ended
	}()
	return nil
}

func quickConnect() grpc.ConnectParams {
	return grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}}
}

func (w *writ) connect(ctx context.Context, h *home.Home) (err error) {
	dial := func(credential string) (*grpc.ClientConn, error) {
		token, err := auth.ReadToken(h.TokenFile(credential))
		if err != nil {
			return nil, err
		}
		return grpc.NewClient("unix:"+h.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithPerRPCCredentials(auth.Token(token, false)), grpc.WithConnectParams(quickConnect()))
	}
	if w.person, err = dial(auth.ApproverToken); err != nil {
		return err
	}
	if w.agent, err = dial(auth.CallerToken); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	go func() { // a server that ends at once is not waited for
		select {
		case <-w.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		answer, err := healthpb.NewHealthClient(w.agent).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return fmt.Errorf("`writ up` does not answer: %w", err)
		}
		if answer.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("`writ up` does not serve: %s", answer.GetStatus())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// settle adds the two connectors, classifies their tool, and opens the turn in which that holds.
func (w *writ) settle(ctx context.Context, echo string) (string, error) {
	for _, name := range []string{"r", "e"} {
		_, err := registryv1.NewConnectorServiceClient(w.person).CreateConnector(ctx, &registryv1.CreateConnectorRequest{
			Connector: &registryv1.Connector{Name: name, Transport: registryv1.Transport_TRANSPORT_STDIO, Command: echo, Enabled: true},
		})
		if err != nil {
			return "", err
		}
	}
	first, err := w.openTurn(ctx)
	if err != nil {
		return "", err
	}
	for name, class := range map[string]commonv1.SecurityClass{
		"mcp.r." + toolName: commonv1.SecurityClass_SECURITY_CLASS_READ, "mcp.e." + toolName: commonv1.SecurityClass_SECURITY_CLASS_EXTERNAL_MUTATION,
	} {
		found := find(first, name)
		if found == nil {
			return "", fmt.Errorf("no tool %s in the turn; problems: %v", name, first.GetProblems())
		}
		_, err := permissionv1.NewSettingsServiceClient(w.person).SetDisposition(ctx, &permissionv1.SetDispositionRequest{Setting: &permissionv1.ToolSetting{
			Tool: name, Class: class, Disposition: commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW, ProviderDigest: found.GetTool().GetIdentity().GetProviderDigest(),
		}})
		if err != nil {
			return "", err
		}
	}
	second, err := w.openTurn(ctx)
	if err != nil {
		return "", err
	}
	for name, class := range map[string]commonv1.SecurityClass{
		"mcp.r." + toolName: commonv1.SecurityClass_SECURITY_CLASS_READ, "mcp.e." + toolName: commonv1.SecurityClass_SECURITY_CLASS_EXTERNAL_MUTATION,
	} {
		if got := find(second, name); got.GetClass() != class {
			return "", fmt.Errorf("%s is classed %s, not %s: %s", name, got.GetClass(), class, got.GetWhy())
		}
	}
	return second.GetId(), nil
}

func (w *writ) openTurn(ctx context.Context) (*registryv1.Turn, error) {
	answer, err := registryv1.NewTurnServiceClient(w.agent).OpenTurn(ctx, &registryv1.OpenTurnRequest{})
	return answer.GetTurn(), err
}

func find(turn *registryv1.Turn, id string) *registryv1.TurnTool {
	for _, t := range turn.GetTools() {
		if t.GetTool().GetIdentity().GetTool() == id {
			return t
		}
	}
	return nil
}

// caller makes a call and reads its events to the end of the stream; the call's id is minted by the gateway.
func (w *writ) caller(turn, tool string) func(context.Context) error {
	calls := gatewayv1.NewCallServiceClient(w.agent)
	return func(ctx context.Context) error {
		stream, err := calls.CallTool(ctx, &gatewayv1.CallToolRequest{Turn: turn, Tool: tool, Arguments: []byte(arguments)})
		if err != nil {
			return err
		}
		var outcome *commonv1.Outcome
		for {
			answer, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if o := answer.GetEvent().GetOutcome(); o != nil {
				outcome = o
			}
		}
		if outcome.GetState() != commonv1.OutcomeState_OUTCOME_STATE_COMPLETED || outcome.GetReceipt() == "" {
			return fmt.Errorf("the call ended in %s, receipt %q: %s", outcome.GetState(), outcome.GetReceipt(), outcome.GetStatus())
		}
		return check(outcome.GetResult(), nil)
	}
}

// close stops the server in order, as `writ down` does.
func (w *writ) close() error {
	for _, c := range []*grpc.ClientConn{w.agent, w.person} {
		if c != nil {
			_ = c.Close()
		}
	}
	if w.cmd == nil {
		return nil
	}
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-w.gone:
	case <-time.After(startPatience):
		_ = w.cmd.Process.Kill()
		<-w.gone
	}
	if !w.cmd.ProcessState.Success() {
		return errors.Join(fmt.Errorf("`writ up`: %s", w.cmd.ProcessState), w.tail())
	}
	return nil
}

// tail is the server's last words, as an error.
func (w *writ) tail() error {
	b, err := os.ReadFile(w.log)
	if err != nil {
		return err
	}
	return fmt.Errorf("the server's log ends with:\n%s", b[max(0, len(b)-2000):])
}
