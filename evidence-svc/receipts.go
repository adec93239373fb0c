package evidence

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/writ-dev/writ/evidence-svc/internal/store"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/receipt"
)

// factsOf reads a stored statement, which was verified when it was sealed.
func factsOf(r store.Receipt) (receipt.Facts, error) {
	statement, _, err := receipt.Unverified(r.Statement)
	if err != nil {
		return receipt.Facts{}, err
	}
	return receipt.Parse(statement)
}

// receiptMessage shows a receipt: the envelopes, and what the statement says as an index over it.
func receiptMessage(r store.Receipt) (*evidencev1.Receipt, error) {
	f, err := factsOf(r)
	if err != nil {
		return nil, err
	}
	return receiptWith(r, f), nil
}

func receiptWith(r store.Receipt, f receipt.Facts) *evidencev1.Receipt {
	m := &evidencev1.Receipt{
		Id: r.Name, Kind: r.Kind, Call: f.Call, State: f.State, Reason: f.Reason, Tool: f.Tool, Principal: r.Principal,
		Agent: f.Agent, Conversation: f.Conversation, Executor: f.Executor, TraceId: f.TraceID, SealTime: timestamppb.New(r.Sealed),
		Sequence: r.Sequence, StatementEnvelope: r.Statement, CountersignatureEnvelope: r.Countersignature, Count: r.Count,
		Decision: decisionText(f.Decision), Card: f.Decision.Card, Enforcement: f.Enforcement,
	}
	if !f.Begin.IsZero() && !f.End.IsZero() {
		m.DurationUs = f.End.Sub(f.Begin).Microseconds()
	}
	return m
}

// decisionText is "d_… (card): manual mode asks for processes".
func decisionText(d receipt.Decision) string {
	text := d.ID
	if d.Cause != "" {
		text += " (" + d.Cause + ")"
	}
	if d.Why != "" {
		text += ": " + d.Why
	}
	return strings.TrimSpace(text)
}

// GetReceipt implements ReceiptService.
func (s *Server) GetReceipt(ctx context.Context, req *evidencev1.GetReceiptRequest) (*evidencev1.GetReceiptResponse, error) {
	v, err := viewerOf(ctx)
	if err != nil {
		return nil, err
	}
	missing := notFound(evidencev1.ErrorReason_ERROR_REASON_RECEIPT_NOT_FOUND, "receipt", req.GetName())
	r, err := s.findReceipt(ctx, v, req.GetName())
	if errors.Is(err, store.ErrNotFound) {
		return nil, missing
	}
	if err != nil {
		return nil, storeError(err)
	}
	if !v.sees(r.Namespace, r.Principal) {
		return nil, missing
	}
	answer := &evidencev1.GetReceiptResponse{}
	if answer.Receipt, err = receiptMessage(r); err != nil {
		return nil, err
	}
	if req.GetWithOpening() && v.seesOpening(self(ctx), r.Principal) {
		if answer.Opening, err = s.loadOpening(ctx, r); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

func (s *Server) findReceipt(ctx context.Context, v viewer, name string) (store.Receipt, error) {
	if strings.HasPrefix(name, "turns/") {
		return s.store.ReceiptOfCall(ctx, v.namespace, name)
	}
	return s.store.Receipt(ctx, name)
}

// loadOpening returns the opening as it was sealed, with the outcome as it was answered: with the receipt's id. It is
// nil once it was erased.
func (s *Server) loadOpening(ctx context.Context, r store.Receipt) (*evidencev1.Opening, error) {
	stored, err := s.store.Opening(ctx, r.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, storeError(err)
	}
	o := &evidencev1.Opening{}
	if err := proto.Unmarshal(stored.Body, o); err != nil {
		return nil, err
	}
	if o.Writ == "" && r.Kind == evidencev1.ReceiptKind_RECEIPT_KIND_CALL {
		// A durable claim holds the writ already.
		c, err := s.store.FindClaim(ctx, r.Namespace, r.Call)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, storeError(err)
		}
		o.Writ = c.Writ
	}
	if stored.Arguments != 0 {
		if o.Arguments, err = s.readPayload(ctx, stored.Arguments); err != nil {
			return nil, err
		}
	}
	if stored.Result != 0 {
		if o.Outcome.Result, err = s.readPayload(ctx, stored.Result); err != nil {
			return nil, err
		}
	}
	if o.GetOutcome() != nil {
		o.Outcome.Receipt = r.Name
	}
	return o, nil
}

// Pages of ListReceipts. An envelope may have 64 KiB, a message 4 MiB.
const (
	defaultPage = 50
	maxPage     = 1000
	pageBytes   = 3 << 20
)

// ListReceipts implements ReceiptService.
func (s *Server) ListReceipts(ctx context.Context, req *evidencev1.ListReceiptsRequest) (*evidencev1.ListReceiptsResponse, error) {
	v, err := viewerOf(ctx)
	if err != nil {
		return nil, err
	}
	size := int(req.GetPageSize())
	switch {
	case size == 0:
		size = defaultPage
	case size > maxPage:
		size = maxPage
	}
	f := store.Filter{
		Namespace: v.namespace, Principal: v.principal, Turn: req.GetTurn(), Conversation: req.GetConversation(),
		Tool: req.GetTool(), State: req.GetState(), Kind: req.GetKind(), Limit: size + 1,
	}
	if f.Before, err = pageStart(req.GetPageToken(), f); err != nil {
		return nil, err
	}
	list, err := s.store.List(ctx, f)
	if err != nil {
		return nil, storeError(err)
	}
	answer := &evidencev1.ListReceiptsResponse{}
	bytes := 0
	for i, r := range list {
		if bytes += len(r.Statement) + len(r.Countersignature); i == size || i > 0 && bytes > pageBytes {
			answer.NextPageToken = pageToken(list[i-1].Sequence, f)
			break
		}
		m, err := receiptMessage(r)
		if err != nil {
			return nil, err
		}
		answer.Receipts = append(answer.Receipts, m)
	}
	return answer, nil
}

// pageToken holds where the next page begins, and a hash of what it is a page of.
func pageToken(sequence int64, f store.Filter) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(sequence))
	return base64.RawURLEncoding.EncodeToString(append(b, filterHash(f)...))
}

func pageStart(token string, f store.Filter) (int64, error) {
	if token == "" {
		return 0, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) != 16 || string(b[8:]) != string(filterHash(f)) || int64(binary.BigEndian.Uint64(b)) <= 0 {
		return 0, pageTokenInvalid()
	}
	return int64(binary.BigEndian.Uint64(b)), nil
}

func filterHash(f store.Filter) []byte {
	sum := sha256.Sum256([]byte(strings.Join([]string{f.Namespace, f.Principal, f.Turn, f.Conversation, f.Tool,
		strconv.Itoa(int(f.State)), strconv.Itoa(int(f.Kind))}, "\x00")))
	return sum[:8]
}
