package gatewaytest

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/ids"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/toolname"
)

// sealed is a receipt with its opening.
type sealed struct {
	receipt *evidencev1.Receipt
	opening *evidencev1.Opening
}

// seal is what permission and executors have recorded. The first receipt of a call stays.
func (p *Plane) seal(name, executor string, o *commonv1.Outcome) *sealed {
	return p.sealWith(name, executor, o, p.argumentsOf(name))
}

func (p *Plane) argumentsOf(name string) []byte { return p.cardOf(name).GetArguments() }

func (p *Plane) sealWith(name, executor string, o *commonv1.Outcome, arguments []byte) *sealed {
	if s := p.receiptOf(name); s != nil && s.receipt.GetKind() == evidencev1.ReceiptKind_RECEIPT_KIND_CALL {
		return s
	}
	s := p.add(name, executor, evidencev1.ReceiptKind_RECEIPT_KIND_CALL, o, arguments)
	c := p.claims[name]
	if c == nil {
		c = &evidencev1.Claim{Call: name, Executor: executor}
		p.claims[name] = c
	}
	c.State, c.Durable, c.Receipt = evidencev1.ClaimState_CLAIM_STATE_SEALED, true, s.receipt.GetId()
	p.wake()
	return s
}

func (p *Plane) refusal(name, executor string, cause error) *commonv1.Outcome {
	o := &commonv1.Outcome{State: commonv1.OutcomeState_OUTCOME_STATE_REFUSED, Status: errs.Status(cause).Proto()}
	return p.add(name, executor, evidencev1.ReceiptKind_RECEIPT_KIND_REFUSAL, o, nil).opening.GetOutcome()
}

func (p *Plane) add(name, executor string, kind evidencev1.ReceiptKind, o *commonv1.Outcome, arguments []byte) *sealed {
	turnID, _, _ := toolname.ParseCall(name)
	turn := p.turns[turnID]
	o = proto.CloneOf(o)
	o.Receipt = ids.New("r_", rand.Reader)
	s := &sealed{
		receipt: &evidencev1.Receipt{
			Id: o.GetReceipt(), Kind: kind, Call: name, State: o.GetState(), Reason: receipt.StatusReason(o), Executor: executor,
			Principal: turn.GetPrincipal().GetId(), Conversation: turn.GetConversation(), SealTime: now(), Count: 1,
			Tool: identity(p.claims[name].GetTool()), TraceId: receipt.TraceID(p.traces[name]),
		},
		opening: &evidencev1.Opening{Arguments: arguments, Outcome: o},
	}
	p.receipts = append(p.receipts, s)
	return s
}

// receiptOf is the receipt of a call: its end, or the newest refusal.
func (p *Plane) receiptOf(name string) (found *sealed) {
	for _, s := range p.receipts {
		if s.receipt.GetCall() == name && (found == nil || found.receipt.GetKind() != evidencev1.ReceiptKind_RECEIPT_KIND_CALL) {
			found = s
		}
	}
	return found
}

// Receipts lists the receipts of a call, oldest first.
func (p *Plane) Receipts(call string) (list []*evidencev1.Receipt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.receipts {
		if s.receipt.GetCall() == call {
			list = append(list, s.receipt)
		}
	}
	return list
}

type claimService struct {
	evidencev1.UnimplementedClaimServiceServer
	p *Plane
}

func (s claimService) GetClaim(_ context.Context, req *evidencev1.GetClaimRequest) (*evidencev1.GetClaimResponse, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if err := s.p.goneLocked("evidence"); err != nil {
		return nil, err
	}
	c := s.p.claims[req.GetCall()]
	if c == nil {
		return nil, notFound(evidencev1.ErrorReason_ERROR_REASON_CLAIM_NOT_FOUND, req.GetCall())
	}
	return &evidencev1.GetClaimResponse{Claim: proto.CloneOf(c)}, nil
}

type receiptService struct {
	evidencev1.UnimplementedReceiptServiceServer
	p *Plane
}

func (s receiptService) GetReceipt(ctx context.Context, req *evidencev1.GetReceiptRequest) (*evidencev1.GetReceiptResponse, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if err := s.p.goneLocked("evidence"); err != nil {
		return nil, err
	}
	r := s.p.receiptOf(req.GetName())
	if r == nil || !sees(ctx, r.receipt.GetPrincipal()) {
		return nil, notFound(evidencev1.ErrorReason_ERROR_REASON_RECEIPT_NOT_FOUND, req.GetName())
	}
	answer := &evidencev1.GetReceiptResponse{Receipt: r.receipt}
	if who := subject(ctx); req.GetWithOpening() && (who == nil || who.GetId() == r.receipt.GetPrincipal()) {
		answer.Opening = r.opening
	}
	return answer, nil
}

func (s receiptService) ListReceipts(ctx context.Context, req *evidencev1.ListReceiptsRequest) (*evidencev1.ListReceiptsResponse, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if err := s.p.goneLocked("evidence"); err != nil {
		return nil, err
	}
	answer := &evidencev1.ListReceiptsResponse{}
	skip, _ := strconv.Atoi(req.GetPageToken())
	for i := len(s.p.receipts) - 1 - skip; i >= 0; i-- {
		skip++
		r := s.p.receipts[i].receipt
		if !sees(ctx, r.GetPrincipal()) || req.GetTurn() != "" && !strings.HasPrefix(r.GetCall(), toolname.Turn(req.GetTurn())+"/") ||
			req.GetConversation() != "" && req.GetConversation() != r.GetConversation() {
			continue
		}
		if answer.Receipts = append(answer.Receipts, r); len(answer.Receipts) == int(req.GetPageSize()) {
			answer.NextPageToken = strconv.Itoa(skip)
			break
		}
	}
	return answer, nil
}

// Seal takes what the gateway ended itself, as evidence-svc reads it: from the signed statement.
func (s receiptService) Seal(_ context.Context, req *evidencev1.SealRequest) (*evidencev1.SealResponse, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if err := s.p.goneLocked("evidence"); err != nil {
		return nil, err
	}
	statement, _, err := receipt.Unverified(req.GetStatementEnvelope())
	if err != nil {
		return nil, err
	}
	f, err := receipt.Parse(statement)
	if err != nil {
		return nil, errs.New(codes.InvalidArgument, evidencev1.ErrorReason_ERROR_REASON_STATEMENT_INVALID, "", err.Error(), "")
	}
	o := req.GetOpening().GetOutcome()
	if f.Kind == evidencev1.ReceiptKind_RECEIPT_KIND_REFUSAL {
		r := s.p.add(f.Call, f.Executor, f.Kind, o, req.GetOpening().GetArguments())
		return &evidencev1.SealResponse{Receipt: r.receipt}, nil
	}
	if c := s.p.claims[f.Call]; c != nil {
		return nil, errs.New(codes.FailedPrecondition, evidencev1.ErrorReason_ERROR_REASON_CLAIM_TAKEN, f.Call, "the call is claimed", "")
	}
	r := s.p.sealWith(f.Call, f.Executor, o, req.GetOpening().GetArguments())
	return &evidencev1.SealResponse{Receipt: r.receipt}, nil
}
