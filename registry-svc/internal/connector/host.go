package connector

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/writ-dev/writ/registry-svc/internal/fault"
)

const (
	pushTimeout  = 10 * time.Second // for one answer of the host, which starts nothing then
	pushParallel = 8
	firstRetry   = time.Second
	lastRetry    = 30 * time.Second
)

// push tells the host what a connector is now, unless it knows. Callers that arrive together are told one after the
// other, each with the newest state.
func (r *Registry) push(ctx context.Context, key Key) error {
	r.mu.RLock()
	e := r.entries[key]
	r.mu.RUnlock()
	if e == nil {
		return nil
	}
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		r.nudge() // the caller gave up; Run does it
		return ctx.Err()
	}
	r.mu.RLock()
	con, deleted, gen, pushed, hosted := e.con, e.deleted, e.gen, e.pushed, e.hosted
	r.mu.RUnlock()
	if pushed == gen {
		return nil
	}
	if r.opts.Host == nil {
		return hostMissing(key.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	told := told{}
	var err error
	if deleted || con.Broken != "" {
		err = r.forget(ctx, key, hosted)
	} else {
		told, err = r.tell(ctx, con, hosted)
	}
	r.settle(key, e, gen, told, err)
	return err
}

// told is what came of telling the host.
type told struct {
	hosted   bool
	digest   string
	problem  string
	accepted string // the provider digest that an acceptance was tied to just now
}

func (r *Registry) tell(ctx context.Context, con Connector, hosted bool) (told, error) {
	expanded, issues := Expand(con.Spec, r.opts.Variables[con.Name])
	if len(issues) > 0 {
		// It was fine when it was added, and a binding is gone since: the host must not go on with the old one.
		return told{problem: issues[0].String()}, r.forget(ctx, con.Key, hosted)
	}
	if !hosted {
		if err := r.opts.Store.MarkHosted(ctx, con.Key, true); err != nil {
			return told{}, err
		}
	}
	digest, problem, err := r.opts.Host.Apply(ctx, con.Key, expanded, con.Enabled)
	out := told{hosted: true, digest: digest, problem: problem}
	if err != nil || !con.Spec.AcceptHost || con.Spec.AcceptedFor != "" || digest == "" {
		return out, err
	}
	// The person accepted what is started now; a later change of it needs a new acceptance (trust 3).
	if err := r.opts.Store.SetAcceptedFor(ctx, con.Key, con.CreateTime, digest); err != nil {
		return out, err
	}
	out.accepted, expanded.AcceptedFor = digest, digest
	out.digest, out.problem, err = r.opts.Host.Apply(ctx, con.Key, expanded, con.Enabled)
	return out, err
}

func (r *Registry) forget(ctx context.Context, key Key, hosted bool) error {
	if !hosted {
		return nil
	}
	if err := r.opts.Host.Remove(ctx, key); err != nil {
		return err
	}
	return r.opts.Store.MarkHosted(ctx, key, false)
}

func (r *Registry) settle(key Key, e *entry, gen uint64, t told, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.hosted {
		e.hosted = true
	}
	if t.accepted != "" && e.gen == gen {
		e.con.Spec.AcceptedFor = t.accepted
	}
	if err != nil {
		if !e.deleted {
			e.applyProblem = "mcp-host was not told of it: " + err.Error()
		}
		r.nudge()
		return
	}
	e.pushed, e.digest, e.applyProblem = gen, t.digest, t.problem
	e.hosted = t.hosted
	if e.deleted && e.gen == gen && r.entries[key] == e {
		delete(r.entries, key)
	}
}

func (r *Registry) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run tells the host of everything at the start and of what it missed later, until ctx ends.
func (r *Registry) Run(ctx context.Context) {
	if r.opts.Host == nil {
		<-ctx.Done()
		return
	}
	wait := firstRetry
	for {
		if r.pushAll(ctx) {
			wait = firstRetry
			select {
			case <-ctx.Done():
				return
			case <-r.wake:
			}
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			wait = min(2*wait, lastRetry)
		}
	}
}

// pushAll tells the host of every connector that is out of step, and reports whether all are in step after it.
func (r *Registry) pushAll(ctx context.Context) bool {
	r.mu.RLock()
	var behind []Key
	for key, e := range r.entries {
		if e.pushed != e.gen {
			behind = append(behind, key)
		}
	}
	r.mu.RUnlock()
	var wg sync.WaitGroup
	slots := make(chan struct{}, pushParallel)
	failures := make(chan error, len(behind))
	for _, key := range behind {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := r.push(ctx, key); err != nil {
				failures <- err
			}
		})
	}
	wg.Wait()
	if n := len(failures); n > 0 {
		r.opts.Log.Warn("registry.host_not_told", "connectors", n, "error", <-failures)
		return false
	}
	return true
}

