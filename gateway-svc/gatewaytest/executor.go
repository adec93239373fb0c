package gatewaytest

import (
	"context"
	"strconv"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/toolname"

	"google.golang.org/grpc"
)

// run is one execution. Its fields are guarded by the plane's mutex.
type run struct {
	executor string
	events   []*commonv1.ExecutionEvent
	over     bool
	dead     bool
	release  chan struct{}
	stopped  chan struct{}
	cancel   func()
}

type mcpHost struct {
	mcphostv1.UnimplementedExecutionServiceServer
	p *Plane
}

func (s mcpHost) Execute(req *mcphostv1.ExecuteRequest, out grpc.ServerStreamingServer[mcphostv1.ExecuteResponse]) error {
	return s.p.execute(out.Context(), "mcp-host", req.GetRequest(), func(e *commonv1.ExecutionEvent) error {
		return out.Send(&mcphostv1.ExecuteResponse{Event: e})
	})
}

func (s mcpHost) Attach(req *mcphostv1.AttachRequest, out grpc.ServerStreamingServer[mcphostv1.AttachResponse]) error {
	return s.p.attach(out.Context(), "mcp-host", req.GetRequest(), func(e *commonv1.ExecutionEvent) error {
		return out.Send(&mcphostv1.AttachResponse{Event: e})
	})
}

func (s mcpHost) Cancel(_ context.Context, req *mcphostv1.CancelRequest) (*mcphostv1.CancelResponse, error) {
	ok, err := s.p.stop("mcp-host", req.GetRequest())
	return &mcphostv1.CancelResponse{Response: &commonv1.CancelResponse{Cancelled: ok}}, err
}

type exec struct {
	execv1.UnimplementedRunServiceServer
	p *Plane
}

func (s exec) Execute(req *execv1.ExecuteRequest, out grpc.ServerStreamingServer[execv1.ExecuteResponse]) error {
	return s.p.execute(out.Context(), "exec", req.GetRequest(), func(e *commonv1.ExecutionEvent) error {
		return out.Send(&execv1.ExecuteResponse{Event: e})
	})
}

func (s exec) Attach(req *execv1.AttachRequest, out grpc.ServerStreamingServer[execv1.AttachResponse]) error {
	return s.p.attach(out.Context(), "exec", req.GetRequest(), func(e *commonv1.ExecutionEvent) error {
		return out.Send(&execv1.AttachResponse{Event: e})
	})
}

func (s exec) Cancel(_ context.Context, req *execv1.CancelRequest) (*execv1.CancelResponse, error) {
	ok, err := s.p.stop("exec", req.GetRequest())
	return &execv1.CancelResponse{Response: &commonv1.CancelResponse{Cancelled: ok}}, err
}

func (p *Plane) execute(ctx context.Context, executor string, req *commonv1.ExecuteRequest, send func(*commonv1.ExecutionEvent) error) error {
	p.mu.Lock()
	if err := p.goneLocked(executor); err != nil {
		p.mu.Unlock()
		return err
	}
	_, claims, err := writtoken.Unverified(req.GetWrit())
	if err != nil || claims.CheckArguments(req.GetArguments()) != nil || claims.Subject.ID != subject(ctx).GetId() {
		p.mu.Unlock()
		return errs.New(codes.PermissionDenied, execv1.ErrorReason_ERROR_REASON_WRIT_REFUSED, executor, "the writ does not hold", "")
	}
	name := toolname.Call(claims.Turn, claims.Call)
	p.tried[name]++
	if c := p.claims[name]; c != nil && (c.GetDurable() || c.GetState() == evidencev1.ClaimState_CLAIM_STATE_SEALED) {
		r := p.refusal(name, executor, errs.New(codes.FailedPrecondition, execv1.ErrorReason_ERROR_REASON_CLAIM_TAKEN, name, "the call is claimed", "", "receipt", c.GetReceipt()))
		p.mu.Unlock()
		return send(&commonv1.ExecutionEvent{Sequence: 1, Time: now(), Event: &commonv1.ExecutionEvent_Outcome{Outcome: r}})
	}
	r := p.begin(name, executor, claims, req.GetArguments())
	p.mu.Unlock()
	return p.follow(ctx, r, 0, send)
}

