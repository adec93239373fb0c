package exec

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/testkit"
)

type result struct {
	ExitCode  int `json:"exit_code"`
	Signal    string
	Stdout    string
	Stderr    string
	Truncated bool
}

func resultOf(t *testing.T, o *commonv1.Outcome) result {
	t.Helper()
	var r result
	if err := json.Unmarshal(o.GetResult(), &r); err != nil {
		t.Fatalf("%v: %s (%v)", err, o.GetResult(), o)
	}
	return r
}

// R78, R105, R110: claimed before, sealed after, isolated, traced.
func TestCommandRunsIsolatedClaimedAndSealed(t *testing.T) {
	p := newPlane(t)
	o, events := p.call(`{"command":"echo out; echo err >&2; echo $TRACEPARENT; cat; exit 3","stdin":"in\n","env":{"A":"1"},"isolation":"` + isolation(t) + `"}`)
	r := resultOf(t, o)
	if o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_COMPLETED || r.ExitCode != 3 || r.Stderr != "err\n" || !strings.HasPrefix(r.Stdout, "out\n") || !strings.HasSuffix(r.Stdout, "in\n") {
		t.Fatalf("%v %+v", o, r)
	}
	if o.GetReceipt() == "" || o.GetStatus().GetCode() != 0 {
		t.Errorf("%v", o)
	}
	e := o.GetEnforcement()
	if e.GetIsolation() < commonv1.Isolation_ISOLATION_ISOLATED_SOFT_CAPS || e.GetNetwork() != commonv1.NetworkMode_NETWORK_MODE_NONE || e.GetPid() == 0 ||
		!slices.Contains(e.GetMechanisms(), "no_new_privs") || !slices.Contains(e.GetMechanisms(), "seccomp") || !slices.Contains(e.GetMechanisms(), "network netns_empty") {
		t.Errorf("%v", e)
	}
	if got := strings.Join(p.evidence.order, ", "); got != "claim, seal COMPLETED" {
		t.Errorf("order: %s", got)
	}
	f, opening := p.evidence.last()
	if f.TraceID != "0af7651916cd43dd8448eb211c80319c" || f.Decision.Card != "k_1" || f.Enforcement.GetIsolation() != e.GetIsolation() || string(opening.GetOutcome().GetResult()) != string(o.GetResult()) {
		t.Errorf("%+v", f)
	}
	if events[0].GetStarted() == nil || events[0].GetSequence() != 1 || events[len(events)-1].GetSequence() != int64(len(events)) {
		t.Errorf("events %v", events)
	}
}

// The child continues the trace of the request, in the span of its run.
func TestChildGetsTheTraceOfItsCall(t *testing.T) {
	p := newPlane(t)
	o, _ := p.call(`{"command":"echo $TRACEPARENT"}`)
	parts := strings.Split(strings.TrimSpace(resultOf(t, o).Stdout), "-")
	if len(parts) != 4 {
		t.Fatalf("TRACEPARENT %q", parts)
	}
	for _, s := range p.sink.Spans(t) {
		if s.GetName() == "run command" && fmt.Sprintf("%x", s.GetTraceId()) == parts[1] && fmt.Sprintf("%x", s.GetSpanId()) == parts[2] {
			return
		}
	}
	t.Errorf("no run span is the parent %v", parts)
}

func TestArgvRunsWithoutAShell(t *testing.T) {
	p := newPlane(t)
	o, _ := p.call(`{"argv":["printf","%s|","a b","$HOME"]}`)
	if r := resultOf(t, o); r.Stdout != "a b|$HOME|" {
		t.Errorf("%+v", r)
	}
}

