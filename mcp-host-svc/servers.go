package mcphost

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/telemetry"
	"github.com/writ-dev/writ/internal/toolname"

	"github.com/writ-dev/writ/mcp-host-svc/internal/lifecycle"
	"github.com/writ-dev/writ/mcp-host-svc/internal/process"
	"github.com/writ-dev/writ/mcp-host-svc/internal/provider"
	"github.com/writ-dev/writ/mcp-host-svc/internal/server"
	"github.com/writ-dev/writ/mcp-host-svc/internal/store"
)

// namespaceOf is the namespace that a request is about: what a service says, and
// for everybody else the credential's own.
func namespaceOf(ctx context.Context, asked string) string {
	id, ok := auth.FromContext(ctx)
	if ok && id.Credential.Has(commonv1.Role_ROLE_SERVICE) && asked != "" {
		return asked
	}
	if ok && id.Namespace() != "" {
		return id.Namespace()
	}
	if !ok && asked != "" {
		return asked
	}
	return defaultNamespace
}

func decodeSpec(b []byte) (*mcphostv1.ServerSpec, error) {
	spec := &mcphostv1.ServerSpec{}
	return spec, proto.Unmarshal(b, spec)
}

func (s *Server) specOf(in *mcphostv1.ServerSpec) server.Spec {
	idle := time.Duration(in.GetIdleTimeoutSeconds()) * time.Second
	switch {
	case in.GetIdleTimeoutSeconds() == 0:
		idle = s.limits.IdleTimeout
	case idle < 0:
		idle = 0
	}
	spec := server.Spec{
		Key: server.Key{Namespace: in.GetNamespace(), Name: in.GetName()}, Enabled: in.GetEnabled(), Idle: idle,
		HostAcceptedFor: in.GetHostIsolationAcceptedFor(),
		Start:           provider.Spec{Transport: in.GetTransport(), Command: in.GetCommand(), Args: in.GetArgs(), WorkingFolder: in.GetWorkingFolder(), URL: in.GetUrl()},
	}
	if len(in.GetEnv()) > 0 {
		spec.Start.Env = in.GetEnv()
	}
	return spec
}

// ApplyServer implements ServerService.
func (s *Server) ApplyServer(ctx context.Context, req *mcphostv1.ApplyServerRequest) (*mcphostv1.ApplyServerResponse, error) {
	in := proto.Clone(req.GetServer()).(*mcphostv1.ServerSpec)
	in.Namespace = namespaceOf(ctx, in.GetNamespace())
	if err := checkSpec(in); err != nil {
		return nil, err
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(in)
	if err != nil {
		return nil, err
	}
	if err := s.store.PutServer(ctx, store.Server{Namespace: in.Namespace, Name: in.Name, Spec: text}); err != nil {
		return nil, err
	}
	res, err := s.servers.Apply(s.specOf(in))
	out := &mcphostv1.ApplyServerResponse{ProviderDigest: res.Digest, Starts: res.Starts, Package: res.Package, PackagePinned: res.Pinned}
	switch {
	case err != nil:
		out.Problem = problem(in.Name, err).Error()
	case in.Transport != provider.Stdio:
		out.Problem = transportProblem(in.Transport).Error()
	}
	return out, nil
}

func checkSpec(in *mcphostv1.ServerSpec) error {
	bad := func(field, problem, next string) error {
		return errs.Field(commonv1.ErrorReason_ERROR_REASON_FIELD_INVALID, "server."+field, problem, next)
	}
	switch {
	case in.Transport == provider.Stdio && in.Command == "":
		return bad("command", "is empty", "name the program that speaks MCP over its standard input and output")
	case in.Transport == provider.HTTP && in.Url == "":
		return bad("url", "is empty", "give the server's https URL")
	case in.WorkingFolder != "" && !filepath.IsAbs(in.WorkingFolder):
		return bad("working_folder", "is not an absolute path", "give an absolute path, or leave it empty for a folder of its own")
	}
	for name, value := range in.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") || name == "WRIT_SCOPE" {
			return bad("env", strconv.Quote(name)+" can't be set", "use a name without '=' and NUL; WRIT_SCOPE is the host's own")
		}
	}
	for _, arg := range append([]string{in.Command}, in.Args...) {
		if strings.Contains(arg, "\x00") {
			return bad("args", "holds a NUL byte", "remove it")
		}
	}
	return nil
}

