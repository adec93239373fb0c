package evidence

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/writ-dev/writ/clients/go/writtoken"
	"github.com/writ-dev/writ/evidence-svc/internal/claim"
	"github.com/writ-dev/writ/evidence-svc/internal/seal"
	"github.com/writ-dev/writ/evidence-svc/internal/store"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/ids"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/telemetry"
)

// sealing is one Seal on its way.
type sealing struct {
	peer     string
	signer   Signer
	facts    receipt.Facts
	req      *evidencev1.SealRequest
	opening  *evidencev1.Opening
	need     seal.Need
	claim    int64 // durable claim that the receipt ends
	verified []string
}

func (w *sealing) key() claim.Key {
	return claim.Key{Namespace: w.facts.Namespace, Call: w.facts.Call}
}

// Seal implements ReceiptService.
func (s *Server) Seal(ctx context.Context, req *evidencev1.SealRequest) (*evidencev1.SealResponse, error) {
	w, err := s.openStatement(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := s.checkPayloads(w.opening); err != nil {
		return nil, err
	}
	if done, err := s.checkClaim(ctx, w); done != nil || err != nil {
		return done, err
	}
	checked, err := seal.AgainstOpening(w.facts, w.opening, blobReader{ctx, s, w.facts.Namespace})
	if err != nil {
		return nil, statementInvalid(err)
	}
	w.verified = append(w.verified, checked...)
	if err := s.checkBlobs(ctx, w); err != nil {
		return nil, err
	}
	if w.facts.Kind == evidencev1.ReceiptKind_RECEIPT_KIND_REFUSAL {
		return s.sealRefusal(ctx, w)
	}
	r, err := s.commit(ctx, w)
	if err != nil {
		return nil, err
	}
	// What was committed is what w says, or the same bytes.
	return &evidencev1.SealResponse{Receipt: receiptWith(r, w.facts)}, nil
}

// openStatement verifies the envelope with the peer's keys and reads the statement.
func (s *Server) openStatement(ctx context.Context, req *evidencev1.SealRequest) (*sealing, error) {
	peer, only, err := peerOf(ctx)
	if err != nil {
		return nil, err
	}
	signer, err := s.signer(peer)
	if err != nil {
		return nil, err
	}
	statement, _, err := receipt.Verify(req.GetStatementEnvelope(), func(id string) (ed25519.PublicKey, bool) {
		key, ok := signer.Keys[id]
		return key, ok
	})
	if err != nil {
		return nil, statementInvalid(err)
	}
	f, err := receipt.Parse(statement)
	if err != nil {
		return nil, statementInvalid(err)
	}
	w := &sealing{peer: peer, signer: signer, facts: f, req: req, opening: req.GetOpening(), verified: []string{seal.Signature, seal.Executor}}
	switch {
	case f.Executor != peer:
		err = &seal.Mismatch{Field: "predicate.executor", Got: f.Executor, Want: peer}
	case f.Namespace != req.GetNamespace():
		err = &seal.Mismatch{Field: "predicate.namespace", Got: f.Namespace, Want: req.GetNamespace()}
	case only != "" && f.Namespace != only:
		err = &seal.Mismatch{Field: "predicate.namespace", Got: f.Namespace, Want: only}
	case w.opening == nil:
		err = &seal.Mismatch{Field: "opening", Got: "missing", Want: "what the statement commits to"}
	}
	if err != nil {
		return nil, statementInvalid(err)
	}
	w.need = seal.NeedOf(f, req.GetClaimToken() != "")
	return w, nil
}

func (s *Server) checkPayloads(o *evidencev1.Opening) error {
	if n := int64(len(o.GetArguments())); n > s.limits.ArgumentsMaxBytes {
		return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "arguments_max_bytes", s.limits.ArgumentsMaxBytes, n, "Refuse such arguments at the door.")
	}
	if n := int64(len(o.GetOutcome().GetResult())); n > s.limits.ResultsInlineMaxBytes {
		return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "results_inline_max_bytes", s.limits.ResultsInlineMaxBytes, n, "Put the result as a blob and name it in result_blob.")
	}
	if n := int64(proto.Size(o)); n > 4<<20 || len(o.GetWrit()) > writtoken.MaxTokenBytes {
		return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "opening_max_bytes", 4<<20, n, "Put large payloads as blobs.")
	}
	return nil
}

