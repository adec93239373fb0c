// Package server is one configured MCP server: what is started for it, its one
// session, and the newest listing of its tools that the host has.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/writ-dev/writ/mcp-host-svc/internal/lifecycle"
	"github.com/writ-dev/writ/mcp-host-svc/internal/pool"
	"github.com/writ-dev/writ/mcp-host-svc/internal/process"
	"github.com/writ-dev/writ/mcp-host-svc/internal/provider"
	"github.com/writ-dev/writ/mcp-host-svc/internal/session"
	"github.com/writ-dev/writ/mcp-host-svc/internal/store"
)

// Why a server can't be used.
var (
	ErrNotFound  = errors.New("no such server")
	ErrDisabled  = errors.New("the server is disabled")
	ErrTransport = errors.New("the transport is not served by this release")
	ErrShutdown  = errors.New("the host shuts down")
	errChanged   = errors.New("the server was changed")
)

// ListTimeoutError says that tools/list was not answered in time.
type ListTimeoutError struct{ Limit time.Duration }

func (e *ListTimeoutError) Error() string {
	return "tools/list was not answered within list_timeout_ms = " + e.Limit.String()
}

// Key names a server.
type Key struct{ Namespace, Name string }

// Spec is a server as it was applied.
type Spec struct {
	Key
	Start           provider.Spec
	Enabled         bool
	Idle            time.Duration // 0: never swept
	HostAcceptedFor string        // provider digest for which a person accepted host isolation
}

// Start is a process that was started and whose session is open.
type Start struct {
	Key            Key
	ProviderDigest string
	Enforced       process.Enforced
	PID            int
	Time           time.Time
}

// Config is what all servers share.
type Config struct {
	Starter       process.Starter
	Resolver      *provider.Resolver
	Base          provider.Base
	Dir           func(Key) (string, error) // a server's own folder, made where it is missing
	StartBudget   time.Duration
	ListTimeout   time.Duration
	ListingMaxAge time.Duration
	Lifecycle     lifecycle.Config // without Idle
	Session       session.Config   // limits only
	Store         store.Store
	// Started is told of each start before anybody may use the session; its
	// error ends the session again.
	Started func(ctx context.Context, s Start) error
	// Trace gives the W3C headers of a start's trace.
	Trace  func(ctx context.Context) (traceparent, tracestate string)
	Now    func() time.Time
	Logger *slog.Logger
}

// Known is a listing with what it was listed under.
type Known struct {
	Listing        *session.Listing
	ProviderDigest string
	Info           session.Info
	Time           time.Time
}

// Lease is the right to use a session.
type Lease = pool.Lease[*Live]

// Server is one generation of a configured server: a changed one is a new Server.
type Server struct {
	Spec
	cfg    *Config
	set    *Set
	member *pool.Member[*Live]
	prior  atomic.Pointer[Server] // whose process must be gone first; nil: none
	stale  atomic.Bool

	mu      sync.Mutex
	known   *Known
	lastLog []byte
	noise   int64
}

// Live is an open session with its own listing.
type Live struct {
	*session.Session
	ProviderDigest string
	server         *Server
	lock           chan struct{} // held while listing
	known          *Known
}

func newServer(set *Set, spec Spec, prior *Server) *Server {
	sv := &Server{Spec: spec, cfg: &set.cfg, set: set}
	sv.prior.Store(prior)
	life := set.cfg.Lifecycle
	life.Idle = spec.Idle
	sv.member = pool.New(pool.Config{Config: life, StartBudget: set.cfg.StartBudget, Now: set.cfg.Now, Logger: set.cfg.Logger, Name: spec.Name}, sv.open)
	return sv
}

// open starts the process of a session.
func (sv *Server) open(ctx context.Context, folder string, rootsRead func()) (*Live, error) {
	// One owner at a time: an earlier process may hold a lock.
	for p := sv.prior.Load(); p != nil; p = p.prior.Load() {
		select {
		case <-p.member.Ended():
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the server's earlier process to end: %w", context.Cause(ctx))
		}
	}
	sv.prior.Store(nil)
	res, err := sv.cfg.Resolver.Resolve(sv.Start)
	if err != nil {
		return nil, err
	}
	own, err := sv.cfg.Dir(sv.Key)
	if err != nil {
		return nil, err
	}
	dir := sv.Start.WorkingFolder
	if dir == "" {
		dir = own
	}
	traceparent, tracestate := sv.cfg.Trace(ctx)
	spec := process.Spec{
		Server: sv.Namespace + "/" + sv.Name, Path: res.Executable, Argv: append([]string{sv.Start.Command}, sv.Start.Args...),
		Env: provider.Environment(sv.cfg.Base, sv.Start.Env, map[string]string{"TRACEPARENT": traceparent, "TRACESTATE": tracestate}),
		Dir: filepath.Clean(dir), Folder: folder, HostAccepted: sv.HostAcceptedFor != "" && sv.HostAcceptedFor == res.Digest,
	}
	cfg := sv.cfg.Session
	cfg.Server, cfg.Folder, cfg.Logger = sv.Name, folder, sv.cfg.Logger
	cfg.Era = sv.set.era(res.Digest)
	cfg.Start = func(ctx context.Context) (process.Process, error) { return sv.cfg.Starter.Start(ctx, spec) }
	cfg.RootsRead = rootsRead
	cfg.ListChanged = func() { sv.stale.Store(true) }
	s, err := session.Open(ctx, cfg)
	if err != nil {
		sv.keepLog(err)
		return nil, err
	}
	sv.set.rememberEra(ctx, res.Digest, s.Info().Era)
	live := &Live{Session: s, ProviderDigest: res.Digest, server: sv, lock: make(chan struct{}, 1)}
	start := Start{Key: sv.Key, ProviderDigest: res.Digest, Enforced: s.Enforced(), PID: s.PID(), Time: s.Started()}
	if err := sv.cfg.Started(ctx, start); err != nil {
		live.End()
		return nil, err
	}
	return live, nil
}

