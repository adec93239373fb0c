package evidence

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/writ-dev/writ/clients/go/writtoken"
	"github.com/writ-dev/writ/evidence-svc/internal/claim"
	"github.com/writ-dev/writ/evidence-svc/internal/store"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/class"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/telemetry"
	"github.com/writ-dev/writ/internal/toolname"
)

// Claim implements ClaimService.
func (s *Server) Claim(ctx context.Context, req *evidencev1.ClaimRequest) (*evidencev1.ClaimResponse, error) {
	peer, only, err := peerOf(ctx)
	if err != nil {
		return nil, err
	}
	signer, err := s.signer(peer)
	if err != nil {
		return nil, err
	}
	verifier := s.verifier(signer.Audience, s.now)
	if only != "" {
		verifier.Namespaces = []string{only}
	}
	claims, err := verifier.Verify(ctx, req.GetWrit())
	if err != nil {
		return nil, writRefused(err)
	}
	entry := &claim.Entry{
		Key:      claim.Key{Namespace: claims.Namespace, Call: toolname.Call(claims.Turn, claims.Call)},
		Executor: peer, Claimed: s.now(), Writ: req.GetWrit(), Claims: claims,
	}
	// A class that is not known has an effect.
	kind, _ := class.Parse(claims.Class)
	if class.HasEffect(kind) {
		err = s.claimDurably(ctx, entry)
	} else {
		err = s.reserve(ctx, entry)
	}
	if err != nil {
		return nil, err
	}
	return &evidencev1.ClaimResponse{Claim: s.openClaim(entry, true)}, nil
}

func (s *Server) claimDurably(ctx context.Context, e *claim.Entry) error {
	if open := s.book.Get(e.Key); open != nil && open.Durable() {
		return claimTaken(e.Call, &store.Taken{Executor: open.Executor})
	}
	if n := int64(s.book.Durable(e.Namespace)); n >= s.limits.OpenClaimsMax {
		return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "open_claims_max", s.limits.OpenClaimsMax, n+1,
			"Let calls that run end, and restart executors that left claims open.")
	}
	ctx, span := s.tracer.Start(ctx, telemetry.SpanCommit, trace.WithAttributes(telemetry.Claim.String(e.Call)))
	defer span.End()
	id, err := s.store.Claim(ctx, store.Claim{
		Namespace: e.Namespace, Call: e.Call, Tool: e.Claims.Tool, Executor: e.Executor, WritID: e.Claims.ID,
		Decision: e.Claims.Decision.ID, Cause: e.Claims.Decision.Cause, TraceID: receipt.TraceID(e.Claims.Trace),
		Claimed: e.Claimed, Writ: e.Writ,
	})
	var taken *store.Taken
	if errors.As(err, &taken) {
		return claimTaken(e.Call, taken)
	}
	if err != nil {
		return storeError(err)
	}
	e.ID = id
	s.book.Add(e)
	return nil
}

// reserve needs no commit: a read that is lost with the process has changed nothing.
func (s *Server) reserve(ctx context.Context, e *claim.Entry) error {
	if open := s.book.Get(e.Key); open != nil && open.Durable() {
		return claimTaken(e.Call, &store.Taken{Executor: open.Executor})
	}
	ended, err := s.store.Ended(ctx, e.Namespace, e.Call)
	if err != nil {
		return storeError(err)
	}
	if ended != "" {
		return claimTaken(e.Call, &store.Taken{Receipt: ended})
	}
	s.book.Add(e)
	return nil
}

func (s *Server) openClaim(e *claim.Entry, withToken bool) *evidencev1.Claim {
	c := &evidencev1.Claim{
		Call: e.Call, Tool: e.Claims.Tool, State: evidencev1.ClaimState_CLAIM_STATE_OPEN, Executor: e.Executor,
		ClaimTime: timestamppb.New(e.Claimed), Durable: e.Durable(), TraceId: receipt.TraceID(e.Claims.Trace), Namespace: e.Namespace,
	}
	if withToken {
		c.ClaimToken, c.Writ = s.tokens.Make(e.Namespace, e.Call, e.Executor, e.Claims.ID), e.Writ
	}
	return c
}