// checkClaim holds the statement against the claim or makes sure that there is none. It answers itself when exactly
// these bytes are sealed already.
func (s *Server) checkClaim(ctx context.Context, w *sealing) (*evidencev1.SealResponse, error) {
	switch w.need {
	case seal.TakesClaim:
		if open := s.book.Get(w.key()); open != nil {
			return nil, claimTaken(w.facts.Call, &store.Taken{Executor: open.Executor})
		}
		w.verified = append(w.verified, seal.ClaimTaken)
		return nil, nil
	case seal.NeedsNothing:
		return nil, nil
	}
	entry := s.book.Get(w.key())
	if entry == nil || !entry.Durable() && entry.Claims.ID != w.facts.WritID {
		return s.checkForgotten(ctx, w)
	}
	if entry.Executor != w.peer || !s.tokens.Valid(w.req.GetClaimToken(), w.facts.Namespace, w.facts.Call, w.peer, entry.Claims.ID) {
		return nil, claimTokenInvalid(w.facts.Call)
	}
	if given := w.opening.GetWrit(); given != "" && given != entry.Writ {
		return nil, statementInvalid(&seal.Mismatch{Field: "opening.writ", Got: "another writ", Want: "the one that was claimed with"})
	}
	if err := seal.AgainstClaims(w.facts, entry.Claims); err != nil {
		return nil, statementInvalid(err)
	}
	w.opening.Writ, w.claim = entry.Writ, entry.ID
	w.verified = append(w.verified, seal.Claimed, seal.Writ, seal.WritTime)
	return nil, nil
}

// checkForgotten is for a call without a claim in the book: sealed already, or a read whose reservation was forgotten
// and whose token and writ prove that it was made.
func (s *Server) checkForgotten(ctx context.Context, w *sealing) (*evidencev1.SealResponse, error) {
	if done, err := s.sealedAlready(ctx, w); done != nil || err != nil {
		return done, err
	}
	if !s.tokens.Valid(w.req.GetClaimToken(), w.facts.Namespace, w.facts.Call, w.peer, w.facts.WritID) {
		return nil, claimTokenInvalid(w.facts.Call)
	}
	claims, err := s.reverify(ctx, w.signer, w.opening.GetWrit())
	if err != nil {
		return nil, writRefused(err)
	}
	if err := seal.AgainstClaims(w.facts, claims); err != nil {
		return nil, statementInvalid(err)
	}
	w.verified = append(w.verified, seal.Claimed, seal.Writ)
	return nil, nil
}

// sealedAlready answers with the receipt when it is over exactly these bytes, and with CLAIM_TAKEN when it is over
// others. It answers nothing when the call has not ended.
func (s *Server) sealedAlready(ctx context.Context, w *sealing) (*evidencev1.SealResponse, error) {
	r, err := s.store.ReceiptOfCall(ctx, w.facts.Namespace, w.facts.Call)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, storeError(err)
	case r.Kind != evidencev1.ReceiptKind_RECEIPT_KIND_CALL:
		return nil, nil
	case r.Digest == sha256.Sum256(w.req.GetStatementEnvelope()):
		return answerSealed(r)
	}
	executor := ""
	if f, err := factsOf(r); err == nil {
		executor = f.Executor
	}
	return nil, claimTaken(w.facts.Call, &store.Taken{Receipt: r.Name, Executor: executor})
}

// commit countersigns and stores, in one commit, and takes the claim out of the book.
func (s *Server) commit(ctx context.Context, w *sealing) (store.Receipt, error) {
	now := s.now().UTC().Truncate(time.Microsecond) // as the store keeps it
	name := ids.At("r_", now, rand.Reader)
	counter, err := s.countersign(name, w, now)
	if err != nil {
		return store.Receipt{}, err
	}
	opening, err := s.storeOpening(ctx, w)
	if err != nil {
		return store.Receipt{}, err
	}
	in := store.Sealing{Receipt: rowOf(name, w.facts, now), Opening: opening, Claim: w.claim,
		// A read that was reserved only must not overtake a durable claim either.
		TakesClaim: w.need == seal.TakesClaim || w.need == seal.NeedsClaim && w.claim == 0}
	in.Receipt.Statement, in.Receipt.Countersignature = w.req.GetStatementEnvelope(), counter
	ctx, span := s.tracer.Start(ctx, telemetry.SpanCommit, trace.WithAttributes(telemetry.Receipt.String(name)))
	defer span.End()
	r, err := s.store.Seal(ctx, in)
	var taken *store.Taken
	if errors.As(err, &taken) {
		return s.sameBytes(ctx, w, taken)
	}
	if err != nil {
		return r, storeError(err)
	}
	if w.facts.Kind == evidencev1.ReceiptKind_RECEIPT_KIND_CALL {
		s.book.Remove(w.key())
	}
	return r, nil
}

// sameBytes returns the receipt that was faster, if it is over the same bytes.
func (s *Server) sameBytes(ctx context.Context, w *sealing, taken *store.Taken) (r store.Receipt, err error) {
	digest := sha256.Sum256(w.req.GetStatementEnvelope())
	if w.facts.Kind == evidencev1.ReceiptKind_RECEIPT_KIND_CALL {
		r, err = s.store.ReceiptOfCall(ctx, w.facts.Namespace, w.facts.Call)
	} else {
		r, err = s.store.ReceiptOfDigest(ctx, digest)
	}
	if err == nil && r.Digest == digest {
		return r, nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return r, storeError(err)
	}
	return r, claimTaken(w.facts.Call, taken)
}

func (s *Server) countersign(name string, w *sealing, now time.Time) ([]byte, error) {
	statement, err := receipt.CounterStatement(receipt.Countersignature{
		Receipt: name, Namespace: w.facts.Namespace, Service: service, Peer: w.peer, Sealed: now, Verified: w.verified,
		Digest: receipt.Digest(w.req.GetStatementEnvelope()),
	})
	if err != nil {
		return nil, statementInvalid(err)
	}
	return receipt.Sign(statement, s.cfg.KeyID, s.cfg.Key)
}

