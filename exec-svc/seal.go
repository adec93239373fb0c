package exec

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/telemetry"
)

// defaultNamespace stands in the refusal of a writ that tells nothing, from a
// peer without a namespace.
const defaultNamespace = "default"

// refuse seals that nothing ran and why.
func (s *Server) refuse(ctx context.Context, e *execution, cause error) (*commonv1.Outcome, error) {
	var peer unsealable
	if errors.As(cause, &peer) {
		return nil, peer.error // evidence is away: nothing ran and nothing can be recorded
	}
	state := commonv1.OutcomeState_OUTCOME_STATE_REFUSED
	var early earlyCancel
	if errors.As(cause, &early) {
		state, cause = commonv1.OutcomeState_OUTCOME_STATE_CANCELLED, early.error
	}
	return s.seal(ctx, e, outcomeOf(state, refusal(cause)), nil)
}

// facts says what is known of the call. Of a writ whose signature did not hold
// nothing is.
func (s *Server) facts(ctx context.Context, e *execution, o *commonv1.Outcome) receipt.Facts {
	f := receipt.Facts{Kind: evidencev1.ReceiptKind_RECEIPT_KIND_REFUSAL, Namespace: e.namespace}
	reason := writtoken.Reason(errs.Metadata(status.FromProto(o.GetStatus()).Err())["writ_reason"])
	claims := e.claims
	if claims == nil && signatureHeld(reason) {
		_, claims, _ = writtoken.Unverified(e.token) // Verify got past the signature
	}
	if claims != nil {
		f = receipt.FromClaims(claims)
	}
	f.WritReason = string(reason)
	if f.TraceID == "" {
		f.TraceID = telemetry.TraceID(ctx)
	}
	return f
}

// signatureHeld tells whether a refusal's reason comes after the signature in
// the verifier's order.
func signatureHeld(r writtoken.Reason) bool {
	switch r {
	case writtoken.ReasonAudience, writtoken.ReasonNamespace, writtoken.ReasonNotYetValid, writtoken.ReasonExpired:
		return true
	}
	return false
}

// seal makes the receipt durable and returns the outcome with its id. Without
// a receipt there is no outcome but an error.
func (s *Server) seal(ctx context.Context, e *execution, o *commonv1.Outcome, claim *evidencev1.Claim) (*commonv1.Outcome, error) {
	opening := &evidencev1.Opening{Arguments: e.arguments, Outcome: o, Writ: e.token}
	if e.claims != nil {
		opening.ArgumentsSalt = e.claims.Args.Salt
	}
	if o.GetState() == commonv1.OutcomeState_OUTCOME_STATE_REFUSED {
		opening.ArgumentsSalt = nil // a refusal commits to what was presented, under a salt of its own
	}
	r, err := s.sealPatiently(ctx, s.facts(ctx, e, o), opening, claim.GetClaimToken())
	if err != nil {
		s.log.ErrorContext(ctx, "receipt not sealed", "state", o.GetState().String(), "error", err)
		return nil, errs.WithCause(errs.New(codes.Unavailable, execv1.ErrorReason_ERROR_REASON_SEAL_FAILED, "evidence",
			"the receipt could not be sealed, so the outcome is not delivered", "see `writ doctor`; the call is reported UNKNOWN after a restart if it had begun"), err)
	}
	o.Receipt = r.GetId()
	s.log.InfoContext(ctx, "call ended", "call", r.GetCall(), "state", o.GetState().String(), "reason", r.GetReason(), "receipt", r.GetId())
	return o, nil
}

// sealPatiently tries again while evidence is away: the command has run, and
// its record is worth waiting for.
func (s *Server) sealPatiently(ctx context.Context, f receipt.Facts, opening *evidencev1.Opening, token string) (*evidencev1.Receipt, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.SealPatience)
	defer cancel()
	for pause := sealPause; ; pause = min(2*pause, sealPauseMax) {
		r, err := s.sealer.Seal(ctx, f, opening, token)
		if err == nil || token == "" || !mayPass(err) {
			return r, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

func mayPass(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Aborted, codes.Internal, codes.Unknown:
		return true
	}
	return false
}

// unsealable is an answer that evidence is away.
type unsealable struct{ error }

// unsealed wraps an error of evidence that is about evidence, not the call.
func unsealed(err error) error {
	return unsealable{errs.WithCause(errs.New(codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE, "evidence",
		"the call could not be claimed, so nothing ran", "see `writ doctor`, then call again"), err)}
}
