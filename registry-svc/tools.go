package registry

import (
	"context"
	"strconv"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/toolname"
	"github.com/writ-dev/writ/registry-svc/internal/builtin"
	"github.com/writ-dev/writ/registry-svc/internal/connector"
)

type toolService struct {
	registryv1.UnimplementedToolServiceServer
	*Server
}

// ListTools returns the builtins in the order of their manifest (R12), then the servers' tools by server and name. A
// builtin without a definition has no executor in this release and stands in no turn.
func (s *toolService) ListTools(ctx context.Context, req *registryv1.ListToolsRequest) (*registryv1.ListToolsResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	namespace := s.key(id, "").Namespace
	list := listID("tools", namespace, req.GetProvider())
	at, err := parseToken(req.GetPageToken(), list, 3)
	if err != nil {
		return nil, answer(err)
	}
	page := &toolPage{limit: pageSize(req.GetPageSize()), list: list}
	done, after := 0, connector.Position{}
	if at != nil {
		if done, err = strconv.Atoi(at[0]); err != nil || done < 0 {
			_, err = parseToken("?", list, 3)
			return nil, answer(err)
		}
		after = connector.Position{Server: at[1], Name: at[2]}
	}
	page.at = [3]string{strconv.Itoa(done), after.Server, after.Name}
	provider := req.GetProvider()
	if provider == "" || provider == builtin.Provider {
		for i := done; i < len(s.manifest) && !page.full; i++ {
			page.add(builtinTool(s.manifest[i]), strconv.Itoa(i+1), "", "")
		}
	}
	server, isServer := toolname.ServerOf(provider)
	if page.full || provider != "" && !isServer {
		return page.answer(), nil
	}
	tools, err := s.connectors.Remembered(ctx, namespace, server, after, page.room()+1)
	if err != nil {
		return nil, answer(err)
	}
	for _, t := range tools {
		if page.full {
			break
		}
		page.add(listedTool(t), strconv.Itoa(len(s.manifest)), t.Server, t.Name)
	}
	return page.answer(), nil
}

// toolPage fills up to a number and a size, so that an answer stays under gRPC's limit.
type toolPage struct {
	tools []*registryv1.Tool
	bytes int
	limit int
	list  string
	at    [3]string
	full  bool
}

func (p *toolPage) room() int { return p.limit - len(p.tools) }

func (p *toolPage) add(t *registryv1.Tool, at ...string) {
	if p.room() == 0 || len(p.tools) > 0 && p.bytes+len(t.GetDefinition()) > pageBytes {
		p.full = true
		return
	}
	p.tools, p.bytes, p.at = append(p.tools, t), p.bytes+len(t.GetDefinition()), [3]string(at)
}

func (p *toolPage) answer() *registryv1.ListToolsResponse {
	out := &registryv1.ListToolsResponse{Tools: p.tools}
	if p.full {
		out.NextPageToken = pageToken(p.list, p.at[:]...)
	}
	return out
}

func builtinTool(t builtin.Tool) *registryv1.Tool {
	return &registryv1.Tool{
		Identity: &commonv1.ToolIdentity{
			Tool: t.Name, WireFingerprint: t.Wire, SemanticFingerprint: t.Semantic, Provider: builtin.Provider, ProviderDigest: builtin.Digest(),
		},
		Alias: toolname.Alias("", t.Name), Lane: commonv1.Lane_LANE_BUILTIN, Definition: t.Definition, Name: t.Name, Class: t.Class,
	}
}

func listedTool(t connector.RememberedTool) *registryv1.Tool {
	return &registryv1.Tool{
		Identity: &commonv1.ToolIdentity{
			Tool: toolname.MCP(t.Server, t.Name), WireFingerprint: t.Wire, SemanticFingerprint: t.Semantic,
			Provider: toolname.Provider(t.Server), ProviderDigest: t.Digest,
		},
		Alias: toolname.Alias(t.Server, t.Name), Lane: commonv1.Lane_LANE_MCP, Definition: t.Definition, Name: t.Name,
	}
}

func (s *toolService) ListPlugins(ctx context.Context, _ *registryv1.ListPluginsRequest) (*registryv1.ListPluginsResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	out := &registryv1.ListPluginsResponse{Plugins: []*registryv1.Plugin{{
		Kind: "tool", Id: builtin.Provider, Source: registryv1.Source_SOURCE_BUILTIN,
		State: registryv1.ConnectorState_CONNECTOR_STATE_READY, Tools: int32(len(s.manifest)),
	}}}
	for _, v := range s.connectors.List(ctx, id.Namespace()) {
		out.Plugins = append(out.Plugins, &registryv1.Plugin{
			Kind: "mcp", Id: visible(v.Name), Version: v.ServerVersion, Source: registryv1.Source_SOURCE_CONFIGURATION,
			State: stateProto(v.State), Tools: int32(v.ToolCount), Next: next(v),
		})
	}
	return out, nil
}

// next says what to do about a connector, where something is to be done.
func next(v connector.View) string {
	switch {
	case v.Broken != "":
		return "writ config check"
	case v.State == connector.Disabled:
		return "writ connector enable " + v.Name
	case v.State == connector.Failed:
		return "writ connector test " + v.Name
	case v.State == connector.NeedsAuthentication:
		return "sign in at the server, then: writ connector test " + v.Name
	}
	return ""
}
