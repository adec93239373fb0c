package exec

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/sandbox"
	"github.com/writ-dev/writ/internal/telemetry"

	"github.com/writ-dev/writ/exec-svc/internal/run"
)

// Execute implements RunService. The stream only watches: when it breaks, the
// call goes on.
func (s *Server) Execute(req *execv1.ExecuteRequest, stream execv1.RunService_ExecuteServer) error {
	in := req.GetRequest()
	if n := int64(len(in.GetArguments())); n > s.limits.ArgumentsMaxBytes {
		return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "arguments_max_bytes", s.limits.ArgumentsMaxBytes, n, "pass large data by a file in the workspace")
	}
	if !s.enter() {
		return shuttingDown()
	}
	e := &execution{token: in.GetWrit(), arguments: in.GetArguments(), namespace: peerNamespace(stream.Context()),
		log: run.NewLog(s.now), cancel: make(chan struct{})}
	detached := context.WithoutCancel(stream.Context())
	go func() {
		defer s.running.Done()
		s.conduct(detached, e)
	}()
	return follow(stream.Context(), e.log, 0, func(ev *commonv1.ExecutionEvent) error {
		return stream.Send(&execv1.ExecuteResponse{Event: ev})
	})
}

func shuttingDown() error {
	return errs.New(codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_SHUTTING_DOWN, ServiceName, "the executor shuts down", "call again in a moment")
}

func peerNamespace(ctx context.Context) string {
	if id, ok := auth.FromContext(ctx); ok && id.Namespace() != "" {
		return id.Namespace()
	}
	return defaultNamespace
}

// Attach implements RunService.
func (s *Server) Attach(req *execv1.AttachRequest, stream execv1.RunService_AttachServer) error {
	in := req.GetRequest()
	e := s.runs.find(callKey{in.GetNamespace(), in.GetCall()})
	if e == nil {
		return errs.New(codes.NotFound, execv1.ErrorReason_ERROR_REASON_EXECUTION_NOT_FOUND, in.GetCall(),
			"no execution of that name runs or ended lately here", "read the call's receipt at evidence")
	}
	return follow(stream.Context(), e.log, in.GetAfterSequence(), func(ev *commonv1.ExecutionEvent) error {
		return stream.Send(&execv1.AttachResponse{Event: ev})
	})
}

func follow(ctx context.Context, log *run.Log, after int64, send func(*commonv1.ExecutionEvent) error) error {
	for {
		e, more, err := log.Next(ctx, after)
		if err != nil || !more {
			return err
		}
		after = e.Sequence
		if err := send(eventOf(e)); err != nil {
			return err
		}
	}
}

func eventOf(e run.Event) *commonv1.ExecutionEvent {
	out := &commonv1.ExecutionEvent{Sequence: e.Sequence, Time: timestamppb.New(e.Time)}
	switch body := e.Body.(type) {
	case *commonv1.ExecutionStarted:
		out.Event = &commonv1.ExecutionEvent_Started{Started: body}
	case *commonv1.Outcome:
		out.Event = &commonv1.ExecutionEvent_Outcome{Outcome: body}
	default:
		stream := commonv1.OutputStream_OUTPUT_STREAM_STDOUT
		if e.Stream == run.Stderr {
			stream = commonv1.OutputStream_OUTPUT_STREAM_STDERR
		}
		out.Event = &commonv1.ExecutionEvent_Output{Output: &commonv1.Output{Stream: stream, Data: e.Output}}
	}
	return out
}

// Cancel implements RunService.
func (s *Server) Cancel(_ context.Context, req *execv1.CancelRequest) (*execv1.CancelResponse, error) {
	in := req.GetRequest()
	e, running := s.runs.isRunning(callKey{in.GetNamespace(), in.GetCall()})
	if running {
		e.stop(in.GetReason())
	}
	return &execv1.CancelResponse{Response: &commonv1.CancelResponse{Cancelled: running}}, nil
}

// GetCapabilities implements CapabilityService.
func (s *Server) GetCapabilities(ctx context.Context, _ *execv1.GetCapabilitiesRequest) (*execv1.GetCapabilitiesResponse, error) {
	c, err := s.capabilities(ctx)
	if err != nil {
		return nil, err
	}
	commandLevel, _ := c.Best(sandbox.ProfileCommand)
	serverLevel, _ := c.Best(sandbox.ProfileServer)
	return &execv1.GetCapabilitiesResponse{CommandLevel: isolationOf(commandLevel), ServerLevel: isolationOf(serverLevel), Mechanisms: mechanisms(c)}, nil
}

// capabilities probes once.
func (s *Server) capabilities(ctx context.Context) (sandbox.Capabilities, error) {
	s.probe.Lock()
	defer s.probe.Unlock()
	if s.caps == nil {
		c := sandbox.Probe(telemetry.Suppress(ctx))
		if err := ctx.Err(); err != nil {
			return c, err // half a probe is not an answer
		}
		s.caps = &c
	}
	return *s.caps, nil
}

func mechanisms(c sandbox.Capabilities) []*execv1.Mechanism {
	var out []*execv1.Mechanism
	check := func(name string, k sandbox.Check) {
		m := &execv1.Mechanism{Name: name, Works: k.OK}
		if !k.OK {
			m.Problem = strings.TrimPrefix(k.Step+": "+k.Errno, ": ")
		}
		out = append(out, m)
	}
	check("user namespace", c.UserNS)
	check("mount namespace", c.MountNS)
	check("pid namespace", c.PIDNS)
	check("network namespace", c.NetNS)
	check("loopback", c.Loopback)
	check("fresh proc", c.FreshProc)
	check("seccomp", c.Seccomp)
	if c.Root {
		check("idmapped mounts", c.IDMap)
	}
	landlock := &execv1.Mechanism{Name: "landlock", Works: c.LandlockABI > 0, Problem: "not in this kernel"}
	if landlock.Works {
		landlock.Problem, landlock.Detail = "", "abi "+itoa(c.LandlockABI)
	}
	out = append(out, landlock, cgroupMechanism("cgroup pids", c.CgroupPIDs), cgroupMechanism("cgroup memory", c.CgroupMemory))
	return append(out, &execv1.Mechanism{Name: "kernel", Works: true, Detail: c.Kernel})
}

func cgroupMechanism(name, kind string) *execv1.Mechanism {
	m := &execv1.Mechanism{Name: name, Works: kind != "", Detail: kind}
	if kind == "" {
		m.Problem = "no group of its own can be made"
	}
	return m
}
