package evidence_test

import (
	"slices"
	"testing"

	"github.com/writ-dev/writ/clients/go/writtoken"
	evidence "github.com/writ-dev/writ/evidence-svc"
	"github.com/writ-dev/writ/evidence-svc/evidencetest"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/auth"
	"github.com/writ-dev/writ/internal/testkit"
)

// tenants are "caller" and "approver" of namespace default, "mate" beside them, and "stranger" and "boss" of another.
func tenants(t testing.TB) *evidencetest.Server {
	stranger, boss := testkit.Caller("stranger"), testkit.Approver("boss")
	for _, c := range []*auth.Credential{&stranger, &boss} {
		c.Namespace, c.Principal.Namespace = "other", "other"
	}
	return evidencetest.New(t, evidence.Config{}, []auth.Credential{testkit.Caller("mate"), stranger, boss})
}

func TestWhoSeesAReceipt(t *testing.T) { // R109; design: trust 1 and 6
	s := tenants(t)
	mine := newCall(t, nil)
	r := run(t, s, mine)
	for token, want := range map[string]struct{ receipt, opening bool }{
		"caller": {true, true}, "mate": {}, "approver": {true, false}, "stranger": {}, "boss": {},
	} {
		for _, name := range []string{r.GetId(), mine.name} {
			got, err := s.Receipts(token).GetReceipt(t.Context(), &evidencev1.GetReceiptRequest{Name: name, WithOpening: true})
			if !want.receipt {
				wantReason(t, err, "RECEIPT_NOT_FOUND")
				continue
			}
			if err != nil || (got.GetOpening() != nil) != want.opening {
				t.Errorf("%s: opening %v, %v", token, got.GetOpening() != nil, err)
			}
		}
		list, err := s.Receipts(token).ListReceipts(t.Context(), &evidencev1.ListReceiptsRequest{})
		if err != nil || (len(list.GetReceipts()) == 1) != want.receipt {
			t.Errorf("%s lists %d receipts, %v", token, len(list.GetReceipts()), err)
		}
	}
	service := evidencev1.NewReceiptServiceClient(s.As("gateway"))
	got, err := service.GetReceipt(t.Context(), &evidencev1.GetReceiptRequest{Name: mine.name, WithOpening: true})
	if err != nil || got.GetOpening() == nil {
		t.Errorf("a service: %v", err)
	}
	// A service that asks for somebody sees what that one sees.
	ctx := auth.OnBehalfOf(t.Context(), &commonv1.Principal{Id: "mate", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT, Namespace: "default"})
	_, err = service.GetReceipt(ctx, &evidencev1.GetReceiptRequest{Name: mine.name})
	wantReason(t, err, "RECEIPT_NOT_FOUND")
}

func TestACallerCantClaimSealOrPut(t *testing.T) {
	s := tenants(t)
	for _, token := range []string{"caller", "approver"} {
		conn := s.Channel.WithToken(token)
		_, err := evidencev1.NewClaimServiceClient(conn).Claim(t.Context(), &evidencev1.ClaimRequest{Writ: newCall(t, nil).writ})
		wantReason(t, err, "ACCESS_DENIED")
		_, err = evidencev1.NewReceiptServiceClient(conn).Seal(t.Context(), &evidencev1.SealRequest{StatementEnvelope: []byte("{}")})
		wantReason(t, err, "ACCESS_DENIED")
		_, err = evidencev1.NewClaimServiceClient(conn).ListOpenClaims(t.Context(), &evidencev1.ListOpenClaimsRequest{})
		wantReason(t, err, "ACCESS_DENIED")
	}
}

func TestSequencesHaveNoGapsAndAreOfTheNamespace(t *testing.T) { // R104
	s := tenants(t)
	other := func(c *writtoken.Claims) { c.Namespace = "other" }
	for i := range int64(5) {
		if r := run(t, s, newCall(t, nil)); r.GetSequence() != i+1 {
			t.Errorf("sequence %d, want %d", r.GetSequence(), i+1)
		}
		// A seal that fails takes no number.
		c := newCall(t, nil)
		f, o := c.completed(`{}`)
		_, err := s.Sealer("exec").Seal(t.Context(), f, o, "wrong")
		wantReason(t, err, "CLAIM_TOKEN_INVALID")
		if i%2 == 0 {
			if r := run(t, s, newCall(t, other)); r.GetSequence() != i/2+1 {
				t.Errorf("the other namespace: sequence %d, want %d", r.GetSequence(), i/2+1)
			}
		}
	}
}

func TestListsPageAndFilter(t *testing.T) { // R106
	s := tenants(t)
	var want []string
	for i := range 7 {
		conversation := []string{"a", "b"}[i%2]
		r := run(t, s, newCall(t, func(c *writtoken.Claims) { c.Conversation = conversation }))
		if conversation == "a" {
			want = append(want, r.GetId())
		}
	}
	slices.Reverse(want)
	var got []string
	req := &evidencev1.ListReceiptsRequest{PageSize: 3, Conversation: "a"}
	for {
		page, err := s.Receipts("approver").ListReceipts(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.GetReceipts() {
			got = append(got, r.GetId())
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			break
		}
		_, err = s.Receipts("approver").ListReceipts(t.Context(), &evidencev1.ListReceiptsRequest{PageToken: req.PageToken, Conversation: "b"})
		wantReason(t, err, "PAGE_TOKEN_INVALID")
		_, err = s.Receipts("caller").ListReceipts(t.Context(), req)
		wantReason(t, err, "PAGE_TOKEN_INVALID")
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	c := newCall(t, nil)
	r := run(t, s, c)
	for name, req := range map[string]*evidencev1.ListReceiptsRequest{
		"turn":  {Turn: c.claims.Turn},
		"state": {State: commonv1.OutcomeState_OUTCOME_STATE_COMPLETED, Turn: c.claims.Turn},
		"tool":  {Tool: "run_command", Turn: c.claims.Turn},
		"kind":  {Kind: evidencev1.ReceiptKind_RECEIPT_KIND_CALL, Turn: c.claims.Turn},
	} {
		page, err := s.Receipts("caller").ListReceipts(t.Context(), req)
		if err != nil || len(page.GetReceipts()) != 1 || page.GetReceipts()[0].GetId() != r.GetId() {
			t.Errorf("%s: %v %v", name, page, err)
		}
	}
}
