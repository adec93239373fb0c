package conduct

import (
	"container/list"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	gatewayv1 "github.com/writ-dev/writ/gen/go/writ/gateway/v1"
)

// Limits bound what the conductors hold and for how long they try.
type Limits struct {
	Open         int           // calls without an outcome
	PerPrincipal int           // of them, of one principal and not waiting for a person
	Events       int           // kept per call
	EventBytes   int64         // kept per call
	AllBytes     int64         // of events kept for all calls
	Ended        int           // ended calls that are kept
	EndedBytes   int64         // their events
	EndedFor     time.Duration // and for how long
	Presentings  int           // times that one call is presented to an executor, each with a new writ
	PeerWait     time.Duration // for how long a peer may be away before the conductor gives up
	Skew         time.Duration // how much later than its expiry an executor may still accept a writ
	RetryMin     time.Duration // the first pause between two tries; it doubles
	RetryMax     time.Duration // the longest pause
}

// Deps are what conductors work with.
type Deps struct {
	Permission Permission
	Executors  map[string]Executor
	Record     Record
	Turns      Turns
	Tracer     Tracer
	Status     StatusOf
	ReadWrit   func(writ string) (Writ, bool)
	Log        *slog.Logger
	Now        func() time.Time
}

// Turns tells whose a turn is.
type Turns interface {
	// Owned is nil when the turn is the principal's, ErrTurnNotFound when it is not.
	Owned(ctx context.Context, turn string, p *commonv1.Principal) error
}

// Set holds the calls that this process conducts, one conductor each, and the calls that ended lately.
type Set struct {
	deps   Deps
	limits Limits
	base   context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup
	shared budget

	mu         sync.Mutex
	calls      map[Key]*Call
	open       int
	running    map[string]int // principal -> open calls that don't wait for a person
	ended      *list.List     // of *Call, oldest first
	endedBytes int64
	room       chan struct{} // closed and replaced whenever a call ends
	stopping   bool
}

// NewSet makes a set. Close ends it.
func NewSet(deps Deps, limits Limits) *Set {
	base, stop := context.WithCancel(context.Background())
	s := &Set{
		deps: deps, limits: limits, base: base, stop: stop,
		calls: map[Key]*Call{}, running: map[string]int{}, ended: list.New(), room: make(chan struct{}),
	}
	s.shared.max = limits.AllBytes
	return s
}

// Start conducts a call, or finds the conductor that does already. caller is only used for its trace. ErrTurnNotFound
// when the call is another principal's, ErrChanged when tool or arguments differ, *TooManyError over a limit.
func (s *Set) Start(caller context.Context, a Ask) (*Call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, ErrStopping
	}
	s.evict()
	var after int64
	if c := s.calls[a.Key]; c != nil {
		if !samePrincipal(c.ask.Principal, a.Principal) {
			return nil, ErrTurnNotFound
		}
		if !c.mayBeMadeAgain(a) {
			return c, c.matches(a)
		}
		// Its events follow those of the one before.
		after = c.log.last
		s.forget(c)
	}
	if err := s.admit(a); err != nil {
		return nil, err
	}
	c := newCall(s, a, after)
	s.calls[a.Key] = c
	s.open++
	s.running[who(a.Principal)]++
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		c.run(caller)
	}()
	return c, nil
}

// StartResumed is Start for a card that was approved while nobody conducted it. It waits where there is no room.
func (s *Set) StartResumed(ctx context.Context, a Ask) (*Call, error) {
	for {
		s.mu.Lock()
		room := s.room
		s.mu.Unlock()
		c, err := s.Start(ctx, a)
		if _, full := err.(*TooManyError); !full {
			return c, err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *Set) admit(a Ask) error {
	if s.open >= s.limits.Open {
		return &TooManyError{Limit: "open_calls_max", Max: s.limits.Open}
	}
	if s.running[who(a.Principal)] >= s.limits.PerPrincipal && a.Card == nil && a.Claim == nil {
		return &TooManyError{Limit: "running_calls_max_per_principal", Max: s.limits.PerPrincipal}
	}
	return nil
}

// Get finds a call of the principal's that is conducted here or ended lately. A nil principal means anybody's.
func (s *Set) Get(k Key, p *commonv1.Principal) (*Call, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evict()
	c := s.calls[k]
	if c == nil || p != nil && !samePrincipal(c.ask.Principal, p) {
		return nil, false
	}
	return c, true
}

// Open lists the calls without an outcome for which keep is true, also those that permission-svc has not answered yet.
func (s *Set) Open(keep func(Ask) bool) (calls []*Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.state != ended && keep(c.ask) {
			calls = append(calls, c)
		}
	}
	return calls
}

// CancelTurn asks every open call of a turn to stop.
func (s *Set) CancelTurn(namespace, turn, reason string) {
	for _, c := range s.Open(func(a Ask) bool { return a.Namespace == namespace && a.Turn == turn }) {
		c.askToStop(reason)
	}
}

// Sweep forgets calls that ended too long ago.
func (s *Set) Sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evict()
}

// Close stops conducting and waits for the conductors. The calls themselves go on where they run.
func (s *Set) Close(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.stop()
	done := make(chan struct{})
	go func() { s.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finish ends a call. One that never was, or whose outcome nobody knows yet, is forgotten at once: the next who asks
// reads the record.
func (s *Set) finish(c *Call, o *commonv1.Outcome, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if c.state != waiting {
		s.less(c.ask.Principal)
	}
	c.state, c.end, c.outcome = ended, s.deps.Now(), o
	c.ask.Arguments = nil
	close(s.room)
	s.room = make(chan struct{})
	if err != nil {
		delete(s.calls, c.ask.Key)
		c.log.close(nil, err)
		c.log.release()
		return
	}
	c.log.slim()
	c.log.close(&gatewayv1.CallEvent{Event: &gatewayv1.CallEvent_Outcome{Outcome: o}}, nil)
	c.kept = c.log.size()
	s.endedBytes += c.kept
	c.place = s.ended.PushBack(c)
	s.evict()
}

func (s *Set) evict() {
	old := s.deps.Now().Add(-s.limits.EndedFor)
	for e := s.ended.Front(); e != nil; e = s.ended.Front() {
		c := e.Value.(*Call)
		if s.ended.Len() <= s.limits.Ended && s.endedBytes <= s.limits.EndedBytes && c.end.After(old) {
			return
		}
		s.forget(c)
	}
}

func (s *Set) forget(c *Call) {
	s.ended.Remove(c.place)
	s.endedBytes -= c.kept
	c.log.release()
	delete(s.calls, c.ask.Key)
}

// move changes an open call's state and counts it where it belongs.
func (s *Set) move(c *Call, to state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.state == to:
	case to == waiting:
		s.less(c.ask.Principal)
	case c.state == waiting:
		s.running[who(c.ask.Principal)]++
	}
	c.state = to
}

func (s *Set) less(p *commonv1.Principal) {
	k := who(p)
	if s.running[k]--; s.running[k] <= 0 {
		delete(s.running, k)
	}
}

func who(p *commonv1.Principal) string {
	return p.GetNamespace() + "\x00" + p.GetKind().String() + "\x00" + p.GetId()
}

// sorted orders calls newest first, and by name where they are equally old.
func sorted(views []View) []View {
	slices.SortFunc(views, func(a, b View) int {
		if d := b.Created.Compare(a.Created); d != 0 {
			return d
		}
		switch {
		case a.Key.Name() < b.Key.Name():
			return -1
		case a.Key.Name() > b.Key.Name():
			return 1
		}
		return 0
	})
	return views
}
