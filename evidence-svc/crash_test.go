package evidence_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	evidence "github.com/writ-dev/writ/evidence-svc"
	"github.com/writ-dev/writ/evidence-svc/evidencetest"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
)

// crashDir tells this test binary to be the process that is killed.
const crashDir = "WRIT_EVIDENCE_CRASH_DIR"

// TestCrashChild is no test of its own: it seals until it is killed, and prints what was answered.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		return
	}
	s := evidencetest.New(t, evidence.Config{Dir: dir}, nil)
	var mu sync.Mutex
	say := func(what, name string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(what, name) // one write, unbuffered
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				c := newCall(t, nil)
				mark := claimed(t, s, c)
				say("claimed", c.name)
				sealed(t, s, c, mark.GetClaimToken())
				say("sealed", c.name)
			}
		})
	}
	wg.Wait()
}

// TestEveryAnsweredSealSurvivesKill kills the process in the middle of its work, again and again. R100, R104, R109.
func TestEveryAnsweredSealSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	said := map[string]string{}
	for round := range 6 {
		for line := range killedAfter(t, dir, 40+70*round) {
			if what, name, ok := strings.Cut(line, " "); ok && strings.HasPrefix(name, "turns/") && said[name] != "sealed" {
				said[name] = what
			}
		}
	}
	s := evidencetest.New(t, evidence.Config{Dir: dir}, nil)
	open := map[string]bool{}
	list, err := s.Claims("exec").ListOpenClaims(t.Context(), &evidencev1.ListOpenClaimsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.GetClaims() {
		open[c.GetCall()] = true
	}
	seals := 0
	for name, what := range said {
		got, err := s.Receipts("caller").GetReceipt(t.Context(), &evidencev1.GetReceiptRequest{Name: name, WithOpening: true})
		switch {
		case what == "sealed" && err != nil:
			t.Errorf("%s was sealed and is lost: %v", name, err)
		case what == "claimed" && err != nil && !open[name]:
			t.Errorf("%s was claimed and is lost: %v", name, err)
		case err == nil:
			seals++
			verify(t.Context(), t, s, got.GetReceipt())
			if string(got.GetOpening().GetArguments()) != arguments {
				t.Errorf("%s: its opening is lost", name)
			}
		}
	}
	if seals < 100 {
		t.Errorf("only %d seals were tried", seals)
	}
	checkSequence(t, s)
}

// killedAfter runs the child and kills it, without warning, after it said so many lines.
func killedAfter(t *testing.T, dir string, lines int) func(yield func(string) bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCrashChild$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
	defer late.Stop()
	var said []string
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		if said = append(said, scanner.Text()); len(said) == lines {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || len(said) < lines {
		t.Fatalf("the child ended by itself after %d lines: %v\n%s", len(said), err, strings.Join(said, "\n"))
	}
	return func(yield func(string) bool) {
		for _, line := range said {
			if !yield(line) {
				return
			}
		}
	}
}

// checkSequence walks all receipts and looks for a gap.
func checkSequence(t *testing.T, s *evidencetest.Server) {
	t.Helper()
	req := &evidencev1.ListReceiptsRequest{PageSize: 1000}
	want := int64(-1)
	for {
		page, err := s.Receipts("approver").ListReceipts(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.GetReceipts() {
			if want >= 0 && r.GetSequence() != want {
				t.Fatalf("sequence %d where %d is due", r.GetSequence(), want)
			}
			want = r.GetSequence() - 1
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if want != 0 {
		t.Errorf("the sequence begins at %d", want+1)
	}
}