func (sv *Server) keepLog(err error) {
	var se *session.StartError
	if errors.As(err, &se) {
		sv.mu.Lock()
		sv.lastLog = []byte(se.Log)
		sv.mu.Unlock()
	}
}

// End implements pool.Session.
func (l *Live) End() {
	exit := l.Close()
	sv := l.server
	sv.mu.Lock()
	sv.lastLog, sv.noise = l.Log(), l.Stats().NoiseLines
	sv.mu.Unlock()
	if exit.Survivors > 0 || !exit.CleanedUp {
		sv.cfg.Logger.Warn("MCP server left processes", "server", sv.Name, "survivors", exit.Survivors, "cleaned_up", exit.CleanedUp)
	}
}

// Acquire waits for the session.
func (sv *Server) Acquire(ctx context.Context, use pool.Use) (*Lease, error) {
	switch {
	case !sv.Enabled:
		return nil, ErrDisabled
	case sv.Start.Transport != provider.Stdio:
		return nil, ErrTransport
	}
	return sv.member.Acquire(ctx, use)
}

// Newest returns the newest listing that this connection gave, asking the server
// where there is none, where it said that its tools changed, or where the listing
// expired. Those who ask at the same time share one answer.
func (l *Live) Newest(ctx context.Context, force bool) (*Known, error) {
	select {
	case l.lock <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-l.lock }()
	sv := l.server
	if l.known != nil && !force && !sv.stale.Load() && !sv.expired(l.known) {
		return l.known, nil
	}
	sv.stale.Store(false) // a change that is announced while the list is read counts for the next need
	ctx, cancel := context.WithTimeoutCause(ctx, sv.cfg.ListTimeout, &ListTimeoutError{sv.cfg.ListTimeout})
	defer cancel()
	listing, err := l.List(ctx)
	if err != nil {
		sv.stale.Store(true)
		return nil, err
	}
	for _, p := range listing.Problems {
		sv.cfg.Logger.Warn("a tool's definition is not usable", "server", sv.Name, "tool", p.Name, "problem", p.Reason)
	}
	k := &Known{Listing: listing, ProviderDigest: l.ProviderDigest, Info: l.Info(), Time: sv.cfg.Now()}
	l.known = k
	sv.setKnown(k)
	if err := sv.cfg.Store.PutListing(context.WithoutCancel(ctx), stored(sv.Key, k)); err != nil {
		sv.cfg.Logger.Error("listing not stored", "server", sv.Name, "error", err)
	}
	return k, nil
}

func (sv *Server) expired(k *Known) bool {
	age := sv.cfg.ListingMaxAge
	if k.Listing.TTL > 0 {
		age = min(age, k.Listing.TTL)
	}
	return sv.cfg.Now().Sub(k.Time) >= age
}

func (sv *Server) setKnown(k *Known) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.known = k
}

func (sv *Server) getKnown() *Known {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return sv.known
}

// current returns the known listing if it may be used without asking the server (R60).
func (sv *Server) current() *Known {
	k := sv.getKnown()
	if k == nil || sv.stale.Load() || sv.expired(k) {
		return nil
	}
	res, err := sv.cfg.Resolver.Resolve(sv.Start)
	if err != nil || res.Digest != k.ProviderDigest {
		return nil
	}
	return k
}

// Discover returns the listing, starting the server where it must. The lease's
// session, if one was used, is described by live; nil otherwise.
func (sv *Server) discover(ctx context.Context, refresh bool, folder string) (*Known, *Live, error) {
	if !sv.Enabled {
		return nil, nil, ErrDisabled
	}
	if !refresh {
		if k := sv.current(); k != nil {
			return k, nil, nil
		}
	}
	lease, err := sv.Acquire(ctx, pool.Use{Folder: folder, AnyFolder: folder == ""})
	if err != nil {
		return nil, nil, err
	}
	defer lease.Release()
	k, err := lease.Session.Newest(ctx, refresh)
	return k, lease.Session, err
}

// Logs returns the end of what the server wrote that is no protocol.
func (sv *Server) Logs() (text []byte, noise int64) {
	if _, live, ok := sv.member.Snapshot(); ok {
		return live.Log(), live.Stats().NoiseLines
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return sv.lastLog, sv.noise
}

// Snapshot says where the session stands; live is nil where none is open.
func (sv *Server) Snapshot() (pool.Snapshot, *Live) {
	s, live, ok := sv.member.Snapshot()
	if !ok {
		live = nil
	}
	return s, live
}

// StopNow ends the process; the next need starts it again.
func (sv *Server) StopNow() { sv.member.StopNow() }

// Tick looks at the clock.
func (sv *Server) Tick() { sv.member.Tick() }

func stored(key Key, k *Known) store.Listing {
	l := store.Listing{
		Namespace: key.Namespace, Name: key.Name, ProviderDigest: k.ProviderDigest, ListTime: k.Time, TTL: k.Listing.TTL,
		ServerVersion: k.Info.Name + " " + k.Info.Version, ProtocolVersion: k.Info.ProtocolVersion, Instructions: k.Info.Instructions,
	}
	for _, t := range k.Listing.Tools {
		l.Tools = append(l.Tools, store.Tool{Name: t.Name, Definition: t.Raw})
	}
	return l
}
