package permission

import (
	"context"
	"crypto/rand"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/class"
	"github.com/writ-dev/writ/internal/command"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/rawjson"
	"github.com/writ-dev/writ/internal/telemetry"
	"github.com/writ-dev/writ/internal/toolname"
	"github.com/writ-dev/writ/permission-svc/internal/actor"
	"github.com/writ-dev/writ/permission-svc/internal/card"
	"github.com/writ-dev/writ/permission-svc/internal/decide"
	"github.com/writ-dev/writ/permission-svc/internal/preview"
	"github.com/writ-dev/writ/permission-svc/internal/shell"
	"github.com/writ-dev/writ/permission-svc/internal/store"
)

// The executors, as they stand in the audience of a writ.
const (
	executorExec = "exec"
	executorMCP  = "mcp-host"
)

// call is one call with everything that the resolver says about it now.
type call struct {
	facts    decide.Facts
	turn     *registryv1.Turn
	executor string
	command  *command.Command // of run_command
	content  card.Content     // what receipts and a card say; from the card where there is one
}

func (c *call) key() store.CallKey {
	return store.CallKey{Namespace: c.content.Namespace, Turn: c.content.Turn, Call: c.content.Call}
}

func (c *call) name() string { return toolname.Call(c.content.Turn, c.content.Call) }

func (s *Server) checkArguments(b []byte) error {
	if err := rawjson.CheckObject(b, rawjson.Limits{MaxBytes: s.cfg.Limits.ArgumentsBytes}); err != nil {
		return jsonInvalid(err)
	}
	return nil
}

// resolve asks what the turn froze. The turn has to be the caller's own; another's is not there.
func (s *Server) resolve(ctx context.Context, id auth.Identity, req *permissionv1.AuthorizeRequest) (*call, error) {
	if s.clients.Resolver == nil {
		return nil, errs.New(codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE, "registry", "no resolver is connected", "Connect a registry, or serve ResolverService yourself.")
	}
	res, err := s.clients.Resolver.Resolve(ctx, &registryv1.ResolveRequest{Turn: req.GetTurn(), Tool: req.GetTool(), Namespace: id.Namespace()})
	switch {
	case errs.Is(err, registryv1.ErrorReason_ERROR_REASON_TURN_NOT_FOUND):
		return nil, turnNotFound(req.GetTurn())
	case errs.Is(err, registryv1.ErrorReason_ERROR_REASON_TOOL_NOT_IN_TURN):
		if err := s.ownTurn(ctx, id, req.GetTurn(), id.Namespace()); err != nil {
			return nil, err // not even whether the tool is there is told about another's turn
		}
		return nil, toolNotFound(req.GetTool(), req.GetTurn())
	case err != nil:
		return nil, err
	}
	subject := actor.From(id.Subject, "")
	if owner := actor.From(res.GetTurn().GetPrincipal(), ""); !sameOwner(owner, subject) {
		return nil, turnNotFound(req.GetTurn())
	}
	if res.GetTool().GetTool().GetIdentity().GetTool() == "" {
		return nil, toolNotFound(req.GetTool(), req.GetTurn())
	}
	return s.describe(ctx, id, req, res)
}

// sameOwner compares principals; a resolver may leave the namespace out, which it was asked with.
func sameOwner(owner, subject actor.Actor) bool {
	if owner.Namespace == "" {
		owner.Namespace = subject.Namespace
	}
	return owner.Is(subject)
}

// ownTurn fails with TURN_NOT_FOUND for another's turn.
func (s *Server) ownTurn(ctx context.Context, id auth.Identity, turn, namespace string) error {
	if s.clients.Resolver == nil {
		return turnNotFound(turn)
	}
	res, err := s.clients.Resolver.Resolve(ctx, &registryv1.ResolveRequest{Turn: turn, Namespace: namespace})
	if errs.Is(err, registryv1.ErrorReason_ERROR_REASON_TURN_NOT_FOUND) || err == nil && !sameOwner(actor.From(res.GetTurn().GetPrincipal(), ""), actor.From(id.Subject, "")) {
		return turnNotFound(turn)
	}
	return err
}

