package e2e

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/writ-dev/writ/clients/go/writtoken"
	"github.com/writ-dev/writ/e2e/internal/stack"
	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	execv1 "github.com/writ-dev/writ/gen/go/writ/exec/v1"
	mcphostv1 "github.com/writ-dev/writ/gen/go/writ/mcphost/v1"
	registryv1 "github.com/writ-dev/writ/gen/go/writ/registry/v1"
)

// executor is one of the two, reached without gateway or permission service: with the credential of a service and a writ
// of the test's own making.
type executor struct {
	name      string // of the service: its audience and the signer of its receipts
	class     string
	tool      *registryv1.TurnTool
	other     *registryv1.TurnTool // another tool
	arguments string               // of a call whose effect can be seen
	effects   func() int           // how often it has happened
	present   func(ctx context.Context, writ string, arguments []byte) (*commonv1.Outcome, error)
}

// world is one server with both executors on it.
type world struct {
	*stack.Stack
	turn      *registryv1.Turn
	key       ed25519.PrivateKey
	kid       string
	executors []executor
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s := stack.Start(t)
	notes := addEcho(s, "echo")
	folder := s.Workspace()
	w := &world{Stack: s, turn: s.OpenTurn(&registryv1.OpenTurnRequest{Workspace: folder})}
	w.key, w.kid = s.WritKey()
	service := s.Client(stack.Service)
	appendNote, show, run := mustTool(t, w.turn, "mcp.echo.append_note"), mustTool(t, w.turn, "mcp.echo.show_files"), mustTool(t, w.turn, "run_command")
	w.executors = []executor{
		{
			name: "mcp-host", class: "external_mutation", tool: appendNote, other: show,
			arguments: notes.arguments("effect 9007199254740993"), effects: func() int { return notes.count("effect 9007199254740993") },
			present: func(ctx context.Context, writ string, arguments []byte) (*commonv1.Outcome, error) {
				return mcpOutcome(service.MCPHost.Execute(ctx, &mcphostv1.ExecuteRequest{Request: &commonv1.ExecuteRequest{Writ: writ, Arguments: arguments}}))
			},
		},
		{
			name: "exec", class: "process", tool: run, other: appendNote,
			// Without a workspace in its scopes a command has a private /tmp only: what it did is seen in its result.
			arguments: `{"argv":["/bin/echo","effect 9007199254740993"]}`, effects: func() int { return -1 },
			present: func(ctx context.Context, writ string, arguments []byte) (*commonv1.Outcome, error) {
				return execOutcome(service.Exec.Execute(ctx, &execv1.ExecuteRequest{Request: &commonv1.ExecuteRequest{Writ: writ, Arguments: arguments}}))
			},
		},
	}
	return w
}

func mcpOutcome(stream mcphostv1.ExecutionService_ExecuteClient, err error) (*commonv1.Outcome, error) {
	if err != nil {
		return nil, err
	}
	return lastOutcome(func() (*commonv1.ExecutionEvent, error) {
		r, err := stream.Recv()
		return r.GetEvent(), err
	})
}

func execOutcome(stream execv1.RunService_ExecuteClient, err error) (*commonv1.Outcome, error) {
	if err != nil {
		return nil, err
	}
	return lastOutcome(func() (*commonv1.ExecutionEvent, error) {
		r, err := stream.Recv()
		return r.GetEvent(), err
	})
}

func lastOutcome(next func() (*commonv1.ExecutionEvent, error)) (o *commonv1.Outcome, err error) {
	for {
		event, err := next()
		if errors.Is(err, io.EOF) {
			return o, nil
		}
		if err != nil {
			return o, err
		}
		if event.GetOutcome() != nil {
			o = event.GetOutcome()
		}
	}
}

// good is a writ that would be accepted.
func (w *world) good(x executor) writtoken.Claims {
	return w.Claims(w.turn, x.tool, x.name, x.class, []byte(x.arguments))
}

