package mcphost

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/telemetry"
	"github.com/writ-dev/writ/internal/toolname"
)

const (
	sealPause    = 50 * time.Millisecond
	sealPauseMax = time.Second
	retryPause   = 200 * time.Millisecond
	retryMax     = 5 * time.Second
	chunkBytes   = 512 << 10
)

func toUTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// refuse seals that nothing ran and why.
func (s *Server) refuse(ctx context.Context, c *call, cause error) (*commonv1.Outcome, error) {
	var away unclaimable
	if errors.As(cause, &away) {
		return nil, away.error // evidence is away: nothing ran and nothing can be recorded
	}
	var cancelled *cancelledError
	if errors.As(cause, &cancelled) {
		return s.seal(ctx, c, outcomeOf(commonv1.OutcomeState_OUTCOME_STATE_CANCELLED, errs.New(codes.Canceled, mcphostv1.ErrorReason_ERROR_REASON_CANCELLED,
			c.key().Call, "the call was cancelled before it began; nothing ran", "call again under a new call id", "begun", "false", "why", toUTF8(cancelled.why))), nil)
	}
	name := c.server
	if name == "" {
		name = ServiceName
	}
	return s.seal(ctx, c, outcomeOf(commonv1.OutcomeState_OUTCOME_STATE_REFUSED, refusal(name, cause)), nil)
}

// facts says what is known of the call. Of a writ whose signature did not hold nothing is.
func (s *Server) facts(ctx context.Context, c *call, o *commonv1.Outcome) receipt.Facts {
	f := receipt.Facts{Kind: evidencev1.ReceiptKind_RECEIPT_KIND_REFUSAL, Namespace: c.namespace}
	reason := writtoken.Reason(errs.Metadata(status.FromProto(o.GetStatus()).Err())["writ_reason"])
	claims := c.claims
	if claims == nil && signatureHeld(reason) {
		_, claims, _ = writtoken.Unverified(c.token) // Verify got past the signature
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

// seal makes the receipt durable and returns the outcome with its id. Without a receipt there is no outcome but an error.
func (s *Server) seal(ctx context.Context, c *call, o *commonv1.Outcome, claim *evidencev1.Claim) (*commonv1.Outcome, error) {
	// What is recorded must not depend on who still waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.SealPatience)
	defer cancel()
	opening := &evidencev1.Opening{Arguments: c.arguments, Outcome: o, Writ: c.token}
	if c.claims != nil && o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_REFUSED {
		opening.ArgumentsSalt = c.claims.Args.Salt // a refusal commits to what was presented, under a salt of its own
	}
	f := s.facts(ctx, c, o)
	err := s.large(ctx, c, o, opening, &f)
	var r *evidencev1.Receipt
	if err == nil {
		r, err = s.sealPatiently(ctx, f, opening, claim.GetClaimToken())
	}
	if err != nil {
		s.log.ErrorContext(ctx, "receipt not sealed", "state", o.GetState().String(), "error", err)
		return nil, errs.WithCause(errs.New(codes.Unavailable, mcphostv1.ErrorReason_ERROR_REASON_SEAL_FAILED, "evidence",
			"the receipt could not be sealed, so the outcome is not delivered", "see `writ doctor`; the call is reported UNKNOWN after a restart if it had begun"), err)
	}
	o.Receipt = r.GetId()
	s.log.InfoContext(ctx, "call ended", "call", r.GetCall(), "state", o.GetState().String(), "reason", r.GetReason(), "receipt", r.GetId())
	return o, nil
}

// large moves a result that is too large to travel inline into a blob, which is durable before the receipt names it.
func (s *Server) large(ctx context.Context, c *call, o *commonv1.Outcome, opening *evidencev1.Opening, f *receipt.Facts) error {
	if len(o.GetResult()) <= s.limits.ResultsInlineMaxBytes {
		return nil
	}
	ref, err := s.putBlob(ctx, o.GetResult(), "application/json", c)
	if err != nil {
		return err
	}
	opening.ResultSalt = make([]byte, sha256.Size)
	if _, err := rand.Read(opening.ResultSalt); err != nil {
		return err
	}
	commit := receipt.NewCommitter(opening.ResultSalt)
	if _, err := io.Copy(commit, bytes.NewReader(o.GetResult())); err != nil {
		return err
	}
	f.Result = commit.Commitment()
	o.Result, o.ResultBlob = nil, ref
	opening.Blobs = append(opening.Blobs, ref)
	return nil
}

func (s *Server) putBlob(ctx context.Context, b []byte, mediaType string, c *call) (*commonv1.BlobRef, error) {
	stream, err := s.clients.Blobs.PutBlob(ctx)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	header := &evidencev1.PutBlobHeader{Sha256: hex.EncodeToString(sum[:]), MediaType: mediaType, Namespace: c.claims.Namespace, Conversation: c.claims.Conversation}
	// A refused send is explained by the answer, which CloseAndRecv brings.
	sendErr := stream.Send(&evidencev1.PutBlobRequest{Part: &evidencev1.PutBlobRequest_Header{Header: header}})
	for len(b) > 0 && sendErr == nil {
		n := min(len(b), chunkBytes)
		sendErr = stream.Send(&evidencev1.PutBlobRequest{Part: &evidencev1.PutBlobRequest_Chunk{Chunk: b[:n]}})
		b = b[n:]
	}
	resp, err := stream.CloseAndRecv()
	if err != nil {
		return nil, err
	}
	if sendErr != nil && !errors.Is(sendErr, io.EOF) {
		return nil, sendErr
	}
	return resp.GetBlob(), nil
}

// sealPatiently tries again while evidence is away: the tool has run, and its record is worth waiting for.
func (s *Server) sealPatiently(ctx context.Context, f receipt.Facts, opening *evidencev1.Opening, token string) (*evidencev1.Receipt, error) {
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

// unclaimable is an answer that evidence is away.
type unclaimable struct{ error }

// unclaimed wraps an error of evidence that is about evidence, not the call.
func unclaimed(err error) error {
	return unclaimable{errs.WithCause(errs.New(codes.Unavailable, commonv1.ErrorReason_ERROR_REASON_PEER_UNAVAILABLE, "evidence",
		"the call could not be claimed, so nothing ran", "see `writ doctor`, then call again"), err)}
}

// recover seals each claim that an earlier process left open as UNKNOWN. Nothing runs again. It tries until evidence
// answers.
func (s *Server) recover(ctx context.Context) error {
	for pause := retryPause; ; pause = min(2*pause, retryMax) {
		err := s.sealOpenClaims(ctx)
		if err == nil {
			return nil
		}
		s.log.WarnContext(ctx, "open claims not sealed yet", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (s *Server) sealOpenClaims(ctx context.Context) error {
	for page := ""; ; {
		answer, err := s.clients.Claims.ListOpenClaims(ctx, &evidencev1.ListOpenClaimsRequest{PageToken: page})
		if err != nil {
			return err
		}
		for _, c := range answer.GetClaims() {
			if !c.GetClaimTime().AsTime().Before(s.started) {
				continue // this process claimed it: it is on its way
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
	o := outcomeOf(commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN, errs.New(codes.Unknown, mcphostv1.ErrorReason_ERROR_REASON_EXECUTOR_DIED, c.GetCall(),
		"the executor died after the call had begun; how it ended is not known", "look at what it has done before you call again; nothing is run again"))
	o.BeginTime = c.GetClaimTime()
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
	s.log.WarnContext(ctx, "call sealed as unknown", "call", c.GetCall(), "receipt", r.GetId())
	return nil
}
