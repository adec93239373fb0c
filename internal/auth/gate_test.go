package auth_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
)

const (
	caller   = commonv1.Role_ROLE_CALLER
	approver = commonv1.Role_ROLE_APPROVER
	operator = commonv1.Role_ROLE_OPERATOR
	service  = commonv1.Role_ROLE_SERVICE

	human     = commonv1.PrincipalKind_PRINCIPAL_KIND_HUMAN
	agent     = commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT
	trigger   = commonv1.PrincipalKind_PRINCIPAL_KIND_TRIGGER
	isService = commonv1.PrincipalKind_PRINCIPAL_KIND_SERVICE
)

// contract is a file with one service whose methods have the given rules; nil leaves the option out.
func contract(t *testing.T, rules map[string]*commonv1.AccessRule) *protoregistry.Files {
	t.Helper()
	sd := &descriptorpb.ServiceDescriptorProto{Name: proto.String("ThingService")}
	for name, rule := range rules {
		m := &descriptorpb.MethodDescriptorProto{
			Name: proto.String(name), InputType: proto.String(".google.protobuf.Empty"), OutputType: proto.String(".google.protobuf.Empty"),
		}
		if rule != nil {
			m.Options = &descriptorpb.MethodOptions{}
			proto.SetExtension(m.Options, commonv1.E_Access, rule)
		}
		sd.Method = append(sd.Method, m)
	}
	files := &protoregistry.Files{}
	if err := files.RegisterFile(emptypb.File_google_protobuf_empty_proto); err != nil {
		t.Fatal(err)
	}
	fd, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("writ/test/v1/thing.proto"), Package: proto.String("writ.test.v1"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/empty.proto"}, Service: []*descriptorpb.ServiceDescriptorProto{sd},
	}, files)
	if err != nil {
		t.Fatal(err)
	}
	if err := files.RegisterFile(fd); err != nil {
		t.Fatal(err)
	}
	return files
}

// credentials is an authenticator for tests: the token is the key.
type credentials map[string]auth.Credential

func (c credentials) Authenticate(_ context.Context, bearer string) (auth.Credential, error) {
	if cred, ok := c[bearer]; ok {
		return cred, nil
	}
	return auth.Credential{}, auth.ErrUnknownToken
}

func cred(id string, kind commonv1.PrincipalKind, ns string, roles ...commonv1.Role) auth.Credential {
	return auth.Credential{ID: id, Principal: &commonv1.Principal{Id: id, Kind: kind, Namespace: ns}, Namespace: ns, Roles: roles}
}

var everybody = credentials{
	"agent":   cred("agent", agent, "default", caller),
	"alice":   cred("alice", human, "default", caller, approver, operator),
	"bot":     cred("bot", agent, "default", caller, operator), // operator, but no person
	"gateway": cred("gateway", isService, "", service),
	"tenant":  cred("tenant", isService, "acme", service),
	"nothing": cred("nothing", human, "default"),
}

