// Package lifecycle is the state machine of one connector's session: lazy start,
// one folder at a time, restart for another folder, idle sweep, backoff after a
// failure, and the end. It is pure: events and the time go in, actions come out,
// and whoever owns it carries them out. That is what makes it possible to test
// it as a model (ruling 6).
package lifecycle

import (
	"slices"
	"time"
)

// Config of a machine.
type Config struct {
	// Idle is how long an unused process is kept (idle_timeout, R61); 0: for ever.
	Idle time.Duration
	// BackoffFirst and BackoffMost bound the wait before a process that failed
	// is started again (restart_backoff_first, restart_backoff_most).
	BackoffFirst, BackoffMost time.Duration
	// Steady is how long a process must have run for its end not to count as a
	// repeated failure.
	Steady time.Duration
}

// Phase is where the process is in its life.
type Phase string

// The phases. In Stopping and Starting nothing else is started: there is never
// more than one process.
const (
	Down     Phase = "down"
	Starting Phase = "starting"
	Up       Phase = "up"
	Stopping Phase = "stopping"
)

// ID names a use of the session.
type ID uint64

// Use is something that needs the session: a call, or a listing.
type Use struct {
	ID ID
	// Folder is the folder that the server must have; empty is a folder of its
	// own kind: none.
	Folder string
	// AnyFolder says that the folder does not matter, as for a listing.
	AnyFolder bool
}

// StopReason is why a process is ended.
type StopReason string

// The reasons.
const (
	StopIdle   StopReason = "idle"
	StopFolder StopReason = "folder" // another folder, and this one was read
	StopDied   StopReason = "died"   // it is dead; what is left of it is cleared away
	StopClosed StopReason = "closed"
)

// Action is what the owner must do. The set is closed.
type Action interface{ action() }

// Start asks for a process whose session has this folder. The owner answers with
// Started or StartFailed.
type Start struct{ Folder string }

// Stop asks for the process to be ended. The owner answers with Stopped once
// nothing of it is left.
type Stop struct{ Reason StopReason }

// Grant lets a use go ahead. The owner answers with Finished.
type Grant struct{ ID ID }

// SetFolder changes the folder of the running session.
type SetFolder struct{ Folder string }

// Fail tells a waiting use that it will not be served.
type Fail struct {
	ID  ID
	Err error
}

func (Start) action()     {}
func (Stop) action()      {}
func (Grant) action()     {}
func (SetFolder) action() {}
func (Fail) action()      {}

// Machine is the state. It is not safe for concurrent use.
type Machine struct {
	cfg       Config
	phase     Phase
	folder    string
	rootsRead bool
	running   map[ID]Use
	queue     []Use
	failures  int
	notBefore time.Time // no start before
	upSince   time.Time
	idleSince time.Time
	closed    error // why nothing is started any more
	patient   bool  // closed, but what goes on may end first
	out       []Action
}

// New returns a machine without a process.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg, phase: Down, running: map[ID]Use{}}
}

// Phase returns the phase.
func (m *Machine) Phase() Phase { return m.phase }

// Folder returns the folder that the session has or is being started with.
func (m *Machine) Folder() string { return m.folder }

// RootsWereRead reports whether the running server has read its roots.
func (m *Machine) RootsWereRead() bool { return m.rootsRead }

// Running is the number of uses that go on; Waiting of those that wait.
func (m *Machine) Running() int { return len(m.running) }

// Waiting is the number of uses that wait.
func (m *Machine) Waiting() int { return len(m.queue) }

// Next is the use that is served next; 0 when none waits.
func (m *Machine) Next() ID {
	if len(m.queue) == 0 {
		return 0
	}
	return m.queue[0].ID
}

// Failures is the number of failures in a row.
func (m *Machine) Failures() int { return m.failures }

// Arrive is a new use.
func (m *Machine) Arrive(u Use, now time.Time) []Action {
	if m.closed != nil {
		return []Action{Fail{u.ID, m.closed}}
	}
	m.queue = append(m.queue, u)
	return m.advance(now)
}

// Withdraw is a use that is given up while it waits. For one that goes on it
// does nothing: that one ends with Finished.
func (m *Machine) Withdraw(id ID, now time.Time) []Action {
	m.queue = slices.DeleteFunc(m.queue, func(u Use) bool { return u.ID == id })
	return m.advance(now)
}

// Finished is the end of a use that was granted.
func (m *Machine) Finished(id ID, now time.Time) []Action {
	delete(m.running, id)
	if len(m.running) == 0 {
		m.idleSince = now
	}
	return m.advance(now)
}

// Started is a session that is ready.
func (m *Machine) Started(now time.Time) []Action {
	if m.phase != Starting {
		return nil // it was stopped while it started
	}
	m.phase = Up
	m.upSince, m.idleSince = now, now
	return m.advance(now)
}

