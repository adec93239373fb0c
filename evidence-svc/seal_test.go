package evidence_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/writ-dev/writ/clients/go/writtoken"
	evidence "github.com/writ-dev/writ/evidence-svc"
	"github.com/writ-dev/writ/evidence-svc/evidencetest"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/receipt"
)

func TestACallIsClaimedOnceAndItsReceiptVerifies(t *testing.T) { // R100, R105, R109
	s := start(t)
	c := newCall(t, nil)
	mark := claimed(t, s, c)
	if !mark.GetDurable() || mark.GetCall() != c.name || mark.GetTool() != "run_command" || mark.GetTraceId() == "" {
		t.Errorf("claim %v", mark)
	}
	_, err := s.Claims("exec").Claim(t.Context(), &evidencev1.ClaimRequest{Writ: c.writ})
	if m := wantReason(t, err, "CLAIM_TAKEN"); m["executor"] != "exec" || m["receipt"] != "" {
		t.Errorf("metadata %v", m)
	}
	r := sealed(t, s, c, mark.GetClaimToken())
	f, counter := verify(t.Context(), t, s, r)
	if f.Enforcement.GetNetwork() != commonv1.NetworkMode_NETWORK_MODE_NONE || r.GetEnforcement().GetPid() != 7 || r.GetDurationUs() != 1000 {
		t.Errorf("receipt %v", r)
	}
	for _, word := range []string{"signature", "executor", "claim", "writ", "writ_time", "arguments", "result", "outcome"} {
		if !slices.Contains(counter.Verified, word) {
			t.Errorf("not verified: %s, only %v", word, counter.Verified)
		}
	}
	_, err = s.Claims("exec").Claim(t.Context(), &evidencev1.ClaimRequest{Writ: c.writ})
	if m := wantReason(t, err, "CLAIM_TAKEN"); m["receipt"] != r.GetId() || m["name"] != c.name {
		t.Errorf("metadata %v", m)
	}
}

func TestTheRecordHoldsTheBytesAsTheyWere(t *testing.T) { // R73, R46
	s := start(t)
	c := newCall(t, nil)
	r := run(t, s, c)
	for _, name := range []string{r.GetId(), c.name} {
		got, err := s.Receipts("caller").GetReceipt(t.Context(), &evidencev1.GetReceiptRequest{Name: name, WithOpening: true})
		if err != nil {
			t.Fatal(err)
		}
		o := got.GetOpening()
		if string(o.GetArguments()) != arguments || string(o.GetOutcome().GetResult()) != `{"n":9007199254740993}` {
			t.Errorf("%s: opening %q %q", name, o.GetArguments(), o.GetOutcome().GetResult())
		}
		if o.GetOutcome().GetReceipt() != r.GetId() || o.GetWrit() != c.writ {
			t.Errorf("%s: opening %v", name, o)
		}
		if !proto.Equal(got.GetReceipt(), r) {
			t.Errorf("%s: another receipt than Seal answered: %v", name, got.GetReceipt())
		}
	}
	for _, secret := range []string{"9007199254740993", base64.StdEncoding.EncodeToString(c.claims.Args.Salt)} {
		statement, _, _ := receipt.Unverified(r.GetStatementEnvelope())
		if bytes.Contains(statement, []byte(secret)) {
			t.Errorf("the statement holds %q", secret)
		}
	}
}

func TestLargePayloadsComeBackWhole(t *testing.T) { // R73, R104
	s := start(t)
	large := `{"text":"` + strings.Repeat("ä€𝄞x", 90_000) + `"}`
	c := newCall(t, func(c *writtoken.Claims) { c.Args = writtoken.NewArgs(c.Args.Salt, []byte(large)) })
	mark := claimed(t, s, c)
	f, o := c.completed(large)
	o.Arguments = []byte(large)
	r, err := s.Sealer("exec").Seal(t.Context(), f, o, mark.GetClaimToken())
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Receipts("caller").GetReceipt(t.Context(), &evidencev1.GetReceiptRequest{Name: r.GetId(), WithOpening: true})
	if err != nil {
		t.Fatal(err)
	}
	if string(got.GetOpening().GetArguments()) != large || string(got.GetOpening().GetOutcome().GetResult()) != large {
		t.Error("the payload changed")
	}
	tooLarge := `"` + strings.Repeat("x", 1<<20) + `"`
	other := newCall(t, nil)
	f, o = other.completed(tooLarge)
	_, err = s.Sealer("exec").Seal(t.Context(), f, o, claimed(t, s, other).GetClaimToken())
	if m := wantReason(t, err, "LIMIT_EXCEEDED"); m["limit_name"] != "results_inline_max_bytes" {
		t.Errorf("metadata %v", m)
	}
}

