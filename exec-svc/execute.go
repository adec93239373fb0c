package exec

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	"github.com/writ-dev/writ/internal/command"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/executor"
	"github.com/writ-dev/writ/internal/fingerprint"
	"github.com/writ-dev/writ/internal/sandbox"
	"github.com/writ-dev/writ/internal/telemetry"

	"github.com/writ-dev/writ/exec-svc/internal/run"
)

const (
	pipePatience = 2 * time.Second // for pipes that a process which can't be killed holds
)

// conduct takes a presented writ to its outcome. ctx carries trace and
// identity and is not cancelled with the caller's stream.
func (s *Server) conduct(ctx context.Context, e *execution) {
	verifyCtx, span := telemetry.Start(ctx, s.tracer, telemetry.SpanVerify)
	c, err := s.verify(verifyCtx, e)
	telemetry.End(span, err)
	if err == nil {
		err = s.admit(e)
	}
	if err != nil {
		e.finish(s.refuse(ctx, e, err))
		return
	}
	if telemetry.TraceID(ctx) == "" {
		ctx = telemetry.WithTraceparent(ctx, e.claims.Trace, "")
	}
	o, err := s.runCall(ctx, e, c)
	s.runs.end(e) // before anybody hears of the end, so that a call after it finds it ended
	e.finish(o, err)
}

func (e *execution) finish(o *commonv1.Outcome, err error) {
	if err != nil {
		e.log.End(nil, err)
		return
	}
	e.log.End(o, nil)
}

func (s *Server) admit(e *execution) error {
	switch s.runs.add(e) {
	case alreadyRunning:
		return claimTaken(e.key().call, "", "it is running here")
	case tooMany:
		return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "exec_runs_max",
			int64(s.limits.RunsMax), int64(s.limits.RunsMax)+1, "try again when a run has ended")
	}
	return nil
}

// verify checks the writ and compares everything that it says with what is
// about to be done.
func (s *Server) verify(ctx context.Context, e *execution) (command.Command, error) {
	claims, err := s.verifier.Verify(ctx, e.token)
	if err != nil {
		return command.Command{}, err
	}
	e.claims = claims
	if err := claims.CheckTool(command.ToolName, fingerprint.Wire([]byte(command.Definition)), command.ProviderDigest()); err != nil {
		return command.Command{}, err
	}
	if err := claims.CheckArguments(e.arguments); err != nil {
		return command.Command{}, err
	}
	c, err := command.Parse(e.arguments)
	if err != nil {
		return c, err
	}
	in := writtoken.CommandInput{Line: c.Line, Argv: c.Argv, Cwd: c.Cwd, Stdin: c.Stdin}
	for _, v := range c.Env {
		in.Env = append(in.Env, writtoken.EnvVar(v))
	}
	if err := claims.CheckCommand(in, c.Network); err != nil {
		return c, err
	}
	switch x := claims.Exec; {
	case x.Isolation != c.Isolation:
		return c, &writtoken.Error{Reason: writtoken.ReasonScopes, Field: "exec.isolation", Want: x.Isolation, Got: c.Isolation}
	case x.Timeout != c.Timeout.Truncate(time.Millisecond):
		return c, &writtoken.Error{Reason: writtoken.ReasonScopes, Field: "exec.timeout_ms", Want: x.Timeout.String(), Got: c.Timeout.String()}
	}
	return c, nil
}

// runCall prepares, claims, runs and seals.
func (s *Server) runCall(ctx context.Context, e *execution, c command.Command) (*commonv1.Outcome, error) {
	ctx, span := telemetry.Start(ctx, s.tracer, telemetry.SpanRun, telemetry.Call.String(e.key().call), telemetry.Tool.String(command.ToolName),
		telemetry.WritID.String(e.claims.ID), telemetry.GenAIOperationName.String(telemetry.OperationExecuteTool), telemetry.GenAIToolName.String(command.ToolName))
	defer span.End()
	limit := s.limits.OutputMaxBytes
	if m := e.claims.Exec.MaxOutput; m > 0 {
		limit = min(limit, m)
	}
	out := run.NewOutput(limit, e.log.Output)
	defer out.Close()
	prepared, err := s.prepare(ctx, e, c, out)
	if err != nil {
		return s.refuse(ctx, e, err)
	}
	claim, err := s.claim(ctx, e)
	if err != nil {
		prepared.Abandon()
		return s.refuse(ctx, e, err)
	}
	e.claimed = true
	enforced := enforcementOf(prepared.Enforced(), prepared.PID())
	span.SetAttributes(telemetry.Isolation.String(string(prepared.Enforced().Level)), telemetry.Network.String(prepared.Enforced().Network))
	begin := s.now()
	process, err := prepared.Release()
	if err != nil {
		o := outcomeOf(commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR, refusal(err))
		return s.seal(ctx, e, o, claim)
	}
	e.log.Append(&commonv1.ExecutionStarted{Enforcement: enforced})
	exit, why := s.await(e, process, c.Timeout)
	drain(out)
	o := s.finished(e, c, exit, why, out)
	o.Enforcement, o.BeginTime, o.EndTime = enforced, stamp(begin), stamp(s.now())
	span.SetAttributes(telemetry.ExitCode.Int(exit.Code), telemetry.Survivors.Int(len(exit.Survivors)), telemetry.Outcome.String(o.State.String()))
	return s.seal(ctx, e, o, claim)
}

