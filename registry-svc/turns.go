package registry

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/telemetry"
	"github.com/writ-dev/writ/registry-svc/internal/fault"
	"github.com/writ-dev/writ/registry-svc/internal/turn"
	"github.com/writ-dev/writ/registry-svc/internal/workspace"
)

type turnService struct {
	registryv1.UnimplementedTurnServiceServer
	*Server
}

func (s *turnService) OpenTurn(ctx context.Context, req *registryv1.OpenTurnRequest) (*registryv1.OpenTurnResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	in, err := s.request(id, req)
	if err != nil {
		return nil, answer(err)
	}
	t, tools, err := s.turns.Open(ctx, in)
	if err != nil {
		return nil, answer(err)
	}
	trace.SpanFromContext(ctx).SetAttributes(telemetry.Turn.String(t.ID), telemetry.Conversation.String(t.Conversation),
		telemetry.Agent.String(t.Agent), telemetry.Mode.String(word(t.Mode)))
	s.log.InfoContext(ctx, "registry.turn_opened", "turn", t.ID, "principal", t.Principal.ID, "namespace", t.Principal.Namespace, "agent", t.Agent,
		"mode", word(t.Mode), "tools", len(tools), "problems", len(t.Problems))
	return &registryv1.OpenTurnResponse{Turn: withTools(t, tools, !req.GetOmitDefinitions())}, nil
}

// request checks what the caller's credential has to say about a turn. A caller can lower authority, never raise it.
func (s *turnService) request(id auth.Identity, req *registryv1.OpenTurnRequest) (turn.Request, error) {
	cred := id.Credential
	if id.Namespace() == "" {
		return turn.Request{}, fault.New(fault.FieldInvalid, id.Subject.GetId(), "the credential has no namespace, and a turn is in one", "Use a credential with a namespace.")
	}
	if !cred.AllowsAgent(req.GetAgent()) {
		return turn.Request{}, fault.OfField(fault.AgentNotAllowed, "agent", req.GetAgent(), "the credential may not act as this agent",
			"Use an agent of the credential's, or none.")
	}
	limit := cred.MaxMode
	if limit == commonv1.Mode_MODE_UNSPECIFIED {
		limit = commonv1.Mode_MODE_MANUAL // a credential that says nothing allows no more
	}
	if m := req.GetMode(); m != commonv1.Mode_MODE_UNSPECIFIED && auth.ModeRank(m) > auth.ModeRank(limit) {
		return turn.Request{}, modeNotAllowed(m, word(limit), "credential", "")
	}
	folder, err := s.folder(cred, req.GetWorkspace())
	if err != nil {
		return turn.Request{}, err
	}
	out := turn.Request{
		Principal: principal(id), AssertedBy: id.AssertedBy, Agent: req.GetAgent(), Conversation: req.GetConversation(),
		Project: req.GetProject(), Mode: req.GetMode(), MaxMode: limit, Workspace: folder, Parent: req.GetParent(),
		Tools: req.GetTools(), RequestID: req.GetRequestId(),
	}
	if !req.GetOmitDefinitions() {
		out.InlineMax = s.cfg.Limits.InlineDefinitions
	}
	return out, nil
}

func (s *turnService) folder(cred auth.Credential, path string) (*workspace.Folder, error) {
	if path == "" {
		return nil, nil
	}
	folder, err := s.folders.Check(path)
	if err != nil {
		return nil, err
	}
	if len(cred.WorkspaceRoots) == 0 {
		cred.WorkspaceRoots = s.cfg.WorkspaceRoots
	}
	if !cred.AllowsWorkspace(folder.Path) {
		return nil, fault.OfField(fault.WorkspaceOutsideRoots, "workspace", path, "the folder lies outside of what the credential may work in",
			"Choose a folder in one of its roots, or let an operator add one.")
	}
	return &folder, nil
}

func withTools(t turn.Turn, tools []turn.Tool, definitions bool) *registryv1.Turn {
	out := turnProto(t)
	for _, tool := range tools {
		out.Tools = append(out.Tools, toolProto(tool, definitions))
	}
	return out
}

// GetTurn leaves the definitions out where they don't fit into one answer; fingerprints are always there.
func (s *turnService) GetTurn(ctx context.Context, req *registryv1.GetTurnRequest) (*registryv1.GetTurnResponse, error) {
	t, err := s.readable(ctx, req.GetTurn())
	if err != nil {
		return nil, answer(err)
	}
	tools, err := s.turns.Tools(ctx, t)
	if err != nil {
		return nil, answer(err)
	}
	var size int64
	for _, tool := range tools {
		size += int64(len(tool.Definition))
	}
	definitions := !req.GetOmitDefinitions() && size <= s.cfg.Limits.InlineDefinitions
	return &registryv1.GetTurnResponse{Turn: withTools(t, tools, definitions)}, nil
}

