package turn

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/ids"
	"github.com/writ-dev/writ/internal/toolname"
	"github.com/writ-dev/writ/registry-svc/internal/builtin"
	"github.com/writ-dev/writ/registry-svc/internal/connector"
	"github.com/writ-dev/writ/registry-svc/internal/fault"
)

// ErrRequestKnown says that a request id has a turn already.
var ErrRequestKnown = errors.New("the request id has a turn")

const (
	discoverParallel = 32
	requestMemory    = 24 * time.Hour
	cachedTurns      = 10_000
	cachedSets       = 64 << 20 // bytes
)

// Options are what a Manager works with.
type Options struct {
	Store      Store
	Connectors Connectors
	Classifier Classifier
	Cards      Cards // nil: there are none
	Manifest   []builtin.Tool
	Agents     map[string]Agent
	Limits     Limits
	// DiscoverTimeout bounds the listing of one connector.
	DiscoverTimeout time.Duration
	// Idle is after what time without a call a turn ends, unless a card is open.
	Idle time.Duration
	// Encode makes a serialized google.rpc.Status of an error.
	Encode func(error) []byte
	// Alias names tools for models; nil: toolname.Alias.
	Alias func(server, tool string) string
	Log   *slog.Logger
	Now   func() time.Time
}

// Manager opens and ends turns and answers what they froze. It is safe for concurrent use.
type Manager struct {
	opts  Options
	cache *cache
	Hub   *Hub

	mu      sync.Mutex
	flights map[string]chan struct{} // request ids that are being opened
	used    map[string]time.Time     // since the last flush
}

// NewManager makes a manager.
func NewManager(opts Options) *Manager {
	if opts.Alias == nil {
		opts.Alias = toolname.Alias
	}
	return &Manager{
		opts: opts, cache: newCache(cachedTurns, cachedSets), Hub: NewHub(),
		flights: map[string]chan struct{}{}, used: map[string]time.Time{},
	}
}

// Open opens a turn, or returns the one that the request id made before.
func (m *Manager) Open(ctx context.Context, req Request) (Turn, []Tool, error) {
	allow, err := newAllowlist(req.Tools, m.opts.Agents[req.Agent])
	if err != nil {
		return Turn{}, nil, err
	}
	key := RequestKey{Principal: req.Principal, ID: req.RequestID, Digest: digest(req)}
	if key.ID == "" {
		return m.open(ctx, req, allow, key)
	}
	for {
		t, tools, found, err := m.repeated(ctx, key, req.InlineMax)
		if found || err != nil {
			return t, tools, err
		}
		land, mine := m.takeOff(key)
		if mine {
			defer land()
			// Whoever held the id before may have opened the turn since it was looked for.
			if t, tools, found, err := m.repeated(ctx, key, req.InlineMax); found || err != nil {
				return t, tools, err
			}
			t, tools, err := m.open(ctx, req, allow, key)
			if errors.Is(err, ErrRequestKnown) { // by another replica
				t, tools, _, err = m.repeated(ctx, key, req.InlineMax)
			}
			return t, tools, err
		}
		if err := m.await(ctx, key); err != nil {
			return Turn{}, nil, err
		}
	}
}

func flight(k RequestKey) string {
	return fmt.Sprintf("%s\x00%d\x00%s\x00%s", k.Principal.Namespace, k.Principal.Kind, k.Principal.ID, k.ID)
}

// takeOff makes the caller the one who opens the turn of a request id; mine is false where somebody is at it.
func (m *Manager) takeOff(key RequestKey) (land func(), mine bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := flight(key)
	if m.flights[name] != nil {
		return nil, false
	}
	done := make(chan struct{})
	m.flights[name] = done
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.flights, name)
		close(done)
	}, true
}

func (m *Manager) await(ctx context.Context, key RequestKey) error {
	m.mu.Lock()
	done := m.flights[flight(key)]
	m.mu.Unlock()
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *Manager) repeated(ctx context.Context, key RequestKey, inline int64) (t Turn, tools []Tool, found bool, err error) {
	id, asked, ok, err := m.opts.Store.TurnOfRequest(ctx, key)
	if err != nil || !ok {
		return t, nil, false, err
	}
	if asked != key.Digest {
		return t, nil, false, fault.OfField(fault.FieldInvalid, "request_id", key.ID, "it was used for another request, which made turn "+id,
			"Use a new request_id, or send the same request again.", "turn", id)
	}
	t, err = m.opts.Store.Turn(ctx, id)
	if err != nil {
		return t, nil, false, err
	}
	tools, err = m.Tools(ctx, t)
	if err == nil {
		err = inlineFits(tools, inline)
	}
	return t, tools, true, err
}