func (s *Server) describe(ctx context.Context, id auth.Identity, req *permissionv1.AuthorizeRequest, res *registryv1.ResolveResponse) (*call, error) {
	turn, tool := res.GetTurn(), res.GetTool()
	identity := tool.GetTool().GetIdentity()
	traceparent, tracestate := telemetry.Traceparent(ctx)
	assertedBy := id.AssertedBy
	if assertedBy == "" {
		assertedBy = turn.GetAssertedBy()
	}
	c := &call{turn: turn, executor: res.GetExecutor()}
	c.content = card.Content{
		Namespace: id.Namespace(), Turn: req.GetTurn(), Call: req.GetCall(), Principal: actor.From(id.Subject, ""), AssertedBy: assertedBy,
		Agent: turn.GetAgent(), Conversation: turn.GetConversation(), Project: turn.GetProject(),
		Tool:  card.Tool{ID: identity.GetTool(), Fingerprint: identity.GetWireFingerprint(), Semantic: identity.GetSemanticFingerprint(), Provider: identity.GetProvider(), ProviderDigest: identity.GetProviderDigest()},
		Class: tool.GetClass(), Mode: turn.GetMode(), TraceID: telemetry.TraceID(ctx), Traceparent: traceparent, Tracestate: tracestate,
		Arguments: req.GetArguments(), SHA256: sha256Hex(req.GetArguments()),
	}
	c.facts = decide.Facts{
		Namespace: c.content.Namespace, Principal: c.content.Principal, Agent: c.content.Agent, Turn: c.content.Turn, Conversation: c.content.Conversation,
		Project: c.content.Project, Mode: turn.GetMode(), CredentialMaxMode: turn.GetCredentialMaxMode(), OpenTime: turn.GetOpenTime().AsTime(),
		Tool: identity.GetTool(), Provider: identity.GetProvider(), ProviderDigest: identity.GetProviderDigest(), Fingerprint: identity.GetWireFingerprint(),
		Lane: tool.GetTool().GetLane(), Class: tool.GetClass(), Disposition: tool.GetDisposition(), AlwaysGate: tool.GetAlwaysGate(),
		CurrentDigest: res.GetCurrentProviderDigest(), Enabled: res.GetProviderEnabled(), Now: s.now(),
	}
	switch c.executor {
	case executorMCP:
		c.facts.Lane = commonv1.Lane_LANE_MCP
	case executorExec:
		if identity.GetTool() == command.ToolName {
			return c, c.parseCommand()
		}
	default:
		return nil, errs.New(codes.FailedPrecondition, permissionv1.ErrorReason_ERROR_REASON_TOOL_UNCLASSIFIED, identity.GetTool(),
			"nothing that is known here executes the tool", "Connect an executor for it.", "executor", c.executor)
	}
	return c, nil
}

// parseCommand reads run_command's arguments with the one parser, and what matters of them.
func (c *call) parseCommand() error {
	cmd, err := command.Parse(c.content.Arguments)
	if err != nil {
		return commandInvalid(err)
	}
	c.command = &cmd
	if err := c.checkCwd(); err != nil {
		return err
	}
	var r shell.Result
	if cmd.Argv != nil {
		r = shell.Argv(cmd.Argv)
	} else {
		r = shell.Line(cmd.Line)
	}
	risky := slices.ContainsFunc(cmd.Env, func(v command.Var) bool { return shell.RiskyVariable(v.Name) })
	c.facts.Command = &decide.Command{
		Destructive: r.Destructive || risky, Rememberable: r.Rememberable && !risky, Words: r.Words,
		Network: cmd.Network != command.NetworkNone, Host: cmd.Isolation == command.IsolationHost,
		Weaker: cmd.Isolation != command.DefaultIsolation && cmd.Isolation != "isolated" && cmd.Isolation != command.IsolationHost,
	}
	return nil
}

