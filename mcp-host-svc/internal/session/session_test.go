package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/writ-dev/writ/internal/fingerprint"
	"github.com/writ-dev/writ/mcp-host-svc/internal/fakeserver"
	"github.com/writ-dev/writ/mcp-host-svc/internal/process"
	"github.com/writ-dev/writ/mcp-host-svc/internal/process/processtest"
	"github.com/writ-dev/writ/mcp-host-svc/internal/session"
	"github.com/writ-dev/writ/mcp-host-svc/internal/wire"
)

func TestMain(m *testing.M) {
	fakeserver.RunIfAsked()
	goleak.VerifyTestMain(m)
}

type bench struct {
	plain   processtest.Plain
	log     string
	roots   atomic.Int32
	changed atomic.Int32
}

func (b *bench) config(t *testing.T, mode string) session.Config {
	t.Helper()
	dir := t.TempDir()
	b.log = filepath.Join(dir, "received")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return session.Config{
		Server: "fake",
		Start: func(ctx context.Context) (process.Process, error) {
			return b.plain.Start(ctx, process.Spec{
				Path: self, Argv: []string{"fake"}, Dir: dir,
				Env: []string{fakeserver.ModeVar + "=" + mode, "FAKE_LOG=" + b.log, "PATH=" + os.Getenv("PATH")},
			})
		},
		ProbeTimeout: 300 * time.Millisecond,
		StopGrace:    2 * time.Second,
		RootsRead:    func() { b.roots.Add(1) },
		ListChanged:  func() { b.changed.Add(1) },
	}
}