// digest is over what a request asks for; a repetition has the same.
func digest(r Request) string {
	h := sha256.New()
	folder := ""
	if r.Workspace != nil {
		folder = r.Workspace.Path
	}
	for _, part := range append([]string{r.Agent, r.Conversation, r.Project, r.Mode.String(), folder, r.Parent}, r.Tools...) {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (m *Manager) open(ctx context.Context, req Request, allow allowlist, key RequestKey) (Turn, []Tool, error) {
	if err := m.mayOpen(ctx, req); err != nil {
		return Turn{}, nil, err
	}
	f := newFreezer(allow, m.opts.Limits, m.opts.Alias)
	f.builtins(m.opts.Manifest)
	if err := m.discover(ctx, req, f); err != nil {
		return Turn{}, nil, err
	}
	c, err := m.opts.Classifier.Classify(ctx, req.Principal.Namespace, req.Mode, req.MaxMode, f.tools)
	if err != nil {
		return Turn{}, nil, err
	}
	if err := f.classify(c); err != nil {
		return Turn{}, nil, err
	}
	if err := inlineFits(f.tools, req.InlineMax); err != nil {
		return Turn{}, nil, err
	}
	now := m.opts.Now()
	t := Turn{
		ID: ids.At("t_", now, rand.Reader), State: Open, Principal: req.Principal, AssertedBy: req.AssertedBy, Agent: req.Agent,
		Conversation: req.Conversation, Project: req.Project, Mode: c.Mode, MaxMode: req.MaxMode, Workspace: req.Workspace,
		Parent: req.Parent, OpenTime: now, PolicyVersion: c.PolicyVersion, Toolset: name(f.tools),
	}
	if t.Conversation == "" {
		t.Conversation = t.ID
	}
	for _, l := range f.left {
		m.opts.Log.Warn("registry.left_out", "turn", t.ID, "provider", l.provider, "problem", l.err)
		t.Problems = append(t.Problems, Problem{Provider: l.provider, Status: m.opts.Encode(l.err)})
	}
	if err := m.opts.Store.InsertTurn(ctx, t, f.tools, key, m.opts.Limits.Open); err != nil {
		return Turn{}, nil, err
	}
	return t, f.tools, nil
}

// mayOpen checks what needs no listing, so that nothing is started for a turn that can't be. What is checked here for
// the conversation is checked again when the turn is stored.
func (m *Manager) mayOpen(ctx context.Context, req Request) error {
	if req.Parent != "" {
		parent, err := m.opts.Store.Turn(ctx, req.Parent)
		switch {
		case err != nil && !fault.Is(err, fault.TurnNotFound):
			return err
		case err != nil || parent.Principal != req.Principal:
			return NotFound(req.Parent)
		case parent.State != Open:
			return fault.OfField(fault.TurnNotFound, "parent", req.Parent, "the parent turn has ended", "Open a turn, then the build in it.")
		}
	}
	if req.Conversation == "" {
		return nil
	}
	owner, taken, err := m.opts.Store.ConversationOwner(ctx, req.Principal.Namespace, req.Conversation)
	if err == nil && taken && owner != req.Principal {
		return Taken(req.Conversation)
	}
	return err
}

// NotFound is the error for a turn that is not there or not the caller's.
func NotFound(id string) error {
	return fault.New(fault.TurnNotFound, id, "there is no such turn that you may see", "Open one with `writ turn open`.")
}

// Taken is the error for another's conversation.
func Taken(conversation string) error {
	return fault.New(fault.ConversationTaken, conversation, "another principal used this conversation first, and it stays theirs",
		"Use a conversation of your own.")
}

func inlineFits(tools []Tool, limit int64) error {
	if limit == 0 {
		return nil
	}
	if n := definitionBytes(tools); n > limit {
		return fault.Limit(fault.LimitExceeded, "turn_inline_definitions_max_bytes", limit, n,
			"Set omit_definitions, or narrow the turn's tools.")
	}
	return nil
}

func definitionBytes(tools []Tool) (n int64) {
	for _, t := range tools {
		n += int64(len(t.Definition))
	}
	return n
}

// discover lists every enabled connector that could have an allowed tool, in parallel and each with its own deadline.
// The order in which they answer has no influence on what is frozen.
func (m *Manager) discover(ctx context.Context, req Request, f *freezer) error {
	var keys []connector.Key
	for _, key := range m.opts.Connectors.Enabled(req.Principal.Namespace) {
		if f.allow.reaches(toolname.Provider(key.Name)) {
			keys = append(keys, key)
		}
	}
	folder := ""
	if req.Workspace != nil {
		folder = req.Workspace.Path
	}
	results := make([]found, len(keys))
	slots := make(chan struct{}, discoverParallel)
	var wg sync.WaitGroup
	for i, key := range keys {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] = m.discoverOne(ctx, key, folder)
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	for i, key := range keys {
		f.server(key.Name, results[i])
	}
	return nil
}

func (m *Manager) discoverOne(ctx context.Context, key connector.Key, folder string) found {
	one, cancel := context.WithTimeout(ctx, m.opts.DiscoverTimeout)
	defer cancel()
	out := found{provider: toolname.Provider(key.Name)}
	out.catalogue, out.err = m.opts.Connectors.Discover(one, key, false, folder)
	if out.err != nil && errors.Is(one.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		out.err = fault.New(fault.DeadlineExceeded, key.Name,
			fmt.Sprintf("the server was not listed within %s (discover_timeout)", m.opts.DiscoverTimeout),
			"It may still be starting: open another turn in a while, or see `writ connector test "+key.Name+"`.").Because(out.err)
	}
	return out
}

// Tools returns what a turn froze.
func (m *Manager) Tools(ctx context.Context, t Turn) ([]Tool, error) {
	s, err := m.toolset(ctx, t.Toolset)
	if err != nil {
		return nil, err
	}
	return s.tools, nil
}

func (m *Manager) toolset(ctx context.Context, name string) (*toolset, error) {
	if s, ok := m.cache.set(name); ok {
		return s, nil
	}
	tools, err := m.opts.Store.Tools(ctx, name)
	if err != nil {
		return nil, err
	}
	s := newToolset(tools)
	m.cache.putSet(name, s)
	return s, nil
}

// Get returns a turn; a fault TurnNotFound.
func (m *Manager) Get(ctx context.Context, id string) (Turn, error) {
	t, ok, epoch := m.cache.turn(id)
	if ok {
		return t, nil
	}
	t, err := m.opts.Store.Turn(ctx, id)
	if err == nil {
		m.cache.putTurn(t, epoch)
	}
	return t, err
}

// Resolved is what a turn froze of a tool, and what its provider is now.
type Resolved struct {
	Turn     Turn
	Tool     *Tool // nil: none was asked for
	Digest   string
	Enabled  bool
	Executor string
}

// The executors, by the audience of a writ.
const (
	ExecutorMCP  = "mcp-host"
	ExecutorExec = "exec"
)

// Resolve answers for a call. tool is a canonical id or an alias; empty: only the turn is wanted.
func (m *Manager) Resolve(ctx context.Context, namespace, id, tool string) (Resolved, error) {
	t, err := m.Get(ctx, id)
	if err != nil {
		return Resolved{}, err
	}
	if t.Principal.Namespace != namespace {
		return Resolved{}, NotFound(id)
	}
	out := Resolved{Turn: t}
	if tool == "" {
		return out, nil
	}
	set, err := m.toolset(ctx, t.Toolset)
	if err != nil {
		return Resolved{}, err
	}
	frozen, ok := set.find(tool)
	if !ok {
		return Resolved{}, fault.New(fault.ToolNotInTurn, tool, "the turn has no such tool", "See the turn's tools; another turn may have others.", "turn", id)
	}
	out.Tool = &frozen
	if t.State == Open {
		m.touch(id)
	}
	return out, m.provider(ctx, namespace, &out)
}

func (m *Manager) provider(ctx context.Context, namespace string, r *Resolved) (err error) {
	switch r.Tool.Lane {
	case commonv1.Lane_LANE_BUILTIN:
		r.Executor, r.Digest, r.Enabled = ExecutorExec, builtin.Digest(), true
	case commonv1.Lane_LANE_MCP:
		r.Executor = ExecutorMCP
		server, _ := toolname.ServerOf(r.Tool.Provider)
		r.Digest, r.Enabled, err = m.opts.Connectors.Current(ctx, connector.Key{Namespace: namespace, Name: server})
	}
	return err
}