// StartFailed is a start that came to nothing; no process is left of it. All that
// wait share its error: each of them would meet it again.
func (m *Machine) StartFailed(err error, now time.Time) []Action {
	if m.phase == Stopping {
		return m.Stopped(now)
	}
	m.phase = Down
	m.failed(now)
	waiting := m.queue
	m.queue = nil
	for _, u := range waiting {
		m.out = append(m.out, Fail{u.ID, err})
	}
	return m.advance(now)
}

// RootsRead is a server that asked for its roots.
func (m *Machine) RootsRead() {
	if m.phase == Starting || m.phase == Up {
		m.rootsRead = true
	}
}

// Died is a process that ended by itself. The uses that go on learn it from
// their own connection and end with Finished.
func (m *Machine) Died(now time.Time) []Action {
	if m.phase != Up {
		return nil
	}
	if now.Sub(m.upSince) >= m.cfg.Steady {
		m.failures = 0
	}
	m.failed(now)
	m.stop(StopDied)
	return m.advance(now)
}

// Stopped is a process of which nothing is left.
func (m *Machine) Stopped(now time.Time) []Action {
	m.phase = Down
	m.rootsRead = false
	return m.advance(now)
}

// Tick lets time pass: for the idle sweep and the backoff.
func (m *Machine) Tick(now time.Time) []Action { return m.advance(now) }

// StopNow ends the process at an operator's wish. Uses that go on fail through
// their connection; the next use starts it again.
func (m *Machine) StopNow(now time.Time) []Action {
	if m.phase == Up || m.phase == Starting {
		m.stop(StopClosed)
	}
	m.failures, m.notBefore = 0, time.Time{}
	return m.advance(now)
}

// Close ends the machine: nothing is started any more and what waits fails with err.
func (m *Machine) Close(err error, now time.Time) []Action {
	if m.closed == nil {
		m.closed = err
	} else {
		m.patient = false
	}
	return m.advance(now)
}

// Retire ends the machine like Close, but lets what goes on end first.
func (m *Machine) Retire(err error, now time.Time) []Action {
	if m.closed == nil {
		m.patient = true
	}
	return m.Close(err, now)
}

// Ended reports whether a closed machine has nothing left to end.
func (m *Machine) Ended() bool { return m.closed != nil && m.phase == Down }

// Wake returns when time alone will change something; zero: never.
func (m *Machine) Wake() time.Time {
	switch {
	case m.phase == Down && len(m.queue) > 0 && m.closed == nil:
		return m.notBefore
	case m.phase == Up && len(m.running) == 0 && m.cfg.Idle > 0:
		return m.idleSince.Add(m.cfg.Idle)
	}
	return time.Time{}
}

// advance does all that can be done now and hands out the actions.
func (m *Machine) advance(now time.Time) []Action {
	if m.closed != nil {
		for _, u := range m.queue {
			m.out = append(m.out, Fail{u.ID, m.closed})
		}
		m.queue = nil
		if (m.phase == Up || m.phase == Starting) && (!m.patient || len(m.running) == 0) {
			m.stop(StopClosed)
		}
	}
	switch m.phase {
	case Down:
		if len(m.queue) > 0 && !now.Before(m.notBefore) {
			m.phase, m.folder, m.rootsRead = Starting, m.wanted(), false
			m.out = append(m.out, Start{m.folder})
		}
	case Up:
		m.serve()
		if m.phase == Up && len(m.running) == 0 && m.cfg.Idle > 0 && now.Sub(m.idleSince) >= m.cfg.Idle {
			m.stop(StopIdle)
		}
	}
	out := m.out
	m.out = nil
	return out
}

// wanted is the folder of the first use that cares; a listing that comes first
// thus does not cost the call behind it a restart.
func (m *Machine) wanted() string {
	for _, u := range m.queue {
		if !u.AnyFolder {
			return u.Folder
		}
	}
	return ""
}

// serve grants what waits, strictly in order: a use of another folder lets nobody
// pass, so it can't be starved (R68).
func (m *Machine) serve() {
	for len(m.queue) > 0 {
		u := m.queue[0]
		if !u.AnyFolder && u.Folder != m.folder {
			if len(m.running) > 0 {
				return
			}
			if m.rootsRead { // it may act on the old folder until after its next call (R69)
				m.stop(StopFolder)
				return
			}
			m.folder = u.Folder
			m.out = append(m.out, SetFolder{u.Folder})
		}
		m.queue = m.queue[1:]
		m.running[u.ID] = u
		m.out = append(m.out, Grant{u.ID})
	}
}

func (m *Machine) stop(why StopReason) {
	m.phase = Stopping
	m.out = append(m.out, Stop{why})
}

// failed sets when the next start may be. The first failure costs no wait.
func (m *Machine) failed(now time.Time) {
	m.failures++
	if m.failures == 1 {
		m.notBefore = now
		return
	}
	wait := m.cfg.BackoffFirst << min(m.failures-2, 16)
	if wait <= 0 || wait > m.cfg.BackoffMost {
		wait = m.cfg.BackoffMost
	}
	m.notBefore = now.Add(wait)
}
