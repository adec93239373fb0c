package connector

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/writ-dev/writ/registry-svc/internal/fault"
)

// Options are what a Registry works with.
type Options struct {
	Host  Host // nil: connectors are kept and can't be used
	Store Store
	Log   *slog.Logger
	Now   func() time.Time
	// Variables are what a human bound: connector, variable, value.
	Variables map[string]map[string]string
	// Max is how many connectors a namespace may have.
	Max int
}

// Registry holds the connectors of every namespace. It is safe for concurrent use.
type Registry struct {
	opts   Options
	change sync.Mutex // one operator's act at a time

	mu      sync.RWMutex
	entries map[Key]*entry
	wake    chan struct{}
}

// entry is a connector and what is known of it. Its fields are guarded by Registry.mu; turn is held by who talks to the
// host about it, so that the host hears of changes in their order.
type entry struct {
	con     Connector
	deleted bool
	gen     uint64 // counts changes
	pushed  uint64 // the gen that the host was told of; equal to gen: in step
	hosted  bool   // the host may know it
	turn    chan struct{}

	digest       string
	applyProblem string
	listProblem  string
	needsAuth    bool
	catalogue    *Catalogue
	summary      Summary
}

// New loads the connectors that were added by RPC, then those of the configuration file. The first registration of a
// name stays; a later one is an event in the log and is left out (R10).
func New(ctx context.Context, opts Options, file []Connector) (*Registry, error) {
	r := &Registry{opts: opts, entries: map[Key]*entry{}, wake: make(chan struct{}, 1)}
	stored, err := opts.Store.Connectors(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range append(stored, file...) {
		r.load(c)
	}
	hosted, err := opts.Store.Hosted(ctx)
	if err != nil {
		return nil, err
	}
	for _, key := range hosted {
		e := r.entries[key]
		if e == nil {
			// The host was told of it and it is gone since: from the file, or by a delete that was cut short.
			e = newEntry(Connector{Key: key})
			e.deleted = true
			r.entries[key] = e
		}
		e.hosted = true
	}
	summaries, err := opts.Store.Summaries(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range summaries {
		if e := r.entries[s.Key]; e != nil {
			e.summary = s
		}
	}
	return r, nil
}

func newEntry(c Connector) *entry {
	return &entry{con: c, gen: 1, turn: make(chan struct{}, 1)}
}

func (r *Registry) load(c Connector) {
	if first := r.entries[c.Key]; first != nil {
		r.collision(first.con, c)
		return
	}
	if c.Broken != "" {
		r.opts.Log.Error("registry.connector_refused", "connector", c.Name, "namespace", c.Namespace, "problem", c.Broken)
	}
	r.entries[c.Key] = newEntry(c)
}

func (r *Registry) collision(first, later Connector) {
	r.opts.Log.Warn("registry.plugin_collision", "kind", "mcp", "id", later.Name, "namespace", later.Namespace,
		"policy", "keep_first", "kept", place(first), "discarded", place(later))
}

func place(c Connector) string {
	if c.Place != "" {
		return c.Place
	}
	return c.Source.String()
}

// Create adds a connector and tells the host of it. It starts nothing. That the host does not answer is no error: the
// connector is stored, says so in its problem, and the host is told later.
func (r *Registry) Create(ctx context.Context, c Connector) (View, error) {
	if err := r.admissible(c); err != nil {
		return View{}, err
	}
	r.change.Lock()
	defer r.change.Unlock()
	c.Source, c.CreateTime = ByRPC, r.opts.Now()
	if err := r.free(c); err != nil {
		return View{}, err
	}
	if err := r.opts.Store.InsertConnector(ctx, c); err != nil {
		return View{}, err
	}
	r.put(c)
	if err := r.push(ctx, c.Key); err != nil {
		r.opts.Log.Warn("registry.host_not_told", "connector", c.Name, "error", err)
	}
	return r.Get(ctx, c.Key)
}

func (r *Registry) admissible(c Connector) error {
	switch {
	case !ValidName(c.Name):
		return fault.OfField(fault.FieldInvalid, "connector.name", c.Name, "this can't be a connector's name: "+NameRule, "Choose another name.")
	case Reserved(c.Name):
		return fault.OfField(fault.NameReserved, "connector.name", c.Name, "the name belongs to Writ", "Choose another name.")
	}
	issues := Validate(c.Spec)
	if len(issues) == 0 {
		_, issues = Expand(c.Spec, r.opts.Variables[c.Name])
	}
	for _, i := range issues {
		kind, name := fault.FieldInvalid, c.Name
		if i.Variable != "" {
			kind, name = fault.VariableNotBound, i.Variable
		}
		return fault.OfField(kind, "connector."+i.Field, name, i.Problem, i.Next, "entry", c.Name)
	}
	return nil
}

// free checks that the name is free and that the namespace has room.
func (r *Registry) free(c Connector) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if e := r.entries[c.Key]; e != nil && !e.deleted {
		r.collision(e.con, c)
		return fault.New(fault.ConnectorExists, c.Name, "a connector of this name exists, and the first one stays",
			"Choose another name, or remove the other one first.", "source", place(e.con))
	}
	n := 0
	for key, e := range r.entries {
		if key.Namespace == c.Namespace && !e.deleted {
			n++
		}
	}
	if n >= r.opts.Max {
		return fault.Limit(fault.LimitExceeded, "connectors_max", int64(r.opts.Max), int64(n+1), "Remove connectors that nobody uses.")
	}
	return nil
}

func (r *Registry) put(c Connector) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[c.Key]
	if e == nil {
		r.entries[c.Key] = newEntry(c)
		return
	}
	// A deleted one that the host was not told of yet: its place in the line to the host is kept.
	e.con, e.deleted, e.gen = c, false, e.gen+1
	e.digest, e.applyProblem, e.listProblem, e.needsAuth, e.catalogue, e.summary = "", "", "", false, nil, Summary{}
}