func gate(t *testing.T, files *protoregistry.Files) *auth.Gate {
	t.Helper()
	g, err := auth.NewGate(auth.GateOptions{Authenticator: everybody, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func call(kv ...string) context.Context {
	return metadata.NewIncomingContext(context.Background(), metadata.Pairs(kv...))
}

func as(token string, behalf ...*commonv1.Principal) context.Context {
	kv := []string{"authorization", "Bearer " + token}
	for _, p := range behalf {
		b, _ := proto.Marshal(p)
		kv = append(kv, "writ-on-behalf-of-bin", string(b))
	}
	return call(kv...)
}

func principal(id string, kind commonv1.PrincipalKind, ns string) *commonv1.Principal {
	return &commonv1.Principal{Id: id, Kind: kind, Namespace: ns}
}

const thing = "/writ.test.v1.ThingService/"

// RPC x role x kind of identity (design, Trust 5): each row is somebody who tries each kind of method.
func TestWhoMayCallWhat(t *testing.T) {
	g := gate(t, contract(t, map[string]*commonv1.AccessRule{
		"Call":     {Roles: []commonv1.Role{caller, service}},
		"Decide":   {Roles: []commonv1.Role{approver}, Kinds: []commonv1.PrincipalKind{human}, OwnCredential: true},
		"Operate":  {Roles: []commonv1.Role{operator}, Kinds: []commonv1.PrincipalKind{human}, OwnCredential: true},
		"Internal": {Roles: []commonv1.Role{service}},
		"Info":     {Anyone: true},
		"Nobody":   {},
		"Unknown":  {Roles: []commonv1.Role{commonv1.Role_ROLE_UNSPECIFIED, 77}},
	}))
	all := []string{"Call", "Decide", "Operate", "Internal", "Info", "Nobody", "Unknown"}
	for who, tc := range map[string]struct {
		ctx context.Context
		may string
	}{
		"an agent":                             {as("agent"), "Call Info"},
		"a person":                             {as("alice"), "Call Decide Operate Info"},
		"an agent with a wrongly given role":   {as("bot"), "Call Info"},
		"a service for itself":                 {as("gateway"), "Call Internal Info"},
		"a service for an agent":               {as("gateway", principal("agent", agent, "default")), "Call Internal Info"},
		"a service for a person never decides": {as("gateway", principal("alice", human, "default")), "Call Internal Info"},
		"a credential without roles":           {as("nothing"), "Info"},
	} {
		for _, m := range all {
			_, err := g.Admit(tc.ctx, thing+m)
			if want := strings.Contains(tc.may, m); (err == nil) != want {
				t.Errorf("%s, %s: %v", who, m, err)
			}
			if err != nil && (errs.ReasonOf(err) != "ACCESS_DENIED" || errs.Metadata(err)["needs"] == "" || errs.Metadata(err)["name"] != thing+m) {
				t.Errorf("%s, %s: %v %v", who, m, err, errs.Metadata(err))
			}
		}
	}
}

// R42's rule for methods: one without a policy is refused to everybody, and so is one that does not exist.
func TestAMethodWithoutAPolicyIsNobodys(t *testing.T) {
	files := contract(t, map[string]*commonv1.AccessRule{"Hole": nil, "Good": {Anyone: true}})
	g := gate(t, files)
	for _, m := range []string{thing + "Hole", thing + "Invented", "/writ.test.v1.Other/Good", "/foreign.v1.S/M", "nonsense", ""} {
		for _, who := range []string{"alice", "gateway", "stranger"} {
			if _, err := g.Admit(as(who), m); errs.ReasonOf(err) != "METHOD_WITHOUT_POLICY" {
				t.Errorf("%s may try %q: %v", who, m, err)
			}
		}
	}
	missing := g.Missing("writ.test.v1.ThingService", grpc.ServiceInfo{Methods: []grpc.MethodInfo{{Name: "Hole"}, {Name: "Good"}}})
	if len(missing) != 1 || missing[0] != thing+"Hole" {
		t.Errorf("reported: %v", missing)
	}
	if _, err := auth.NewGate(auth.GateOptions{Files: files, Overrides: map[string]auth.Rule{thing + "Hole": auth.Anyone()}}); err == nil {
		t.Error("an override opens a method of ours")
	}
}

func TestThirdPartyServicesHaveTheirOwnTable(t *testing.T) {
	g := gate(t, nil)
	if _, err := g.Admit(context.Background(), "/grpc.health.v1.Health/Check"); err != nil {
		t.Errorf("a probe: %v", err)
	}
	if _, err := g.Admit(context.Background(), "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("reflection without a credential: %v", err)
	}
	if _, err := g.Admit(as("agent"), "/opentelemetry.proto.collector.trace.v1.TraceService/Export"); err != nil {
		t.Errorf("spans: %v", err)
	}
}

func TestWithoutACredentialNothing(t *testing.T) {
	g := gate(t, contract(t, map[string]*commonv1.AccessRule{"Info": {Anyone: true}}))
	for name, ctx := range map[string]context.Context{
		"no metadata":     context.Background(),
		"no header":       call(),
		"unknown":         as("stranger"),
		"other scheme":    call("authorization", "Basic YWxpY2U6"),
		"no scheme":       call("authorization", "alice"),
		"empty":           call("authorization", "Bearer "),
		"two credentials": call("authorization", "Bearer agent", "authorization", "Bearer alice"),
		"huge":            as(strings.Repeat("x", 1<<20)),
	} {
		if _, err := g.Admit(ctx, thing+"Info"); errs.ReasonOf(err) != "UNAUTHENTICATED" || errs.Metadata(err)["next"] == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := g.Unauthenticated(); n != 8 {
		t.Errorf("counted %d of 8", n)
	}
}

// Only a service speaks for others; from anybody else the header is refused rather than ignored, and no form of it
// leads to a principal that the service did not name.
func TestOnBehalfOf(t *testing.T) {
	g := gate(t, contract(t, map[string]*commonv1.AccessRule{"Call": {Roles: []commonv1.Role{caller, service}}}))
	ctx, err := g.Admit(as("gateway", principal("notes", trigger, "acme")), thing+"Call")
	if err != nil {
		t.Fatal(err)
	}
	id, ok := auth.FromContext(ctx)
	if !ok || id.Subject.GetId() != "notes" || id.AssertedBy != "gateway" || id.Peer.GetId() != "gateway" || id.Namespace() != "acme" || !id.Delegated() {
		t.Errorf("%+v", id)
	}
	refused := map[string]context.Context{
		"an agent":                 as("agent", principal("alice", human, "default")),
		"a person":                 as("alice", principal("agent", agent, "default")),
		"as a service":             as("gateway", principal("exec", isService, "default")),
		"no kind":                  as("gateway", principal("x", 0, "default")),
		"an unknown kind":          as("gateway", principal("x", 9, "default")),
		"no id":                    as("gateway", principal("", agent, "default")),
		"no namespace":             as("gateway", principal("x", agent, "")),
		"two principals":           as("gateway", principal("x", agent, "default"), principal("y", agent, "default")),
		"another tenant's service": as("tenant", principal("x", agent, "default")),
		"garbage":                  call("authorization", "Bearer gateway", "writ-on-behalf-of-bin", "\xff\xff\xff"),
	}
	for name, ctx := range refused {
		if _, err := g.Admit(ctx, thing+"Call"); errs.ReasonOf(err) != "ON_BEHALF_REFUSED" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if ctx, err := g.Admit(as("tenant", principal("x", agent, "")), thing+"Call"); err != nil {
		t.Error(err)
	} else if id, _ := auth.FromContext(ctx); id.Namespace() != "acme" {
		t.Errorf("a tenant's service acts in its tenant: %+v", id)
	}
}

// The namespace is the credential's, whatever the principal in a table says.
func TestTheNamespaceComesFromTheCredential(t *testing.T) {
	c := cred("agent", agent, "default", caller)
	c.Principal.Namespace = "somebody else's"
	g, err := auth.NewGate(auth.GateOptions{
		Authenticator: credentials{"t": c}, Files: contract(t, map[string]*commonv1.AccessRule{"Call": {Roles: []commonv1.Role{caller}}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := g.Admit(as("t"), thing+"Call")
	if id, _ := auth.FromContext(ctx); err != nil || id.Namespace() != "default" {
		t.Errorf("%+v %v", id, err)
	}
}

// A handler, and whatever logs its context, does not meet the token; the gateway can pass it on all the same.
func TestTheTokenIsNotInTheMetadata(t *testing.T) {
	g := gate(t, contract(t, map[string]*commonv1.AccessRule{"Info": {Anyone: true}}))
	ctx, err := g.Admit(as("agent"), thing+"Info")
	if err != nil {
		t.Fatal(err)
	}
	if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("authorization")) > 0 {
		t.Error("the token is in the metadata")
	}
	if md, _ := metadata.FromOutgoingContext(ctx); len(md.Get("authorization")) > 0 {
		t.Error("the token is forwarded unasked")
	}
	if md, _ := metadata.FromOutgoingContext(auth.ForwardToken(ctx)); strings.Join(md.Get("authorization"), ",") != "Bearer agent" {
		t.Errorf("forwarded: %v", md)
	}
}

// Peers that are known by other means need no token, and a token does not change who they are.
func TestAKnownPeerNeedsNoToken(t *testing.T) {
	g, err := auth.NewGate(auth.GateOptions{
		Authenticator: everybody,
		Peer:          func(context.Context) (auth.Credential, bool) { return auth.ServiceCredential("exec"), true },
		Files:         contract(t, map[string]*commonv1.AccessRule{"Internal": {Roles: []commonv1.Role{service}}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := g.Admit(as("alice"), thing+"Internal")
	if id, _ := auth.FromContext(ctx); err != nil || id.Peer.GetId() != "exec" || id.Namespace() != "" {
		t.Errorf("%+v %v", id, err)
	}
}

func TestOutgoingOnBehalfOf(t *testing.T) {
	ctx, err := auth.Outgoing(metadata.AppendToOutgoingContext(context.Background(), "writ-on-behalf-of-bin", "planted"))
	if md, _ := metadata.FromOutgoingContext(ctx); err != nil || len(md.Get("writ-on-behalf-of-bin")) > 0 {
		t.Errorf("a planted principal is sent: %v %v", md, err)
	}
	ctx, err = auth.Outgoing(auth.OnBehalfOf(context.Background(), principal("a", agent, "default")))
	if md, _ := metadata.FromOutgoingContext(ctx); err != nil || len(md.Get("writ-on-behalf-of-bin")) != 1 {
		t.Errorf("%v %v", md, err)
	}
	if _, err := auth.Outgoing(auth.OnBehalfOf(context.Background(), principal("a\xff", agent, "default"))); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
}

func TestTheTableFindsWhatIsWrong(t *testing.T) {
	for name, rule := range map[string]*commonv1.AccessRule{
		"Missing":       nil,
		"Empty":         {},
		"Contradictory": {Anyone: true, Roles: []commonv1.Role{caller}},
		"NoRole":        {Roles: []commonv1.Role{0}},
		"NoKind":        {Roles: []commonv1.Role{caller}, Kinds: []commonv1.PrincipalKind{0}},
	} {
		if _, err := auth.TableOf(contract(t, map[string]*commonv1.AccessRule{name: rule})); err == nil || !strings.Contains(err.Error(), thing+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCredentialsBoundAgentsWorkspacesAndModes(t *testing.T) {
	c := auth.Credential{Agents: []string{"coder"}, WorkspaceRoots: []string{"/work/a"}}
	for path, want := range map[string]bool{
		"/work/a": true, "/work/a/b": true, "/work/ab": false, "/work": false, "/": false, "/work/a/../b": false, "work/a": false, "": false,
	} {
		if got := c.AllowsWorkspace(path); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
	if (auth.Credential{}).AllowsWorkspace("/work/a") || !(auth.Credential{WorkspaceRoots: []string{"*"}}).AllowsWorkspace("/x") {
		t.Error("no roots must allow nothing, * everything")
	}
	if !c.AllowsAgent("coder") || c.AllowsAgent("other") || !c.AllowsAgent("") || (auth.Credential{}).AllowsAgent("coder") {
		t.Error("agents")
	}
	if !(auth.ModeRank(commonv1.Mode_MODE_PLAN) < auth.ModeRank(commonv1.Mode_MODE_AUTO) && auth.ModeRank(commonv1.Mode_MODE_BYPASS) < auth.ModeRank(99) && auth.ModeRank(0) == auth.ModeRank(99)) {
		t.Error("modes")
	}
}