// attack is a writ or a presentation that differs from a good one in one thing.
type attack struct {
	name string
	// make returns what is presented.
	make func(t *testing.T, w *world, x executor) (token string, arguments []byte)
	// mcp and exec are the reasons with which the executor refuses: a writ reason, or a reason of its own.
	mcp, exec string
}

func changed(change func(w *world, x executor, c *writtoken.Claims)) func(*testing.T, *world, executor) (string, []byte) {
	return func(_ *testing.T, w *world, x executor) (string, []byte) {
		c := w.good(x)
		change(w, x, &c)
		return w.Mint(w.key, w.kid, c), []byte(x.arguments)
	}
}

func presented(change func(arguments string) string) func(*testing.T, *world, executor) (string, []byte) {
	return func(_ *testing.T, w *world, x executor) (string, []byte) {
		return w.Mint(w.key, w.kid, w.good(x)), []byte(change(x.arguments))
	}
}

// tampered changes the three parts of a good token.
func tampered(change func(header, payload, signature []byte) ([]byte, []byte, []byte)) func(*testing.T, *world, executor) (string, []byte) {
	return func(t *testing.T, w *world, x executor) (string, []byte) {
		parts := strings.Split(w.Mint(w.key, w.kid, w.good(x)), ".")
		raw := make([][]byte, 3)
		for i, p := range parts {
			b, err := base64.RawURLEncoding.DecodeString(p)
			if err != nil {
				t.Fatal(err)
			}
			raw[i] = b
		}
		h, p, s := change(raw[0], raw[1], raw[2])
		enc := base64.RawURLEncoding.EncodeToString
		return enc(h) + "." + enc(p) + "." + enc(s), []byte(x.arguments)
	}
}

