package gateway

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/writ-dev/writ/gateway-svc/internal/conduct"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
)

// Names of the peers, as they authenticate themselves.
const (
	mcpHost        = "mcp-host"
	execName       = "exec"
	permissionName = "permission"
	evidenceName   = "evidence"
	registryName   = "registry"
)

// as makes the requests of ctx on behalf of whoever acts.
func as(ctx context.Context, p *commonv1.Principal) context.Context {
	if p == nil {
		return ctx
	}
	return auth.OnBehalfOf(ctx, p)
}

// drain reads a stream to its end. The stream's context is ended before it returns, so that nothing stays behind.
func drain[M any](ctx context.Context, peer string, open func(context.Context) (grpc.ServerStreamingClient[M], error), each func(*M)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := open(ctx)
	if err != nil {
		return peerError(peer, err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return peerError(peer, err)
		}
		each(m)
	}
}

// permissionPeer is permission-svc for the conductors.
type permissionPeer struct {
	authorization permissionv1.AuthorizationServiceClient
	cards         permissionv1.CardServiceClient
}

func (p *permissionPeer) Authorize(ctx context.Context, a conduct.Ask) (*permissionv1.AuthorizeResponse, error) {
	answer, err := p.authorization.Authorize(as(ctx, a.Principal), &permissionv1.AuthorizeRequest{
		Turn: a.Turn, Call: a.Call, Tool: a.Tool, Arguments: a.Arguments,
	})
	return answer, peerError(permissionName, err)
}

func (p *permissionPeer) WatchDecision(ctx context.Context, a conduct.Ask, each func(*permissionv1.Card)) error {
	return drain(as(ctx, a.Principal), permissionName,
		func(ctx context.Context) (grpc.ServerStreamingClient[permissionv1.WatchDecisionResponse], error) {
			return p.authorization.WatchDecision(ctx, &permissionv1.WatchDecisionRequest{Turn: a.Turn, Call: a.Call})
		},
		func(m *permissionv1.WatchDecisionResponse) { each(m.GetCard()) })
}

func (p *permissionPeer) CancelCards(ctx context.Context, a conduct.Ask, reason string) error {
	_, err := p.cards.CancelCards(as(ctx, a.Principal), &permissionv1.CancelCardsRequest{
		Turn: a.Turn, Call: a.Call, Reason: reason, Namespace: a.Namespace,
	})
	return peerError(permissionName, err)
}

// registryPeer is registry-svc for the conductors.
type registryPeer struct{ turns registryv1.TurnServiceClient }

func (r *registryPeer) Owned(ctx context.Context, turn string, p *commonv1.Principal) error {
	_, err := r.turn(ctx, turn, p)
	var peer *conduct.PeerError
	if errors.As(err, &peer) && peer.Kind == conduct.Missing {
		return conduct.ErrTurnNotFound
	}
	return err
}

func (r *registryPeer) turn(ctx context.Context, turn string, p *commonv1.Principal) (*registryv1.Turn, error) {
	answer, err := r.turns.GetTurn(as(ctx, p), &registryv1.GetTurnRequest{Turn: turn, OmitDefinitions: true})
	return answer.GetTurn(), peerError(registryName, err)
}

// mcpHostPeer is mcp-host-svc as an executor.
type mcpHostPeer struct {
	client mcphostv1.ExecutionServiceClient
}

func (p mcpHostPeer) Execute(ctx context.Context, a conduct.Ask, writ string, each func(*commonv1.ExecutionEvent)) error {
	return drain(as(ctx, a.Principal), mcpHost,
		func(ctx context.Context) (grpc.ServerStreamingClient[mcphostv1.ExecuteResponse], error) {
			return p.client.Execute(ctx, &mcphostv1.ExecuteRequest{Request: executeRequest(a, writ)})
		},
		func(m *mcphostv1.ExecuteResponse) { each(m.GetEvent()) })
}

func (p mcpHostPeer) Attach(ctx context.Context, a conduct.Ask, after int64, each func(*commonv1.ExecutionEvent)) error {
	return drain(as(ctx, a.Principal), mcpHost,
		func(ctx context.Context) (grpc.ServerStreamingClient[mcphostv1.AttachResponse], error) {
			return p.client.Attach(ctx, &mcphostv1.AttachRequest{Request: attachRequest(a, after)})
		},
		func(m *mcphostv1.AttachResponse) { each(m.GetEvent()) })
}

func (p mcpHostPeer) Cancel(ctx context.Context, a conduct.Ask, reason string) (bool, error) {
	answer, err := p.client.Cancel(as(ctx, a.Principal), &mcphostv1.CancelRequest{Request: cancelRequest(a, reason)})
	return answer.GetResponse().GetCancelled(), peerError(mcpHost, err)
}

// execPeer is exec-svc as an executor.
type execPeer struct{ client execv1.RunServiceClient }

func (p execPeer) Execute(ctx context.Context, a conduct.Ask, writ string, each func(*commonv1.ExecutionEvent)) error {
	return drain(as(ctx, a.Principal), execName,
		func(ctx context.Context) (grpc.ServerStreamingClient[execv1.ExecuteResponse], error) {
			return p.client.Execute(ctx, &execv1.ExecuteRequest{Request: executeRequest(a, writ)})
		},
		func(m *execv1.ExecuteResponse) { each(m.GetEvent()) })
}

func (p execPeer) Attach(ctx context.Context, a conduct.Ask, after int64, each func(*commonv1.ExecutionEvent)) error {
	return drain(as(ctx, a.Principal), execName,
		func(ctx context.Context) (grpc.ServerStreamingClient[execv1.AttachResponse], error) {
			return p.client.Attach(ctx, &execv1.AttachRequest{Request: attachRequest(a, after)})
		},
		func(m *execv1.AttachResponse) { each(m.GetEvent()) })
}

func (p execPeer) Cancel(ctx context.Context, a conduct.Ask, reason string) (bool, error) {
	answer, err := p.client.Cancel(as(ctx, a.Principal), &execv1.CancelRequest{Request: cancelRequest(a, reason)})
	return answer.GetResponse().GetCancelled(), peerError(execName, err)
}

func executeRequest(a conduct.Ask, writ string) *commonv1.ExecuteRequest {
	return &commonv1.ExecuteRequest{Writ: writ, Arguments: a.Arguments}
}

func attachRequest(a conduct.Ask, after int64) *commonv1.AttachRequest {
	return &commonv1.AttachRequest{Call: a.Name(), AfterSequence: after, Namespace: a.Namespace}
}

func cancelRequest(a conduct.Ask, reason string) *commonv1.CancelRequest {
	return &commonv1.CancelRequest{Call: a.Name(), Namespace: a.Namespace, Reason: reason}
}