// prepare brings the command to its first instruction.
func (s *Server) prepare(ctx context.Context, e *execution, c command.Command, out *run.Output) (*sandbox.Prepared, error) {
	if e.cancelled() {
		return nil, s.cancelledEarly(e)
	}
	traceparent, tracestate := telemetry.Traceparent(ctx)
	if traceparent == "" {
		traceparent = e.claims.Trace // no tracer here: the child still joins the call's trace
	}
	plan, err := run.NewPlan(c, e.claims.Scopes, s.scope(e.key()), traceparent, tracestate, run.Bounds{
		MaxProcesses: s.limits.ProcessesMax, MaxMemory: s.limits.MemoryMaxBytes, MaxFileSize: s.limits.FileMaxBytes, Mask: s.cfg.Mask})
	if err != nil {
		return nil, err
	}
	spec := plan.Spec
	if c.Stdin != nil {
		if spec.Stdin, err = inMemory(c.Stdin); err != nil {
			return nil, err
		}
		defer spec.Stdin.Close()
	}
	if spec.Stdout, err = out.Pipe(run.Stdout); err != nil {
		return nil, err
	}
	defer spec.Stdout.Close()
	if spec.Stderr, err = out.Pipe(run.Stderr); err != nil {
		return nil, err
	}
	defer spec.Stderr.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.stop, stop)()
	prepared, err := sandbox.Prepare(ctx, spec)
	switch {
	case err == nil && e.cancelled():
		prepared.Abandon()
		return nil, s.cancelledEarly(e)
	case err != nil && s.stop.Err() != nil:
		return nil, shuttingDown()
	}
	return prepared, err
}

// earlyCancel is a cancellation before anything ran.
type earlyCancel struct{ error }

func (s *Server) cancelledEarly(e *execution) error {
	return earlyCancel{errs.New(codes.Canceled, execv1.ErrorReason_ERROR_REASON_CANCELLED, e.key().call,
		"the call was cancelled before it began; nothing ran", "call again under a new call id", "begun", "false", "why", e.reason)}
}

// inMemory gives the bytes as a file that the command can read from its start.
func inMemory(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("stdin: %w", err)
	}
	f := os.NewFile(uintptr(fd), "stdin")
	if _, err := f.Write(b); err == nil {
		_, err = f.Seek(0, 0)
		if err == nil {
			return f, nil
		}
	}
	f.Close()
	return nil, fmt.Errorf("stdin: %w", err)
}

// claim looks at the time once more, since preparing took some, and takes the
// call's mark. Only after it may the command run.
func (s *Server) claim(ctx context.Context, e *execution) (*evidencev1.Claim, error) {
	if err := s.verifier.CheckTime(e.claims); err != nil {
		return nil, err
	}
	return executor.Claim(ctx, s.clients.Claims, e.token, func(receipt string) error {
		return claimTaken(e.key().call, receipt, "it was claimed before")
	})
}

func claimTaken(call, receipt, why string) error {
	return errs.New(codes.FailedPrecondition, execv1.ErrorReason_ERROR_REASON_CLAIM_TAKEN, call, "the call is taken: "+why+"; nothing ran again",
		"read the recorded outcome by the call's name", "receipt", receipt)
}

// await waits for the end and ends the run when it must.
func (s *Server) await(e *execution, p *sandbox.Process, timeout time.Duration) (sandbox.Exit, ending) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	why := byItself
	select {
	case <-p.Done():
	case <-timer.C:
		why = timedOut
	case <-e.cancel:
		why = byCancel
	case <-s.stop.Done():
		why = byShutdown
	}
	if why != byItself {
		p.Terminate(s.limits.KillGrace)
	}
	exit, _ := p.Wait(context.Background()) // the init kills after the grace, so this ends
	return exit, why
}

// drain lets the readers finish. With the last process the pipes end; one that
// the kernel can't kill must not hold the answer.
func drain(out *run.Output) {
	done := make(chan struct{})
	go func() {
		out.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(pipePatience):
		_ = out.Close() // ends the readers, and with them the goroutine above
		<-done
	}
}

func (s *Server) scopePrefix() string { return "writ-exec:" + s.cfg.Deployment + ":" }

// scope marks the processes of one call; the end mark keeps one call's name
// from being the beginning of another's.
func (s *Server) scope(k callKey) string { return s.scopePrefix() + k.namespace + "/" + k.call + ";" }