func TestOneOfManyClaimsWins(t *testing.T) { // R100
	s := start(t)
	c := newCall(t, nil)
	var wins, losses sync.Map
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			answer, err := s.Claims("exec").Claim(t.Context(), &evidencev1.ClaimRequest{Writ: c.writ})
			if err == nil {
				wins.Store(i, answer.GetClaim().GetClaimToken())
			} else {
				losses.Store(i, errs.ReasonOf(err))
			}
		})
	}
	wg.Wait()
	n := 0
	wins.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d claims of one call", n)
	}
	losses.Range(func(i, reason any) bool {
		if reason != "CLAIM_TAKEN" {
			t.Errorf("claim %v: %v", i, reason)
		}
		return true
	})
}

func TestReadsMayRunAgainAndTheFirstReceiptWins(t *testing.T) { // R100
	s := start(t)
	c := newCall(t, read)
	first := claimed(t, s, c)
	again := newCall(t, func(n *writtoken.Claims) { *n = c.claims; n.ID = "another writ" })
	second := claimed(t, s, again)
	if first.GetDurable() || first.GetClaimToken() == second.GetClaimToken() {
		t.Errorf("%v %v", first, second)
	}
	r := sealed(t, s, c, first.GetClaimToken())
	f, o := again.completed(`{}`)
	_, err := s.Sealer("exec").Seal(t.Context(), f, o, second.GetClaimToken())
	if m := wantReason(t, err, "CLAIM_TAKEN"); m["receipt"] != r.GetId() {
		t.Errorf("metadata %v", m)
	}
	_, err = s.Claims("exec").Claim(t.Context(), &evidencev1.ClaimRequest{Writ: again.writ})
	wantReason(t, err, "CLAIM_TAKEN")
}

func TestSealingTheSameBytesAgainIsTheSameReceipt(t *testing.T) {
	s := start(t)
	c := newCall(t, nil)
	mark := claimed(t, s, c)
	f, o := c.completed(`{}`)
	first, err := s.Sealer("exec").Seal(t.Context(), f, o, mark.GetClaimToken())
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Sealer("exec").Seal(t.Context(), f, o, mark.GetClaimToken())
	if err != nil || !proto.Equal(first, again) {
		t.Errorf("%v %v", again, err)
	}
	o.Outcome.Result = []byte(`{"other":1}`)
	f.Result, o.ResultSalt = nil, nil
	_, err = s.Sealer("exec").Seal(t.Context(), f, o, mark.GetClaimToken())
	if m := wantReason(t, err, "CLAIM_TAKEN"); m["receipt"] != first.GetId() {
		t.Errorf("metadata %v", m)
	}
}