// checkCwd keeps the working folder inside the turn's workspace.
func (c *call) checkCwd() error {
	cwd, workspace := path.Clean(c.command.Cwd), c.turn.GetWorkspace().GetPath()
	switch {
	case workspace == "" && cwd != ".":
		return workspaceUnavailable(cwd)
	case workspace == "":
		return nil
	case !path.IsAbs(cwd):
		cwd = path.Join(workspace, cwd)
	}
	if cwd != workspace && !strings.HasPrefix(cwd, strings.TrimSuffix(workspace, "/")+"/") {
		return outsideWorkspace(c.command.Cwd)
	}
	return nil
}

// sameAs fails with CALL_CHANGED when the call's name was used for something else.
func (c *call) sameAs(k card.Card) error {
	switch {
	case k.Tool.ID != c.content.Tool.ID:
		return callChanged(c.name(), "another tool")
	case k.SHA256 != c.content.SHA256:
		return callChanged(c.name(), "other arguments")
	}
	return nil
}

// adopt takes what the card says: the first trace, the salt, the words that were shown.
func (c *call) adopt(k card.Card) { c.content = k.Content }

// question makes the card's content.
func (s *Server) question(ctx context.Context, c *call, d decide.Decision) card.Card {
	k := card.Card{Content: c.content}
	k.ID, k.AskTime, k.Why = s.newID("k_"), s.now().UTC(), d.Why
	k.Preview = preview.Build(preview.Input{
		Provider: k.Tool.Provider, Tool: k.Tool.ID, Command: c.display(), Arguments: k.Arguments,
		MaxBytes: s.cfg.Limits.PreviewBytes, MaxArguments: s.cfg.Limits.PreviewArguments,
	})
	k.Salt = newSalt()
	k.Reach, k.Enforcement = c.reach()
	k.Offers = offers(c, d)
	if c.facts.Command != nil {
		k.Command, k.Words = true, decide.Words(c.facts.Command)
	}
	return k
}

func (c *call) display() string {
	if c.command == nil {
		return ""
	}
	return c.command.Display()
}

// newSalt is the salt of one call's commitments. Without random bytes there is no process: see crypto/rand.
func newSalt() []byte {
	salt := make([]byte, writtoken.SaltSize)
	_, _ = rand.Read(salt)
	return salt
}

// reach says in words what the call could reach, and what would stand around it.
func (c *call) reach() (reach []string, enforcement string) {
	folder, _ := preview.Escape(c.turn.GetWorkspace().GetPath(), false)
	if c.executor == executorMCP {
		reach = append(reach, "whatever the server "+strings.TrimPrefix(c.facts.Provider, "mcp.")+" can reach, which nobody reviewed")
		if folder != "" {
			reach = append(reach, "the server is told the folder "+folder)
		}
		return append(reach, "network open"), "guarded: the server's own process and mount namespaces where this machine has them; the receipt says what was in force"
	}
	if folder != "" {
		reach = append(reach, "reads and writes "+folder)
	}
	cmd := c.command
	switch {
	case cmd == nil:
		return append(reach, "no network"), "sandboxed"
	case cmd.Isolation == command.IsolationHost:
		return append(reach, "everything that the user of this service can reach, network included"), "none: the command runs on this machine without a sandbox"
	case cmd.Network == command.NetworkOpen:
		reach = append(reach, "network open")
	default:
		reach = append(reach, "no network")
	}
	return reach, "sandboxed, at least " + cmd.Isolation + "; refused where this machine can't"
}

