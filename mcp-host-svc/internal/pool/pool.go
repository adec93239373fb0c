// Package pool carries out what the state machine of a session decides: it starts
// and ends processes, lets uses wait in order, and sees when a server dies.
package pool

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/writ-dev/writ/mcp-host-svc/internal/lifecycle"
)

// Session is what a member owns.
type Session interface {
	comparable
	Done() <-chan struct{}   // closed when the server is gone
	SetFolder(folder string) // changes the root that it is told
	End()                    // ends it and waits until nothing is left
}

// Open starts a session. ctx bounds the start. rootsRead is to be called before a
// server is told its roots. On an error nothing is left of it.
type Open[S Session] func(ctx context.Context, folder string, rootsRead func()) (S, error)

// Config of a member.
type Config struct {
	lifecycle.Config
	StartBudget time.Duration    // for a start (start_timeout)
	Now         func() time.Time // nil: the real clock
	Logger      *slog.Logger
	Name        string // for the log
}

// Member is the one session of one connector, over all the processes that serve
// it one after the other.
type Member[S Session] struct {
	cfg  Config
	open Open[S]
	base context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu          sync.Mutex
	machine     *lifecycle.Machine
	waiters     map[lifecycle.ID]waiter[S]
	nextID      lifecycle.ID
	generation  uint64 // counts processes
	session     S
	haveSession bool
	cancelStart context.CancelFunc
	timer       *time.Timer
	ended       chan struct{}
	used        time.Time
}

// waiter is a use that is not served yet. A start for it runs in its trace.
type waiter[S Session] struct {
	got chan grant[S]
	ctx context.Context
}

type grant[S Session] struct {
	session    S
	generation uint64
	err        error
}

// New returns a member without a process.
func New[S Session](cfg Config, open Open[S]) *Member[S] {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Member[S]{
		cfg: cfg, open: open, machine: lifecycle.New(cfg.Config),
		waiters: map[lifecycle.ID]waiter[S]{}, ended: make(chan struct{}),
	}
	m.base, m.stop = context.WithCancel(context.Background())
	return m
}

// Lease is the right to use the session until Release.
type Lease[S Session] struct {
	Session S
	// Generation numbers the process: it differs after every start.
	Generation uint64
	release    func()
}

// Release ends the use. It may be called more than once.
func (l *Lease[S]) Release() { l.release() }

// Use says what a session is needed for.
type Use struct {
	Folder    string
	AnyFolder bool
	// Waiting is called when the session can't be had at once, with what is
	// waited for. May be nil.
	Waiting func(Snapshot)
}

// Acquire waits for the session with the folder, starting it where needed. The
// error is that of the start, the one given to Close or Retire, or the context's.
func (m *Member[S]) Acquire(ctx context.Context, use Use) (*Lease[S], error) {
	m.mu.Lock()
	m.nextID++
	id := m.nextID
	got := make(chan grant[S], 1)
	m.waiters[id] = waiter[S]{got, ctx}
	m.apply(m.machine.Arrive(lifecycle.Use{ID: id, Folder: use.Folder, AnyFolder: use.AnyFolder}, m.cfg.Now()))
	now := m.snapshot()
	m.mu.Unlock()

	select {
	case g := <-got:
		return m.lease(id, g)
	default:
	}
	if use.Waiting != nil {
		use.Waiting(now)
	}
	select {
	case g := <-got:
		return m.lease(id, g)
	case <-ctx.Done():
	}
	m.mu.Lock()
	delete(m.waiters, id)
	m.apply(m.machine.Withdraw(id, m.cfg.Now()))
	m.mu.Unlock()
	select {
	case g := <-got: // it was granted in the same moment
		if l, err := m.lease(id, g); err == nil {
			l.Release()
		}
	default:
	}
	return nil, context.Cause(ctx)
}

func (m *Member[S]) lease(id lifecycle.ID, g grant[S]) (*Lease[S], error) {
	if g.err != nil {
		return nil, g.err
	}
	var once sync.Once
	return &Lease[S]{Session: g.session, Generation: g.generation, release: func() {
		once.Do(func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.used = m.cfg.Now()
			m.apply(m.machine.Finished(id, m.used))
		})
	}}, nil
}

// apply carries out actions; the lock is held. Whatever takes time gets a
// goroutine of its own, which reports back with an event.
func (m *Member[S]) apply(actions []lifecycle.Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case lifecycle.Start:
			m.start(a.Folder)
		case lifecycle.Stop:
			m.end(a.Reason)
		case lifecycle.SetFolder:
			m.session.SetFolder(a.Folder)
		case lifecycle.Grant:
			m.answer(a.ID, grant[S]{session: m.session, generation: m.generation})
		case lifecycle.Fail:
			m.answer(a.ID, grant[S]{err: a.Err})
		}
	}
	m.arm()
}

func (m *Member[S]) answer(id lifecycle.ID, g grant[S]) {
	if w, ok := m.waiters[id]; ok {
		delete(m.waiters, id)
		w.got <- g
	}
}

