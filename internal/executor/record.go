// Package executor is what every executor does with a writ beside running something: it takes the claim, seals what
// happened, and seals as UNKNOWN what a killed process of its own left open.
package executor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/telemetry"
	"github.com/writ-dev/writ/internal/toolname"
)

// Pauses between tries while evidence is away.
const (
	sealPause    = 50 * time.Millisecond
	sealPauseMax = time.Second
	retryPause   = 200 * time.Millisecond
	retryMax     = 5 * time.Second
)

// Presented is what a caller presented to an executor.
type Presented struct {
	// Token is the writ as received.
	Token string
	// Arguments are the bytes that came with it.
	Arguments []byte
	// Claims are the writ's, once it was verified; nil until then.
	Claims *writtoken.Claims
	// Namespace is the peer's, which a receipt is kept under while no writ says another.
	Namespace string
}

// Facts are what is known of the call. Of a writ whose signature did not hold nothing is.
func (p Presented) Facts(ctx context.Context, o *commonv1.Outcome) receipt.Facts {
	f := receipt.Facts{Kind: evidencev1.ReceiptKind_RECEIPT_KIND_REFUSAL, Namespace: p.Namespace}
	reason := writtoken.Reason(errs.Metadata(status.FromProto(o.GetStatus()).Err())["writ_reason"])
	claims := p.Claims
	if claims == nil && signatureHeld(reason) {
		_, claims, _ = writtoken.Unverified(p.Token) // Verify got past the signature
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

// signatureHeld tells whether a refusal's reason comes after the signature in the verifier's order.
func signatureHeld(r writtoken.Reason) bool {
	switch r {
	case writtoken.ReasonAudience, writtoken.ReasonNamespace, writtoken.ReasonNotYetValid, writtoken.ReasonExpired:
		return true
	}
	return false
}

// Opening is what the receipt of the outcome commits to. A refusal commits to what was presented, under a salt of its
// own; everything else under the writ's.
func (p Presented) Opening(o *commonv1.Outcome) *evidencev1.Opening {
	opening := &evidencev1.Opening{Arguments: p.Arguments, Outcome: o, Writ: p.Token}
	if p.Claims != nil && o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_REFUSED {
		opening.ArgumentsSalt = p.Claims.Args.Salt
	}
	return opening
}

// AwayError says that evidence-svc can't be reached: nothing ran, and nothing can be recorded either.
type AwayError struct{ error }

// Unwrap returns the contract's error.
func (e AwayError) Unwrap() error { return e.error }

// Claim takes the mark of the call. `taken` makes the executor's error of a call that is claimed, from the id of its
// receipt, which may be empty. Other errors are a *writtoken.Error where evidence does not accept the writ, or an
// AwayError.
func Claim(ctx context.Context, client evidencev1.ClaimServiceClient, token string, taken func(receipt string) error) (*evidencev1.Claim, error) {
	answer, err := client.Claim(ctx, &evidencev1.ClaimRequest{Writ: token})
	if err == nil && answer.GetClaim().GetClaimToken() == "" {
		err = errors.New("evidence answered without a claim")
	}
	if err == nil {
		return answer.GetClaim(), nil
	}
	meta := errs.Metadata(err)
	switch errs.ReasonOf(err) {
	case errs.ReasonName(evidencev1.ErrorReason_ERROR_REASON_CLAIM_TAKEN):
		return nil, taken(meta["receipt"])
	case errs.ReasonName(evidencev1.ErrorReason_ERROR_REASON_WRIT_REFUSED):
		return nil, &writtoken.Error{Reason: writtoken.Reason(meta["writ_reason"]), Detail: "evidence does not accept the writ"}
	}
	return nil, AwayError{errs.WithCause(errs.New(codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE, "evidence",
		"the call could not be claimed, so nothing ran", "see `writ doctor`, then call again"), err)}
}

// SealPatiently seals, and where there is a claim tries again until ctx ends while evidence is away: something has run,
// and its record is worth waiting for.
func SealPatiently(ctx context.Context, sealer *receipt.Sealer, f receipt.Facts, opening *evidencev1.Opening, claimToken string) (*evidencev1.Receipt, error) {
	for pause := sealPause; ; pause = min(2*pause, sealPauseMax) {
		r, err := sealer.Seal(ctx, f, opening, claimToken)
		if err == nil || claimToken == "" || !mayPass(err) {
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

// Recovery seals what an earlier process of the executor left open.
type Recovery struct {
	Claims evidencev1.ClaimServiceClient
	Sealer *receipt.Sealer
	Log    *slog.Logger
	// Mine tells whether this very process holds the claim: its call is on its way.
	Mine func(*evidencev1.Claim) bool
	// Unknown is the outcome of a call that nobody saw end. It may first end what the call left running.
	Unknown func(context.Context, *evidencev1.Claim) *commonv1.Outcome
}

// Run seals every open claim as UNKNOWN. Nothing runs again. It tries until evidence answers or ctx ends.
func (r Recovery) Run(ctx context.Context) error {
	for pause := retryPause; ; pause = min(2*pause, retryMax) {
		err := r.once(ctx)
		if err == nil {
			return nil
		}
		r.Log.WarnContext(ctx, "open claims not sealed yet", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (r Recovery) once(ctx context.Context) error {
	for page := ""; ; {
		answer, err := r.Claims.ListOpenClaims(ctx, &evidencev1.ListOpenClaimsRequest{PageToken: page})
		if err != nil {
			return err
		}
		for _, c := range answer.GetClaims() {
			if r.Mine(c) {
				continue
			}
			if err := r.seal(ctx, c); err != nil {
				return err
			}
		}
		if page = answer.GetNextPageToken(); page == "" {
			return nil
		}
	}
}

func (r Recovery) seal(ctx context.Context, c *evidencev1.Claim) error {
	o := r.Unknown(ctx, c)
	f := receipt.Facts{Kind: evidencev1.ReceiptKind_RECEIPT_KIND_CALL, Namespace: c.GetNamespace(), Call: c.GetCall(), TraceID: c.GetTraceId()}
	opening := &evidencev1.Opening{Outcome: o, Writ: c.GetWrit()}
	// Evidence verified the writ when it gave the claim.
	if _, claims, err := writtoken.Unverified(c.GetWrit()); err == nil && toolname.Call(claims.Turn, claims.Call) == c.GetCall() {
		f, opening.ArgumentsSalt = receipt.FromClaims(claims), claims.Args.Salt
	}
	sealed, err := r.Sealer.Seal(ctx, f, opening, c.GetClaimToken())
	if err != nil {
		return err
	}
	r.Log.WarnContext(ctx, "call sealed as unknown", "call", c.GetCall(), "receipt", sealed.GetId(), "survivors", len(o.GetSurvivors()))
	return nil
}
