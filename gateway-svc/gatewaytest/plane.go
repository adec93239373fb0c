package gatewaytest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/ids"
	"github.com/writ-dev/writ/internal/toolname"
)

// The tools of every turn of a Plane.
const (
	Read    = "mcp.t.read"   // a read that is allowed at once and answers with its arguments
	Write   = "mcp.t.write"  // asks a person first
	Slow    = "mcp.t.slow"   // has an effect, is allowed at once, and runs until Release or until it is cancelled
	Deny    = "mcp.t.deny"   // denied
	Chatty  = "mcp.t.chatty" // a read with very many progress events
	Command = toolname.RunCommand
)

// Plane is the other services in memory: just enough of registry, permission, mcp-host, exec and evidence that a call
// can pass, with switches that make them fail. It outlives the gateways before it.
type Plane struct {
	// WritLifetime is how long writs are good; a minute when 0.
	WritLifetime time.Duration

	key ed25519.PrivateKey
	wg  sync.WaitGroup

	mu        sync.Mutex
	changed   chan struct{}
	turns     map[string]*registryv1.Turn
	ends      []*registryv1.WatchTurnsResponse
	cards     []*permissionv1.Card
	log       []*permissionv1.Card
	cancelled map[string]bool
	claims    map[string]*evidencev1.Claim
	receipts  []*sealed
	runs      map[string]*run
	ran       map[string]int
	tried     map[string]int
	away      map[string]bool
	knocks    map[string]int
	lives     map[string]int // of an executor: how often it died
	traces    map[string]string
}

// NewPlane makes a plane without turns. Close it when the gateways before it have stopped.
func NewPlane() *Plane {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	return &Plane{
		key: key, changed: make(chan struct{}), turns: map[string]*registryv1.Turn{}, cancelled: map[string]bool{},
		claims: map[string]*evidencev1.Claim{}, runs: map[string]*run{}, ran: map[string]int{}, tried: map[string]int{},
		away: map[string]bool{}, knocks: map[string]int{}, lives: map[string]int{}, traces: map[string]string{},
	}
}

// Register makes the plane's services callable.
func (p *Plane) Register(r grpc.ServiceRegistrar) {
	registryv1.RegisterTurnServiceServer(r, turnService{p: p})
	permissionv1.RegisterAuthorizationServiceServer(r, authorization{p: p})
	permissionv1.RegisterCardServiceServer(r, cardService{p: p})
	mcphostv1.RegisterExecutionServiceServer(r, mcpHost{p: p})
	execv1.RegisterRunServiceServer(r, exec{p: p})
	evidencev1.RegisterClaimServiceServer(r, claimService{p: p})
	evidencev1.RegisterReceiptServiceServer(r, receiptService{p: p})
}