// rowOf is what a receipt is searched by.
func rowOf(name string, f receipt.Facts, now time.Time) store.Receipt {
	r := store.Receipt{
		Namespace: f.Namespace, Name: name, Kind: f.Kind, Call: f.Call, State: f.State, Tool: f.Tool.GetTool(),
		Conversation: f.Conversation, Card: f.Decision.Card, TraceID: f.TraceID, Sealed: now,
	}
	if len(f.Principals) > 0 {
		r.Principal = f.Principals[0].GetId()
	}
	return r
}

// storeOpening makes large payloads durable as blobs and returns the rest as bytes.
func (s *Server) storeOpening(ctx context.Context, w *sealing) (out store.Opening, err error) {
	o := &evidencev1.Opening{
		Arguments: w.opening.GetArguments(), ArgumentsSalt: w.opening.GetArgumentsSalt(), Outcome: w.opening.GetOutcome(),
		ResultSalt: w.opening.GetResultSalt(), Writ: w.opening.GetWrit(), Blobs: w.opening.GetBlobs(),
	}
	if w.claim != 0 {
		o.Writ = "" // it lies in the claim
	}
	if int64(len(o.Arguments)) > s.limits.PayloadRowMaxBytes {
		if out.Arguments, err = s.keepPayload(ctx, w.facts.Namespace, o.Arguments); err != nil {
			return out, err
		}
		o.Arguments = nil
	}
	if result := o.GetOutcome().GetResult(); int64(len(result)) > s.limits.PayloadRowMaxBytes {
		if out.Result, err = s.keepPayload(ctx, w.facts.Namespace, result); err != nil {
			return out, err
		}
		// The request belongs to the caller, who may send it again.
		o.Outcome = proto.CloneOf(o.Outcome)
		o.Outcome.Result = nil
	}
	out.Body, err = proto.Marshal(o)
	return out, err
}

// sealRefusal counts an identical refusal that came within the window in the receipt of the first.
func (s *Server) sealRefusal(ctx context.Context, w *sealing) (*evidencev1.SealResponse, error) {
	kind := refusalOf(w.peer, w.facts)
	unlock := s.refusals.lock(kind)
	defer unlock()
	digest := sha256.Sum256(w.req.GetStatementEnvelope())
	first, known, again := s.refusals.find(kind, digest, s.now())
	if !known {
		r, err := s.commit(ctx, w)
		if err != nil {
			return nil, err
		}
		s.refusals.remember(kind, r, digest, s.now())
		return answerSealed(r)
	}
	if !again {
		if err := s.store.Repeat(ctx, first.ID, s.now()); err != nil {
			return nil, storeError(err)
		}
		s.refusals.repeated(kind, digest)
		first.Count++
	}
	return answerSealed(first)
}

func answerSealed(r store.Receipt) (*evidencev1.SealResponse, error) {
	m, err := receiptMessage(r)
	if err != nil {
		return nil, err
	}
	return &evidencev1.SealResponse{Receipt: m}, nil
}

// checkBlobs makes sure that every blob that the opening names is there as it is named: a receipt never points at
// bytes that are not durable.
func (s *Server) checkBlobs(ctx context.Context, w *sealing) error {
	for i, ref := range w.opening.GetBlobs() {
		if i == receipt.MaxList {
			return errs.Limit(commonv1.ErrorReason_ERROR_REASON_LIMIT_EXCEEDED, "opening_blobs_max", receipt.MaxList, int64(len(w.opening.GetBlobs())), "Name fewer blobs.")
		}
		if _, err := s.blobOf(ctx, w.facts.Namespace, ref); err != nil {
			return err
		}
	}
	return nil
}

// blobOf finds a referenced blob and compares what the reference says.
func (s *Server) blobOf(ctx context.Context, namespace string, ref *commonv1.BlobRef) (store.Blob, error) {
	b, err := s.store.Blob(ctx, ref.GetHandle())
	if err == nil && b.Namespace != namespace || errors.Is(err, store.ErrNotFound) {
		return b, errs.New(codes.FailedPrecondition, evidencev1.ErrorReason_ERROR_REASON_BLOB_NOT_FOUND, ref.GetHandle(),
			"the opening names the blob "+ref.GetHandle()+", which is not there", "Put the blob first.")
	}
	if err != nil {
		return b, storeError(err)
	}
	if b.SHA256 != ref.GetSha256() || b.Size != ref.GetSize() {
		return b, errs.New(codes.FailedPrecondition, evidencev1.ErrorReason_ERROR_REASON_BLOB_DIGEST_MISMATCH, ref.GetHandle(),
			"the blob has another digest or size than the opening says", "Name the blob as PutBlob did.",
			"expected", ref.GetSha256()+" "+strconv.FormatInt(ref.GetSize(), 10), "got", b.SHA256+" "+strconv.FormatInt(b.Size, 10))
	}
	return b, nil
}
