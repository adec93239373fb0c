package exec

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	"github.com/writ-dev/writ/internal/command"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/fingerprint"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/sandbox"
	"github.com/writ-dev/writ/internal/testkit"
	"github.com/writ-dev/writ/internal/toolname"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	if os.Getenv("WRIT_TEST_ROLE") == "executor" {
		os.Exit(executorRole())
	}
	os.Exit(m.Run())
}

// evidence is an evidence-svc in memory: claims once, and checks what is sealed.
type evidence struct {
	evidencev1.UnimplementedClaimServiceServer
	evidencev1.UnimplementedReceiptServiceServer

	key func() (string, ed25519.PublicKey)

	mu       sync.Mutex
	down     bool
	claims   map[string]*evidencev1.Claim
	order    []string // "claim" and "seal STATE", as they came
	sealed   []receipt.Facts
	openings []*evidencev1.Opening
}

func (v *evidence) Claim(_ context.Context, r *evidencev1.ClaimRequest) (*evidencev1.ClaimResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return nil, errs.New(codes.Unavailable, evidencev1.ErrorReason_ERROR_REASON_STORE_FULL, "evidence.db", "full", "free some space")
	}
	_, c, err := writtoken.Unverified(r.GetWrit())
	if err != nil {
		return nil, err
	}
	name := toolname.Call(c.Turn, c.Call)
	if old := v.claims[name]; old != nil {
		return nil, errs.New(codes.FailedPrecondition, evidencev1.ErrorReason_ERROR_REASON_CLAIM_TAKEN, name, "taken", "read the outcome", "receipt", old.GetReceipt())
	}
	v.claims[name] = &evidencev1.Claim{Call: name, Namespace: c.Namespace, Writ: r.GetWrit(), ClaimToken: "token-" + name, State: evidencev1.ClaimState_CLAIM_STATE_OPEN,
		ClaimTime: timestamppb.Now(), Executor: ServiceName}
	v.order = append(v.order, "claim")
	return &evidencev1.ClaimResponse{Claim: proto.Clone(v.claims[name]).(*evidencev1.Claim)}, nil
}

func (v *evidence) ListOpenClaims(context.Context, *evidencev1.ListOpenClaimsRequest) (*evidencev1.ListOpenClaimsResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := &evidencev1.ListOpenClaimsResponse{}
	for _, c := range v.claims {
		if c.GetState() == evidencev1.ClaimState_CLAIM_STATE_OPEN {
			out.Claims = append(out.Claims, proto.Clone(c).(*evidencev1.Claim))
		}
	}
	return out, nil
}

func (v *evidence) Seal(_ context.Context, r *evidencev1.SealRequest) (*evidencev1.SealResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down {
		return nil, errs.New(codes.Unavailable, evidencev1.ErrorReason_ERROR_REASON_STORE_FULL, "evidence.db", "full", "free some space")
	}
	statement, _, err := receipt.Verify(r.GetStatementEnvelope(), func(id string) (ed25519.PublicKey, bool) {
		own, key := v.key()
		return key, id == own
	})
	if err != nil {
		return nil, err
	}
	f, err := receipt.Parse(statement)
	if err != nil {
		return nil, err
	}
	claim := v.claims[f.Call]
	begun := f.State != commonv1.OutcomeState_OUTCOME_STATE_REFUSED && f.Reason != "CANCELLED"
	if (begun || r.GetClaimToken() != "") && (claim == nil || claim.GetClaimToken() != r.GetClaimToken() || claim.GetState() != evidencev1.ClaimState_CLAIM_STATE_OPEN) {
		return nil, errs.New(codes.FailedPrecondition, evidencev1.ErrorReason_ERROR_REASON_CLAIM_TOKEN_INVALID, f.Call, "not the claim's", "")
	}
	v.order = append(v.order, "seal "+strings.TrimPrefix(f.State.String(), "OUTCOME_STATE_"))
	v.sealed, v.openings = append(v.sealed, f), append(v.openings, r.GetOpening())
	id := fmt.Sprintf("r_%d", len(v.sealed))
	if claim != nil && r.GetClaimToken() != "" {
		claim.State, claim.Receipt = evidencev1.ClaimState_CLAIM_STATE_SEALED, id
	}
	return &evidencev1.SealResponse{Receipt: &evidencev1.Receipt{Id: id, Call: f.Call, State: f.State, Reason: f.Reason}}, nil
}

func (v *evidence) last() (receipt.Facts, *evidencev1.Opening) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.sealed) == 0 {
		return receipt.Facts{}, nil
	}
	return v.sealed[len(v.sealed)-1], v.openings[len(v.openings)-1]
}

func (v *evidence) set(down bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.down = down
}

// plane is an executor with evidence on one channel.
type plane struct {
	t          *testing.T
	server     *Server
	evidence   *evidence
	runs       execv1.RunServiceClient
	caps       execv1.CapabilityServiceClient
	signer     ed25519.PrivateKey
	deployment string
	workspace  string
	sink       *testkit.Sink
	calls      int
}

