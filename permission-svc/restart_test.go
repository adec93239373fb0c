package permission_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	permission "github.com/writ-dev/writ/permission-svc"
	"github.com/writ-dev/writ/permission-svc/permissiontest"
)

// restart starts the service again beside the same registry and evidence.
func restart(t *testing.T, h *house, cfg permission.Config) *permissiontest.Server {
	t.Helper()
	return permissiontest.StartWith(t, h.Registry, h.Evidence, cfg, permission.WithClock(h.clock.now))
}

// Keys rotate: the next key is published before its first use, old public keys stay, writs that are out stay good, and a
// restart finds all of it, with keys in the store or in files of their own.
func TestKeysRotate(t *testing.T) {
	for _, dir := range []string{"", filepath.Join(t.TempDir(), "keys")} {
		cfg := permission.Config{StorePath: filepath.Join(t.TempDir(), "p.db"), KeysDir: dir}
		h := start(t, cfg)
		h.wide()
		h.turn("t_1", bypass)
		published := func() (out []string) {
			r, err := permissionv1.NewAuthorizationServiceClient(h.Caller("bot")).ListKeys(t.Context(), &permissionv1.ListKeysRequest{})
			if err != nil || r.GetIssuer() != "urn:writ:local:permission" {
				t.Fatal(r, err)
			}
			for _, k := range r.GetKeys() {
				out = append(out, k.GetKid())
			}
			return out
		}
		first := h.write("t_1", "a")
		before := published()
		if err := h.Permission.RotateKey(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := published()
		if len(before) != 2 || len(after) != 3 || after[0] != before[0] || after[1] != before[1] {
			t.Fatal(before, after)
		}
		second := h.write("t_1", "b")
		h.verify(first)
		h.verify(second)
		if kid(t, first) != before[0] || kid(t, second) != before[1] {
			t.Fatal("the next key was not the published one")
		}
		h.Stop()
		h = &house{restart(t, h, cfg), t, h.clock}
		if got := published(); strings.Join(got, " ") != strings.Join(after, " ") {
			t.Fatal(got, after)
		}
		h.verify(first)
		if kid(t, h.write("t_1", "c")) != before[1] {
			t.Fatal("a restart changed the key")
		}
		if dir == "" {
			continue
		}
		files, _ := filepath.Glob(dir + "/*")
		if len(files) != 2 {
			t.Fatalf("private keys: %v", files)
		}
		for _, f := range files {
			if st, err := os.Stat(f); err != nil || st.Mode().Perm() != 0o600 {
				t.Error(f, st.Mode(), err)
			}
		}
	}
}

// A key that has served its time is rotated without anybody asking.
func TestKeysRotateByThemselves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.db")
	h := start(t, permission.Config{StorePath: path, KeyLifetime: time.Hour})
	n := len(h.Permission.SigningKeys())
	h.Stop()
	h.clock.advance(2 * time.Hour)
	s := restart(t, h, permission.Config{StorePath: path, KeyLifetime: time.Hour})
	permissiontest.Eventually(t, "the key was rotated", func() bool { return len(s.Permission.SigningKeys()) == n+1 })
}

func kid(t *testing.T, r *permissionv1.AuthorizeResponse) string {
	t.Helper()
	header, _, _ := strings.Cut(r.GetAllowed().GetWrit(), ".")
	b, err := decode(header)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), `"kid":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// crashEnv makes the test program the one that is killed.
const crashEnv = "WRIT_TEST_CRASH_STORE"

// TestMain runs the program that TestKilledBetweenDecisionAndAnswer kills.
func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		if err := decideForever(path, os.Getenv(crashEnv+"_ROUND")); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// decideForever asks and answers cards until it is killed. It says what was asked before it is decided, and what was
// decided after it was answered.
func decideForever(path, round string) error {
	t := &outside{}
	s := permissiontest.Start(t, permission.Config{StorePath: path})
	s.Registry.Open(permissiontest.Turn("t_1", manual, permissiontest.MCPTool("write_file")))
	authorize, cards := permissionv1.NewAuthorizationServiceClient(s.Caller("bot")), permissionv1.NewCardServiceClient(s.Approver("alice"))
	ctx := context.Background()
	for i := 0; ; i++ {
		call := fmt.Sprintf("r%s-%d", round, i)
		r, err := authorize.Authorize(ctx, &permissionv1.AuthorizeRequest{Turn: "t_1", Call: call, Tool: "mcp.fs.write_file", Arguments: []byte(`{"path":"a"}`)})
		if err != nil {
			return err
		}
		c := r.GetPending().GetCard()
		fmt.Println("asked", call, c.GetId())
		answer := permissionv1.Answer(1 + i%2)
		if _, err := cards.DecideCard(ctx, &permissionv1.DecideCardRequest{Card: c.GetId(), Etag: c.GetEtag(), PreviewSha256: c.GetPreview().GetSha256(), Answer: answer, Lifetime: once}); err != nil {
			return err
		}
		fmt.Println("decided", call, c.GetId(), map[permissionv1.Answer]string{yes: "APPROVED", no: "DENIED"}[answer])
	}
}

// outside is a testing.TB for a process that is no test.
type outside struct{ testing.TB }

func (*outside) Helper()           {}
func (*outside) Cleanup(func())    {}
func (*outside) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
func (*outside) Error(args ...any) { panic(fmt.Sprint(args...)) }

// Killed between the decision and its answer, again and again: a card that was asked is there once, an answer that was
// given stands, and one whose answer was lost is either whole or not there.
func TestKilledBetweenDecisionAndAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.db")
	asked, decided := map[string]string{}, map[string]string{}
	for round := range 8 {
		crash(t, path, round, asked, decided)
	}
	if len(decided) < 20 {
		t.Fatalf("only %d decisions before the kills", len(decided))
	}
	h := start(t, permission.Config{StorePath: path})
	h.turn("t_1", manual)
	undecided := 0
	for call, id := range asked {
		c := h.card(id)
		if c.GetCall() != call {
			t.Fatalf("%s is of %s", id, c.GetCall())
		}
		state := strings.TrimPrefix(c.GetState().String(), "CARD_STATE_")
		if want, ok := decided[call]; ok && state != want {
			t.Errorf("%s: answered %s, is %s", call, want, state)
		}
		if state == "PENDING" {
			undecided++
			h.approve(c, once)
		} else if c.GetDecidedBy().GetId() != "alice" || c.GetDecideTime() == nil {
			t.Errorf("half a decision: %v", c)
		}
		_, err := h.decide(h.Approver("bob"), c, yes, once)
		wantReason(t, err, "CARD_DECIDED")
	}
	t.Logf("%d asked, %d decided, %d still open after 8 kills", len(asked), len(decided), undecided)
	w := h.watch(h.Approver("alice"), "cards.0")
	permissiontest.Eventually(t, "the log is whole", func() bool {
		return strings.Count(w.seen(), "pending") == len(asked) || len(strings.Split(w.seen(), ", ")) >= 2*len(asked)
	})
	for call := range asked {
		if n := strings.Count(w.seen()+", ", call+" pending"); n != 1 {
			t.Errorf("%s was asked %d times in the log", call, n)
		}
	}
}

func crash(t *testing.T, path string, round int, asked, decided map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+path, fmt.Sprintf("%s_ROUND=%d", crashEnv, round))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		f := strings.Fields(lines.Text())
		switch f[0] {
		case "asked":
			asked[f[1]] = f[2]
		case "decided":
			decided[f[1]] = f[3]
		default:
			t.Fatal(lines.Text())
		}
		if n == 12+round { // odd and even: after a question, and after an answer
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Fatal(err)
	}
}