// Close ends what still runs and waits for it.
func (p *Plane) Close() {
	p.mu.Lock()
	for _, r := range p.runs {
		r.cancel()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// OpenTurn opens a turn for the agent of that name.
func (p *Plane) OpenTurn(agent string) (id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id = ids.New("t_", rand.Reader)
	p.turns[id] = &registryv1.Turn{
		Id: id, State: registryv1.TurnState_TURN_STATE_OPEN, Principal: Agent(agent), Conversation: "conversation of " + agent,
	}
	return id
}

// EndTurn ends a turn in the given state; its open cards are cancelled.
func (p *Plane) EndTurn(id string, state registryv1.TurnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ended := proto.CloneOf(p.turns[id])
	ended.State = state
	p.turns[id] = ended
	p.ends = append(p.ends, &registryv1.WatchTurnsResponse{Turn: p.turns[id], Namespace: auth.DefaultNamespace})
	for _, c := range p.cards {
		if c.GetTurn() == id {
			p.decide(c, permissionv1.CardState_CARD_STATE_CANCELLED)
		}
	}
	p.wake()
}

// Away makes a service ("permission", "registry", "evidence", "mcp-host", "exec") refuse connections, or come back.
func (p *Plane) Away(service string, away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away[service] = away
	p.wake()
}

// Knocks tells how many requests a service refused while it was away.
func (p *Plane) Knocks(service string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.knocks[service]
}

// Kill ends an executor with everything that runs there, without a word to evidence.
func (p *Plane) Kill(executor string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away[executor] = true
	p.lives[executor]++
	for name, r := range p.runs {
		if r.executor == executor {
			r.dead = true
			r.cancel()
			delete(p.runs, name)
		}
	}
	p.wake()
}

// Revive starts a killed executor. It seals the claims that it left open as UNKNOWN, then answers.
func (p *Plane) Revive(executor string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, c := range p.claims {
		if c.GetExecutor() == executor && c.GetState() == evidencev1.ClaimState_CLAIM_STATE_OPEN && c.GetDurable() {
			p.seal(name, executor, &commonv1.Outcome{
				State:  commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN,
				Status: errs.Status(errs.New(codes.Unavailable, mcphostv1.ErrorReason_ERROR_REASON_EXECUTOR_DIED, name, "the executor died after the claim", "Look before you call again.")).Proto(),
			})
		}
	}
	p.away[executor] = false
	p.wake()
}

// Release lets a Slow call end.
func (p *Plane) Release(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.runs[call]; r != nil {
		close(r.release)
	}
}

// Ran tells how often the effect of a call happened.
func (p *Plane) Ran(call string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ran[call]
}

// Tried tells how often a call was presented to an executor.
func (p *Plane) Tried(call string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tried[call]
}

// Card is the newest card of a call, nil when there is none.
func (p *Plane) Card(call string) *permissionv1.Card {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cardOf(call)
}

// Answer decides the card of a call as a person does, and tells whether it was open.
func (p *Plane) Answer(call string, state permissionv1.CardState) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.cardOf(call)
	return c != nil && p.decide(c, state)
}

// Running tells whether an executor has the call.
func (p *Plane) Running(call string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[call] != nil
}

func (p *Plane) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// gone is what a client sees of a service that is away.
func (p *Plane) gone(service string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.goneLocked(service)
}

func (p *Plane) goneLocked(service string) error {
	if !p.away[service] {
		return nil
	}
	p.knocks[service]++
	return errs.New(codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE, service, "connection refused", "")
}

func notFound(reason protoreflect.Enum, name string) error {
	return errs.New(codes.NotFound, reason, name, "there is no "+name, "")
}

// subject is on whose behalf a request is made, nil for a service that acts for itself.
func subject(ctx context.Context) *commonv1.Principal {
	id, _ := auth.FromContext(ctx)
	if id.Subject.GetKind() == commonv1.PrincipalKind_PRINCIPAL_KIND_SERVICE {
		return nil
	}
	return id.Subject
}

// sees tells whether who asks may see what belongs to an agent: its own, a service acting for itself all, an approver
// with its own token all.
func sees(ctx context.Context, owner string) bool {
	id, _ := auth.FromContext(ctx)
	s := subject(ctx)
	return s == nil || s.GetId() == owner || !id.Delegated() && id.Credential.Has(commonv1.Role_ROLE_APPROVER)
}

type turnService struct {
	registryv1.UnimplementedTurnServiceServer
	p *Plane
}

func (s turnService) GetTurn(ctx context.Context, req *registryv1.GetTurnRequest) (*registryv1.GetTurnResponse, error) {
	if err := s.p.gone("registry"); err != nil {
		return nil, err
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	t := s.p.turns[req.GetTurn()]
	if t == nil || !sees(ctx, t.GetPrincipal().GetId()) {
		return nil, notFound(registryv1.ErrorReason_ERROR_REASON_TURN_NOT_FOUND, req.GetTurn())
	}
	return &registryv1.GetTurnResponse{Turn: t}, nil
}

func (s turnService) WatchTurns(_ *registryv1.WatchTurnsRequest, out grpc.ServerStreamingServer[registryv1.WatchTurnsResponse]) error {
	s.p.mu.Lock()
	at := len(s.p.ends)
	s.p.mu.Unlock()
	for {
		s.p.mu.Lock()
		news, changed, err := s.p.ends[at:], s.p.changed, s.p.goneLocked("registry")
		s.p.mu.Unlock()
		if err != nil {
			return err
		}
		for _, m := range news {
			if err := out.Send(m); err != nil {
				return err
			}
			at++
		}
		select {
		case <-changed:
		case <-out.Context().Done():
			return out.Context().Err()
		}
	}
}

// mint makes the writ of a call.
func (p *Plane) mint(turn *registryv1.Turn, call, tool, trace string, arguments []byte) (string, time.Time, error) {
	salt, err := writtoken.NewSalt(rand.Reader)
	if err != nil {
		return "", time.Time{}, err
	}
	now, lifetime := time.Now(), p.WritLifetime
	if lifetime == 0 {
		lifetime = time.Minute
	}
	class := "external_mutation"
	if tool == Read || tool == Chatty {
		class = "read"
	}
	digest := strings.Repeat("0f", 32)
	claims := writtoken.Claims{
		Issuer: "urn:writ:test:permission", Audience: "urn:writ:test:" + executorOf(tool), ID: ids.New("w_", rand.Reader),
		IssuedAt: now, NotBefore: now.Add(-time.Second), Expiry: now.Add(lifetime), Deployment: "test",
		Namespace: auth.DefaultNamespace, Subject: writtoken.Principal{ID: turn.GetPrincipal().GetId(), Kind: "agent"},
		Conversation: turn.GetConversation(), Turn: turn.GetId(), Call: call, Tool: tool, Fingerprint: digest, Provider: "mcp.t",
		ProviderDigest: digest, Class: class, Args: writtoken.NewArgs(salt, arguments),
		Scopes: writtoken.Scopes{Network: writtoken.Network{Mode: "none"}}, Decision: writtoken.Decision{ID: "d_1", Cause: "mode"}, Trace: trace,
	}
	writ, err := writtoken.Mint(p.key, "test", claims)
	return writ, claims.Expiry, err
}

func executorOf(tool string) string {
	if tool == Command {
		return "exec"
	}
	return "mcp-host"
}

// identity is the tool of a card.
func identity(tool string) *commonv1.ToolIdentity {
	return &commonv1.ToolIdentity{Tool: tool, Provider: "mcp.t", WireFingerprint: strings.Repeat("0f", 32), ProviderDigest: strings.Repeat("0f", 32)}
}

func now() *timestamppb.Timestamp { return timestamppb.Now() }
