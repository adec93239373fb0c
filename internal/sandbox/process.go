package sandbox

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"
)

// Process is a running sandbox. It is owned by the caller, who must let it end
// (Terminate or Kill) and may Wait for it any number of times.
type Process struct {
	proc     *os.Process
	ctrl     *os.File
	enforced Enforced

	writing sync.Mutex
	done    chan struct{}
	exit    Exit // valid once done is closed
}

func newProcess(l *launch, proc *os.Process, ctrl *os.File, enforced Enforced) *Process {
	p := &Process{proc: proc, ctrl: ctrl, enforced: enforced, done: make(chan struct{})}
	go func() {
		p.collect()
		l.free()
		close(p.done)
	}()
	return p
}

// collect reads the init's report and waits for the init itself: with it, the
// kernel has ended everything in its pid namespace.
func (p *Process) collect() {
	var f initFrame
	err := readFrame(p.ctrl, &f)
	state, waitErr := p.proc.Wait()
	p.ctrl.Close()
	if err != nil || f.Exit == nil {
		p.exit = Exit{Code: -1, InitLost: true, CleanedUp: waitErr == nil && p.enforced.Tracking == "pidns"}
		if state != nil {
			p.exit.CPU = state.UserTime() + state.SystemTime()
		}
		return
	}
	p.exit = Exit{Code: f.Exit.Code, Signal: syscall.Signal(f.Exit.Signal), Survivors: f.Exit.Survivors,
		CleanedUp: f.Exit.CleanedUp && waitErr == nil, CPU: time.Duration(f.Exit.CPUNanos), MaxRSS: f.Exit.MaxRSS}
	if len(p.exit.Survivors) > maxSurvivors {
		p.exit.Survivors = p.exit.Survivors[:maxSurvivors]
	}
}

// PID is the host's process id of the sandbox's init; when it dies, all of the
// sandbox dies.
func (p *Process) PID() int { return p.proc.Pid }

// Enforced is what was in force when the payload was let go.
func (p *Process) Enforced() Enforced { return p.enforced }

// Done is closed when the run has ended and was cleaned up.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait blocks until the run has ended, or returns ctx's error; the run goes on
// then.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.done:
		return p.exit, nil
	case <-ctx.Done():
		return Exit{}, context.Cause(ctx)
	}
}

// Terminate sends SIGTERM to all processes of the run and, when the leader is
// still there after grace, kills all. It does not wait.
func (p *Process) Terminate(grace time.Duration) {
	p.order(ownerFrame{Kind: "terminate", GraceMS: grace.Milliseconds()})
}

// Kill lists the leader's descendants and kills everything. It does not wait.
func (p *Process) Kill() { p.order(ownerFrame{Kind: "kill"}) }

func (p *Process) order(f ownerFrame) {
	p.writing.Lock()
	defer p.writing.Unlock()
	if err := writeFrame(p.ctrl, f); err == nil {
		return
	}
	select {
	case <-p.done:
	default: // the init does not read any more: end it, and with it the rest
		_ = p.proc.Kill() // it may just have ended
	}
}