func (m *Member[S]) start(folder string) {
	m.generation++
	gen := m.generation
	origin := m.base
	if w, ok := m.waiters[m.machine.Next()]; ok {
		origin = context.WithoutCancel(w.ctx)
	}
	ctx, cancel := context.WithTimeoutCause(origin, m.cfg.StartBudget, &BudgetError{Limit: m.cfg.StartBudget})
	m.cancelStart = cancel
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		defer cancel()
		defer context.AfterFunc(m.base, cancel)()
		s, err := m.open(ctx, folder, func() { m.rootsRead(gen) })
		if budget, over := IsBudget(context.Cause(ctx)); over && err != nil {
			err = &StartTooLongError{Budget: budget, Cause: err}
		}
		m.started(s, err)
	}()
}

func (m *Member[S]) started(s S, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.cfg.Logger.Warn("MCP server did not start", "server", m.cfg.Name, "error", err)
		m.apply(m.machine.StartFailed(err, m.cfg.Now()))
		return
	}
	if m.machine.Phase() != lifecycle.Starting { // it was stopped while it started
		m.endSession(s)
		return
	}
	m.session, m.haveSession = s, true
	m.wg.Add(1)
	go m.watch(s)
	m.apply(m.machine.Started(m.cfg.Now()))
}

func (m *Member[S]) watch(s S) {
	defer m.wg.Done()
	<-s.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.haveSession && m.session == s {
		m.apply(m.machine.Died(m.cfg.Now()))
	}
}

func (m *Member[S]) rootsRead(gen uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if gen == m.generation {
		m.machine.RootsRead()
	}
}

func (m *Member[S]) end(why lifecycle.StopReason) {
	m.cfg.Logger.Info("MCP server ends", "server", m.cfg.Name, "reason", string(why))
	if !m.haveSession { // still starting: what the start comes to reports back
		m.cancelStart()
		return
	}
	m.endSession(m.session)
}

// endSession ends s outside the lock.
func (m *Member[S]) endSession(s S) {
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		s.End()
		m.mu.Lock()
		defer m.mu.Unlock()
		var none S
		m.session, m.haveSession = none, false
		m.apply(m.machine.Stopped(m.cfg.Now()))
	}()
}

// arm sets the timer for when time alone changes something.
func (m *Member[S]) arm() {
	if m.timer != nil {
		m.timer.Stop()
	}
	if m.machine.Ended() {
		select {
		case <-m.ended:
		default:
			close(m.ended)
		}
		return
	}
	if wake := m.machine.Wake(); !wake.IsZero() {
		// Never at once: an injected clock may stand still.
		m.timer = time.AfterFunc(max(wake.Sub(m.cfg.Now()), time.Millisecond), m.Tick)
	}
}

// Tick looks at the clock: for the idle sweep and the backoff.
func (m *Member[S]) Tick() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apply(m.machine.Tick(m.cfg.Now()))
}

// StopNow ends the process; the next use starts it again.
func (m *Member[S]) StopNow() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apply(m.machine.StopNow(m.cfg.Now()))
}

// Retire ends the member once what goes on has ended; what waits fails with why.
func (m *Member[S]) Retire(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apply(m.machine.Retire(why, m.cfg.Now()))
}

// Close ends the member and its process. What waits fails with why; what goes on
// fails through its connection.
func (m *Member[S]) Close(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apply(m.machine.Close(why, m.cfg.Now()))
}

// Ended is closed when the member was closed and no process is left.
func (m *Member[S]) Ended() <-chan struct{} { return m.ended }

// Wait waits until a closed member has ended and its goroutines too.
func (m *Member[S]) Wait(ctx context.Context) error {
	select {
	case <-m.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	m.stop()
	m.wg.Wait()
	return nil
}

// Snapshot says where a member stands.
type Snapshot struct {
	Phase     lifecycle.Phase
	Folder    string
	RootsRead bool
	Running   int
	Waiting   int
	Failures  int
	Used      time.Time // the end of the last use
}

// Snapshot returns where the member stands, and the session if one is open.
func (m *Member[S]) Snapshot() (Snapshot, S, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snapshot(), m.session, m.haveSession
}

func (m *Member[S]) snapshot() Snapshot {
	return Snapshot{
		Phase: m.machine.Phase(), Folder: m.machine.Folder(), RootsRead: m.machine.RootsWereRead(),
		Running: m.machine.Running(), Waiting: m.machine.Waiting(), Failures: m.machine.Failures(), Used: m.used,
	}
}

// BudgetError says that a start took longer than it may.
type BudgetError struct{ Limit time.Duration }

func (e *BudgetError) Error() string {
	return "not ready within start_timeout_ms = " + e.Limit.String()
}

// StartTooLongError is a start that was ended because it took too long. It says
// what was waited for.
type StartTooLongError struct {
	Budget *BudgetError
	Cause  error
}

func (e *StartTooLongError) Error() string   { return e.Budget.Error() + ": " + e.Cause.Error() }
func (e *StartTooLongError) Unwrap() []error { return []error{e.Budget, e.Cause} }

// IsBudget reports whether err is about a start that took too long.
func IsBudget(err error) (*BudgetError, bool) {
	var b *BudgetError
	ok := errors.As(err, &b)
	return b, ok
}