// RemoveServer implements ServerService.
func (s *Server) RemoveServer(ctx context.Context, req *mcphostv1.RemoveServerRequest) (*mcphostv1.RemoveServerResponse, error) {
	key := server.Key{Namespace: namespaceOf(ctx, req.GetNamespace()), Name: req.GetName()}
	if err := s.store.DeleteServer(ctx, key.Namespace, key.Name); err != nil {
		return nil, err
	}
	if err := s.servers.Remove(ctx, key); err != nil {
		return nil, problem(key.Name, err)
	}
	return &mcphostv1.RemoveServerResponse{}, nil
}

// DiscoverTools implements ServerService.
func (s *Server) DiscoverTools(ctx context.Context, req *mcphostv1.DiscoverToolsRequest) (*mcphostv1.DiscoverToolsResponse, error) {
	if !s.enter() {
		return nil, errShutdown
	}
	defer s.running.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.stop, func() { cancel(errShutdown) })()
	key := server.Key{Namespace: namespaceOf(ctx, req.GetNamespace()), Name: req.GetName()}
	k, live, err := s.servers.Discover(ctx, key, req.GetRefresh(), req.GetWorkspace())
	if err != nil {
		return nil, problem(key.Name, err)
	}
	out := &mcphostv1.DiscoverToolsResponse{
		ProviderDigest: k.ProviderDigest, ServerVersion: strings.ToValidUTF8(strings.TrimSpace(k.Info.Name+" "+k.Info.Version), "\uFFFD"),
		ProtocolVersion: strings.ToValidUTF8(k.Info.ProtocolVersion, "\uFFFD"), ListTime: timestamppb.New(k.Time),
		Instructions: strings.ToValidUTF8(k.Info.Instructions, "\uFFFD"),
	}
	if live != nil {
		out.Enforcement = enforcementOf(live.Enforced(), live.PID())
	}
	for _, t := range k.Listing.Tools {
		out.Tools = append(out.Tools, &mcphostv1.DiscoveredTool{Name: t.Name, Definition: t.Raw})
	}
	return out, nil
}

// ListSessions implements ServerService.
func (s *Server) ListSessions(ctx context.Context, _ *mcphostv1.ListSessionsRequest) (*mcphostv1.ListSessionsResponse, error) {
	out := &mcphostv1.ListSessionsResponse{}
	id, ok := auth.FromContext(ctx)
	// A service on its own account sees all; on behalf of somebody, and an
	// operator, their own namespace.
	everything := !ok || id.Credential.Has(commonv1.Role_ROLE_SERVICE) && id.AssertedBy == ""
	for _, sv := range s.servers.All() {
		if !everything && sv.Namespace != id.Namespace() {
			continue
		}
		state, live := sv.Snapshot()
		if state.Phase == lifecycle.Down {
			continue
		}
		one := &mcphostv1.Session{
			Server: sv.Name, Namespace: sv.Namespace, State: sessionState(state.Phase, state.Running), Workspace: state.Folder,
			Running: int32(state.Running), Waiting: int32(state.Waiting),
		}
		if !state.Used.IsZero() {
			one.UseTime = timestamppb.New(state.Used)
		}
		if live != nil {
			one.Pid, one.StartTime = int64(live.PID()), timestamppb.New(live.Started())
			one.ProtocolVersion, one.Enforcement = strings.ToValidUTF8(live.Info().ProtocolVersion, "\uFFFD"), enforcementOf(live.Enforced(), live.PID())
		}
		out.Sessions = append(out.Sessions, one)
	}
	return out, nil
}

