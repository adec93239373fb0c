package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/writ-dev/writ/e2e/internal/stack"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
)

// serversOf lists the processes below the server that run a program, by their ids on the host.
func serversOf(s *stack.Stack, program string) (pids []int) {
	for _, pid := range s.Family() {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && filepath.Base(exe) == program {
			pids = append(pids, pid)
		}
	}
	return pids
}

// One process serves every call of a connector, in a folder of its own, with nothing of Writ's environment, never as root;
// its start has a receipt; switching the connector off ends it (R36, R57, R60, R71, Trust 3, 4).
func TestTheLifeOfAServer(t *testing.T) {
	t.Parallel()
	secret := "WRIT_E2E_SECRET=a-secret-of-the-server"
	s := stack.Start(t, stack.WithEnv(secret))
	e := newEcho(t)
	s.AddConnectorSpec(&registryv1.Connector{Name: "echo", Command: stack.Program(t, "echo-server"), Args: e.args(), Env: map[string]string{"OWN": "its own"}})
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{})
	for range 3 {
		s.Call(turn, "mcp.echo.append_note", e.arguments("again"), completed)
	}
	running := serversOf(s, "echo-server")
	if len(running) != 1 {
		t.Fatalf("%d processes for one connector", len(running))
	}
	if n := strings.Count(e.record(), `"method":"tools/list"`); n != 1 {
		t.Errorf("tools/list was asked %d times", n)
	}
	checkProcess(t, s, running[0])

	sessions, err := s.Client(stack.Approver).Servers.ListSessions(s.Context(), &mcphostv1.ListSessionsRequest{})
	if err != nil || len(sessions.GetSessions()) != 1 || sessions.GetSessions()[0].GetServer() != "echo" ||
		sessions.GetSessions()[0].GetEnforcement().GetIsolation() != commonv1.Isolation_ISOLATION_GUARDED {
		t.Errorf("sessions: %v %v", sessions.GetSessions(), err)
	}
	starts, err := s.Client(stack.Approver).Receipts.ListReceipts(s.Context(), &evidencev1.ListReceiptsRequest{Kind: evidencev1.ReceiptKind_RECEIPT_KIND_PROVIDER_START})
	if err != nil || len(starts.GetReceipts()) != 1 || starts.GetReceipts()[0].GetTool().GetProvider() != "mcp.echo" {
		t.Errorf("receipts of starts: %v %v", starts.GetReceipts(), err)
	}

	if _, err := s.Client(stack.Approver).Connectors.SetConnectorEnabled(s.Context(), &registryv1.SetConnectorEnabledRequest{Name: "echo"}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the server of a disabled connector to end", func() bool { return len(serversOf(s, "echo-server")) == 0 })
	done, err := s.TryCall(s.Context(), turn, "mcp.echo.append_note", e.arguments("disabled"))
	if err == nil && done.Outcome.GetState() == completed || e.count("disabled") != 0 {
		t.Errorf("a disabled connector's tool ran: %v %v", err, done.Outcome)
	}
	if stack.Tool(s.OpenTurn(&registryv1.OpenTurnRequest{}), "mcp.echo.echo") != nil {
		t.Error("a turn lists a disabled connector's tools")
	}
}

func checkProcess(t *testing.T, s *stack.Stack, pid int) {
	t.Helper()
	proc := func(name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }
	if cwd, err := os.Readlink(proc("cwd")); err != nil || filepath.Base(cwd) != "echo" {
		t.Errorf("it runs in %s (%v)", cwd, err)
	}
	env, err := os.ReadFile(proc("environ"))
	if err != nil {
		t.Fatal(err)
	}
	own := false
	for v := range bytes.SplitSeq(env, []byte{0}) {
		name, _, _ := strings.Cut(string(v), "=")
		own = own || string(v) == "OWN=its own"
		if strings.HasPrefix(name, "WRIT_") && name != "WRIT_SCOPE" {
			t.Errorf("it has %s", v)
		}
	}
	if !own {
		t.Errorf("its own variable is missing: %q", env)
	}
	status, err := os.ReadFile(proc("status"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NoNewPrivs:\t1\n", "CapEff:\t0000000000000000\n", "Seccomp:\t2\n"} {
		if !bytes.Contains(status, []byte(want)) {
			t.Errorf("%q is not in force:\n%s", want, status)
		}
	}
	if bytes.Contains(status, []byte("Uid:\t0\t")) {
		t.Error("it is root of the machine")
	}
}

// A server that dies in a call: the call ends with what is known, nothing is sent again, and the next call starts the
// server anew ("What survives what").
func TestAServerThatDies(t *testing.T) {
	t.Parallel()
	s := stack.Start(t)
	e := addEcho(s, "echo")
	s.Settle("mcp.echo.append_note", commonv1.SecurityClass_SECURITY_CLASS_UNSPECIFIED, commonv1.Disposition_DISPOSITION_ALWAYS_ALLOW, e.digest)
	turn := s.OpenTurn(&registryv1.OpenTurnRequest{})
	ended := make(chan stack.Done, 1)
	go func() {
		done, err := s.TryCall(s.Context(), turn, "mcp.echo.append_note", e.slowly("dies"))
		if err != nil {
			t.Error(err)
		}
		ended <- done
	}()
	waitFor(t, "the effect", func() bool { return e.count("dies") == 1 })
	for _, pid := range serversOf(s, "echo-server") {
		p, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	done := <-ended
	if state := done.Outcome.GetState(); state != commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN && state != commonv1.OutcomeState_OUTCOME_STATE_TOOL_ERROR || stack.Reason(done.Outcome) != "SERVER_DIED" {
		t.Errorf("%v %v", state, done.Outcome.GetStatus())
	}
	if facts, _ := s.Receipt(stack.Caller, done.Outcome.GetReceipt()); facts.State != done.Outcome.GetState() {
		t.Errorf("the receipt says %v", facts.State)
	}
	s.Call(turn, "mcp.echo.append_note", e.arguments("after"), completed)
	if e.count("dies") != 1 || e.count("after") != 1 {
		t.Errorf("the call that died happened %d times, the next one %d", e.count("dies"), e.count("after"))
	}
}
