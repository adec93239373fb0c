package exec

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/executor"
	"github.com/writ-dev/writ/internal/sandbox"
)

const (
	sweepWithin = 10 * time.Second
)

// recover ends the processes that a killed executor left and seals each of its
// open claims as UNKNOWN.
func (s *Server) recover(ctx context.Context) error {
	err := executor.Recovery{
		Claims: s.clients.Claims, Sealer: s.sealer, Log: s.log,
		Mine: func(c *evidencev1.Claim) bool { return s.runs.find(callKey{c.GetNamespace(), c.GetCall()}) != nil },
		Unknown: func(ctx context.Context, c *evidencev1.Claim) *commonv1.Outcome {
			o := outcomeOf(commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN, errs.New(codes.Unknown, execv1.ErrorReason_ERROR_REASON_EXECUTOR_DIED, c.GetCall(),
				"the executor died after the call had begun; how it ended is not known", "look at what it has done before you call again; nothing is run again"))
			o.BeginTime, o.EndTime = c.GetClaimTime(), stamp(s.now())
			o.Survivors = s.sweep(ctx, callKey{c.GetNamespace(), c.GetCall()})
			return o
		},
	}.Run(ctx)
	if err == nil {
		s.log.InfoContext(ctx, "recovered")
	}
	return err
}

// sweep ends what the call's processes left. Those in a pid namespace ended
// with their executor.
func (s *Server) sweep(ctx context.Context, k callKey) []*commonv1.Survivor {
	ctx, cancel := context.WithTimeout(ctx, sweepWithin)
	defer cancel()
	found, err := sandbox.Sweep(ctx, s.scope(k))
	if err != nil {
		s.log.ErrorContext(ctx, "processes of a killed executor are still alive", "call", k.call, "error", err)
	}
	return survivorsOf(found, err == nil)
}