func (s *turnService) readable(ctx context.Context, name string) (turn.Turn, error) {
	id, err := who(ctx)
	if err != nil {
		return turn.Turn{}, err
	}
	t, err := s.turns.Get(ctx, name)
	if err != nil {
		return t, err
	}
	return t, mayRead(id, t)
}

func (s *turnService) ListTurns(ctx context.Context, req *registryv1.ListTurnsRequest) (*registryv1.ListTurnsResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	limit := pageSize(req.GetPageSize())
	f := turn.Filter{Namespace: id.Namespace(), Conversation: req.GetConversation(), State: turnState(req.GetState()), Limit: limit + 1}
	if !seesAll(id) {
		own := principal(id)
		f.Principal = &own
	}
	list := listID("turns", f.Namespace, f.Conversation, req.GetState().String())
	at, err := parseToken(req.GetPageToken(), list, 1)
	if err != nil {
		return nil, answer(err)
	}
	if at != nil {
		f.Before = at[0]
	}
	turns, err := s.turns.List(ctx, f)
	if err != nil {
		return nil, answer(err)
	}
	out := &registryv1.ListTurnsResponse{}
	for i, t := range turns {
		if i == limit {
			out.NextPageToken = pageToken(list, turns[i-1].ID)
			break
		}
		out.Turns = append(out.Turns, turnProto(t))
	}
	return out, nil
}

func (s *turnService) EndTurn(ctx context.Context, req *registryv1.EndTurnRequest) (*registryv1.EndTurnResponse, error) {
	t, err := s.end(ctx, req.GetTurn(), turn.Ended, "the turn ended")
	if err != nil {
		return nil, answer(err)
	}
	return &registryv1.EndTurnResponse{Turn: turnProto(t)}, nil
}

func (s *turnService) CancelTurn(ctx context.Context, req *registryv1.CancelTurnRequest) (*registryv1.CancelTurnResponse, error) {
	t, err := s.end(ctx, req.GetTurn(), turn.Cancelled, "the turn was cancelled")
	if err != nil {
		return nil, answer(err)
	}
	return &registryv1.CancelTurnResponse{Turn: turnProto(t)}, nil
}

func (s *turnService) end(ctx context.Context, name string, state turn.State, why string) (turn.Turn, error) {
	if _, err := s.readable(ctx, name); err != nil {
		return turn.Turn{}, err
	}
	t, err := s.turns.End(ctx, name, state, why)
	if err == nil {
		trace.SpanFromContext(ctx).SetAttributes(telemetry.Turn.String(t.ID))
		s.log.InfoContext(ctx, "registry.turn_ended", "turn", t.ID, "cancelled", t.State == turn.Cancelled, "why", why)
	}
	return t, err
}

func (s *turnService) WatchTurns(_ *registryv1.WatchTurnsRequest, stream grpc.ServerStreamingServer[registryv1.WatchTurnsResponse]) error {
	id, err := who(stream.Context())
	if err != nil {
		return err
	}
	watch := s.turns.Hub.Watch()
	defer watch.Stop()
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case t, ok := <-watch.C:
			if !ok {
				return answer(watch.Err())
			}
			if ns := id.Namespace(); ns != "" && ns != t.Principal.Namespace {
				continue
			}
			if err := stream.Send(&registryv1.WatchTurnsResponse{Turn: turnProto(t), Namespace: t.Principal.Namespace}); err != nil {
				return err
			}
		}
	}
}

type resolverService struct {
	registryv1.UnimplementedResolverServiceServer
	*Server
}

func (s *resolverService) Resolve(ctx context.Context, req *registryv1.ResolveRequest) (*registryv1.ResolveResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	namespace := req.GetNamespace()
	if own := id.Namespace(); own != "" {
		if namespace != "" && namespace != own {
			return nil, answer(turn.NotFound(req.GetTurn()))
		}
		namespace = own
	}
	if namespace == "" {
		return nil, answer(fault.OfField(fault.FieldInvalid, "namespace", "", "is missing: turns of every namespace are here", "Send the namespace of the call."))
	}
	r, err := s.turns.Resolve(ctx, namespace, req.GetTurn(), req.GetTool())
	if err != nil {
		return nil, answer(err)
	}
	out := &registryv1.ResolveResponse{
		Turn: turnProto(r.Turn), CurrentProviderDigest: r.Digest, ProviderEnabled: r.Enabled, Executor: r.Executor,
	}
	if r.Tool != nil {
		out.Tool = toolProto(*r.Tool, true)
	}
	return out, nil
}
