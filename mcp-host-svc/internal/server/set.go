package server

import (
	"context"
	"errors"
	"reflect"
	"sort"
	"sync"
	"time"

	"github.com/writ-dev/writ/internal/fingerprint"
	"github.com/writ-dev/writ/mcp-host-svc/internal/pool"
	"github.com/writ-dev/writ/mcp-host-svc/internal/provider"
	"github.com/writ-dev/writ/mcp-host-svc/internal/session"
	"github.com/writ-dev/writ/mcp-host-svc/internal/store"
)

// Set is all servers of the host.
type Set struct {
	cfg Config
	wg  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	servers map[Key]*Server
	old     map[*Server]bool // replaced or removed, their process not gone yet
	eras    map[string]session.Era
}

// NewSet returns a set without servers.
func NewSet(cfg Config) *Set {
	return &Set{cfg: cfg, servers: map[Key]*Server{}, old: map[*Server]bool{}, eras: map[string]session.Era{}}
}

// Restore takes what the store remembers.
func (s *Set) Restore(listings []store.Listing, eras map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for digest, era := range eras {
		s.eras[digest] = session.Era(era)
	}
	for _, l := range listings {
		if sv := s.servers[Key{l.Namespace, l.Name}]; sv != nil {
			sv.setKnown(known(l))
		}
	}
}

func known(l store.Listing) *Known {
	k := &Known{
		Listing: &session.Listing{TTL: l.TTL}, ProviderDigest: l.ProviderDigest, Time: l.ListTime,
		Info: session.Info{Name: l.ServerVersion, ProtocolVersion: l.ProtocolVersion, Instructions: l.Instructions},
	}
	for _, t := range l.Tools {
		k.Listing.Tools = append(k.Listing.Tools, session.Tool{Name: t.Name, Raw: t.Definition, Wire: fingerprint.Wire(t.Definition)})
	}
	return k
}

// Apply adds or replaces a server and starts nothing. A replaced one ends after
// its calls, a disabled one at once. The error is about finding out what would be
// started; the server is kept all the same.
func (s *Set) Apply(spec Spec) (provider.Resolved, error) {
	s.mu.Lock()
	if old := s.servers[spec.Key]; !s.closed && (old == nil || !reflect.DeepEqual(old.Spec, spec)) {
		sv := newServer(s, spec, old)
		if old != nil {
			sv.setKnown(old.getKnown())
			why := errChanged
			if !spec.Enabled {
				why = ErrDisabled
			}
			s.retire(old, why, spec.Enabled)
		}
		s.servers[spec.Key] = sv
	}
	s.mu.Unlock()
	return s.cfg.Resolver.Resolve(spec.Start)
}

// retire ends a server's member; the lock is held.
func (s *Set) retire(old *Server, why error, patient bool) {
	s.old[old] = true
	if patient {
		old.member.Retire(why)
	} else {
		old.member.Close(why)
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		_ = old.member.Wait(context.Background())
		s.mu.Lock()
		delete(s.old, old)
		s.mu.Unlock()
	}()
}

// Remove ends a server and forgets it; it waits until its process is gone or ctx
// ends.
func (s *Set) Remove(ctx context.Context, key Key) error {
	s.mu.Lock()
	sv := s.servers[key]
	delete(s.servers, key)
	if sv != nil {
		s.retire(sv, ErrNotFound, false)
	}
	s.mu.Unlock()
	if sv == nil {
		return nil
	}
	select {
	case <-sv.member.Ended():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Get returns a server.
func (s *Set) Get(key Key) (*Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrShutdown
	}
	sv := s.servers[key]
	if sv == nil {
		return nil, ErrNotFound
	}
	return sv, nil
}

// All returns the servers by name, then those that are on their way out.
func (s *Set) All() []*Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Server
	for _, sv := range s.servers {
		out = append(out, sv)
	}
	for sv := range s.old {
		out = append(out, sv)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i].Key, out[j].Key
		return a.Namespace < b.Namespace || a.Namespace == b.Namespace && a.Name < b.Name
	})
	return out
}

// Acquire waits for a server's session, also over a change of the server.
func (s *Set) Acquire(ctx context.Context, key Key, use pool.Use) (*Lease, error) {
	for {
		sv, err := s.Get(key)
		if err != nil {
			return nil, err
		}
		lease, err := sv.Acquire(ctx, use)
		if !errors.Is(err, errChanged) {
			return lease, err
		}
	}
}

// Discover returns a server's tools. live describes the session that was asked;
// nil where a known listing was used.
func (s *Set) Discover(ctx context.Context, key Key, refresh bool, folder string) (k *Known, live *Live, err error) {
	for {
		sv, err := s.Get(key)
		if err != nil {
			return nil, nil, err
		}
		k, live, err = sv.discover(ctx, refresh, folder)
		if !errors.Is(err, errChanged) {
			return k, live, err
		}
	}
}

// Close ends all servers and waits until no process is left or ctx ends.
func (s *Set) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for key, sv := range s.servers {
		s.retire(sv, ErrShutdown, false)
		delete(s.servers, key)
	}
	for sv := range s.old {
		sv.member.Close(ErrShutdown)
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Tick looks at the clock for every server.
func (s *Set) Tick() {
	for _, sv := range s.All() {
		sv.Tick()
	}
}

func (s *Set) era(digest string) session.Era {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eras[digest]
}

// rememberEra keeps what a provider speaks, so that it is not asked again. Only
// the legacy era is worth it: a modern server is asked anyway.
func (s *Set) rememberEra(ctx context.Context, digest string, era session.Era) {
	s.mu.Lock()
	have := s.eras[digest]
	s.eras[digest] = era
	s.mu.Unlock()
	if have == era {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := s.cfg.Store.PutEra(ctx, digest, string(era)); err != nil {
		s.cfg.Logger.Error("era not stored", "error", err)
	}
}
