package evidence_test

import (
	"context"
	"crypto/ed25519"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/writ-dev/writ/clients/go/writtoken"
	evidence "github.com/writ-dev/writ/evidence-svc"
	"github.com/writ-dev/writ/evidence-svc/evidencetest"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/receipt"
	"github.com/writ-dev/writ/internal/testkit"
)

const arguments = `{"line":"echo 9007199254740993"}`

func start(t testing.TB) *evidencetest.Server {
	testkit.NoLeaks(t)
	return evidencetest.New(t, evidence.Config{}, nil)
}

// call is one call with its writ.
type call struct {
	claims writtoken.Claims
	writ   string
	name   string
}

func newCall(t testing.TB, change func(*writtoken.Claims)) call {
	t.Helper()
	c := evidencetest.Writ([]byte(arguments))
	if change != nil {
		change(&c)
	}
	return call{claims: c, writ: evidencetest.Mint(t, c), name: "turns/" + c.Turn + "/calls/" + c.Call}
}

func read(c *writtoken.Claims) { c.Class = "read" }

// completed is the outcome and opening of a call that ran.
func (c call) completed(result string) (receipt.Facts, *evidencev1.Opening) {
	begin := c.claims.NotBefore
	return receipt.FromClaims(&c.claims), &evidencev1.Opening{
		Arguments: []byte(arguments), ArgumentsSalt: c.claims.Args.Salt, Writ: c.writ,
		Outcome: &commonv1.Outcome{
			State: commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, Result: []byte(result),
			BeginTime: timestamppb.New(begin), EndTime: timestamppb.New(begin.Add(1e6)),
			Enforcement: &commonv1.Enforcement{Isolation: commonv1.Isolation_ISOLATION_ISOLATED, Network: commonv1.NetworkMode_NETWORK_MODE_NONE, Pid: 7},
		},
	}
}

// ended is the outcome and opening of a call that did not run.
func (c call) ended(state commonv1.OutcomeState, reason string) (receipt.Facts, *evidencev1.Opening) {
	info, err := anypb.New(&errdetails.ErrorInfo{Reason: reason, Domain: errs.Domain})
	if err != nil {
		panic(err)
	}
	f := receipt.FromClaims(&c.claims)
	f.WritID = ""
	return f, &evidencev1.Opening{
		Arguments: []byte(arguments), ArgumentsSalt: c.claims.Args.Salt,
		Outcome: &commonv1.Outcome{State: state, Status: &rpcstatus.Status{Code: int32(codes.PermissionDenied), Message: "no", Details: []*anypb.Any{info}}},
	}
}

func claimed(t testing.TB, s *evidencetest.Server, c call) *evidencev1.Claim {
	t.Helper()
	answer, err := s.Claims("exec").Claim(t.Context(), &evidencev1.ClaimRequest{Writ: c.writ})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetClaim()
}

func sealed(t testing.TB, s *evidencetest.Server, c call, token string) *evidencev1.Receipt {
	t.Helper()
	f, o := c.completed(`{"n":9007199254740993}`)
	r, err := s.Sealer("exec").Seal(t.Context(), f, o, token)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// run claims and seals a call.
func run(t testing.TB, s *evidencetest.Server, c call) *evidencev1.Receipt {
	t.Helper()
	return sealed(t, s, c, claimed(t, s, c).GetClaimToken())
}

// wantReason fails unless err has the reason, and returns its metadata.
func wantReason(t testing.TB, err error, reason string) map[string]string {
	t.Helper()
	if got := errs.ReasonOf(err); got != reason {
		t.Fatalf("got %q (%v), want %s", got, err, reason)
	}
	return errs.Metadata(err)
}

// verify checks a receipt with nothing but what ListReceiptKeys publishes.
func verify(ctx context.Context, t testing.TB, s *evidencetest.Server, r *evidencev1.Receipt) (receipt.Facts, receipt.Countersignature) {
	t.Helper()
	answer, err := s.Receipts("caller").ListReceiptKeys(ctx, &evidencev1.ListReceiptKeysRequest{})
	if err != nil {
		t.Fatal(err)
	}
	f, c, err := receipt.Check(r.GetStatementEnvelope(), r.GetCountersignatureEnvelope(), func(id string) (string, ed25519.PublicKey, bool) {
		for _, k := range answer.GetKeys() {
			if k.GetKeyId() == id {
				return k.GetService(), k.GetPublicKey(), true
			}
		}
		return "", nil, false
	})
	if err != nil {
		t.Fatalf("receipt %s does not verify: %v", r.GetId(), err)
	}
	return f, c
}
