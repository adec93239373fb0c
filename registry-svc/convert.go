package registry

import (
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/registry-svc/internal/connector"
	"github.com/writ-dev/writ/registry-svc/internal/turn"
)

func timeProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func transportWord(t registryv1.Transport) string {
	switch t {
	case registryv1.Transport_TRANSPORT_STDIO:
		return connector.Stdio
	case registryv1.Transport_TRANSPORT_HTTP:
		return connector.HTTP
	}
	return ""
}

func transportProto(word string) registryv1.Transport {
	switch word {
	case connector.Stdio:
		return registryv1.Transport_TRANSPORT_STDIO
	case connector.HTTP:
		return registryv1.Transport_TRANSPORT_HTTP
	}
	return registryv1.Transport_TRANSPORT_UNSPECIFIED
}

func stateProto(s connector.State) registryv1.ConnectorState {
	switch s {
	case connector.Disabled:
		return registryv1.ConnectorState_CONNECTOR_STATE_DISABLED
	case connector.Ready:
		return registryv1.ConnectorState_CONNECTOR_STATE_READY
	case connector.Connected:
		return registryv1.ConnectorState_CONNECTOR_STATE_CONNECTED
	case connector.Failed:
		return registryv1.ConnectorState_CONNECTOR_STATE_ERROR
	case connector.NeedsAuthentication:
		return registryv1.ConnectorState_CONNECTOR_STATE_NEEDS_AUTHENTICATION
	}
	return registryv1.ConnectorState_CONNECTOR_STATE_UNSPECIFIED
}

// specOf takes what an operator sets of a connector.
func specOf(c *registryv1.Connector) connector.Spec {
	return connector.Spec{
		Transport: transportWord(c.GetTransport()), Command: c.GetCommand(), Args: c.GetArgs(), Env: maps.Clone(c.GetEnv()),
		WorkingFolder: c.GetWorkingFolder(), URL: c.GetUrl(), IdleSeconds: c.GetIdleTimeoutSeconds(), AcceptHost: c.GetAcceptHostIsolation(),
	}
}

// connectorProto shows a connector. Values of variables never leave; whole false leaves out what only an operator needs
// and where people tend to put secrets: arguments, address, folder, variables' names.
func connectorProto(v connector.View, whole bool) *registryv1.Connector {
	out := &registryv1.Connector{
		Name: visible(v.Name), Transport: transportProto(v.Spec.Transport), Command: v.Spec.Command, Enabled: v.Enabled,
		Source: registryv1.Source_SOURCE_CONFIGURATION, State: stateProto(v.State), Problem: visible(v.Problem), ToolCount: int32(v.ToolCount),
		ProviderDigest: v.Digest, ServerVersion: v.ServerVersion, IdleTimeoutSeconds: v.Spec.IdleSeconds, CreatedBy: v.CreatedBy,
		CreateTime: timeProto(v.CreateTime), AcceptHostIsolation: v.Spec.AcceptHost,
	}
	if whole {
		out.Args, out.EnvNames, out.WorkingFolder, out.Url = v.Spec.Args, slices.Sorted(maps.Keys(v.Spec.Env)), v.Spec.WorkingFolder, v.Spec.URL
		out.ConfiguredIn = v.Place
	}
	return out
}

func principalProto(p turn.Principal) *commonv1.Principal {
	return &commonv1.Principal{Id: p.ID, Kind: p.Kind, Namespace: p.Namespace}
}

func turnStateProto(s turn.State) registryv1.TurnState {
	switch s {
	case turn.Open:
		return registryv1.TurnState_TURN_STATE_OPEN
	case turn.Ended:
		return registryv1.TurnState_TURN_STATE_ENDED
	case turn.Cancelled:
		return registryv1.TurnState_TURN_STATE_CANCELLED
	}
	return registryv1.TurnState_TURN_STATE_UNSPECIFIED
}

func turnState(s registryv1.TurnState) turn.State {
	switch s {
	case registryv1.TurnState_TURN_STATE_OPEN:
		return turn.Open
	case registryv1.TurnState_TURN_STATE_ENDED:
		return turn.Ended
	case registryv1.TurnState_TURN_STATE_CANCELLED:
		return turn.Cancelled
	}
	return 0
}

// turnProto is a turn without its tools.
func turnProto(t turn.Turn) *registryv1.Turn {
	out := &registryv1.Turn{
		Id: t.ID, State: turnStateProto(t.State), Principal: principalProto(t.Principal), AssertedBy: t.AssertedBy, Agent: t.Agent,
		Conversation: t.Conversation, Project: t.Project, Mode: t.Mode, Parent: t.Parent, OpenTime: timeProto(t.OpenTime),
		EndTime: timeProto(t.EndTime), PolicyVersion: t.PolicyVersion, CredentialMaxMode: t.MaxMode,
	}
	if w := t.Workspace; w != nil {
		out.Workspace = &registryv1.Workspace{Path: w.Path, Device: w.Device, Inode: w.Inode}
	}
	for _, p := range t.Problems {
		st := &status.Status{}
		if err := proto.Unmarshal(p.Status, st); err != nil {
			st = nil
		}
		out.Problems = append(out.Problems, &registryv1.ProviderProblem{Provider: p.Provider, Status: st})
	}
	return out
}

func toolProto(t turn.Tool, definition bool) *registryv1.TurnTool {
	out := &registryv1.TurnTool{
		Tool: &registryv1.Tool{
			Identity: &commonv1.ToolIdentity{
				Tool: t.ID, WireFingerprint: t.Wire, SemanticFingerprint: t.Semantic, Provider: t.Provider, ProviderDigest: t.ProviderDigest,
			},
			Alias: t.Alias, Lane: t.Lane, Name: t.Name, Class: t.Class,
		},
		Class: t.Class, Disposition: t.Disposition, AlwaysGate: t.AlwaysGate, Why: t.Why,
	}
	if definition {
		out.Tool.Definition = t.Definition
	}
	return out
}

func describeIsolation(e *commonv1.Enforcement) string {
	if e == nil {
		return ""
	}
	out := strings.ToLower(strings.TrimPrefix(e.GetIsolation().String(), "ISOLATION_"))
	out += ", network " + strings.ToLower(strings.TrimPrefix(e.GetNetwork().String(), "NETWORK_MODE_"))
	if m := e.GetMechanisms(); len(m) > 0 {
		out += " (" + strings.Join(m, ", ") + ")"
	}
	if d := e.GetDegraded(); len(d) > 0 {
		out += "; not in force: " + strings.Join(d, "; ")
	}
	return visible(out)
}
