package receipt_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/receipt"
)

func testKey(seed byte) (ed25519.PrivateKey, string) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	return key, writtoken.KeyID(key.Public().(ed25519.PublicKey))
}

func full() receipt.Facts {
	begin := time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC)
	return receipt.Facts{
		Kind: evidencev1.ReceiptKind_RECEIPT_KIND_CALL, Namespace: "default", Call: "turns/t_1/calls/c_1", Executor: "exec",
		State: commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR, Code: codes.Aborted, Reason: "RUN_FAILED",
		Principals: []*commonv1.Principal{
			{Id: "bot", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_AGENT, Namespace: "default"},
			{Id: "alice", Kind: commonv1.PrincipalKind_PRINCIPAL_KIND_HUMAN, Namespace: "default"},
		},
		AssertedBy: "gateway", Agent: "notes", Conversation: "conv \"1\"\n", Turn: "t_1", TraceID: strings.Repeat("ab", 16),
		Tool: &commonv1.ToolIdentity{
			Tool: "run_command", WireFingerprint: strings.Repeat("0f", 32), SemanticFingerprint: strings.Repeat("1f", 32),
			Provider: "builtin", ProviderDigest: strings.Repeat("2f", 32),
		},
		Class: commonv1.SecurityClass_SECURITY_CLASS_PROCESS, WritID: "w_1",
		Decision:  receipt.Decision{ID: "d_1", Cause: "card", Card: "k_1", Why: "manual mode asks for processes"},
		Card:      receipt.CardTimes{Asked: begin.Add(-time.Minute), Decided: begin.Add(-time.Second)},
		Arguments: receipt.Committed([]byte("0123456789abcdef"), []byte(`{"line":"ls"}`)),
		Result:    receipt.Committed([]byte("fedcba9876543210"), []byte(`{"n":9007199254740993}`)),
		Enforcement: &commonv1.Enforcement{
			Isolation: commonv1.Isolation_ISOLATION_ISOLATED_SOFT_CAPS, Network: commonv1.NetworkMode_NETWORK_MODE_NONE,
			Mechanisms: []string{"netns_empty", "seccomp"}, Degraded: []string{"cgroup: read-only"}, Pid: 4242,
		},
		Survivors:  receipt.Survivors{Total: 2, Ended: 2, PIDs: []int64{4243, 4244}},
		Credential: commonv1.CredentialFact_CREDENTIAL_FACT_NONE,
		Begin:      begin, End: begin.Add(1500 * time.Microsecond),
	}
}

func TestStatementSaysAllFactsAndNothingElse(t *testing.T) { // R105, R109
	f := full()
	statement, err := receipt.Statement(f)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := receipt.Statement(f)
	if !bytes.Equal(statement, again) {
		t.Error("the same facts gave other bytes")
	}
	got, err := receipt.Parse(statement)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f, got, protocmp.Transform()); diff != "" {
		t.Error("parsed facts differ:\n", diff)
	}
	golden(t, "statement.json", statement)
	for _, secret := range []string{"ls", "9007199254740993", "0123456789abcdef", "fedcba9876543210"} {
		if bytes.Contains(statement, []byte(`"`+secret)) || bytes.Contains(statement, []byte(`:`+secret)) {
			t.Errorf("the statement holds %q", secret)
		}
	}
}

// golden keeps the form of a receipt from changing unnoticed: who signed yesterday is verified tomorrow.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSuffix(want, []byte("\n")), got) {
		t.Errorf("%s changed:\n%s", path, got)
	}
}