// ListOpenClaims implements ClaimService.
func (s *Server) ListOpenClaims(ctx context.Context, req *evidencev1.ListOpenClaimsRequest) (*evidencev1.ListOpenClaimsResponse, error) {
	peer, only, err := peerOf(ctx)
	if err != nil {
		return nil, err
	}
	var after int64
	if req.GetPageToken() != "" {
		if after, err = strconv.ParseInt(req.GetPageToken(), 10, 64); err != nil || after < 0 {
			return nil, pageTokenInvalid()
		}
	}
	const most = 1000 // with a writ each well below gRPC's message limit
	size := int(req.GetPageSize())
	if size == 0 || size > most {
		size = most
	}
	open := s.book.OfExecutor(peer, only, after, size+1)
	answer := &evidencev1.ListOpenClaimsResponse{}
	budget := 3 << 20 // bytes; a writ may have up to 64 KiB
	for i, e := range open {
		if i == size || budget < 0 {
			answer.NextPageToken = strconv.FormatInt(open[i-1].ID, 10)
			break
		}
		answer.Claims = append(answer.Claims, s.openClaim(e, true))
		budget -= len(e.Writ)
	}
	return answer, nil
}

// GetClaim implements ClaimService.
func (s *Server) GetClaim(ctx context.Context, req *evidencev1.GetClaimRequest) (*evidencev1.GetClaimResponse, error) {
	_, only, err := peerOf(ctx)
	if err != nil {
		return nil, err
	}
	missing := notFound(evidencev1.ErrorReason_ERROR_REASON_CLAIM_NOT_FOUND, "claim of", req.GetCall())
	if only != "" && only != req.GetNamespace() {
		return nil, missing
	}
	if e := s.book.Get(claim.Key{Namespace: req.GetNamespace(), Call: req.GetCall()}); e != nil {
		return &evidencev1.GetClaimResponse{Claim: s.openClaim(e, false)}, nil
	}
	sealed, err := s.sealedClaim(ctx, req.GetNamespace(), req.GetCall())
	if errors.Is(err, store.ErrNotFound) {
		return nil, missing
	}
	if err != nil {
		return nil, storeError(err)
	}
	return &evidencev1.GetClaimResponse{Claim: sealed}, nil
}

// sealedClaim is the claim of a call that has ended: a row of its own for a class with an effect, else what the
// receipt tells.
func (s *Server) sealedClaim(ctx context.Context, namespace, call string) (*evidencev1.Claim, error) {
	out := &evidencev1.Claim{Call: call, Namespace: namespace, State: evidencev1.ClaimState_CLAIM_STATE_SEALED}
	c, err := s.store.FindClaim(ctx, namespace, call)
	if err == nil {
		out.Tool, out.Executor, out.Receipt, out.TraceId = c.Tool, c.Executor, c.Receipt, c.TraceID
		out.ClaimTime, out.Durable = timestamppb.New(c.Claimed), true
		if c.Receipt == "" {
			out.State = evidencev1.ClaimState_CLAIM_STATE_OPEN
		}
		return out, nil
	}
	if !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	r, err := s.store.ReceiptOfCall(ctx, namespace, call)
	if err != nil {
		return nil, err
	}
	if r.Kind != evidencev1.ReceiptKind_RECEIPT_KIND_CALL {
		return nil, store.ErrNotFound
	}
	out.Tool, out.Receipt, out.TraceId, out.ClaimTime, out.Durable = r.Tool, r.Name, r.TraceID, timestamppb.New(r.Sealed), true
	if f, err := factsOf(r); err == nil {
		out.Executor = f.Executor
	}
	return out, nil
}

// reverify checks a writ whose claim is not in the book any more: signature and issuer, not the time.
func (s *Server) reverify(ctx context.Context, signer Signer, writ string) (*writtoken.Claims, error) {
	_, claims, err := writtoken.Unverified(writ)
	if err != nil {
		return nil, err
	}
	thenNow := func() time.Time { return claims.NotBefore }
	return s.verifier(signer.Audience, thenNow).Verify(ctx, writ)
}

func pageTokenInvalid() error {
	return errs.New(codes.InvalidArgument, commonv1.ErrorReason_ERROR_REASON_PAGE_TOKEN_INVALID, "page_token",
		"the page token is not one of this list with this filter", "Begin again without a page token.")
}