func attacks() []attack {
	hex := strings.Repeat("ab", 32)
	return []attack{
		{"no writ", func(_ *testing.T, _ *world, x executor) (string, []byte) { return "", []byte(x.arguments) }, "NO_WRIT", "NO_WRIT"},
		{"no token at all", func(_ *testing.T, _ *world, x executor) (string, []byte) { return "let me in", []byte(x.arguments) }, "MALFORMED", "MALFORMED"},
		{"alg none", tampered(func(h, p, _ []byte) ([]byte, []byte, []byte) {
			return bytes.Replace(h, []byte("EdDSA"), []byte("none"), 1), p, nil
		}), "ALGORITHM", "ALGORITHM"},
		{"alg none, signed", tampered(func(h, p, s []byte) ([]byte, []byte, []byte) {
			return bytes.Replace(h, []byte("EdDSA"), []byte("none"), 1), p, s
		}), "ALGORITHM", "ALGORITHM"},
		{"key in the header", tampered(func(h, p, s []byte) ([]byte, []byte, []byte) {
			return append(h[:len(h)-1], []byte(`,"jku":"https://example.org/keys"}`)...), p, s
		}), "HEADER", "HEADER"},
		{"another call in the payload", tampered(func(h, p, s []byte) ([]byte, []byte, []byte) {
			return h, bytes.Replace(p, []byte(`"call":"c_`), []byte(`"call":"x_`), 1), s
		}), "SIGNATURE", "SIGNATURE"},
		{"forged key", func(t *testing.T, w *world, x executor) (string, []byte) {
			_, forged, err := ed25519.GenerateKey(rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			return w.Mint(forged, w.kid, w.good(x)), []byte(x.arguments)
		}, "SIGNATURE", "SIGNATURE"},
		{"unknown key", func(t *testing.T, w *world, x executor) (string, []byte) {
			public, forged, err := ed25519.GenerateKey(rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			return w.Mint(forged, writtoken.KeyID(public), w.good(x)), []byte(x.arguments)
		}, "UNKNOWN_KEY", "UNKNOWN_KEY"},
		{"unknown issuer", changed(func(_ *world, _ executor, c *writtoken.Claims) { c.Issuer = "urn:writ:d_elsewhere:permission" }), "UNKNOWN_ISSUER", "UNKNOWN_ISSUER"},
		{"audience", changed(func(w *world, x executor, c *writtoken.Claims) {
			c.Audience = w.Audience(map[string]string{"exec": "mcp-host", "mcp-host": "exec"}[x.name])
		}), "AUDIENCE", "AUDIENCE"},
		{"audience of another deployment", changed(func(_ *world, x executor, c *writtoken.Claims) { c.Audience = "urn:writ:d_elsewhere:" + x.name }), "AUDIENCE", "AUDIENCE"},
		{"namespace", changed(func(_ *world, _ executor, c *writtoken.Claims) { c.Namespace = "tenant-b" }), "NAMESPACE", "NAMESPACE"},
		{"expired", changed(func(_ *world, _ executor, c *writtoken.Claims) {
			c.IssuedAt, c.NotBefore, c.Expiry = c.IssuedAt.Add(-time.Hour), c.NotBefore.Add(-time.Hour), c.NotBefore.Add(-time.Minute)
		}), "EXPIRED", "EXPIRED"},
		{"not yet valid", changed(func(_ *world, _ executor, c *writtoken.Claims) {
			c.NotBefore, c.Expiry = c.NotBefore.Add(10*time.Minute), c.NotBefore.Add(11*time.Minute)
		}), "NOT_YET_VALID", "NOT_YET_VALID"},
		{"another tool", changed(func(_ *world, x executor, c *writtoken.Claims) { c.Tool = x.other.GetTool().GetIdentity().GetTool() }), "FINGERPRINT", "TOOL"},
		{"another provider", changed(func(_ *world, _ executor, c *writtoken.Claims) { c.ProviderDigest = hex }), "PROVIDER", "PROVIDER"},
		{"another fingerprint", changed(func(_ *world, _ executor, c *writtoken.Claims) { c.Fingerprint = hex }), "FINGERPRINT", "FINGERPRINT"},
		{"other arguments", presented(func(a string) string { return strings.Replace(a, "effect", "affect", 1) }), "ARGUMENTS", "ARGUMENTS"},
		{"the next integer", presented(func(a string) string { return strings.Replace(a, "9007199254740993", "9007199254740992", 1) }), "ARGUMENTS", "ARGUMENTS"},
		{"one space more", presented(func(a string) string { return strings.Replace(a, ":", ": ", 1) }), "ARGUMENTS", "ARGUMENTS"},
		{"no arguments", presented(func(string) string { return "{}" }), "ARGUMENTS", "ARGUMENTS"},
	}
}

// Straight at the executors: whatever is wrong with a writ, it is refused with its own reason, nothing runs, and a signed
// receipt says so (design, "The writ"; R109).
func TestExecutorsTrustTheWritOnly(t *testing.T) {
	w := newWorld(t)
	for _, x := range w.executors {
		for _, a := range attacks() {
			t.Run(x.name+"/"+a.name, func(t *testing.T) {
				token, arguments := a.make(t, w, x)
				o, err := x.present(w.Context(), token, arguments)
				if err != nil {
					t.Fatal(err)
				}
				want := a.mcp
				if x.name == "exec" {
					want = a.exec
				}
				w.refused(t, x, o, want)
			})
		}
		if n := x.effects(); n > 0 {
			t.Errorf("%s: the effect of a refused call happened %d times", x.name, n)
		}
	}
}

// refused checks an outcome and its receipt.
func (w *world) refused(t *testing.T, x executor, o *commonv1.Outcome, want string) {
	t.Helper()
	if o.GetState() != commonv1.OutcomeState_OUTCOME_STATE_REFUSED {
		t.Fatalf("%v: %v", o.GetState(), o.GetStatus())
	}
	if got := refusalReason(o); got != want {
		t.Errorf("reason %s, want %s: %s", got, want, o.GetStatus().GetMessage())
	}
	if stack.Info(o).GetMetadata()["next"] == "" {
		t.Errorf("it does not say what to do next: %v", stack.Info(o))
	}
	if len(o.GetResult()) != 0 {
		t.Errorf("a refusal carries a result: %s", o.GetResult())
	}
	facts, got := w.In(t).Receipt(stack.Service, o.GetReceipt())
	if facts.Kind != evidencev1.ReceiptKind_RECEIPT_KIND_REFUSAL || facts.State != commonv1.OutcomeState_OUTCOME_STATE_REFUSED || facts.Executor != x.name {
		t.Errorf("the receipt says %v %v by %s", facts.Kind, facts.State, facts.Executor)
	}
	if facts.Reason != stack.Reason(o) || got.GetReceipt().GetExecutor() != x.name {
		t.Errorf("the receipt says %s by %s, the outcome %s", facts.Reason, got.GetReceipt().GetExecutor(), stack.Reason(o))
	}
}

// refusalReason is the verifier's reason where the writ was at fault. An executor that compares with what it is about to
// do has reasons of its own for the same: the contract changed.
func refusalReason(o *commonv1.Outcome) string {
	info := stack.Info(o)
	if r := info.GetMetadata()["writ_reason"]; r != "" {
		return r
	}
	switch r := info.GetReason(); r {
	case "FINGERPRINT_CHANGED":
		return "FINGERPRINT"
	case "PROVIDER_CHANGED":
		return "PROVIDER"
	default:
		return r
	}
}

// A writ is for one call: presented twice, or another writ for the same call, it runs once, and the second answer names the
// receipt and shows nothing of the first result (R100, ruling 9).
func TestAWritIsGoodForOneCall(t *testing.T) {
	w := newWorld(t)
	for _, x := range w.executors {
		t.Run(x.name, func(t *testing.T) {
			claims := w.good(x)
			first, err := x.present(w.Context(), w.Mint(w.key, w.kid, claims), []byte(x.arguments))
			if err != nil {
				t.Fatal(err)
			}
			if first.GetState() != commonv1.OutcomeState_OUTCOME_STATE_COMPLETED {
				t.Fatalf("a good writ: %v %v", first.GetState(), first.GetStatus())
			}
			again := claims
			again.ID += "x"
			for name, c := range map[string]writtoken.Claims{"the same writ": claims, "another writ for the call": again} {
				o, err := x.present(w.Context(), w.Mint(w.key, w.kid, c), []byte(x.arguments))
				if err != nil {
					t.Fatal(err)
				}
				w.refused(t, x, o, "CLAIM_TAKEN")
				if got := stack.Info(o).GetMetadata()["receipt"]; got != first.GetReceipt() {
					t.Errorf("%s: names receipt %q, the call's is %q", name, got, first.GetReceipt())
				}
			}
			if n := x.effects(); n > 1 {
				t.Errorf("it happened %d times", n)
			}
		})
	}
}

// A caller's credential does not reach the executors at all, with a good writ either (Trust 5).
func TestCallersDoNotReachExecutors(t *testing.T) {
	w := newWorld(t)
	for _, credential := range []string{stack.Caller, stack.Approver} {
		c := w.Client(credential)
		for _, x := range w.executors {
			req := &commonv1.ExecuteRequest{Writ: w.Mint(w.key, w.kid, w.good(x)), Arguments: []byte(x.arguments)}
			var err error
			if x.name == "exec" {
				_, err = execOutcome(c.Exec.Execute(w.Context(), &execv1.ExecuteRequest{Request: req}))
			} else {
				_, err = mcpOutcome(c.MCPHost.Execute(w.Context(), &mcphostv1.ExecuteRequest{Request: req}))
			}
			wantReason(t, fmt.Sprintf("%s at %s", credential, x.name), err, "ACCESS_DENIED")
		}
	}
}
