package exec

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/executor"
)

// defaultNamespace stands in the refusal of a writ that tells nothing, from a
// peer without a namespace.
const defaultNamespace = "default"

// refuse seals that nothing ran and why.
func (s *Server) refuse(ctx context.Context, e *execution, cause error) (*commonv1.Outcome, error) {
	var away executor.AwayError
	if errors.As(cause, &away) {
		return nil, away.Unwrap() // evidence is away: nothing ran and nothing can be recorded
	}
	state := commonv1.OutcomeState_OUTCOME_STATE_REFUSED
	var early earlyCancel
	if errors.As(cause, &early) {
		state, cause = commonv1.OutcomeState_OUTCOME_STATE_CANCELLED, early.error
	}
	return s.seal(ctx, e, outcomeOf(state, refusal(cause)), nil)
}

// seal makes the receipt durable and returns the outcome with its id. Without
// a receipt there is no outcome but an error.
func (s *Server) seal(ctx context.Context, e *execution, o *commonv1.Outcome, claim *evidencev1.Claim) (*commonv1.Outcome, error) {
	// What is recorded must not depend on who still waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.SealPatience)
	defer cancel()
	p := executor.Presented{Token: e.token, Arguments: e.arguments, Claims: e.claims, Namespace: e.namespace}
	r, err := executor.SealPatiently(ctx, s.sealer, p.Facts(ctx, o), p.Opening(o), claim.GetClaimToken())
	if err != nil {
		s.log.ErrorContext(ctx, "receipt not sealed", "state", o.GetState().String(), "error", err)
		return nil, errs.WithCause(errs.New(codes.Unavailable, execv1.ErrorReason_ERROR_REASON_SEAL_FAILED, "evidence",
			"the receipt could not be sealed, so the outcome is not delivered", "see `writ doctor`; the call is reported UNKNOWN after a restart if it had begun"), err)
	}
	o.Receipt = r.GetId()
	s.log.InfoContext(ctx, "call ended", "call", r.GetCall(), "state", o.GetState().String(), "reason", r.GetReason(), "receipt", r.GetId())
	return o, nil
}
