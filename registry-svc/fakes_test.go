package registry_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/errs"
	registry "github.com/writ-dev/writ/registry-svc"
	"github.com/writ-dev/writ/registry-svc/registrytest"
)

// fakeHost is mcp-host as far as the registry sees it.
type fakeHost struct {
	mcphostv1.ServerServiceClient // panics on what the registry must not call

	mu       sync.Mutex
	applied  map[string][]*mcphostv1.ServerSpec // every spec that was applied, by name, oldest first
	removed  []string
	listings map[string][]*mcphostv1.DiscoveredTool
	failing  map[string]error
	silent   map[string]bool // never answers
	digests  map[string]string
	sessions []*mcphostv1.Session
	asked    []*mcphostv1.DiscoverToolsRequest
	down     error
}

func newHost() *fakeHost {
	return &fakeHost{
		applied: map[string][]*mcphostv1.ServerSpec{}, listings: map[string][]*mcphostv1.DiscoveredTool{},
		failing: map[string]error{}, silent: map[string]bool{}, digests: map[string]string{},
	}
}

func (h *fakeHost) do(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// tools sets what a server lists: definitions, each with its name.
func (h *fakeHost) tools(server string, pairs ...string) {
	h.do(func() {
		h.listings[server] = nil
		for i := 0; i < len(pairs); i += 2 {
			h.listings[server] = append(h.listings[server], &mcphostv1.DiscoveredTool{Name: pairs[i], Definition: []byte(pairs[i+1])})
		}
	})
}

func (h *fakeHost) digest(name string) string {
	if d, ok := h.digests[name]; ok {
		return d
	}
	return "digest-" + name
}

func (h *fakeHost) ApplyServer(_ context.Context, in *mcphostv1.ApplyServerRequest, _ ...grpc.CallOption) (*mcphostv1.ApplyServerResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down != nil {
		return nil, h.down
	}
	s := in.GetServer()
	h.applied[s.GetName()] = append(h.applied[s.GetName()], proto.CloneOf(s))
	return &mcphostv1.ApplyServerResponse{ProviderDigest: h.digest(s.GetName())}, nil
}

func (h *fakeHost) RemoveServer(_ context.Context, in *mcphostv1.RemoveServerRequest, _ ...grpc.CallOption) (*mcphostv1.RemoveServerResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down != nil {
		return nil, h.down
	}
	h.removed = append(h.removed, in.GetName())
	return &mcphostv1.RemoveServerResponse{}, nil
}

func (h *fakeHost) DiscoverTools(ctx context.Context, in *mcphostv1.DiscoverToolsRequest, _ ...grpc.CallOption) (*mcphostv1.DiscoverToolsResponse, error) {
	h.mu.Lock()
	h.asked = append(h.asked, proto.CloneOf(in))
	silent, failing := h.silent[in.GetName()], h.failing[in.GetName()]
	out := &mcphostv1.DiscoverToolsResponse{
		Tools: slices.Clone(h.listings[in.GetName()]), ProviderDigest: h.digest(in.GetName()), ServerVersion: in.GetName() + " 1.2.3",
		Enforcement: &commonv1.Enforcement{Isolation: commonv1.Isolation_ISOLATION_GUARDED, Network: commonv1.NetworkMode_NETWORK_MODE_OPEN},
	}
	h.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return out, failing
}

func (h *fakeHost) ListSessions(context.Context, *mcphostv1.ListSessionsRequest, ...grpc.CallOption) (*mcphostv1.ListSessionsResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &mcphostv1.ListSessionsResponse{Sessions: slices.Clone(h.sessions)}, h.down
}

func (h *fakeHost) GetServerLogs(_ context.Context, in *mcphostv1.GetServerLogsRequest, _ ...grpc.CallOption) (*mcphostv1.GetServerLogsResponse, error) {
	return &mcphostv1.GetServerLogsResponse{Lines: []string{in.GetName() + " says hello"}, NoiseLines: 3}, nil
}

// last is the newest spec that the host has of a server; nil: none, or it was removed after.
func (h *fakeHost) last(name string) *mcphostv1.ServerSpec {
	h.mu.Lock()
	defer h.mu.Unlock()
	specs := h.applied[name]
	if len(specs) == 0 || slices.Contains(h.removed, name) {
		return nil
	}
	return specs[len(specs)-1]
}

func (h *fakeHost) discovered(name string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.asked {
		if r.GetName() == name {
			n++
		}
	}
	return n
}

func startFailed(name string) error {
	return errs.New(codes.Unavailable, mcphostv1.ErrorReason_ERROR_REASON_SERVER_START_FAILED, name, "the server ended at once", "Look at its log.", "stderr", "boom\x1b[2J")
}

// fakeSettings is permission's classification.
type fakeSettings struct {
	permissionv1.SettingsServiceClient

	mu      sync.Mutex
	cap     commonv1.Mode
	version string
	verdict map[string]*permissionv1.ToolClassification // by tool; others are external mutations, automatic
	seen    map[string]*permissionv1.ClassifyTool
	fail    error
	twist   func(*permissionv1.ClassifyToolsResponse)
}

func newSettings() *fakeSettings {
	return &fakeSettings{cap: commonv1.Mode_MODE_AUTO, version: "v1", verdict: map[string]*permissionv1.ToolClassification{}, seen: map[string]*permissionv1.ClassifyTool{}}
}

func (s *fakeSettings) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *fakeSettings) ClassifyTools(_ context.Context, in *permissionv1.ClassifyToolsRequest, _ ...grpc.CallOption) (*permissionv1.ClassifyToolsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	mode := in.GetMode()
	if mode == commonv1.Mode_MODE_BYPASS {
		return nil, errs.New(codes.FailedPrecondition, permissionv1.ErrorReason_ERROR_REASON_MODE_NOT_ALLOWED, "bypass", "over the cap", "A person sets the cap.", "cap", "auto", "by", "settings")
	}
	if mode == commonv1.Mode_MODE_UNSPECIFIED {
		mode = min(s.cap, in.GetCredentialMaxMode())
	}
	out := &permissionv1.ClassifyToolsResponse{Mode: mode, PolicyVersion: s.version}
	for _, t := range in.GetTools() {
		s.seen[t.GetTool()] = proto.CloneOf(t)
		v := &permissionv1.ToolClassification{
			Tool: t.GetTool(), Class: t.GetBuiltinClass(), Disposition: commonv1.Disposition_DISPOSITION_AUTOMATIC, Why: "class",
		}
		if t.GetLane() != commonv1.Lane_LANE_BUILTIN {
			v.Class = commonv1.SecurityClass_SECURITY_CLASS_EXTERNAL_MUTATION
		}
		if set, ok := s.verdict[t.GetTool()]; ok {
			v = proto.CloneOf(set)
			v.Tool = t.GetTool()
		}
		out.Tools = append(out.Tools, v)
	}
	if s.twist != nil {
		s.twist(out)
	}
	return out, nil
}

