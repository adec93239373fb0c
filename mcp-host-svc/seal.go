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

	"google.golang.org/grpc/codes"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/executor"
	"github.com/writ-dev/writ/internal/receipt"
)

// chunkBytes is the size of the pieces in which a blob travels.
const chunkBytes = 512 << 10

func toUTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// refuse seals that nothing ran and why.
func (s *Server) refuse(ctx context.Context, c *call, cause error) (*commonv1.Outcome, error) {
	var away executor.AwayError
	if errors.As(cause, &away) {
		return nil, away.Unwrap() // evidence is away: nothing ran and nothing can be recorded
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

// seal makes the receipt durable and returns the outcome with its id. Without a receipt there is no outcome but an error.
func (s *Server) seal(ctx context.Context, c *call, o *commonv1.Outcome, claim *evidencev1.Claim) (*commonv1.Outcome, error) {
	// What is recorded must not depend on who still waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.SealPatience)
	defer cancel()
	p := executor.Presented{Token: c.token, Arguments: c.arguments, Claims: c.claims, Namespace: c.namespace}
	f, opening := p.Facts(ctx, o), p.Opening(o)
	err := s.large(ctx, c, o, opening, &f)
	var r *evidencev1.Receipt
	if err == nil {
		r, err = executor.SealPatiently(ctx, s.sealer, f, opening, claim.GetClaimToken())
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

// recover seals each claim that an earlier process left open as UNKNOWN.
func (s *Server) recover(ctx context.Context) error {
	return executor.Recovery{
		Claims: s.clients.Claims, Sealer: s.sealer, Log: s.log,
		Mine: func(c *evidencev1.Claim) bool { return !c.GetClaimTime().AsTime().Before(s.started) },
		Unknown: func(_ context.Context, c *evidencev1.Claim) *commonv1.Outcome {
			o := outcomeOf(commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN, errs.New(codes.Unknown, mcphostv1.ErrorReason_ERROR_REASON_EXECUTOR_DIED, c.GetCall(),
				"the executor died after the call had begun; how it ended is not known", "look at what it has done before you call again; nothing is run again"))
			o.BeginTime = c.GetClaimTime()
			return o
		},
	}.Run(ctx)
}
