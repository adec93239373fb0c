package exec

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/sandbox"
	"github.com/writ-dev/writ/internal/toolname"
)

const (
	sweepWithin = 10 * time.Second
	retryPause  = 200 * time.Millisecond
	retryMax    = 5 * time.Second
)

// recover ends the processes that a killed executor left and seals each of its
// open claims as UNKNOWN. Nothing runs again. It tries until evidence answers.
func (s *Server) recover(ctx context.Context) error {
	for pause := retryPause; ; pause = min(2*pause, retryMax) {
		err := s.sealOpenClaims(ctx)
		if err == nil {
			break
		}
		s.log.WarnContext(ctx, "open claims not sealed yet", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	s.log.InfoContext(ctx, "recovered")
	return nil
}

func (s *Server) sealOpenClaims(ctx context.Context) error {
	page := ""
	for {
		answer, err := s.clients.Claims.ListOpenClaims(ctx, &evidencev1.ListOpenClaimsRequest{PageToken: page})
		if err != nil {
			return err
		}
		for _, c := range answer.GetClaims() {
			// What this process claimed itself is on its way.
			if s.runs.find(callKey{c.GetNamespace(), c.GetCall()}) != nil {
				continue
			}
			if err := s.sealUnknown(ctx, c); err != nil {
				return err
			}
		}
		if page = answer.GetNextPageToken(); page == "" {
			return nil
		}
	}
}

func (s *Server) sealUnknown(ctx context.Context, c *evidencev1.Claim) error {
	o := outcomeOf(commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN, errs.New(codes.Unknown, execv1.ErrorReason_ERROR_REASON_EXECUTOR_DIED, c.GetCall(),
		"the executor died after the call had begun; how it ended is not known", "look at what it has done before you call again; nothing is run again"))
	o.BeginTime, o.EndTime = c.GetClaimTime(), stamp(s.now())
	o.Survivors = s.sweep(ctx, callKey{c.GetNamespace(), c.GetCall()})
	f := receipt.Facts{Kind: evidencev1.ReceiptKind_RECEIPT_KIND_CALL, Namespace: c.GetNamespace(), Call: c.GetCall(), TraceID: c.GetTraceId()}
	opening := &evidencev1.Opening{Outcome: o, Writ: c.GetWrit()}
	// Evidence verified the writ when it gave the claim.
	if _, claims, err := writtoken.Unverified(c.GetWrit()); err == nil && toolname.Call(claims.Turn, claims.Call) == c.GetCall() {
		f, opening.ArgumentsSalt = receipt.FromClaims(claims), claims.Args.Salt
	}
	r, err := s.sealer.Seal(ctx, f, opening, c.GetClaimToken())
	if err != nil {
		return err
	}
	s.log.WarnContext(ctx, "call sealed as unknown", "call", c.GetCall(), "receipt", r.GetId(), "survivors", len(o.Survivors))
	return nil
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