// R79: the workspace is writable, nothing else is.
func TestWritesStayInTheWorkspace(t *testing.T) {
	p := newPlane(t)
	if err := os.Mkdir(filepath.Join(p.workspace, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	o, _ := p.call(`{"command":"pwd; echo x > made; echo y > /usr/made; echo z > /etc/made; ls /root; cat /etc/shadow; true","cwd":"sub"}`)
	if r := resultOf(t, o); !strings.HasPrefix(r.Stdout, p.workspace+"/sub\n") || strings.Count(r.Stderr, "\n") != 4 {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(filepath.Join(p.workspace, "sub", "made")); err != nil {
		t.Error(err)
	}
}

// R86: no network unless the writ says open.
func TestNetworkNoneUnlessGranted(t *testing.T) {
	p := newPlane(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	line := `{"argv":["/bin/bash","-c","exec 3<>/dev/tcp/127.0.0.1/` + port + `"]`
	if o, _ := p.call(line + `}`); resultOf(t, o).ExitCode == 0 {
		t.Error("connected without network")
	}
	o, _ := p.call(line + `,"network":"open"}`)
	if resultOf(t, o).ExitCode != 0 || o.GetEnforcement().GetNetwork() != commonv1.NetworkMode_NETWORK_MODE_OPEN {
		t.Errorf("%v", o)
	}
	o, _ = p.call(line+`,"network":"open"}`, func(c *writtoken.Claims) { c.Scopes.Network.Mode = "none" })
	refusedWrit(t, p, o, writtoken.ReasonScopes)
}

func refusedWrit(t *testing.T, p *plane, o *commonv1.Outcome, want writtoken.Reason) {
	t.Helper()
	got := errs.Metadata(status.FromProto(o.GetStatus()).Err())["writ_reason"]
	f, _ := p.evidence.last()
	if o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_REFUSED || reasonOf(o) != "WRIT_REFUSED" || got != string(want) || o.GetReceipt() == "" || f.WritReason != string(want) {
		t.Errorf("%s: got %s %s %s, recorded %s", want, o.GetState(), reasonOf(o), got, f.WritReason)
	}
	if errs.Metadata(status.FromProto(o.GetStatus()).Err())["next"] == "" {
		t.Errorf("%s: no next step", want)
	}
}

// R100 and the list: each bad writ is refused with its own reason, recorded, and nothing runs.
func TestEachBadWritIsRefusedWithItsReason(t *testing.T) {
	p := newPlane(t)
	args := `{"command":"echo ran > ran"}`
	_, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	changed := map[writtoken.Reason]func(*writtoken.Claims){
		writtoken.ReasonAudience:      func(c *writtoken.Claims) { c.Audience = "urn:writ:" + p.deployment + ":mcp-host" },
		writtoken.ReasonUnknownIssuer: func(c *writtoken.Claims) { c.Issuer = "urn:writ:other:permission" },
		writtoken.ReasonExpired: func(c *writtoken.Claims) {
			c.NotBefore, c.Expiry = c.NotBefore.Add(-time.Hour), c.Expiry.Add(-30*time.Minute)
		},
		writtoken.ReasonNotYetValid: func(c *writtoken.Claims) { c.NotBefore = c.NotBefore.Add(30 * time.Second) },
		writtoken.ReasonTool:        func(c *writtoken.Claims) { c.Tool = "mcp.fs.read" },
		writtoken.ReasonFingerprint: func(c *writtoken.Claims) { c.Fingerprint = strings.Repeat("ab", 32) },
		writtoken.ReasonProvider:    func(c *writtoken.Claims) { c.ProviderDigest = strings.Repeat("cd", 32) },
		writtoken.ReasonArguments: func(c *writtoken.Claims) {
			c.Args = writtoken.NewArgs(c.Args.Salt, []byte(`{"command":"echo ran > ran"} `))
		},
		writtoken.ReasonScopes: func(c *writtoken.Claims) { c.Exec.Isolation = "host" },
	}
	for want, change := range changed {
		o, events := p.call(args, change)
		refusedWrit(t, p, o, want)
		if len(events) != 1 {
			t.Errorf("%s: %d events", want, len(events))
		}
	}
	good := p.claims(args)
	forged, err := writtoken.Mint(other, "k1", good)
	if err != nil {
		t.Fatal(err)
	}
	strange, err := writtoken.Mint(other, "k9", good)
	if err != nil {
		t.Fatal(err)
	}
	none := "eyJhbGciOiJub25lIiwidHlwIjoid3JpdCtqd3QiLCJraWQiOiJrMSJ9." + strings.Split(p.mint(good), ".")[1] + "."
	for token, want := range map[string]writtoken.Reason{"": writtoken.ReasonNoWrit, "x": writtoken.ReasonMalformed, forged: writtoken.ReasonSignature,
		strange: writtoken.ReasonUnknownKey, none: writtoken.ReasonAlgorithm} {
		o, _ := p.present(token, args)
		refusedWrit(t, p, o, want)
		if f, _ := p.evidence.last(); f.Call != "" {
			t.Errorf("%s: a writ that nobody signed names the call %s in the record", want, f.Call)
		}
	}
	if _, err := os.Stat(filepath.Join(p.workspace, "ran")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something ran: %v", err)
	}
	if slices.Contains(p.evidence.order, "claim") {
		t.Error("something was claimed")
	}
}

func TestNamespaceThatIsNotServedIsRefused(t *testing.T) {
	p := newPlane(t, func(c *Config) { c.Namespaces = []string{"other"} })
	o, _ := p.call(`{"command":"true"}`)
	refusedWrit(t, p, o, writtoken.ReasonNamespace)
}

// R100: a writ used twice runs once.
func TestSecondPresentationNeverRuns(t *testing.T) {
	p := newPlane(t)
	args := `{"command":"echo x >> count"}`
	token := p.mint(p.claims(args))
	first, _ := p.present(token, args)
	second, _ := p.present(token, args)
	meta := errs.Metadata(status.FromProto(second.GetStatus()).Err())
	if second.GetState() != commonv1.OutcomeState_OUTCOME_STATE_REFUSED || reasonOf(second) != "CLAIM_TAKEN" || meta["receipt"] != first.GetReceipt() || len(second.GetResult()) != 0 {
		t.Errorf("%v", second)
	}
	if b, _ := os.ReadFile(filepath.Join(p.workspace, "count")); string(b) != "x\n" {
		t.Errorf("ran %q", b)
	}
	// The first one can still be attached.
	_, events := p.attach(t, "turns/t_1/calls/c_1", 0)
	if got := events[len(events)-1].GetOutcome().GetReceipt(); got != first.GetReceipt() {
		t.Errorf("attached to %s", got)
	}
}

func (p *plane) attach(t *testing.T, call string, after int64) (execv1.RunService_AttachClient, []*commonv1.ExecutionEvent) {
	t.Helper()
	stream, err := p.runs.Attach(t.Context(), &execv1.AttachRequest{Request: &commonv1.AttachRequest{Call: call, AfterSequence: after, Namespace: "default"}})
	if err != nil {
		t.Fatal(err)
	}
	var events []*commonv1.ExecutionEvent
	for {
		answer, err := stream.Recv()
		if err != nil {
			return stream, events
		}
		events = append(events, answer.GetEvent())
	}
}

func TestRunningCallCannotBePresentedAgain(t *testing.T) {
	p := newPlane(t)
	args := `{"command":"echo up > up; until test -e go; do sleep 0.01; done"}`
	token := p.mint(p.claims(args))
	done := make(chan *commonv1.Outcome, 1)
	go func() {
		events, _ := p.execute(context.Background(), token, args)
		done <- events[len(events)-1].GetOutcome()
	}()
	p.waitFile("up")
	if o, _ := p.present(token, args); reasonOf(o) != "CLAIM_TAKEN" {
		t.Errorf("%v", o)
	}
	p.write("go")
	if o := <-done; o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_COMPLETED {
		t.Errorf("%v", o)
	}
}

func (p *plane) waitFile(name string) {
	p.t.Helper()
	testkit.WaitFor(p.t, 20*time.Second, func() bool { _, err := os.Stat(filepath.Join(p.workspace, name)); return err == nil })
}

func (p *plane) write(name string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.workspace, name), nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// A lost stream detaches; the call goes on and is attached by its name and a cursor.
func TestLostStreamDetachesAndIsAttachedAgain(t *testing.T) {
	p := newPlane(t)
	args := `{"command":"echo one; echo up > up; until test -e go; do sleep 0.01; done; echo two"}`
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { _, err := p.execute(ctx, p.mint(p.claims(args)), args); gone <- err }()
	p.waitFile("up")
	hangUp()
	if err := <-gone; status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	p.write("go")
	_, all := p.attach(t, "turns/t_1/calls/c_1", 0)
	_, rest := p.attach(t, "turns/t_1/calls/c_1", 1)
	o := all[len(all)-1].GetOutcome()
	if o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_COMPLETED || resultOf(t, o).Stdout != "one\ntwo\n" || len(rest) != len(all)-1 || rest[0].GetSequence() != 2 {
		t.Errorf("%v\n%v", all, rest)
	}
	stream, err := p.runs.Attach(t.Context(), &execv1.AttachRequest{Request: &commonv1.AttachRequest{Call: "turns/t_1/calls/other", Namespace: "default"}})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.NotFound || errs.ReasonOf(err) != "EXECUTION_NOT_FOUND" {
		t.Errorf("%v", err)
	}
}

func TestCancelEndsEverythingAndIsSealed(t *testing.T) {
	p := newPlane(t)
	args := `{"command":"trap '' TERM; (setsid sleep 5555 &); echo up > up; while :; do sleep 0.05; done"}`
	done := make(chan *commonv1.Outcome, 1)
	token := p.mint(p.claims(args))
	go func() {
		events, _ := p.execute(context.Background(), token, args)
		done <- events[len(events)-1].GetOutcome()
	}()
	p.waitFile("up")
	answer, err := p.runs.Cancel(t.Context(), &execv1.CancelRequest{Request: &commonv1.CancelRequest{Call: "turns/t_1/calls/c_1", Namespace: "default", Reason: "no longer needed"}})
	if err != nil || !answer.GetResponse().GetCancelled() {
		t.Fatalf("%v %v", answer, err)
	}
	o := <-done
	if o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_CANCELLED || reasonOf(o) != "CANCELLED" || o.GetReceipt() == "" {
		t.Errorf("%v", o)
	}
	answer, err = p.runs.Cancel(t.Context(), &execv1.CancelRequest{Request: &commonv1.CancelRequest{Call: "turns/t_1/calls/c_1", Namespace: "default"}})
	if err != nil || answer.GetResponse().GetCancelled() {
		t.Errorf("cancelling what has ended: %v %v", answer, err)
	}
}

// R84: stopped in time, descendants reported and gone.
func TestTimeoutEndsTheTreeAndListsSurvivors(t *testing.T) {
	p := newPlane(t)
	o, _ := p.call(`{"command":"trap '' TERM; (setsid sh -c \"trap '' TERM; exec sleep 6543\" &); echo partly; while :; do sleep 0.05; done","timeout_seconds":1}`)
	if o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR || reasonOf(o) != "TIMED_OUT" || resultOf(t, o).Stdout != "partly\n" {
		t.Errorf("%v", o)
	}
	names := ""
	for _, s := range o.GetSurvivors() {
		names += strings.Join(s.GetArgv(), " ") + ";"
		if !s.GetEnded() {
			t.Errorf("not ended: %v", s)
		}
	}
	if !strings.Contains(names, "sleep 6543") {
		t.Errorf("survivors %s", names)
	}
	if f, _ := p.evidence.last(); f.Survivors.Total == 0 || f.Survivors.Ended != f.Survivors.Total {
		t.Errorf("recorded %+v", f.Survivors)
	}
}

// R85: exit 0 is no proof of cleanup.
func TestDaemonOfASuccessfulCommandIsReported(t *testing.T) {
	p := newPlane(t)
	o, _ := p.call(`{"command":"(setsid sleep 6541 &); until grep -q sleep /proc/[0-9]*/comm; do :; done; exit 0"}`)
	if resultOf(t, o).ExitCode != 0 || len(o.GetSurvivors()) != 1 || o.GetSurvivors()[0].GetComm() != "sleep" || !o.GetSurvivors()[0].GetEnded() {
		t.Errorf("%v", o)
	}
}

// R88: exact path and native error, before the claim; nothing starts.
func TestUnusableFolderFailsBeforeAnythingStarts(t *testing.T) {
	p := newPlane(t)
	missing := filepath.Join(p.workspace, "missing")
	o, _ := p.call(`{"command":"true","cwd":"missing"}`)
	meta := errs.Metadata(status.FromProto(o.GetStatus()).Err())
	if o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_REFUSED || reasonOf(o) != "FOLDER_UNUSABLE" || meta["name"] != missing || meta["errno"] != "ENOENT" {
		t.Errorf("%v", o)
	}
	o, _ = p.call(`{"command":"true"}`, func(c *writtoken.Claims) { c.Scopes.Paths[0].Ino++ })
	if o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_REFUSED || reasonOf(o) != "FOLDER_CHANGED" {
		t.Errorf("%v", o)
	}
	o, _ = p.call(`{"argv":["no-such-program"]}`)
	meta = errs.Metadata(status.FromProto(o.GetStatus()).Err())
	if reasonOf(o) != "PROGRAM_UNUSABLE" || meta["name"] != "no-such-program" || meta["errno"] != "ENOENT" {
		t.Errorf("%v", o)
	}
	if slices.Contains(p.evidence.order, "claim") {
		t.Errorf("%v", p.evidence.order)
	}
}

// R82, R83, R87: host execution only by scope, and called what it is.
func TestHostExecutionNeedsItsScopeAndSaysHost(t *testing.T) {
	p := newPlane(t)
	args := `{"command":"(setsid sleep 6542 &); exit 0","isolation":"host","network":"open"}`
	if o, _ := p.call(args); o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_REFUSED || reasonOf(o) != "FIELD_INVALID" {
		t.Errorf("%v", o)
	}
	o, _ := p.call(args, func(c *writtoken.Claims) { c.Scopes.HostExecution = true })
	e := o.GetEnforcement()
	if o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_COMPLETED || e.GetIsolation() != commonv1.Isolation_ISOLATION_HOST || slices.Contains(e.GetMechanisms(), "seccomp") {
		t.Errorf("%v", o)
	}
	if len(o.GetSurvivors()) != 1 || !o.GetSurvivors()[0].GetEnded() {
		t.Errorf("survivors %v", o.GetSurvivors())
	}
}

func TestBadArgumentsNameTheField(t *testing.T) {
	p := newPlane(t)
	for args, want := range map[string]string{`{"command":"a","command":"b"}`: "JSON_INVALID", `{"cmd":"a"}`: "FIELD_INVALID", `{"command":"a","env":{"TRACEPARENT":"x"}}`: "FIELD_INVALID"} {
		if o, _ := p.call(args); o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_REFUSED || reasonOf(o) != want || o.GetReceipt() == "" {
			t.Errorf("%s: %v", args, o)
		}
	}
	big := `{"command":"` + strings.Repeat("x", 2<<20) + `"}`
	if _, err := p.execute(t.Context(), "", big); status.Code(err) != codes.ResourceExhausted || errs.Metadata(err)["limit_name"] != "arguments_max_bytes" {
		t.Errorf("%v", err)
	}
}

func TestOutputIsBoundedAndSaysSo(t *testing.T) {
	p := newPlane(t, func(c *Config) { c.Limits.OutputMaxBytes = 100 << 10 })
	o, events := p.call(`{"command":"head -c 5000000 /dev/zero; echo end >&2"}`)
	r := resultOf(t, o)
	if !r.Truncated || len(r.Stdout) != 100<<10 || r.Stderr != "end\n" || len(o.GetResult()) > 1<<20 {
		t.Errorf("truncated %v, %d bytes, stderr %q, result %d bytes", r.Truncated, len(r.Stdout), r.Stderr, len(o.GetResult()))
	}
	sent := 0
	for _, e := range events {
		sent += len(e.GetOutput().GetData())
	}
	if sent != 100<<10+len("end\n") {
		t.Errorf("%d bytes in events", sent)
	}
}

func TestTooManyRunsAreRefused(t *testing.T) {
	p := newPlane(t, func(c *Config) { c.Limits.RunsMax = 1 })
	args := `{"command":"echo up > up; until test -e go; do sleep 0.01; done"}`
	token := p.mint(p.claims(args))
	done := make(chan struct{})
	go func() { defer close(done); _, _ = p.execute(context.Background(), token, args) }()
	p.waitFile("up")
	if o, _ := p.call(`{"command":"true"}`); o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_REFUSED || reasonOf(o) != "LIMIT_EXCEEDED" {
		t.Errorf("%v", o)
	}
	p.write("go")
	<-done
}

// Evidence down: refused before it runs, and no result without a receipt.
func TestNothingRunsWithoutEvidence(t *testing.T) {
	p := newPlane(t, func(c *Config) { c.Limits.SealPatience = 200 * time.Millisecond })
	p.evidence.set(true)
	args := `{"command":"echo ran > ran"}`
	if _, err := p.execute(t.Context(), p.mint(p.claims(args)), args); errs.ReasonOf(err) != "PEER_UNAVAILABLE" {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(p.workspace, "ran")); err == nil {
		t.Error("it ran")
	}
	p.evidence.set(false)
	args = `{"command":"echo up > up; until test -e go; do sleep 0.01; done"}`
	failed := make(chan error, 1)
	token := p.mint(p.claims(args))
	go func() { _, err := p.execute(context.Background(), token, args); failed <- err }()
	p.waitFile("up")
	p.evidence.set(true)
	p.write("go")
	if err := <-failed; errs.ReasonOf(err) != "SEAL_FAILED" {
		t.Errorf("%v", err)
	}
}

func TestOnlyServicesMayExecute(t *testing.T) {
	p := newPlane(t)
	ch, _ := testkit.Channel(t)
	p.server.Register(ch)
	for _, token := range []string{"caller", "approver"} {
		stream, err := execv1.NewRunServiceClient(ch.WithToken(token)).Execute(t.Context(), &execv1.ExecuteRequest{Request: &commonv1.ExecuteRequest{}})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", token, err)
		}
	}
}

func TestCapabilitiesAreProbed(t *testing.T) {
	p := newPlane(t)
	c, err := p.caps.GetCapabilities(t.Context(), &execv1.GetCapabilitiesRequest{})
	if err != nil || c.GetCommandLevel() < commonv1.Isolation_ISOLATION_ISOLATED_SOFT_CAPS || c.GetServerLevel() != commonv1.Isolation_ISOLATION_GUARDED || len(c.GetMechanisms()) < 8 {
		t.Errorf("%v %v", c, err)
	}
}

func TestShutdownEndsRunsAndSealsThem(t *testing.T) {
	p := newPlane(t)
	args := `{"command":"echo up > up; exec sleep 4444"}`
	done := make(chan *commonv1.Outcome, 1)
	token := p.mint(p.claims(args))
	go func() {
		events, _ := p.execute(context.Background(), token, args)
		done <- events[len(events)-1].GetOutcome()
	}()
	p.waitFile("up")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := p.server.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if o := <-done; o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_CANCELLED || o.GetReceipt() == "" {
		t.Errorf("%v", o)
	}
	if _, err := p.execute(t.Context(), p.mint(p.claims(args)), args); errs.ReasonOf(err) != "SHUTTING_DOWN" {
		t.Errorf("%v", err)
	}
	if p.server.Health(t.Context()) == nil {
		t.Error("healthy after Close")
	}
}