func (p *Plane) begin(name, executor string, claims *writtoken.Claims, arguments []byte) *run {
	p.claims[name] = &evidencev1.Claim{
		Call: name, Tool: claims.Tool, State: evidencev1.ClaimState_CLAIM_STATE_OPEN, Executor: executor,
		Durable: claims.Class != "read", ClaimTime: now(), Namespace: claims.Namespace,
	}
	p.ran[name]++
	p.traces[name] = claims.Trace
	r := &run{executor: executor, release: make(chan struct{}), stopped: make(chan struct{})}
	r.cancel = sync.OnceFunc(func() { close(r.stopped) })
	p.runs[name] = r
	p.emit(r, &commonv1.ExecutionEvent{Event: &commonv1.ExecutionEvent_Started{Started: &commonv1.ExecutionStarted{}}})
	p.wg.Go(func() { p.work(name, r, claims.Tool, arguments) })
	return r
}

func (p *Plane) work(name string, r *run, tool string, arguments []byte) {
	o := &commonv1.Outcome{State: commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, Result: arguments}
	if tool == Slow {
		select {
		case <-r.release:
		case <-r.stopped:
			o = &commonv1.Outcome{
				State:  commonv1.OutcomeState_OUTCOME_STATE_CANCELLED,
				Status: errs.Status(errs.New(codes.Canceled, mcphostv1.ErrorReason_ERROR_REASON_CANCELLED, name, "the call was cancelled", "", "begun", "true")).Proto(),
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.dead {
		return
	}
	if tool == Chatty {
		for n := range 5000 {
			p.emit(r, &commonv1.ExecutionEvent{Event: &commonv1.ExecutionEvent_Progress{Progress: &commonv1.Progress{Progress: float64(n), Message: "step " + strconv.Itoa(n)}}})
		}
	}
	sealed := p.sealWith(name, r.executor, o, arguments)
	r.over = true
	p.emit(r, &commonv1.ExecutionEvent{Event: &commonv1.ExecutionEvent_Outcome{Outcome: sealed.opening.GetOutcome()}})
}

func (p *Plane) emit(r *run, e *commonv1.ExecutionEvent) {
	e.Sequence, e.Time = int64(len(r.events))+1, now()
	r.events = append(r.events, e)
	p.wake()
}

func (p *Plane) follow(ctx context.Context, r *run, after int64, send func(*commonv1.ExecutionEvent) error) error {
	for {
		p.mu.Lock()
		events, over, dead, changed := r.events[min(after, int64(len(r.events))):], r.over, r.dead, p.changed
		p.mu.Unlock()
		if dead {
			return errs.New(codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE, r.executor, "the connection broke", "")
		}
		for _, e := range events {
			if err := send(e); err != nil {
				return err
			}
			after = e.GetSequence()
		}
		if over {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *Plane) attach(ctx context.Context, executor string, req *commonv1.AttachRequest, send func(*commonv1.ExecutionEvent) error) error {
	p.mu.Lock()
	err, r := p.goneLocked(executor), p.runs[req.GetCall()]
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if r == nil || r.executor != executor {
		return notFound(execv1.ErrorReason_ERROR_REASON_EXECUTION_NOT_FOUND, req.GetCall())
	}
	return p.follow(ctx, r, req.GetAfterSequence(), send)
}

func (p *Plane) stop(executor string, req *commonv1.CancelRequest) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.goneLocked(executor); err != nil {
		return false, err
	}
	r := p.runs[req.GetCall()]
	if r == nil || r.over || r.executor != executor {
		return false, nil
	}
	r.cancel()
	return true, nil
}
