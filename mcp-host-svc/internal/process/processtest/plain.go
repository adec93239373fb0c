// Package processtest starts servers without a sandbox, for tests of what is
// above it.
package processtest

import (
	"context"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/writ-dev/writ/mcp-host-svc/internal/process"
)

// Plain is a process.Starter on os/exec with a process group per server.
type Plain struct {
	mu      sync.Mutex
	Started []process.Spec // everything that was started, in order
	PIDs    []int
}

// Start implements process.Starter.
func (p *Plain) Start(_ context.Context, spec process.Spec) (process.Process, error) {
	cmd := &exec.Cmd{
		Path: spec.Path, Args: spec.Argv, Env: spec.Env, Dir: spec.Dir,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	err = cmd.Start()
	_, _, _ = inR.Close(), outW.Close(), errW.Close()
	if err != nil {
		_, _, _ = inW.Close(), outR.Close(), errR.Close()
		return nil, err
	}
	proc := &plain{cmd: cmd, in: inW, out: outR, errs: errR, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(proc.exited)
	}()
	p.mu.Lock()
	p.Started, p.PIDs = append(p.Started, spec), append(p.PIDs, cmd.Process.Pid)
	p.mu.Unlock()
	return proc, nil
}

// Pids returns the process ids of everything that was started, in order.
func (p *Plain) Pids() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]int(nil), p.PIDs...)
}

type plain struct {
	cmd     *exec.Cmd
	in      *os.File
	out     *os.File
	errs    *os.File
	exited  chan struct{}
	stopped sync.Once
}

func (p *plain) Stdin() io.WriteCloser   { return p.in }
func (p *plain) Stdout() io.ReadCloser   { return p.out }
func (p *plain) Stderr() io.ReadCloser   { return p.errs }
func (p *plain) PID() int                { return p.cmd.Process.Pid }
func (p *plain) Exited() <-chan struct{} { return p.exited }
func (p *plain) Enforced() process.Enforced {
	return process.Enforced{Isolation: "host", Network: "open"}
}

func (p *plain) Stop(grace time.Duration) process.Exit {
	p.stopped.Do(func() {
		_ = p.in.Close()
		group := -p.cmd.Process.Pid
		p.wait(grace)
		_ = syscall.Kill(group, syscall.SIGTERM)
		p.wait(grace)
		_ = syscall.Kill(group, syscall.SIGKILL)
		<-p.exited
		_ = syscall.Kill(group, syscall.SIGKILL)
	})
	state := p.cmd.ProcessState
	exit := process.Exit{Code: state.ExitCode(), CleanedUp: true}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		exit.Signal = ws.Signal().String()
	}
	return exit
}

func (p *plain) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.exited:
	case <-t.C:
	}
}