func newPlane(t *testing.T, change ...func(*Config)) *plane {
	t.Helper()
	testkit.NoLeaks(t)
	ch, sink := testkit.Channel(t)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{t: t, signer: private, deployment: strings.ToLower(rand.Text()[:8]), evidence: &evidence{claims: map[string]*evidencev1.Claim{}}, sink: sink}
	evidencev1.RegisterClaimServiceServer(ch, p.evidence)
	evidencev1.RegisterReceiptServiceServer(ch, p.evidence)
	cfg := Config{Deployment: p.deployment, Limits: Limits{KillGrace: 200 * time.Millisecond}}
	for _, c := range change {
		c(&cfg)
	}
	p.server, err = New(t.Context(), cfg, WithTracerProvider(sink.Provider(ServiceName)), WithIssuer("urn:writ:"+p.deployment+":permission", writtoken.StaticKeys{"k1": public}),
		WithClients(Clients{Claims: evidencev1.NewClaimServiceClient(ch.As(ServiceName)), Receipts: evidencev1.NewReceiptServiceClient(ch.As(ServiceName))}))
	if err != nil {
		t.Fatal(err)
	}
	p.evidence.key = p.server.PublicKey
	p.server.Register(ch)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := p.server.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	p.runs, p.caps = execv1.NewRunServiceClient(ch.As("gateway")), execv1.NewCapabilityServiceClient(ch.As("gateway"))
	if p.workspace, err = filepath.EvalSymlinks(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.workspace, 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

func folder(t *testing.T, path string) writtoken.Folder {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return writtoken.Folder{Path: path, Dev: st.Dev, Ino: st.Ino}
}

// claims is what permission-svc would say about the arguments.
func (p *plane) claims(arguments string) writtoken.Claims {
	p.t.Helper()
	c, err := command.Parse([]byte(arguments))
	if err != nil {
		c = command.Command{Line: "true", Cwd: ".", Timeout: time.Second, Network: "none", Isolation: "isolated"}
	}
	salt, err := writtoken.NewSalt(rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	in := writtoken.CommandInput{Line: c.Line, Argv: c.Argv, Cwd: c.Cwd, Stdin: c.Stdin}
	for _, v := range c.Env {
		in.Env = append(in.Env, writtoken.EnvVar(v))
	}
	p.calls++
	now := time.Now().Truncate(time.Second)
	return writtoken.Claims{
		Issuer: "urn:writ:" + p.deployment + ":permission", Audience: "urn:writ:" + p.deployment + ":exec", ID: fmt.Sprintf("w_%d", p.calls),
		IssuedAt: now, NotBefore: now, Expiry: now.Add(time.Minute), Deployment: p.deployment, Namespace: "default",
		Subject: writtoken.Principal{ID: "bot", Kind: "agent"}, Turn: "t_1", Call: fmt.Sprintf("c_%d", p.calls),
		Tool: command.ToolName, Fingerprint: fingerprint.Wire([]byte(command.Definition)), Provider: command.Provider, ProviderDigest: command.ProviderDigest(),
		Class: "process", Args: writtoken.NewArgs(salt, []byte(arguments)),
		Exec: &writtoken.Exec{MAC: writtoken.CommitCommand(salt, in), Cwd: c.Cwd, Isolation: c.Isolation, Network: c.Network, Timeout: c.Timeout},
		Scopes: writtoken.Scopes{Paths: []writtoken.PathScope{{Folder: folder(p.t, p.workspace), Access: "write"}},
			Network: writtoken.Network{Mode: c.Network}},
		Decision: writtoken.Decision{ID: "d_1", Cause: "card", Card: "k_1"},
		Trace:    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

func (p *plane) mint(c writtoken.Claims) string {
	p.t.Helper()
	token, err := writtoken.Mint(p.signer, "k1", c)
	if err != nil {
		p.t.Fatal(err)
	}
	return token
}

// call runs the arguments under a writ made for them.
func (p *plane) call(arguments string, change ...func(*writtoken.Claims)) (*commonv1.Outcome, []*commonv1.ExecutionEvent) {
	p.t.Helper()
	c := p.claims(arguments)
	for _, f := range change {
		f(&c)
	}
	return p.present(p.mint(c), arguments)
}

func (p *plane) present(token, arguments string) (*commonv1.Outcome, []*commonv1.ExecutionEvent) {
	p.t.Helper()
	events, err := p.execute(p.t.Context(), token, arguments)
	if err != nil {
		p.t.Fatal(err)
	}
	return events[len(events)-1].GetOutcome(), events
}

func (p *plane) execute(ctx context.Context, token, arguments string) ([]*commonv1.ExecutionEvent, error) {
	stream, err := p.runs.Execute(ctx, &execv1.ExecuteRequest{Request: &commonv1.ExecuteRequest{Writ: token, Arguments: []byte(arguments)}})
	if err != nil {
		return nil, err
	}
	var events []*commonv1.ExecutionEvent
	for {
		answer, err := stream.Recv()
		if err == io.EOF {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events = append(events, answer.GetEvent())
	}
}

func reasonOf(o *commonv1.Outcome) string { return receipt.StatusReason(o) }

func isolation(t *testing.T) string {
	t.Helper()
	best, missing := sandbox.Probe(t.Context()).Best(sandbox.ProfileCommand)
	if !best.AtLeast(sandbox.LevelIsolatedSoftCaps) {
		t.Fatalf("this machine can't run the tests: %+v", missing)
	}
	return string(best)
}