func TestADenialTakesTheClaim(t *testing.T) { // R100, R109
	s := start(t)
	denied, claimedFirst := newCall(t, nil), newCall(t, nil)
	f, o := denied.ended(commonv1.OutcomeState_OUTCOME_STATE_DENIED, "DENIED_BY_PERSON")
	r, err := s.Sealer("permission").Seal(t.Context(), f, o, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, counter := verify(t.Context(), t, s, r); !slices.Contains(counter.Verified, "claim_taken") {
		t.Errorf("verified %v", counter.Verified)
	}
	_, err = s.Claims("exec").Claim(t.Context(), &evidencev1.ClaimRequest{Writ: denied.writ})
	if m := wantReason(t, err, "CLAIM_TAKEN"); m["receipt"] != r.GetId() {
		t.Errorf("metadata %v", m)
	}
	claimed(t, s, claimedFirst)
	f, o = claimedFirst.ended(commonv1.OutcomeState_OUTCOME_STATE_CANCELLED, "CANCELLED_BY_CALLER")
	_, err = s.Sealer("gateway").Seal(t.Context(), f, o, "")
	wantReason(t, err, "CLAIM_TAKEN")
}

func TestClaimVerifiesTheWrit(t *testing.T) {
	s := start(t)
	forged, id := evidencetest.Key("somebody else")
	for reason, token := range map[string]string{
		"MALFORMED":      "no token",
		"AUDIENCE":       newCall(t, func(c *writtoken.Claims) { c.Audience = evidencetest.Audience("mcp-host") }).writ,
		"UNKNOWN_ISSUER": newCall(t, func(c *writtoken.Claims) { c.Issuer = "urn:writ:other:permission" }).writ,
		"EXPIRED": newCall(t, func(c *writtoken.Claims) {
			c.NotBefore, c.Expiry = time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
		}).writ,
		"NOT_YET_VALID": newCall(t, func(c *writtoken.Claims) {
			c.NotBefore, c.Expiry = time.Now().Add(time.Minute), time.Now().Add(2*time.Minute)
		}).writ,
		"UNKNOWN_KEY": func() string {
			token, err := writtoken.Mint(forged, id, evidencetest.Writ([]byte(arguments)))
			if err != nil {
				t.Fatal(err)
			}
			return token
		}(),
		"SIGNATURE": func() string {
			_, known := evidencetest.Key("writs")
			token, err := writtoken.Mint(forged, known, evidencetest.Writ([]byte(arguments)))
			if err != nil {
				t.Fatal(err)
			}
			return token
		}(),
	} {
		_, err := s.Claims("exec").Claim(t.Context(), &evidencev1.ClaimRequest{Writ: token})
		if m := wantReason(t, err, "WRIT_REFUSED"); m["writ_reason"] != reason {
			t.Errorf("%s: metadata %v", reason, m)
		}
	}
	_, err := s.Claims("stranger").Claim(t.Context(), &evidencev1.ClaimRequest{Writ: newCall(t, nil).writ})
	wantReason(t, err, "ACCESS_DENIED")
}

// signAs makes the request of Seal with a key of the test's choice.
func signAs(t *testing.T, key ed25519.PrivateKey, keyID string, f receipt.Facts, o *evidencev1.Opening, token string) *evidencev1.SealRequest {
	t.Helper()
	f.Executor = "exec"
	f.SetOutcome(o.GetOutcome())
	if o.ResultSalt = bytes.Repeat([]byte{1}, 16); len(o.GetOutcome().GetResult()) > 0 && f.Result == nil {
		f.Result = receipt.Committed(o.ResultSalt, o.GetOutcome().GetResult())
	}
	statement, err := receipt.Statement(f)
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := receipt.Sign(statement, keyID, key)
	if err != nil {
		t.Fatal(err)
	}
	return &evidencev1.SealRequest{StatementEnvelope: envelope, ClaimToken: token, Opening: o, Namespace: f.Namespace}
}

func TestSealRefusesWhatDoesNotAgree(t *testing.T) { // R105, R109
	s := start(t)
	c := newCall(t, nil)
	mark := claimed(t, s, c)
	execKey, execID := evidencetest.Key("exec")
	hostKey, hostID := evidencetest.Key("mcp-host")
	other := newCall(t, nil)
	otherMark := claimed(t, s, other)
	client := evidencev1.NewReceiptServiceClient(s.As("exec"))

	for name, try := range map[string]struct {
		change        func(*receipt.Facts, *evidencev1.Opening, *evidencev1.SealRequest) *evidencev1.SealRequest
		facts         func(*receipt.Facts)
		opening       func(*evidencev1.Opening)
		token         string
		key           ed25519.PrivateKey
		keyID         string
		reason, field string
	}{
		"another service's key":  {key: hostKey, keyID: hostID, reason: "STATEMENT_INVALID", field: "envelope.signatures[0].keyid"},
		"forged signature":       {key: hostKey, reason: "STATEMENT_INVALID", field: "envelope.signatures[0].sig"},
		"another call's token":   {token: otherMark.GetClaimToken(), reason: "CLAIM_TOKEN_INVALID"},
		"no token":               {token: "none", reason: "CLAIM_TOKEN_INVALID"},
		"another call":           {facts: func(f *receipt.Facts) { f.Call, f.Turn = other.name, other.claims.Turn }, reason: "CLAIM_TOKEN_INVALID"},
		"another tool":           {facts: func(f *receipt.Facts) { f.Tool.Tool = "mcp.fs.read" }, reason: "STATEMENT_INVALID", field: "predicate.tool.tool"},
		"another fingerprint":    {facts: func(f *receipt.Facts) { f.Tool.WireFingerprint = strings.Repeat("cc", 32) }, reason: "STATEMENT_INVALID", field: "predicate.tool.wire_fingerprint"},
		"another provider":       {facts: func(f *receipt.Facts) { f.Tool.ProviderDigest = strings.Repeat("cc", 32) }, reason: "STATEMENT_INVALID", field: "predicate.tool.provider_digest"},
		"another principal":      {facts: func(f *receipt.Facts) { f.Principals[0].Id = "mallory" }, reason: "STATEMENT_INVALID", field: "predicate.principals"},
		"another class":          {facts: func(f *receipt.Facts) { f.Class = commonv1.SecurityClass_SECURITY_CLASS_READ }, reason: "STATEMENT_INVALID", field: "predicate.class"},
		"another decision":       {facts: func(f *receipt.Facts) { f.Decision.Cause = "card" }, reason: "STATEMENT_INVALID", field: "predicate.decision.cause"},
		"another trace":          {facts: func(f *receipt.Facts) { f.TraceID = strings.Repeat("ee", 16) }, reason: "STATEMENT_INVALID", field: "predicate.trace_id"},
		"other arguments stated": {facts: func(f *receipt.Facts) { f.Arguments = receipt.Committed([]byte("0123456789abcdef"), []byte("{}")) }, reason: "STATEMENT_INVALID", field: "predicate.arguments.mac"},
		"other arguments opened": {opening: func(o *evidencev1.Opening) { o.Arguments = bytes.Replace(o.Arguments, []byte("993"), []byte("992"), 1) }, reason: "STATEMENT_INVALID", field: "predicate.arguments"},
		"no arguments opened":    {opening: func(o *evidencev1.Opening) { o.Arguments = nil }, reason: "STATEMENT_INVALID", field: "predicate.arguments"},
		"another salt":           {opening: func(o *evidencev1.Opening) { o.ArgumentsSalt = []byte("0123456789abcdef") }, reason: "STATEMENT_INVALID", field: "predicate.arguments"},
		"another writ opened":    {opening: func(o *evidencev1.Opening) { o.Writ = other.writ }, reason: "STATEMENT_INVALID", field: "opening.writ"},
		"result not committed": {facts: func(f *receipt.Facts) {
			f.Result = receipt.Committed([]byte("0123456789abcdef"), []byte("{}"))
		}, reason: "STATEMENT_INVALID", field: "predicate.result"},
		"another namespace": {change: func(_ *receipt.Facts, _ *evidencev1.Opening, r *evidencev1.SealRequest) *evidencev1.SealRequest {
			r.Namespace = "other"
			return r
		}, reason: "STATEMENT_INVALID", field: "predicate.namespace"},
		"another outcome": {change: func(_ *receipt.Facts, o *evidencev1.Opening, r *evidencev1.SealRequest) *evidencev1.SealRequest {
			o.Outcome.State = commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR
			return r
		}, reason: "STATEMENT_INVALID", field: "predicate.state"},
		"another isolation": {change: func(_ *receipt.Facts, o *evidencev1.Opening, r *evidencev1.SealRequest) *evidencev1.SealRequest {
			o.Outcome.Enforcement.Isolation = commonv1.Isolation_ISOLATION_HOST
			return r
		}, reason: "STATEMENT_INVALID", field: "predicate.enforcement"},
		"no opening": {change: func(_ *receipt.Facts, _ *evidencev1.Opening, r *evidencev1.SealRequest) *evidencev1.SealRequest {
			r.Opening = nil
			return r
		}, reason: "STATEMENT_INVALID", field: "opening"},
		"a blob that is not there": {opening: func(o *evidencev1.Opening) {
			o.Blobs = []*commonv1.BlobRef{{Handle: "b_nothing"}}
		}, reason: "BLOB_NOT_FOUND"},
	} {
		t.Run(name, func(t *testing.T) {
			f, o := c.completed(`{"n":1}`)
			if try.facts != nil {
				try.facts(&f)
			}
			if try.opening != nil {
				try.opening(o)
			}
			key, keyID, token := execKey, execID, mark.GetClaimToken()
			if try.key != nil {
				key = try.key
			}
			if try.keyID != "" {
				keyID = try.keyID
			}
			if try.token != "" {
				token = strings.TrimPrefix(try.token, "none")
			}
			req := signAs(t, key, keyID, f, o, token)
			if try.change != nil {
				req = try.change(&f, o, req)
			}
			_, err := client.Seal(t.Context(), req)
			if m := wantReason(t, err, try.reason); try.field != "" && m["field"] != try.field {
				t.Errorf("field %q, want %q: %v", m["field"], try.field, err)
			}
		})
	}
	// Nothing of it took the claim.
	sealed(t, s, c, mark.GetClaimToken())
}

func TestAnotherExecutorCantSealWithAStolenToken(t *testing.T) {
	s := start(t)
	c := newCall(t, nil)
	mark := claimed(t, s, c)
	f, o := c.completed(`{}`)
	_, err := s.Sealer("mcp-host").Seal(t.Context(), f, o, mark.GetClaimToken())
	wantReason(t, err, "CLAIM_TOKEN_INVALID")
}

func TestIdenticalRefusalsAreOneReceipt(t *testing.T) { // R109
	now := time.Now()
	var mu sync.Mutex
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	s := evidencetest.New(t, evidence.Config{}, nil, evidence.WithClock(clock))
	refuse := func(presented, reason string) *evidencev1.Receipt {
		c := newCall(t, func(c *writtoken.Claims) { c.Turn, c.Call, c.ID = "t_same", "c_same", "w_same" })
		f, o := c.ended(commonv1.OutcomeState_OUTCOME_STATE_REFUSED, "WRIT_REFUSED")
		f.WritReason, o.Arguments = reason, []byte(presented)
		r, err := s.Sealer("exec").Seal(t.Context(), f, o, "")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := refuse(`{"n":1}`, "ARGUMENTS")
	for range 9 {
		if again := refuse(`{"n":2}`, "ARGUMENTS"); again.GetId() != first.GetId() {
			t.Fatalf("another receipt: %v", again)
		}
	}
	if other := refuse(`{"n":1}`, "EXPIRED"); other.GetId() == first.GetId() {
		t.Error("a refusal for another reason is counted as the same")
	}
	got, err := s.Receipts("caller").GetReceipt(t.Context(), &evidencev1.GetReceiptRequest{Name: first.GetId()})
	if err != nil || got.GetReceipt().GetCount() != 10 {
		t.Errorf("count %d %v", got.GetReceipt().GetCount(), err)
	}
	mu.Lock()
	now = now.Add(time.Minute)
	mu.Unlock()
	if later := refuse(`{"n":1}`, "ARGUMENTS"); later.GetId() == first.GetId() {
		t.Error("a refusal of another minute is counted as the same")
	}
	// An attempt takes no claim.
	c := newCall(t, func(c *writtoken.Claims) { c.Turn, c.Call = "t_same", "c_same" })
	run(t, s, c)
}

func TestARefusalAboutNoKnownCallHasAReceipt(t *testing.T) { // R109
	s := start(t)
	f := receipt.Facts{Kind: evidencev1.ReceiptKind_RECEIPT_KIND_REFUSAL, Namespace: "default", WritReason: "SIGNATURE"}
	o := &evidencev1.Opening{Arguments: []byte(`{"a":1}`), Writ: "forged", Outcome: &commonv1.Outcome{State: commonv1.OutcomeState_OUTCOME_STATE_REFUSED}}
	r, err := s.Sealer("exec").Seal(t.Context(), f, o, "")
	if err != nil {
		t.Fatal(err)
	}
	if f, _ := verify(t.Context(), t, s, r); f.WritReason != "SIGNATURE" || r.GetCall() != "" {
		t.Errorf("receipt %v", r)
	}
	if _, err := s.Receipts("approver").GetReceipt(t.Context(), &evidencev1.GetReceiptRequest{Name: r.GetId()}); err != nil {
		t.Error(err)
	}
	_, err = s.Receipts("caller").GetReceipt(t.Context(), &evidencev1.GetReceiptRequest{Name: r.GetId()})
	wantReason(t, err, "RECEIPT_NOT_FOUND")
}

func TestAProvidersStartHasAReceipt(t *testing.T) { // R109
	s := start(t)
	f := receipt.Facts{Kind: evidencev1.ReceiptKind_RECEIPT_KIND_PROVIDER_START, Namespace: "default",
		Tool: &commonv1.ToolIdentity{Provider: "mcp.fs", ProviderDigest: strings.Repeat("d4", 32)}}
	r, err := s.Sealer("mcp-host").Seal(t.Context(), f, &evidencev1.Opening{}, "")
	if err != nil {
		t.Fatal(err)
	}
	verify(t.Context(), t, s, r)
	again, err := s.Sealer("mcp-host").Seal(t.Context(), f, &evidencev1.Opening{}, "")
	if err != nil || again.GetId() != r.GetId() {
		t.Errorf("the same bytes are another receipt: %v %v", again, err)
	}
}

func TestAnExecutorFindsItsOpenClaimsAfterARestart(t *testing.T) { // R100
	dir := t.TempDir()
	s := evidencetest.New(t, evidence.Config{Dir: dir}, nil)
	open, done := newCall(t, nil), newCall(t, nil)
	before := claimed(t, s, open)
	run(t, s, done)
	s.Stop()

	s = evidencetest.New(t, evidence.Config{Dir: dir}, nil)
	list, err := s.Claims("exec").ListOpenClaims(t.Context(), &evidencev1.ListOpenClaimsRequest{})
	if err != nil || len(list.GetClaims()) != 1 {
		t.Fatalf("%v %v", list, err)
	}
	if list, err := s.Claims("mcp-host").ListOpenClaims(t.Context(), &evidencev1.ListOpenClaimsRequest{}); err != nil || len(list.GetClaims()) != 0 {
		t.Errorf("another executor sees %v %v", list, err)
	}
	mark := list.GetClaims()[0]
	if mark.GetCall() != open.name || mark.GetClaimToken() != before.GetClaimToken() || mark.GetWrit() != open.writ {
		t.Errorf("claim %v", mark)
	}
	_, claims, err := writtoken.Unverified(mark.GetWrit())
	if err != nil {
		t.Fatal(err)
	}
	f, o := receipt.FromClaims(claims), &evidencev1.Opening{Outcome: &commonv1.Outcome{State: commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN}}
	r, err := s.Sealer("exec").Seal(t.Context(), f, o, mark.GetClaimToken())
	if err != nil {
		t.Fatal(err)
	}
	if _, counter := verify(t.Context(), t, s, r); slices.Contains(counter.Verified, "arguments") {
		t.Error("it says that it verified arguments that nobody had")
	}
	_, err = s.Claims("exec").Claim(t.Context(), &evidencev1.ClaimRequest{Writ: open.writ})
	wantReason(t, err, "CLAIM_TAKEN")
	got, err := s.Claims("exec").GetClaim(t.Context(), &evidencev1.GetClaimRequest{Call: open.name, Namespace: "default"})
	if err != nil || got.GetClaim().GetState() != evidencev1.ClaimState_CLAIM_STATE_SEALED || got.GetClaim().GetClaimToken() != "" {
		t.Errorf("%v %v", got, err)
	}
}

func TestAReadIsSealedThoughItsReservationIsForgotten(t *testing.T) {
	dir := t.TempDir()
	s := evidencetest.New(t, evidence.Config{Dir: dir}, nil)
	c := newCall(t, read)
	mark := claimed(t, s, c)
	s.Stop()
	s = evidencetest.New(t, evidence.Config{Dir: dir}, nil)
	r := sealed(t, s, c, mark.GetClaimToken())
	if _, counter := verify(t.Context(), t, s, r); slices.Contains(counter.Verified, "writ_time") || !slices.Contains(counter.Verified, "writ") {
		t.Errorf("verified %v", counter.Verified)
	}
	// An effect is not: without its claim nothing can have run.
	effect := newCall(t, nil)
	f, o := effect.completed(`{}`)
	_, err := s.Sealer("exec").Seal(t.Context(), f, o, mark.GetClaimToken())
	wantReason(t, err, "CLAIM_TOKEN_INVALID")
}

func TestClaimsAreBounded(t *testing.T) {
	s := evidencetest.New(t, evidence.Config{Limits: evidence.Limits{OpenClaimsMax: 2}}, nil)
	first := newCall(t, nil)
	mark := claimed(t, s, first)
	claimed(t, s, newCall(t, nil))
	third := newCall(t, nil)
	_, err := s.Claims("exec").Claim(t.Context(), &evidencev1.ClaimRequest{Writ: third.writ})
	if m := wantReason(t, err, "LIMIT_EXCEEDED"); m["limit_name"] != "open_claims_max" {
		t.Errorf("metadata %v", m)
	}
	sealed(t, s, first, mark.GetClaimToken())
	claimed(t, s, third)
}
