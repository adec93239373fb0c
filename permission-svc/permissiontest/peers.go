package permissiontest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/command"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/receipt"
)

// Digest makes 64 hexadecimal digits of a word, for fingerprints and provider digests.
func Digest(word string) string {
	sum := sha256.Sum256([]byte(word))
	return hex.EncodeToString(sum[:])
}

// MCPTool is a tool of the server "fs" as a turn freezes it where nobody settled anything: external mutation, automatic.
func MCPTool(name string) *registryv1.TurnTool {
	return &registryv1.TurnTool{
		Class: commonv1.SecurityClass_SECURITY_CLASS_EXTERNAL_MUTATION, Disposition: commonv1.Disposition_DISPOSITION_AUTOMATIC,
		Tool: &registryv1.Tool{Lane: commonv1.Lane_LANE_MCP, Alias: "fs__" + name, Name: name, Identity: &commonv1.ToolIdentity{
			Tool: "mcp.fs." + name, WireFingerprint: Digest("wire " + name), SemanticFingerprint: Digest("semantic " + name), Provider: "mcp.fs", ProviderDigest: Digest("mcp.fs"),
		}},
	}
}

// RunCommand is the builtin run_command as a turn freezes it.
func RunCommand() *registryv1.TurnTool {
	return &registryv1.TurnTool{
		Class: commonv1.SecurityClass_SECURITY_CLASS_PROCESS, Disposition: commonv1.Disposition_DISPOSITION_AUTOMATIC,
		Tool: &registryv1.Tool{Lane: commonv1.Lane_LANE_BUILTIN, Alias: command.ToolName, Name: command.ToolName, Identity: &commonv1.ToolIdentity{
			Tool: command.ToolName, WireFingerprint: Digest("wire run_command"), SemanticFingerprint: Digest("semantic run_command"),
			Provider: command.Provider, ProviderDigest: command.ProviderDigest(),
		}},
	}
}

// Registry is a resolver whose turns the test writes down.
type Registry struct {
	registryv1.UnimplementedResolverServiceServer
	mu    sync.Mutex
	turns map[string]*turn
}

type turn struct {
	registryv1.Turn
	digests  map[string]string // provider to its digest now; not there: the frozen one
	disabled map[string]bool
}

// NewRegistry makes one without turns.
func NewRegistry() *Registry { return &Registry{turns: map[string]*turn{}} }

// Turn is an open turn of the agent "bot" in conversation "talk" and the mode, with a workspace, opened now.
func Turn(id string, mode commonv1.Mode, tools ...*registryv1.TurnTool) *registryv1.Turn {
	return &registryv1.Turn{
		Id: id, State: registryv1.TurnState_TURN_STATE_OPEN, Mode: mode, CredentialMaxMode: commonv1.Mode_MODE_BYPASS, Conversation: "talk", Agent: "helper",
		Principal: &commonv1.Principal{Id: "bot", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT, Namespace: "default"},
		Workspace: &registryv1.Workspace{Path: "/work/notes", Device: 7, Inode: 9007199254740993}, Tools: tools, OpenTime: timestamppb.New(time.Now()),
	}
}

// Open adds a turn.
func (r *Registry) Open(t *registryv1.Turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	added := &turn{digests: map[string]string{}, disabled: map[string]bool{}}
	proto.Merge(&added.Turn, t)
	r.turns[t.GetId()] = added
}

// End changes a turn's state.
func (r *Registry) End(id string, state registryv1.TurnState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns[id].State = state
}

