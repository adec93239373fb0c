package exec

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/writ-dev/writ/clients/go/writtoken"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/testkit"

	"github.com/writ-dev/writ/exec-svc/internal/run"
)

// executorRole is an executor in a process of its own, to be killed: it
// conducts the one call of its environment and says when the claim is taken.
func executorRole() int {
	public, err := hex.DecodeString(os.Getenv("TEST_KEY"))
	if err != nil {
		return 1
	}
	deployment := os.Getenv("TEST_DEPLOYMENT")
	s, err := New(context.Background(), Config{Deployment: deployment},
		WithIssuer("urn:writ:"+deployment+":permission", writtoken.StaticKeys{"k1": ed25519.PublicKey(public)}), WithClients(Clients{Claims: claimer{}, Receipts: mute{}}))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	e := &execution{token: os.Getenv("TEST_WRIT"), arguments: []byte(os.Getenv("TEST_ARGUMENTS")), log: run.NewLog(time.Now), cancel: make(chan struct{})}
	s.conduct(context.Background(), e)
	return 0
}

type claimer struct{ evidencev1.ClaimServiceClient }

func (claimer) Claim(context.Context, *evidencev1.ClaimRequest, ...grpc.CallOption) (*evidencev1.ClaimResponse, error) {
	fmt.Println("claimed")
	return &evidencev1.ClaimResponse{Claim: &evidencev1.Claim{ClaimToken: "token"}}, nil
}

type mute struct {
	evidencev1.ReceiptServiceClient
}

func (mute) Seal(_ context.Context, r *evidencev1.SealRequest, _ ...grpc.CallOption) (*evidencev1.SealResponse, error) {
	fmt.Println("sealed", r.GetOpening().GetOutcome())
	return &evidencev1.SealResponse{Receipt: &evidencev1.Receipt{Id: "r_1"}}, nil
}

// kill -9 in the middle of a call: no process is left, the call is sealed
// UNKNOWN at the next start, and nothing runs twice.
func TestKilledExecutorLeavesUnknownAndNoProcess(t *testing.T) {
	for name, isolation := range map[string]string{"isolated": `"isolation":"` + isolation(t) + `"`, "host": `"isolation":"host","network":"open"`} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			mark := fmt.Sprintf("9%d%d", os.Getpid(), len(name))
			args := `{"command":"echo x >> count; (setsid sleep ` + mark + ` &); exec sleep ` + mark + `",` + isolation + `}`
			c := p.claims(args)
			c.Scopes.HostExecution = name == "host"
			token := p.mint(c)
			owner := p.startExecutor(token, args)
			p.waitFile("count")
			testkit.WaitFor(t, 20*time.Second, func() bool { return alive(mark) == 2 })
			if err := owner.Kill(); err != nil {
				t.Fatal(err)
			}
			testkit.WaitFor(t, 20*time.Second, func() bool { return alive(mark) == 0 })

			call := "turns/t_1/calls/" + c.Call
			p.evidence.mu.Lock()
			p.evidence.claims[call] = &evidencev1.Claim{Call: call, Namespace: "default", Writ: token, ClaimToken: "token", State: evidencev1.ClaimState_CLAIM_STATE_OPEN, ClaimTime: timestamppb.Now()}
			p.evidence.mu.Unlock()
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- p.server.Run(ctx) }()
			testkit.WaitFor(t, 20*time.Second, func() bool { f, _ := p.evidence.last(); return f.Call == call })
			f, opening := p.evidence.last()
			if f.State != commonv1.OutcomeState_OUTCOME_STATE_UNKNOWN || f.Reason != "EXECUTOR_DIED" || opening.GetWrit() != token || f.Begin.IsZero() {
				t.Errorf("%+v", f)
			}
			if o, _ := p.present(token, args); reasonOf(o) != "CLAIM_TAKEN" {
				t.Errorf("%v", o)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if b, _ := os.ReadFile(filepath.Join(p.workspace, "count")); string(b) != "x\n" {
				t.Errorf("ran %q", b)
			}
		})
	}
}

func (p *plane) startExecutor(token, args string) *os.Process {
	p.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	env := []string{"WRIT_TEST_ROLE=executor", "TEST_WRIT=" + token, "TEST_ARGUMENTS=" + args, "TEST_DEPLOYMENT=" + p.deployment,
		"TEST_KEY=" + hex.EncodeToString(p.signer.Public().(ed25519.PublicKey)), "PATH=/usr/bin:/bin"}
	proc, err := os.StartProcess(exe, []string{"executor"}, &os.ProcAttr{Env: env, Files: []*os.File{nil, w, os.Stderr}})
	w.Close()
	if err != nil {
		p.t.Fatal(err)
	}
	said := make(chan string, 1)
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		sc := bufio.NewScanner(r)
		if sc.Scan() {
			said <- sc.Text()
		}
		for sc.Scan() {
		}
		close(said)
	}()
	p.t.Cleanup(func() {
		_ = proc.Kill()
		_, _ = proc.Wait()
		r.Close()
		<-reading
	})
	if got := <-said; got != "claimed" {
		p.t.Fatalf("the executor said %q", got)
	}
	return proc
}

// alive counts processes with the mark as their last argument.
func alive(mark string) int {
	n := 0
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		if bytes.HasSuffix(bytes.TrimRight(b, "\x00"), []byte("sleep\x00"+mark)) && !strings.Contains(string(b), "setsid") {
			n++
		}
	}
	return n
}
