package exec

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	"github.com/writ-dev/writ/internal/command"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/sandbox"

	"github.com/writ-dev/writ/exec-svc/internal/run"
)

// outcomeOf is an outcome of the state with the error as its status; nil is OK.
func outcomeOf(state commonv1.OutcomeState, err error) *commonv1.Outcome {
	o := &commonv1.Outcome{State: state}
	if err != nil {
		o.Status = errs.Status(err).Proto()
	}
	return o
}

// refusal turns what kept a call from running into an error of the contract.
func refusal(err error) error {
	var (
		token   *writtoken.Error
		args    *command.Error
		plan    *run.Problem
		machine *sandbox.Error
	)
	switch {
	case errors.As(err, &token):
		return errs.New(codes.PermissionDenied, execv1.ErrorReason_ERROR_REASON_WRIT_REFUSED, token.Field, token.Error(), token.Reason.Next(),
			"writ_reason", string(token.Reason), "want", token.Want, "got", token.Got)
	case errors.As(err, &args):
		return argumentError(args)
	case errors.As(err, &plan):
		return errs.Field(commonv1.ErrorReason_ERROR_REASON_FIELD_INVALID, "arguments."+plan.Field, plan.Detail, plan.Next)
	case errors.As(err, &machine):
		return sandboxError(machine)
	}
	return err
}

func argumentError(e *command.Error) error {
	if e.Problem == command.NotJSON {
		return errs.Field(commonv1.ErrorReason_ERROR_REASON_JSON_INVALID, "arguments", e.Detail, e.Next)
	}
	field := "arguments"
	if e.Field != "" {
		field += "." + e.Field
	}
	kv := []string{"problem", string(e.Problem)}
	if e.Limit != 0 {
		kv = append(kv, errs.KeyLimit, strconv.FormatInt(e.Limit, 10))
	}
	return errs.Field(commonv1.ErrorReason_ERROR_REASON_FIELD_INVALID, field, e.Detail, e.Next, kv...)
}

// sandboxError keeps path and native errno (R88).
func sandboxError(e *sandbox.Error) error {
	switch e.Kind {
	case sandbox.KindPath:
		return errs.New(codes.FailedPrecondition, execv1.ErrorReason_ERROR_REASON_FOLDER_UNUSABLE, e.Path, e.Error(),
			"make the path exist and accessible to the service, then call again; nothing ran", "errno", e.ErrnoName())
	case sandbox.KindIdentity:
		return errs.New(codes.FailedPrecondition, execv1.ErrorReason_ERROR_REASON_FOLDER_CHANGED, e.Path, e.Error(),
			"open a new turn on the folder as it is now; nothing ran")
	case sandbox.KindExec:
		return errs.New(codes.FailedPrecondition, execv1.ErrorReason_ERROR_REASON_PROGRAM_UNUSABLE, e.Path, e.Error(),
			"give a program that exists in the system folders or in the workspace; nothing ran", "errno", e.ErrnoName())
	case sandbox.KindSpec:
		return errs.Field(commonv1.ErrorReason_ERROR_REASON_FIELD_INVALID, "arguments", e.Error(), "correct the arguments")
	}
	problem := strings.TrimSuffix(e.Missing+": "+e.ErrnoName(), ": ")
	if e.Missing == "" {
		problem = e.Stage + ": " + e.ErrnoName()
	}
	return errs.New(codes.FailedPrecondition, execv1.ErrorReason_ERROR_REASON_ISOLATION_UNAVAILABLE, e.Path, e.Error(),
		"see `writ doctor`, or ask for a weaker isolation, which has to be allowed; nothing ran", "problem", problem)
}