func TestStatementRefusesWhatNamesNothing(t *testing.T) {
	long := strings.Repeat("x", receipt.MaxText+1)
	for field, change := range map[string]func(*receipt.Facts){
		"predicate.kind":                 func(f *receipt.Facts) { f.Kind = 0 },
		"predicate.namespace":            func(f *receipt.Facts) { f.Namespace = "" },
		"predicate.executor":             func(f *receipt.Facts) { f.Executor = "" },
		"predicate.call":                 func(f *receipt.Facts) { f.Call = "" },
		"predicate.state":                func(f *receipt.Facts) { f.State = commonv1.OutcomeState_OUTCOME_STATE_REFUSED },
		"predicate.arguments":            func(f *receipt.Facts) { f.Arguments = nil },
		"predicate.result":               func(f *receipt.Facts) { f.Result.MAC = "AA" },
		"predicate.trace_id":             func(f *receipt.Facts) { f.TraceID = "AB" },
		"predicate.principals":           func(f *receipt.Facts) { f.Principals = nil },
		"predicate.end":                  func(f *receipt.Facts) { f.End = f.Begin.Add(-1) },
		"predicate.survivors":            func(f *receipt.Facts) { f.Survivors.Ended = 3 },
		"predicate.agent":                func(f *receipt.Facts) { f.Agent = "\xff" },
		"predicate.conversation":         func(f *receipt.Facts) { f.Conversation = long },
		"predicate.mechanisms":           func(f *receipt.Facts) { f.Enforcement.Mechanisms = make([]string, receipt.MaxList+1) },
		"predicate.tool.provider_digest": func(f *receipt.Facts) { *f = receipt.Facts{Kind: 3, Namespace: "n", Executor: "e"} },
	} {
		f := full()
		change(&f)
		var fault *receipt.Error
		if _, err := receipt.Statement(f); !errors.As(err, &fault) || fault.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestParseRefusesWhatIsNotExact(t *testing.T) {
	good, _ := receipt.Statement(full())
	for name, edit := range map[string][2]string{
		"duplicate name":       {`"kind":"call"`, `"kind":"call","kind":"call"`},
		"unknown name":         {`"kind":"call"`, `"kind":"call","extra":1`},
		"case of a name":       {`"kind":`, `"Kind":`},
		"unknown word":         {`"state":"tool_error"`, `"state":"excellent"`},
		"upper-case word":      {`"state":"tool_error"`, `"state":"TOOL_ERROR"`},
		"unspecified word":     {`"class":"process"`, `"class":"unspecified"`},
		"fraction":             {`"size":13`, `"size":13.5`},
		"negative":             {`"pid":4242`, `"pid":-1`},
		"other predicate type": {`receipt/v1`, `receipt/v2`},
		"subject of another":   {`"name":"turns/t_1/calls/c_1"`, `"name":"turns/t_1/calls/c_2"`},
		"another commitment":   {`"size":13},"result":{"mac":"`, `"size":13},"result":{"mac":"A`},
		"time zone":            {`Z","end"`, `+00:00","end"`},
		"null":                 {`"agent":"notes"`, `"agent":null`},
		"empty text":           {`"agent":"notes"`, `"agent":""`},
		"trailing bytes":       {`}}}`, `}}}x`},
	} {
		changed := strings.Replace(string(good), edit[0], edit[1], 1)
		if name == "trailing bytes" {
			changed = string(good) + "x"
		}
		if changed == string(good) {
			t.Fatalf("%s: the edit changes nothing", name)
		}
		if _, err := receipt.Parse([]byte(changed)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestAnyFactsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := full()
		text := rapid.StringN(0, 80, 200)
		f.Agent, f.Conversation, f.Decision.Why = text.Draw(t, "agent"), text.Draw(t, "conversation"), text.Draw(t, "why")
		f.Enforcement.Pid = rapid.Int64Range(0, 1<<40).Draw(t, "pid")
		f.Arguments = receipt.Committed(rapid.SliceOfN(rapid.Byte(), 16, 64).Draw(t, "salt"), rapid.SliceOf(rapid.Byte()).Draw(t, "arguments"))
		if rapid.Bool().Draw(t, "bare") {
			f.Result, f.Enforcement, f.Survivors, f.Begin, f.End = nil, nil, receipt.Survivors{}, time.Time{}, time.Time{}
		}
		statement, err := receipt.Statement(f)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(statement) {
			t.Fatalf("no JSON: %s", statement)
		}
		got, err := receipt.Parse(statement)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f, got, protocmp.Transform()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestOneChangedByteOfAnEnvelopeIsRefused(t *testing.T) {
	key, keyID := testKey(1)
	statement, _ := receipt.Statement(full())
	envelope, err := receipt.Sign(statement, keyID, key)
	if err != nil {
		t.Fatal(err)
	}
	keys := func(id string) (ed25519.PublicKey, bool) { return key.Public().(ed25519.PublicKey), id == keyID }
	got, id, err := receipt.Verify(envelope, keys)
	if err != nil || id != keyID || !bytes.Equal(got, statement) {
		t.Fatalf("own envelope: %q %v", id, err)
	}
	for i := range envelope {
		changed := bytes.Clone(envelope)
		changed[i] ^= 1
		if got, _, err := receipt.Verify(changed, keys); err == nil {
			t.Fatalf("byte %d may change, and gives %q", i, got)
		}
	}
	other, _ := testKey(2)
	if _, _, err := receipt.Verify(envelope, func(string) (ed25519.PublicKey, bool) { return other.Public().(ed25519.PublicKey), true }); err == nil {
		t.Error("verified with another key")
	}
}

// The signature is checked by a program that knows nothing of this package.
func TestOpenSSLVerifiesAnEnvelope(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Fatal("openssl is needed: apt-get install openssl")
	}
	key, keyID := testKey(1)
	statement, _ := receipt.Statement(full())
	envelope, _ := receipt.Sign(statement, keyID, key)
	var e struct {
		PayloadType string
		Payload     []byte
		Signatures  []struct{ Sig []byte }
	}
	if err := json.Unmarshal(envelope, &e); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// SubjectPublicKeyInfo of an Ed25519 key: a fixed prefix, then the key.
	spki := append([]byte{0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00}, key.Public().(ed25519.PublicKey)...)
	signed := "DSSEv1 28 application/vnd.in-toto+json " + itoa(len(e.Payload)) + " " + string(e.Payload)
	for name, content := range map[string][]byte{"key.der": spki, "signed": []byte(signed), "sig": e.Signatures[0].Sig} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(openssl, "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", "key.der", "-rawin", "-in", "signed", "-sigfile", "sig")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("openssl: %v: %s", err, out)
	}
}

func TestCheckBindsBothEnvelopes(t *testing.T) {
	execKey, execID := testKey(1)
	evidenceKey, evidenceID := testKey(2)
	keys := func(id string) (string, ed25519.PublicKey, bool) {
		switch id {
		case execID:
			return "exec", execKey.Public().(ed25519.PublicKey), true
		case evidenceID:
			return "evidence", evidenceKey.Public().(ed25519.PublicKey), true
		}
		return "", nil, false
	}
	envelopeOf := func(change func(*receipt.Facts)) []byte {
		f := full()
		change(&f)
		statement, err := receipt.Statement(f)
		if err != nil {
			t.Fatal(err)
		}
		envelope, err := receipt.Sign(statement, execID, execKey)
		if err != nil {
			t.Fatal(err)
		}
		return envelope
	}
	counterOf := func(envelope []byte, change func(*receipt.Countersignature)) []byte {
		c := receipt.Countersignature{Receipt: "r_1", Namespace: "default", Service: "evidence", Peer: "exec",
			Sealed: time.Unix(1, 0), Verified: []string{"signature"}, Digest: receipt.Digest(envelope)}
		change(&c)
		statement, err := receipt.CounterStatement(c)
		if err != nil {
			t.Fatal(err)
		}
		counter, err := receipt.Sign(statement, evidenceID, evidenceKey)
		if err != nil {
			t.Fatal(err)
		}
		return counter
	}
	same := func(*receipt.Facts) {}
	sameCounter := func(*receipt.Countersignature) {}
	good := envelopeOf(same)
	if _, c, err := receipt.Check(good, counterOf(good, sameCounter), keys); err != nil || c.Receipt != "r_1" {
		t.Fatal(err)
	}
	other := envelopeOf(func(f *receipt.Facts) { f.Turn = "t_2" })
	posing := envelopeOf(func(f *receipt.Facts) { f.Executor = "mcp-host" })
	for name, pair := range map[string][2][]byte{
		"over another envelope":  {good, counterOf(other, sameCounter)},
		"another service's name": {posing, counterOf(posing, func(c *receipt.Countersignature) { c.Peer = "mcp-host" })},
		"another peer":           {good, counterOf(good, func(c *receipt.Countersignature) { c.Peer = "gateway" })},
		"another namespace":      {good, counterOf(good, func(c *receipt.Countersignature) { c.Namespace = "b" })},
		"another countersigner":  {good, counterOf(good, func(c *receipt.Countersignature) { c.Service = "exec" })},
		"statement twice":        {good, good},
	} {
		if _, _, err := receipt.Check(pair[0], pair[1], keys); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// sink answers as evidence-svc and keeps the requests.
type sink struct {
	evidencev1.ReceiptServiceClient
	requests []*evidencev1.SealRequest
}

func (s *sink) Seal(_ context.Context, r *evidencev1.SealRequest, _ ...grpc.CallOption) (*evidencev1.SealResponse, error) {
	s.requests = append(s.requests, r)
	return &evidencev1.SealResponse{Receipt: &evidencev1.Receipt{Id: "r_1"}}, nil
}

func TestSealerStatesTheOutcome(t *testing.T) {
	key, keyID := testKey(1)
	out := &sink{}
	sealer := receipt.NewSealer(out, "exec", key, keyID)
	info, _ := anypb.New(&errdetails.ErrorInfo{Reason: "RUN_FAILED", Domain: "writ.dev"})
	opening := &evidencev1.Opening{
		Arguments: []byte(`{"a":1}`),
		Outcome: &commonv1.Outcome{
			State:  commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR,
			Status: &rpcstatus.Status{Code: int32(codes.Aborted), Message: "/home/alice/secret", Details: []*anypb.Any{info}},
			Result: []byte(`{"isError":true}`), BeginTime: timestamppb.New(time.Unix(1, 0)), EndTime: timestamppb.New(time.Unix(2, 0)),
			Survivors: []*commonv1.Survivor{{Pid: 7, Comm: "sleep", Argv: []string{"sleep", "1h"}, Ended: true}},
		},
	}
	f := full()
	f.Arguments, f.Result = nil, nil
	for range 2 {
		if _, err := sealer.Seal(t.Context(), f, opening, "token"); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(out.requests[0].GetStatementEnvelope(), out.requests[1].GetStatementEnvelope()) {
		t.Error("sealing again gave other bytes, so a retry would be another receipt")
	}
	statement, _, err := receipt.Unverified(out.requests[0].GetStatementEnvelope())
	if err != nil {
		t.Fatal(err)
	}
	got, err := receipt.Parse(statement)
	if err != nil {
		t.Fatal(err)
	}
	if got.Reason != "RUN_FAILED" || got.Code != codes.Aborted || got.Survivors.Total != 1 || !got.End.Equal(time.Unix(2, 0)) {
		t.Errorf("got %+v", got)
	}
	for _, private := range []string{"secret", "sleep", "isError"} {
		if bytes.Contains(statement, []byte(private)) {
			t.Errorf("the statement holds %q", private)
		}
	}
	if ok, err := got.Result.Opens(opening.GetResultSalt(), bytes.NewReader(opening.GetOutcome().GetResult())); err != nil || !ok {
		t.Error("the opening does not open the result", err)
	}
}

func TestARefusalCommitsToWhatWasPresented(t *testing.T) { // R109
	key, keyID := testKey(1)
	out := &sink{}
	opening := &evidencev1.Opening{Arguments: []byte(`{"n":9007199254740992}`),
		Outcome: &commonv1.Outcome{State: commonv1.OutcomeState_OUTCOME_STATE_REFUSED}}
	f := full()
	f.Result, f.WritReason = nil, "ARGUMENTS"
	if _, err := receipt.NewSealer(out, "exec", key, keyID).Seal(t.Context(), f, opening, ""); err != nil {
		t.Fatal(err)
	}
	statement, _, _ := receipt.Unverified(out.requests[0].GetStatementEnvelope())
	got, err := receipt.Parse(statement)
	if err != nil {
		t.Fatal(err)
	}
	if got.Kind != evidencev1.ReceiptKind_RECEIPT_KIND_REFUSAL || got.WritReason != "ARGUMENTS" {
		t.Errorf("got %+v", got)
	}
	if ok, _ := got.Arguments.Opens(opening.GetArgumentsSalt(), bytes.NewReader(opening.GetArguments())); !ok {
		t.Error("the statement commits to other bytes than were presented")
	}
}

func FuzzParse(f *testing.F) {
	good, _ := receipt.Statement(full())
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		facts, err := receipt.Parse(b)
		if err != nil {
			return
		}
		again, err := receipt.Statement(facts)
		if err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		back, err := receipt.Parse(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(facts, back, protocmp.Transform()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }
