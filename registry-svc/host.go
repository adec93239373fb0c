package registry

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/telemetry"
	"github.com/writ-dev/writ/registry-svc/internal/connector"
)

// host adapts mcp-host's client to what the connectors need.
type host struct {
	client mcphostv1.ServerServiceClient
	tracer trace.Tracer
}

// host returns the interface's nil where there is no mcp-host.
func (s *Server) host() connector.Host {
	if s.clients.Servers == nil {
		return nil
	}
	return &host{client: s.clients.Servers, tracer: s.tracer}
}

func hostError(err error) error {
	if err == nil {
		return nil
	}
	st := errs.Status(err)
	meta := errs.Metadata(st.Err())
	text := st.Message()
	if stderr := meta["stderr"]; stderr != "" {
		text += "; it said: " + stderr
	}
	if next := meta[errs.KeyNext]; next != "" {
		text += ". " + next
	}
	return &connector.HostError{
		Text: visible(text), Cause: err, NeedsAuthentication: errs.Is(err, mcphostv1.ErrorReason_ERROR_REASON_NEEDS_AUTHENTICATION),
	}
}

func (h *host) Apply(ctx context.Context, key connector.Key, s connector.Spec, enabled bool) (digest, problem string, err error) {
	res, err := h.client.ApplyServer(ctx, &mcphostv1.ApplyServerRequest{Server: &mcphostv1.ServerSpec{
		Name: key.Name, Namespace: key.Namespace, Transport: s.Transport, Command: s.Command, Args: s.Args, Env: s.Env,
		WorkingFolder: s.WorkingFolder, Url: s.URL, Enabled: enabled, IdleTimeoutSeconds: s.IdleSeconds,
		HostIsolationAcceptedFor: s.AcceptedFor,
	}})
	return res.GetProviderDigest(), visible(res.GetProblem()), hostError(err)
}

func (h *host) Remove(ctx context.Context, key connector.Key) error {
	_, err := h.client.RemoveServer(ctx, &mcphostv1.RemoveServerRequest{Name: key.Name, Namespace: key.Namespace})
	return hostError(err)
}

func (h *host) Discover(ctx context.Context, key connector.Key, refresh bool, folder string) (l connector.Listing, err error) {
	ctx, span := telemetry.Start(ctx, h.tracer, telemetry.SpanDiscover, telemetry.Connector.String(key.Name))
	defer func() { telemetry.End(span, err) }()
	res, err := h.client.DiscoverTools(ctx, &mcphostv1.DiscoverToolsRequest{
		Name: key.Name, Namespace: key.Namespace, Refresh: refresh, Workspace: folder,
	})
	if err != nil {
		return l, hostError(err)
	}
	l = connector.Listing{
		Digest: res.GetProviderDigest(), ServerVersion: visible(res.GetServerVersion()), Time: res.GetListTime().AsTime(),
		Isolation: describeIsolation(res.GetEnforcement()),
	}
	for _, t := range res.GetTools() {
		l.Tools = append(l.Tools, connector.Listed{Name: t.GetName(), Definition: t.GetDefinition()})
	}
	return l, nil
}

func (h *host) Open(ctx context.Context) (map[connector.Key]bool, error) {
	res, err := h.client.ListSessions(ctx, &mcphostv1.ListSessionsRequest{})
	if err != nil {
		return nil, hostError(err)
	}
	open := map[connector.Key]bool{}
	for _, s := range res.GetSessions() {
		if s.GetState() != "closing" {
			open[connector.Key{Namespace: s.GetNamespace(), Name: s.GetServer()}] = true
		}
	}
	return open, nil
}

func (h *host) Logs(ctx context.Context, key connector.Key, lines int32) ([]string, int64, error) {
	res, err := h.client.GetServerLogs(ctx, &mcphostv1.GetServerLogsRequest{Name: key.Name, Namespace: key.Namespace, Lines: lines})
	return res.GetLines(), res.GetNoiseLines(), hostError(err)
}
