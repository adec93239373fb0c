package registry

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/registry-svc/internal/connector"
	"github.com/writ-dev/writ/registry-svc/internal/source/mcpjson"
)

type connectorService struct {
	registryv1.UnimplementedConnectorServiceServer
	*Server
}

func (s *connectorService) CreateConnector(ctx context.Context, req *registryv1.CreateConnectorRequest) (*registryv1.CreateConnectorResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	in := req.GetConnector()
	v, err := s.connectors.Create(ctx, connector.Connector{
		Key: s.key(id, in.GetName()), Spec: specOf(in), Enabled: in.GetEnabled(), CreatedBy: proto.CloneOf(id.Subject),
	})
	if err != nil {
		return nil, answer(err)
	}
	s.log.Info("registry.connector_created", "connector", v.Name, "namespace", v.Namespace, "by", id.Subject.GetId(), "enabled", v.Enabled)
	return &registryv1.CreateConnectorResponse{Connector: connectorProto(v, true)}, nil
}

func (s *connectorService) GetConnector(ctx context.Context, req *registryv1.GetConnectorRequest) (*registryv1.GetConnectorResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	v, err := s.connectors.Get(ctx, s.key(id, req.GetName()))
	if err != nil {
		return nil, answer(err)
	}
	return &registryv1.GetConnectorResponse{Connector: connectorProto(v, operates(id))}, nil
}

func (s *connectorService) ListConnectors(ctx context.Context, req *registryv1.ListConnectorsRequest) (*registryv1.ListConnectorsResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	list := listID("connectors", id.Namespace())
	at, err := parseToken(req.GetPageToken(), list, 2)
	if err != nil {
		return nil, answer(err)
	}
	out := &registryv1.ListConnectorsResponse{}
	limit := pageSize(req.GetPageSize())
	var last connector.Key
	for _, v := range s.connectors.List(ctx, id.Namespace()) {
		if at != nil && (v.Name < at[0] || v.Name == at[0] && v.Namespace <= at[1]) {
			continue
		}
		if len(out.Connectors) == limit {
			out.NextPageToken = pageToken(list, last.Name, last.Namespace)
			break
		}
		out.Connectors, last = append(out.Connectors, connectorProto(v, operates(id))), v.Key
	}
	return out, nil
}

func (s *connectorService) SetConnectorEnabled(ctx context.Context, req *registryv1.SetConnectorEnabledRequest) (*registryv1.SetConnectorEnabledResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	v, err := s.connectors.SetEnabled(ctx, s.key(id, req.GetName()), req.GetEnabled())
	if err != nil {
		return nil, answer(err)
	}
	s.log.Info("registry.connector_switched", "connector", v.Name, "namespace", v.Namespace, "by", id.Subject.GetId(), "enabled", v.Enabled)
	return &registryv1.SetConnectorEnabledResponse{Connector: connectorProto(v, true)}, nil
}

func (s *connectorService) DeleteConnector(ctx context.Context, req *registryv1.DeleteConnectorRequest) (*registryv1.DeleteConnectorResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	key := s.key(id, req.GetName())
	if err := s.connectors.Delete(ctx, key); err != nil {
		return nil, answer(err)
	}
	s.log.Info("registry.connector_deleted", "connector", key.Name, "namespace", key.Namespace, "by", id.Subject.GetId())
	return &registryv1.DeleteConnectorResponse{}, nil
}

func (s *connectorService) TestConnector(ctx context.Context, req *registryv1.TestConnectorRequest) (*registryv1.TestConnectorResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	key := s.key(id, req.GetName())
	if _, err := s.connectors.Get(ctx, key); err != nil {
		return nil, answer(err)
	}
	bounded, cancel := context.WithTimeout(ctx, s.cfg.TestTimeout)
	defer cancel()
	begin := time.Now()
	found, failure := s.connectors.Discover(bounded, key, true, "")
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	out := &registryv1.TestConnectorResponse{DurationMs: time.Since(begin).Milliseconds()}
	v, err := s.connectors.Get(ctx, key)
	if err != nil {
		return nil, answer(err)
	}
	if failure != nil {
		v.Problem = failure.Error()
		if v.State != connector.NeedsAuthentication && v.State != connector.Disabled {
			v.State = connector.Failed
		}
	}
	if found != nil {
		out.Isolation = found.Isolation
		for _, t := range found.Tools {
			if t.ReadOnly {
				out.ReadOnlyHints++
			}
		}
		if len(found.Rejected) > 0 {
			v.Problem = found.Rejected[0].Error()
		}
	}
	out.Connector = connectorProto(v, true)
	return out, nil
}

func (s *connectorService) GetConnectorLogs(ctx context.Context, req *registryv1.GetConnectorLogsRequest) (*registryv1.GetConnectorLogsResponse, error) {
	id, err := who(ctx)
	if err != nil {
		return nil, err
	}
	lines, noise, err := s.connectors.Logs(ctx, s.key(id, req.GetName()), req.GetLines())
	if err != nil {
		return nil, answer(err)
	}
	return &registryv1.GetConnectorLogsResponse{Lines: lines, NoiseLines: noise}, nil
}

func (s *connectorService) ValidateConfiguration(ctx context.Context, req *registryv1.ValidateConfigurationRequest) (*registryv1.ValidateConfigurationResponse, error) {
	if _, err := who(ctx); err != nil {
		return nil, err
	}
	path := req.GetPath()
	if path == "" {
		path = "mcp.json"
	}
	return validated(mcpjson.Read(visible(path), req.GetContent(), s.cfg.Variables)), nil
}

// CheckFile reads an mcp.json as New does and says what it would register and everything that is wrong with it, for a
// check without a running server. A file that is not there has neither. variables are Config.Variables.
func CheckFile(path string, variables map[string]map[string]string) *registryv1.ValidateConfigurationResponse {
	return validated(mcpjson.Load(path, variables))
}

func validated(file mcpjson.File) *registryv1.ValidateConfigurationResponse {
	out := &registryv1.ValidateConfigurationResponse{}
	for _, e := range file.Entries {
		if len(e.Problems) > 0 {
			continue
		}
		out.Connectors = append(out.Connectors, connectorProto(connector.View{Connector: connector.Connector{
			Key: connector.Key{Name: e.Name}, Spec: e.Spec, Enabled: e.Enabled, Place: e.Place,
		}, State: connector.Unknown}, true))
	}
	for _, p := range file.Problems {
		out.Problems = append(out.Problems, visible(p.String()))
	}
	return out
}