func (b *bench) received(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(b.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func open(t *testing.T, cfg session.Config) *session.Session {
	t.Helper()
	s, err := session.Open(deadline(t, 20*time.Second), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func deadline(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func call(t *testing.T, s *session.Session, tool, args string) session.Result {
	t.Helper()
	r, err := s.Call(deadline(t, 10*time.Second), session.Call{Tool: tool, Arguments: []byte(args)})
	if err != nil {
		t.Fatalf("call of %s: %v", tool, err)
	}
	return r
}

// What servers wrongly write on standard output costs nothing but a count, and
// results stay the server's own bytes (R34, R73; mcp-facts 2 rows 1, 8, 9).
func TestBytesSurviveEveryKindOfOutput(t *testing.T) {
	args := `{"z":9007199254740993, "a":1.0,"é":"<&>","k":[1e2]}`
	for _, mode := range []string{
		"", "noise", "bom", "noise,bom", "split", "trailing", "twice", "strays", "batch", "two-on-a-line",
		"string-id", "untagged", "id-first", "stderr", "roots", "sampling", "flood", "storm",
		"silent-discover", "exit-on-discover", "modern", "modern,noise", "grandchild", "pages",
	} {
		t.Run(mode, func(t *testing.T) {
			var b bench
			s := open(t, b.config(t, mode))
			l, err := s.List(deadline(t, 10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range fakeserver.Tools {
				if got := l.Tools[i]; string(got.Raw) != want || got.Wire != fingerprint.Wire([]byte(want)) {
					t.Fatalf("definition changed on its way:\n%s\n%s", got.Raw, want)
				}
			}
			r := call(t, s, "echo", args)
			if !strings.Contains(string(r.Raw), `"structuredContent":`+args+`,"x":9007199254740993`) {
				t.Fatalf("result: %s", r.Raw)
			}
			if !strings.Contains(b.received(t), `"arguments":`+args+`,"_meta"`) {
				t.Fatalf("the server got other bytes: %s", b.received(t))
			}
			if strings.Contains(mode, "noise") && s.Stats().NoiseLines < 5 {
				t.Fatalf("noise was not counted: %+v", s.Stats())
			}
			if mode == "strays" && s.Stats().Strays == 0 {
				t.Fatal("answers to nobody were not counted")
			}
		})
	}
}

func TestEraIsFound(t *testing.T) {
	for mode, want := range map[string]session.Era{
		"": session.EraLegacy, "silent-discover": session.EraLegacy, "exit-on-discover": session.EraLegacy,
		"modern": session.EraModern, "modern,silent-initialize": session.EraModern,
	} {
		var b bench
		s := open(t, b.config(t, mode))
		if s.Info().Era != want || s.Info().Name == "" || s.Info().Instructions != "be kind" {
			t.Errorf("%q: %+v, want era %s", mode, s.Info(), want)
		}
		if n := len(b.plain.Pids()); (n == 2) != (mode == "exit-on-discover") {
			t.Errorf("%q: %d processes were started", mode, n)
		}
	}
}

func TestRememberedEraAsksNothing(t *testing.T) {
	var b bench
	cfg := b.config(t, "exit-on-discover")
	cfg.Era = session.EraLegacy
	open(t, cfg)
	if len(b.plain.Pids()) != 1 || strings.Contains(b.received(t), "server/discover") {
		t.Fatal("a server known to be legacy was asked for its era")
	}
}

// The server is told the one folder of the session, and nothing else (R66).
func TestRootsAreTheOneFolder(t *testing.T) {
	for _, mode := range []string{"roots", "lazy-roots", "modern,modern-roots"} {
		for _, folder := range []string{"", "/tmp/a b/é"} {
			var b bench
			cfg := b.config(t, mode)
			cfg.Folder = folder
			s := open(t, cfg)
			call(t, s, "echo", `{}`)
			waitFor(t, "roots to be read", func() bool { return b.roots.Load() == 1 })
			want := `\"roots\":[]`
			if folder != "" {
				want = `\"uri\":\"file:///tmp/a%20b/%C3%A9\"`
			}
			waitFor(t, "the server to hold the roots", func() bool {
				got := string(call(t, s, "whoami", `{}`).Raw)
				return strings.Contains(got, want) && strings.Count(got, `\"uri\"`) == strings.Count(want, `\"uri\"`)
			})
		}
	}
}

func TestServersAskingForMoreGetAnHonestNo(t *testing.T) {
	var b bench
	s := open(t, b.config(t, "sampling"))
	waitFor(t, "both refusals", func() bool {
		got := b.received(t)
		return strings.Contains(got, "sampling/createMessage is not offered") && strings.Contains(got, "elicitation/create is not offered")
	})
	call(t, s, "echo", `{}`)

	s = open(t, b.config(t, "modern,modern-elicit"))
	_, err := s.Call(deadline(t, 5*time.Second), session.Call{Tool: "echo", Arguments: []byte(`{}`)})
	var asked *session.InputRequiredError
	if !errors.As(err, &asked) || asked.Method != "elicitation/create" {
		t.Fatalf("got %v", err)
	}
}

func TestListingsAreBounded(t *testing.T) {
	for mode, want := range map[string]session.ListErrorKind{
		"cursor-loop": session.CursorRepeats, "endless-pages": session.TooManyPages, "many-tools": session.TooManyTools,
	} {
		var b bench
		s := open(t, b.config(t, mode))
		_, err := s.List(deadline(t, 10*time.Second))
		var le *session.ListError
		if !errors.As(err, &le) || le.Kind != want {
			t.Errorf("%s: got %v, want %s", mode, err, want)
		}
		call(t, s, "echo", `{}`)
	}
	var b bench
	cfg := b.config(t, "")
	cfg.List.Bytes = 100
	_, err := open(t, cfg).List(deadline(t, 10*time.Second))
	var le *session.ListError
	if !errors.As(err, &le) || le.Kind != session.TooManyBytes || le.Limit != 100 {
		t.Errorf("bytes: got %v", err)
	}
}

func TestUnusableDefinitionsAreReportedAndTheOthersStay(t *testing.T) {
	var b bench
	l, err := open(t, b.config(t, "bad-tools")).List(deadline(t, 10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Tools) != 2 || l.Tools[0].Name != "good" || l.Tools[1].Name != "also-good" || len(l.Problems) != 6 {
		t.Fatalf("tools %+v, problems %+v", l.Tools, l.Problems)
	}
}

func TestAListingCantBeMadeToLastForEver(t *testing.T) {
	var b bench
	l, err := open(t, b.config(t, "ttl")).List(deadline(t, 10*time.Second))
	if err != nil || l.TTL != 24*time.Hour {
		t.Fatalf("ttl %v, %v", l, err)
	}
}

// An answer that is too long fails its own call only (field reports, framing).
func TestOversizeAnswerFailsOnlyItsCall(t *testing.T) {
	for _, mode := range []string{"", "id-first"} {
		var b bench
		cfg := b.config(t, mode)
		cfg.Wire.MaxLine = 64 << 10
		s := open(t, cfg)
		release := filepath.Join(t.TempDir(), "go")
		other := make(chan error, 1)
		go func() {
			_, err := s.Call(t.Context(), session.Call{Tool: "block", Arguments: fmt.Appendf(nil, `{"until":%q}`, release)})
			other <- err
		}()
		waitFor(t, "the other call to be sent", func() bool { return strings.Contains(b.received(t), "until") })
		_, err := s.Call(deadline(t, 10*time.Second), session.Call{Tool: "big", Arguments: []byte(`{"bytes":200000}`)})
		var long *wire.TooLongError
		if !errors.As(err, &long) || long.Limit != 64<<10 || long.Got < 200000 {
			t.Fatalf("got %v", err)
		}
		if err := os.WriteFile(release, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := <-other; err != nil {
			t.Fatalf("the other call failed too: %v", err)
		}
		call(t, s, "big", `{"bytes":60000}`)
	}
}

func TestToolErrorsAndProtocolErrorsAreTold(t *testing.T) {
	var b bench
	s := open(t, b.config(t, ""))
	if r := call(t, s, "fails", `{}`); !r.IsError || !strings.Contains(string(r.Raw), `"why":1.0`) {
		t.Fatalf("%+v", r)
	}
	_, err := s.Call(deadline(t, 5*time.Second), session.Call{Tool: "rpcerror"})
	var rpc *wire.RPCError
	if !errors.As(err, &rpc) || rpc.Code != -32602 || rpc.Message != `bad "params"` || string(rpc.Data) != `{"n":9007199254740993}` {
		t.Fatalf("got %v", err)
	}
}

func TestProgressIsForwardedInOrder(t *testing.T) {
	var b bench
	s := open(t, b.config(t, ""))
	got := make(chan string, 10)
	_, err := s.Call(deadline(t, 5*time.Second), session.Call{Tool: "progress", Progress: func(p []byte) { got <- string(p) }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if p := <-got; !strings.Contains(p, fmt.Sprintf(`"progress":%d,"total":3.0`, i)) {
			t.Fatalf("progress %d: %s", i, p)
		}
	}
}

func TestTraceTravelsInMeta(t *testing.T) {
	var b bench
	s := open(t, b.config(t, ""))
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	_, err := s.Call(deadline(t, 5*time.Second), session.Call{Tool: "echo", TraceParent: parent, TraceState: `a="b"`})
	if err != nil {
		t.Fatal(err)
	}
	if got := b.received(t); !strings.Contains(got, `"traceparent":"`+parent+`","tracestate":"a=\"b\""`) {
		t.Fatal(got)
	}
}

func TestCancellationReachesTheServer(t *testing.T) {
	var b bench
	s := open(t, b.config(t, ""))
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := s.Call(ctx, session.Call{Tool: "block", Arguments: []byte(`{"until":"/nonexistent"}`)})
		result <- err
	}()
	waitFor(t, "the call to be sent", func() bool { return strings.Contains(b.received(t), "until") })
	stop := errors.New("a person stopped it")
	cancel(stop)
	var cut *wire.InterruptedError
	if err := <-result; !errors.As(err, &cut) || !cut.Sent || !errors.Is(err, stop) {
		t.Fatalf("got %v", err)
	}
	waitFor(t, "notifications/cancelled", func() bool { return strings.Contains(b.received(t), "notifications/cancelled") })
	call(t, s, "echo", `{}`)
}

func TestServerThatDiesInACallFailsThatCall(t *testing.T) {
	var b bench
	s := open(t, b.config(t, "grandchild"))
	_, err := s.Call(deadline(t, 10*time.Second), session.Call{Tool: "die"})
	var closed *wire.ClosedError
	if err == nil {
		t.Fatal("no error")
	}
	<-s.Done()
	if errors.As(err, &closed) && !closed.Sent {
		t.Fatal("the request is said not to have been sent")
	}
	if !strings.Contains(string(s.Log()), "killed by the test") {
		t.Fatalf("log: %s", s.Log())
	}
}

// A server that never answers costs the start budget, and says what was waited
// for; a server that ends says why (field reports, lifecycle).
func TestFailedStartsSayWhy(t *testing.T) {
	var b bench
	cfg := b.config(t, "mute")
	_, err := session.Open(deadline(t, time.Second), cfg)
	var se *session.StartError
	if !errors.As(err, &se) || !strings.Contains(err.Error(), "server/discover or initialize") || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("mute: %v", err)
	}
	_, err = session.Open(deadline(t, 10*time.Second), b.config(t, "exit-at-start"))
	if !errors.As(err, &se) || !strings.Contains(err.Error(), "cannot open the database") || !strings.Contains(err.Error(), "code 7") {
		t.Fatalf("exit-at-start: %v", err)
	}
	cfg.Start = func(context.Context) (process.Process, error) { return nil, syscall.ENOENT }
	_, err = session.Open(deadline(t, time.Second), cfg)
	if !errors.As(err, &se) || !errors.Is(err, syscall.ENOENT) {
		t.Fatalf("missing: %v", err)
	}
	for _, pid := range b.plain.Pids() {
		if processtest.GroupAlive(pid) {
			t.Fatalf("process group %d is left over", pid)
		}
	}
}

// No process outlives its session, whatever the server does (R57).
func TestCloseLeavesNothing(t *testing.T) {
	for _, mode := range []string{"", "ignore-eof", "grandchild", "grandchild,ignore-eof"} {
		var b bench
		cfg := b.config(t, mode)
		cfg.StopGrace = 50 * time.Millisecond
		s := open(t, cfg)
		s.Close()
		<-s.Done()
		for _, pid := range b.plain.Pids() {
			if processtest.GroupAlive(pid) {
				t.Fatalf("%q: process group %d is left over", mode, pid)
			}
		}
	}
}

func TestListChangedIsSeenInBothEras(t *testing.T) {
	for _, mode := range []string{"", "modern"} {
		var b bench
		s := open(t, b.config(t, mode))
		call(t, s, "change", `{}`)
		waitFor(t, "list_changed", func() bool { return b.changed.Load() == 1 })
		if mode == "modern" && !strings.Contains(b.received(t), "subscriptions/listen") {
			t.Fatal("a modern server was not asked for changes")
		}
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