// fakeCards is permission's cards.
type fakeCards struct {
	permissionv1.CardServiceClient

	mu        sync.Mutex
	open      map[string]bool
	cancelled []string
	fail      error
}

func (c *fakeCards) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *fakeCards) CancelCards(_ context.Context, in *permissionv1.CancelCardsRequest, _ ...grpc.CallOption) (*permissionv1.CancelCardsResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return nil, c.fail
	}
	c.cancelled = append(c.cancelled, in.GetNamespace()+"/"+in.GetTurn())
	return &permissionv1.CancelCardsResponse{}, nil
}

func (c *fakeCards) ListCards(_ context.Context, in *permissionv1.ListCardsRequest, _ ...grpc.CallOption) (*permissionv1.ListCardsResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &permissionv1.ListCardsResponse{}
	if c.open[in.GetTurn()] && in.GetState() == permissionv1.CardState_CARD_STATE_PENDING {
		out.Cards = append(out.Cards, &permissionv1.Card{Id: "k_1"})
	}
	return out, c.fail
}

// bench is a registry with fake peers.
type bench struct {
	*registrytest.Server
	host     *fakeHost
	settings *fakeSettings
	cards    *fakeCards
}

func newBench(t *testing.T, cfg registry.Config, opts ...registry.Option) *bench {
	t.Helper()
	b := &bench{host: newHost(), settings: newSettings(), cards: &fakeCards{open: map[string]bool{}}}
	b.start(t, cfg, opts...)
	return b
}

func (b *bench) start(t *testing.T, cfg registry.Config, opts ...registry.Option) {
	t.Helper()
	b.Server = registrytest.Start(t, cfg, append([]registry.Option{
		registry.WithClients(registry.Clients{Servers: b.host, Settings: b.settings, Cards: b.cards}),
	}, opts...)...)
}

// add is an operator who adds and enables a server.
func (b *bench) add(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := registryv1.NewConnectorServiceClient(b.Operator("olga")).CreateConnector(t.Context(), &registryv1.CreateConnectorRequest{
			Connector: &registryv1.Connector{Name: name, Transport: registryv1.Transport_TRANSPORT_STDIO, Command: "true", Enabled: true},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (b *bench) turns(who grpc.ClientConnInterface) registryv1.TurnServiceClient {
	return registryv1.NewTurnServiceClient(who)
}

// open opens a turn as the agent "ada".
func (b *bench) open(t *testing.T, req *registryv1.OpenTurnRequest) *registryv1.Turn {
	t.Helper()
	res, err := b.turns(b.Caller("ada")).OpenTurn(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return res.GetTurn()
}

func (b *bench) resolve(t *testing.T, turn, tool string) (*registryv1.ResolveResponse, error) {
	t.Helper()
	return registryv1.NewResolverServiceClient(b.Service("permission")).Resolve(t.Context(),
		&registryv1.ResolveRequest{Turn: turn, Tool: tool, Namespace: "default"})
}

func ids(turn *registryv1.Turn) (out []string) {
	for _, t := range turn.GetTools() {
		out = append(out, t.GetTool().GetIdentity().GetTool())
	}
	return out
}

func find(t *testing.T, turn *registryv1.Turn, id string) *registryv1.TurnTool {
	t.Helper()
	for _, tool := range turn.GetTools() {
		if tool.GetTool().GetIdentity().GetTool() == id {
			return tool
		}
	}
	t.Fatalf("the turn has no %s; it has %v", id, ids(turn))
	return nil
}

// refused checks reason, code and that the error says what to do.
func refused(t *testing.T, err error, reason string) map[string]string {
	t.Helper()
	meta := errs.Metadata(err)
	if got := errs.ReasonOf(err); got != reason {
		t.Errorf("got %q (%v), want %s", got, err, reason)
	} else if meta["next"] == "" {
		t.Errorf("%s does not say what to do: %v", reason, meta)
	}
	return meta
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	registrytest.Eventually(t, what, holds)
}

// clock is a clock that stands until the test moves it.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}