func enforcementOf(e sandbox.Enforced, pid int) *commonv1.Enforcement {
	out := &commonv1.Enforcement{Isolation: isolationOf(e.Level), Network: commonv1.NetworkMode_NETWORK_MODE_OPEN, Pid: int64(pid)}
	if e.Network != "host" {
		out.Network = commonv1.NetworkMode_NETWORK_MODE_NONE
	}
	add := func(format string, args ...any) {
		out.Mechanisms = append(out.Mechanisms, fmt.Sprintf(format, args...))
	}
	if len(e.Namespaces) > 0 {
		add("namespaces %s", strings.Join(e.Namespaces, ","))
	}
	if e.NoNewPrivs {
		add("no_new_privs")
	}
	if e.Seccomp == 2 {
		add("seccomp")
	}
	if e.CapEff != "" && strings.Trim(e.CapEff, "0") == "" {
		add("capabilities none")
	}
	if e.LandlockABI > 0 {
		add("landlock abi=%d", e.LandlockABI)
	}
	add("network %s", e.Network)
	add("uid %d", e.HostUID)
	add("tracking %s", e.Tracking)
	for _, name := range []string{"processes", "memory"} {
		if v := e.Limits[name]; v != "" {
			add("limit %s %s", name, v)
		}
	}
	for _, d := range e.Degraded {
		out.Degraded = append(out.Degraded, fmt.Sprintf("%s: wanted %s, got %s: %s", d.What, d.Wanted, d.Got, d.Cause))
	}
	return out
}

func isolationOf(l sandbox.Level) commonv1.Isolation {
	switch l {
	case sandbox.LevelHost:
		return commonv1.Isolation_ISOLATION_HOST
	case sandbox.LevelGuarded:
		return commonv1.Isolation_ISOLATION_GUARDED
	case sandbox.LevelRestricted:
		return commonv1.Isolation_ISOLATION_RESTRICTED
	case sandbox.LevelIsolatedSoftCaps:
		return commonv1.Isolation_ISOLATION_ISOLATED_SOFT_CAPS
	case sandbox.LevelIsolated:
		return commonv1.Isolation_ISOLATION_ISOLATED
	}
	return commonv1.Isolation_ISOLATION_UNSPECIFIED
}

func survivorsOf(list []sandbox.Survivor, ended bool) []*commonv1.Survivor {
	var out []*commonv1.Survivor
	for _, s := range list {
		argv := make([]string, len(s.Argv))
		for i, a := range s.Argv {
			argv[i] = strings.ToValidUTF8(a, "\uFFFD")
		}
		out = append(out, &commonv1.Survivor{Pid: int64(s.PID), Comm: strings.ToValidUTF8(s.Comm, "\uFFFD"), Argv: argv, Ended: ended})
	}
	return out
}

// ending is why a run ended.
type ending int

const (
	byItself ending = iota
	timedOut
	byCancel
	byShutdown
)

// finished makes the outcome of a command that ran. A command's own exit
// status, whatever it is, is a result: COMPLETED. TOOL_ERROR is a run that was
// not allowed to finish, UNKNOWN one whose end nobody saw.
func (s *Server) finished(e *execution, c command.Command, exit sandbox.Exit, why ending, out *run.Output) *commonv1.Outcome {
	var o *commonv1.Outcome
	switch name := e.key().call; {
	case why == byCancel || why == byShutdown:
		reason := e.reason
		if why == byShutdown {
			reason = "the executor shuts down"
		}
		o = outcomeOf(commonv1.OutcomeState_OUTCOME_STATE_CANCELLED, errs.New(codes.Canceled, execv1.ErrorReason_ERROR_REASON_CANCELLED, name,
			"the command was ended before it was done", "look at what it has done before you call again", "begun", "true", "why", reason))
	case why == timedOut:
		seconds := strconv.FormatFloat(c.Timeout.Seconds(), 'f', -1, 64)
		o = outcomeOf(commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR, errs.New(codes.DeadlineExceeded, execv1.ErrorReason_ERROR_REASON_TIMED_OUT, name,
			"the command was not done after "+seconds+" s; it and all its processes were ended", "give a larger timeout_seconds, or a smaller task",
			errs.KeyLimitName, "timeout_seconds", errs.KeyLimit, seconds))
	case exit.InitLost:
		o = outcomeOf(commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN, errs.New(codes.Unknown, execv1.ErrorReason_ERROR_REASON_EXECUTOR_DIED, name,
			"the command's supervisor was killed; how the command ended is not known", "look at what it has done before you call again"))
	default:
		o = outcomeOf(commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, nil)
	}
	if !exit.InitLost {
		o.Result = run.Result(exit, out)
	}
	o.Survivors = survivorsOf(exit.Survivors, exit.CleanedUp)
	return o
}

func itoa(n int) string { return strconv.Itoa(n) }

func stamp(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t) }