// SetEnabled switches a connector. Disabling ends its sessions (R57): where the host does not answer, the switch is
// stored, turns and writs know of it at once, and the error says that a session may still be open.
func (r *Registry) SetEnabled(ctx context.Context, key Key, enabled bool) (View, error) {
	r.change.Lock()
	defer r.change.Unlock()
	if err := r.changeable(key); err != nil {
		return View{}, err
	}
	if err := r.opts.Store.SetEnabled(ctx, key, enabled); err != nil {
		return View{}, err
	}
	r.update(key, func(e *entry) {
		e.con.Enabled = enabled
		e.listProblem, e.needsAuth = "", false
	})
	if err := r.push(ctx, key); err != nil && !enabled {
		return View{}, untold(err, key.Name, "is disabled and no call reaches it any more")
	}
	return r.Get(ctx, key)
}

// Delete removes a connector and ends its sessions.
func (r *Registry) Delete(ctx context.Context, key Key) error {
	r.change.Lock()
	defer r.change.Unlock()
	if err := r.changeable(key); err != nil {
		return err
	}
	if err := r.opts.Store.DeleteConnector(ctx, key); err != nil {
		return err
	}
	r.update(key, func(e *entry) { e.deleted = true })
	if err := r.push(ctx, key); err != nil && r.opts.Host != nil {
		return untold(err, key.Name, "is removed and no call reaches it any more")
	}
	return nil
}

func untold(err error, name, done string) error {
	return fault.New(fault.PeerUnavailable, "mcp-host", name+" "+done+", but mcp-host did not answer: a session of it may still be open",
		"Nothing else is to be done: mcp-host is told as soon as it answers.").Because(err)
}

func (r *Registry) changeable(key Key) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e := r.entries[key]
	if e == nil || e.deleted {
		return notFound(key.Name)
	}
	if e.con.Source == FromFile {
		return fault.New(fault.ConfiguredInFile, key.Name, "the connector is set by "+e.con.Place+", which RPCs can't change",
			"Change the file and start Writ again.", "file", e.con.Place)
	}
	return nil
}

func notFound(name string) error {
	return fault.New(fault.ConnectorNotFound, name, "there is no such connector", "See `writ connector list`.")
}

func (r *Registry) update(key Key, change func(*entry)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[key]; e != nil {
		change(e)
		e.gen++
	}
}

// Get returns one connector with what is known of it.
func (r *Registry) Get(ctx context.Context, key Key) (View, error) {
	open := r.open(ctx)
	r.mu.RLock()
	defer r.mu.RUnlock()
	e := r.entries[key]
	if e == nil || e.deleted {
		return View{}, notFound(key.Name)
	}
	return e.view(open), nil
}

// List returns the connectors of a namespace by name; namespace "" is every one.
func (r *Registry) List(ctx context.Context, namespace string) []View {
	open := r.open(ctx)
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []View
	for key, e := range r.entries {
		if !e.deleted && (namespace == "" || key.Namespace == namespace) {
			out = append(out, e.view(open))
		}
	}
	slices.SortFunc(out, func(a, b View) int {
		return strings.Compare(a.Name+"\x00"+a.Namespace, b.Name+"\x00"+b.Namespace)
	})
	return out
}

// open asks the host for its sessions. A host that does not answer leaves the state at "ready".
func (r *Registry) open(ctx context.Context) map[Key]bool {
	if r.opts.Host == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	open, err := r.opts.Host.Open(ctx)
	if err != nil {
		return nil
	}
	return open
}

func (e *entry) view(open map[Key]bool) View {
	v := View{Connector: e.con, Digest: e.digest, ServerVersion: e.summary.ServerVersion, ToolCount: e.summary.Tools}
	v.Spec = e.con.Spec.Clone()
	for _, p := range []string{e.con.Broken, e.applyProblem, e.listProblem} {
		if v.Problem == "" {
			v.Problem = p
		}
	}
	switch {
	case e.con.Broken != "":
		v.State = Failed
	case !e.con.Enabled:
		v.State = Disabled
	case e.needsAuth:
		v.State = NeedsAuthentication
	case v.Problem != "":
		v.State = Failed
	case open[e.con.Key]:
		v.State = Connected
	default:
		v.State = Ready
	}
	return v
}

// Enabled returns the keys that a turn lists, by name. A broken entry is among them, so that the turn reports it.
func (r *Registry) Enabled(namespace string) []Key {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var keys []Key
	for key, e := range r.entries {
		if key.Namespace == namespace && !e.deleted && (e.con.Enabled || e.con.Broken != "") {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	return keys
}