// Discover lists a connector's tools and remembers what was found.
func (r *Registry) Discover(ctx context.Context, key Key, refresh bool, workspace string) (*Catalogue, error) {
	r.mu.RLock()
	e := r.entries[key]
	var con Connector
	known := e != nil && !e.deleted
	if known {
		con = e.con
	}
	r.mu.RUnlock()
	switch {
	case !known:
		return nil, notFound(key.Name)
	case con.Broken != "":
		return nil, fault.New(fault.ConfigurationInvalid, key.Name, con.Broken, "Correct the file and start Writ again.", "file", con.Place)
	case r.opts.Host == nil:
		return nil, hostMissing(key.Name)
	}
	if err := r.freshen(ctx, e, key); err != nil {
		return nil, err
	}
	listing, err := r.opts.Host.Discover(ctx, key, refresh, workspace)
	if err != nil {
		r.failed(ctx, e, err)
		return nil, err
	}
	return r.listed(ctx, e, key, listing)
}

// freshen brings the host in step; a provider whose digest is not known is looked at again, since the program may be
// there by now.
func (r *Registry) freshen(ctx context.Context, e *entry, key Key) error {
	r.mu.Lock()
	if e.pushed == e.gen && e.digest == "" {
		e.pushed = 0
	}
	r.mu.Unlock()
	return r.push(ctx, key)
}

func (r *Registry) failed(ctx context.Context, e *entry, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the caller went away; that says nothing of the server
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.listProblem = err.Error()
	var h *HostError
	e.needsAuth = errors.As(err, &h) && h.NeedsAuthentication
}

func (r *Registry) listed(ctx context.Context, e *entry, key Key, l Listing) (*Catalogue, error) {
	r.mu.RLock()
	known, remembered := e.catalogue, e.summary.Hash
	r.mu.RUnlock()
	c := known
	if h := hash(l); c == nil || c.hash != h {
		c = check(l)
	} else {
		again := *known
		again.Time, again.Isolation = l.Time, l.Isolation
		c = &again
	}
	if c.hash != remembered {
		if err := r.opts.Store.SaveListing(ctx, key, c); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.catalogue, e.listProblem, e.needsAuth = c, "", false
	e.summary = Summary{Key: key, Digest: c.Digest, ServerVersion: c.ServerVersion, Tools: len(c.Tools), Hash: c.hash}
	if c.Digest != "" && e.pushed == e.gen {
		e.digest = c.Digest
	}
	return c, nil
}

// Current says what a provider is now: its digest, and whether calls may go to it. A connector that the host was not
// told of since the start is told first, so that nothing is said of an old configuration.
func (r *Registry) Current(ctx context.Context, key Key) (digest string, enabled bool, err error) {
	for range 2 {
		r.mu.RLock()
		e := r.entries[key]
		if e == nil || e.deleted || e.con.Broken != "" || !e.con.Enabled {
			r.mu.RUnlock()
			return "", false, nil
		}
		digest, inStep := e.digest, e.pushed == e.gen
		r.mu.RUnlock()
		if inStep {
			return digest, digest != "", nil
		}
		if err := r.push(ctx, key); err != nil {
			return "", false, err
		}
	}
	return "", false, fault.New(fault.PeerUnavailable, "mcp-host", key.Name+" is being changed", "Try again.")
}

// Logs returns the last lines of a connector's server.
func (r *Registry) Logs(ctx context.Context, key Key, lines int32) ([]string, int64, error) {
	r.mu.RLock()
	e := r.entries[key]
	known := e != nil && !e.deleted
	r.mu.RUnlock()
	switch {
	case !known:
		return nil, 0, notFound(key.Name)
	case r.opts.Host == nil:
		return nil, 0, hostMissing(key.Name)
	}
	return r.opts.Host.Logs(ctx, key, lines)
}

// Remembered returns tools of the last listings of connectors that there still are.
func (r *Registry) Remembered(ctx context.Context, namespace, server string, after Position, limit int) ([]RememberedTool, error) {
	return r.opts.Store.ListedTools(ctx, namespace, server, after, limit)
}