func sessionState(p lifecycle.Phase, running int) string {
	switch {
	case p == lifecycle.Starting:
		return "starting"
	case p == lifecycle.Stopping:
		return "closing"
	case running > 0:
		return "busy"
	}
	return "ready"
}

// StopServer implements ServerService.
func (s *Server) StopServer(ctx context.Context, req *mcphostv1.StopServerRequest) (*mcphostv1.StopServerResponse, error) {
	sv, err := s.servers.Get(server.Key{Namespace: namespaceOf(ctx, req.GetNamespace()), Name: req.GetName()})
	if err != nil {
		return nil, problem(req.GetName(), err)
	}
	sv.StopNow()
	return &mcphostv1.StopServerResponse{}, nil
}

// GetServerLogs implements ServerService.
func (s *Server) GetServerLogs(ctx context.Context, req *mcphostv1.GetServerLogsRequest) (*mcphostv1.GetServerLogsResponse, error) {
	sv, err := s.servers.Get(server.Key{Namespace: namespaceOf(ctx, req.GetNamespace()), Name: req.GetName()})
	if err != nil {
		return nil, problem(req.GetName(), err)
	}
	text, noise := sv.Logs()
	most := int(req.GetLines())
	if most == 0 {
		most = 100
	}
	out := &mcphostv1.GetServerLogsResponse{NoiseLines: noise}
	if len(text) > 0 {
		lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
		for _, l := range lines[max(0, len(lines)-most):] {
			out.Lines = append(out.Lines, visible(l))
		}
	}
	return out, nil
}

// visible escapes what a terminal would act on.
func visible(line string) string {
	var b strings.Builder
	for _, r := range strings.TrimRight(line, "\r") {
		if r == '\t' || strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
	}
	return b.String()
}

// serverStarted records a start: nobody uses a session whose start has no receipt.
func (s *Server) serverStarted(ctx context.Context, st server.Start) error {
	_, span := telemetry.Start(ctx, s.tracer, telemetry.SpanStart,
		telemetry.Connector.String(st.Key.Name), telemetry.ProviderDigest.String(st.ProviderDigest), telemetry.Isolation.String(st.Enforced.Isolation))
	defer span.End()
	f := receipt.Facts{
		Kind: evidencev1.ReceiptKind_RECEIPT_KIND_PROVIDER_START, Namespace: st.Key.Namespace, TraceID: telemetry.TraceID(ctx),
		Tool:        &commonv1.ToolIdentity{Provider: toolname.Provider(st.Key.Name), ProviderDigest: st.ProviderDigest},
		Enforcement: enforcementOf(st.Enforced, st.PID), Begin: st.Time,
	}
	r, err := s.sealer.Seal(ctx, f, &evidencev1.Opening{}, "")
	if err != nil {
		return errs.WithCause(errs.New(codes.Unavailable, mcphostv1.ErrorReason_ERROR_REASON_SEAL_FAILED, "evidence",
			"the start of MCP server "+strconv.Quote(st.Key.Name)+" could not be recorded, so it was ended again", "see `writ doctor`"), err)
	}
	s.log.InfoContext(ctx, "MCP server started", "server", st.Key.Name, "pid", st.PID, "isolation", st.Enforced.Isolation, "receipt", r.GetId())
	return nil
}

func enforcementOf(e process.Enforced, pid int) *commonv1.Enforcement {
	out := &commonv1.Enforcement{Mechanisms: e.Mechanisms, Degraded: e.Degraded, Pid: int64(pid)}
	word := "ISOLATION_" + strings.ToUpper(strings.ReplaceAll(e.Isolation, "-", "_"))
	out.Isolation = commonv1.Isolation(commonv1.Isolation_value[word])
	switch e.Network {
	case "open":
		out.Network = commonv1.NetworkMode_NETWORK_MODE_OPEN
	case "none":
		out.Network = commonv1.NetworkMode_NETWORK_MODE_NONE
	}
	return out
}