// offers are the lifetimes that an answer may choose.
func offers(c *call, d decide.Decision) []card.Offer {
	what, word := c.facts.Tool, ""
	if c.facts.Command != nil {
		words := decide.Words(c.facts.Command)
		if len(words) != 1 {
			d.OnceOnly = true
		} else {
			word = words[0]
			what = "commands that begin with " + word
		}
	}
	what, _ = preview.Escape(what, false)
	out := []card.Offer{{Lifetime: permissionv1.Lifetime_LIFETIME_ONCE, Text: "this call only"}}
	if d.OnceOnly {
		return out
	}
	add := func(l permissionv1.Lifetime, text string) {
		out = append(out, card.Offer{Lifetime: l, Text: text, Word: word})
	}
	add(permissionv1.Lifetime_LIFETIME_TURN, what+" for the rest of this turn")
	if c.facts.Conversation != "" {
		conversation, _ := preview.Escape(c.facts.Conversation, false)
		add(permissionv1.Lifetime_LIFETIME_CONVERSATION, what+" for the rest of conversation "+conversation)
	}
	whose, _ := preview.Escape(c.facts.Principal.ID, false)
	if c.facts.Agent != "" {
		agent, _ := preview.Escape(c.facts.Agent, false)
		whose += " for agent " + agent
	}
	add(permissionv1.Lifetime_LIFETIME_NAMESPACE, "always "+what+", whenever "+whose+" asks")
	return out
}

// claims is what the writ says.
func (s *Server) claims(c *call, salt []byte, d writtoken.Decision, traceparent string) writtoken.Claims {
	now := s.now().UTC().Truncate(time.Second)
	k := c.content
	claims := writtoken.Claims{
		Issuer: s.Issuer(), Audience: "urn:writ:" + s.cfg.Deployment + ":" + c.executor, ID: s.newID("w_"),
		IssuedAt: now, NotBefore: now, Expiry: now.Add(s.cfg.WritLifetime), Deployment: s.cfg.Deployment, Namespace: k.Namespace,
		Subject: writtoken.Principal{ID: k.Principal.ID, Kind: actor.Word(k.Principal.Kind.String(), "PRINCIPAL_KIND_")}, AssertedBy: k.AssertedBy,
		Agent: k.Agent, Conversation: k.Conversation, Turn: k.Turn, Call: k.Call,
		Tool: c.facts.Tool, Fingerprint: c.facts.Fingerprint, Provider: c.facts.Provider, ProviderDigest: c.facts.ProviderDigest, Class: class.Word(c.facts.Class),
		Args: writtoken.NewArgs(salt, k.Arguments), Decision: d, Trace: traceparent,
	}
	folder := writtoken.Folder{Path: c.turn.GetWorkspace().GetPath(), Dev: c.turn.GetWorkspace().GetDevice(), Ino: c.turn.GetWorkspace().GetInode()}
	claims.Scopes.Network.Mode = "none"
	if c.executor == executorMCP {
		claims.Scopes.Network.Mode = "open"
		if folder.Path != "" {
			claims.Scopes.MCPRoot = &folder
		}
		return claims
	}
	if folder.Path != "" {
		claims.Scopes.Paths = []writtoken.PathScope{{Folder: folder, Access: "write"}}
	}
	if c.command != nil {
		claims.Exec = execClaim(*c.command, salt)
		claims.Scopes.Network.Mode = c.command.Network
		claims.Scopes.HostExecution = c.command.Isolation == command.IsolationHost
	}
	return claims
}

func execClaim(cmd command.Command, salt []byte) *writtoken.Exec {
	in := writtoken.CommandInput{Line: cmd.Line, Argv: cmd.Argv, Cwd: cmd.Cwd, Stdin: cmd.Stdin}
	for _, v := range cmd.Env {
		in.Env = append(in.Env, writtoken.EnvVar(v))
	}
	timeout := (cmd.Timeout + time.Millisecond - 1).Truncate(time.Millisecond)
	return &writtoken.Exec{MAC: writtoken.CommitCommand(salt, in), Cwd: cmd.Cwd, Isolation: cmd.Isolation, Network: cmd.Network, Timeout: timeout}
}

// who is who calls. Without an identity nothing is served: the interceptor that finds it is missing.
func who(ctx context.Context) (auth.Identity, error) {
	id, ok := auth.FromContext(ctx)
	if !ok {
		return id, errors.New("a call without an identity: the auth interceptor is missing")
	}
	return id, nil
}