// Change changes a tool as the turn says it was frozen, which no honest registry does.
func (r *Registry) Change(id, tool string, change func(*registryv1.TurnTool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.turns[id].Tools {
		if t.GetTool().GetIdentity().GetTool() == tool {
			change(t)
		}
	}
}

// Replace gives a provider another digest than the turns froze.
func (r *Registry) Replace(provider, digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.turns {
		t.digests[provider] = digest
	}
}

// Disable disables a provider.
func (r *Registry) Disable(provider string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.turns {
		t.disabled[provider] = true
	}
}

// Resolve implements the contract.
func (r *Registry) Resolve(_ context.Context, req *registryv1.ResolveRequest) (*registryv1.ResolveResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.turns[req.GetTurn()]
	if !ok || t.GetPrincipal().GetNamespace() != req.GetNamespace() {
		return nil, errs.New(codes.NotFound, registryv1.ErrorReason_ERROR_REASON_TURN_NOT_FOUND, req.GetTurn(), "there is no such turn", "")
	}
	out := &registryv1.ResolveResponse{Turn: proto.CloneOf(&t.Turn)}
	out.Turn.Tools = nil
	if req.GetTool() == "" {
		return out, nil
	}
	for _, tool := range t.Tools {
		id := tool.GetTool().GetIdentity()
		if req.GetTool() != id.GetTool() && req.GetTool() != tool.GetTool().GetAlias() {
			continue
		}
		out.Tool, out.CurrentProviderDigest, out.ProviderEnabled, out.Executor = proto.CloneOf(tool), id.GetProviderDigest(), !t.disabled[id.GetProvider()], "exec"
		if d, changed := t.digests[id.GetProvider()]; changed {
			out.CurrentProviderDigest = d
		}
		if tool.GetTool().GetLane() == commonv1.Lane_LANE_MCP {
			out.Executor = "mcp-host"
		}
		return out, nil
	}
	return nil, errs.New(codes.NotFound, registryv1.ErrorReason_ERROR_REASON_TOOL_NOT_IN_TURN, req.GetTool(), "the turn has no such tool", "")
}

// Evidence keeps what is sealed, one receipt per call as evidence-svc does.
type Evidence struct {
	evidencev1.UnimplementedReceiptServiceServer
	mu       sync.Mutex
	down     bool
	attempts int
	sealed   map[string]*Sealed // by namespace and call
}

// Sealed is one receipt.
type Sealed struct {
	*evidencev1.Receipt
	Opening *evidencev1.Opening
}

// NewEvidence makes an empty one.
func NewEvidence() *Evidence { return &Evidence{sealed: map[string]*Sealed{}} }

// Down makes it refuse, or work again.
func (e *Evidence) Down(down bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = down
}

// Of returns the receipt of a call in the namespace "default", nil where there is none.
func (e *Evidence) Of(call string) *Sealed {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sealed["default/"+call]
}

// Attempts counts the requests, refused ones included.
func (e *Evidence) Attempts() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.attempts
}

// Count is the number of receipts.
func (e *Evidence) Count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.sealed)
}

// Seal implements the contract, as far as a test needs it.
func (e *Evidence) Seal(_ context.Context, req *evidencev1.SealRequest) (*evidencev1.SealResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.attempts++
	if e.down {
		return nil, errs.New(codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE, "evidence", "it is down", "")
	}
	r, err := read(req)
	if err != nil {
		return nil, errs.New(codes.InvalidArgument, evidencev1.ErrorReason_ERROR_REASON_STATEMENT_INVALID, "", err.Error(), "")
	}
	key := req.GetNamespace() + "/" + r.GetCall()
	before, taken := e.sealed[key]
	if taken && !bytes.Equal(before.GetStatementEnvelope(), req.GetStatementEnvelope()) {
		return nil, errs.New(codes.FailedPrecondition, evidencev1.ErrorReason_ERROR_REASON_CLAIM_TAKEN, r.GetCall(), "the call is claimed", "", "receipt", before.GetId())
	}
	if !taken {
		r.Id = fmt.Sprintf("r_%03d", len(e.sealed)+1)
		before = &Sealed{Receipt: r, Opening: proto.CloneOf(req.GetOpening())}
		e.sealed[key] = before
	}
	return &evidencev1.SealResponse{Receipt: proto.CloneOf(before.Receipt)}, nil
}

// read takes the index of a receipt from its statement, as evidence-svc does; it does not look at the signature.
func read(req *evidencev1.SealRequest) (*evidencev1.Receipt, error) {
	statement, _, err := receipt.Unverified(req.GetStatementEnvelope())
	if err != nil {
		return nil, err
	}
	f, err := receipt.Parse(statement)
	if err != nil {
		return nil, err
	}
	if want := receipt.Committed(req.GetOpening().GetArgumentsSalt(), req.GetOpening().GetArguments()); !want.Equal(f.Arguments) {
		return nil, fmt.Errorf("the arguments are not those that the statement commits to")
	}
	return &evidencev1.Receipt{
		Kind: f.Kind, Call: f.Call, State: f.State, Reason: f.Reason, Tool: f.Tool, Principal: f.Principals[0].GetId(), Agent: f.Agent, Conversation: f.Conversation,
		Executor: f.Executor, TraceId: f.TraceID, Decision: f.Decision.Cause + ": " + f.Decision.Why, Card: f.Decision.Card, Count: 1, StatementEnvelope: req.GetStatementEnvelope(),
	}, nil
}
