package evidence_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	evidence "github.com/writ-dev/writ/evidence-svc"
	"github.com/writ-dev/writ/evidence-svc/evidencetest"
	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/errs"
)

// tinyDisk is a folder on a file system of its own with so many bytes. It needs root, as CI has it.
func tinyDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("mount a tmpfs on %s: %v (this test needs root)", dir, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestAFullDiskIsSaidBeforeTheEffect: a claim that can't be written is refused, so nothing runs; what was answered
// before stays; with room again everything goes on.
func TestAFullDiskIsSaidBeforeTheEffect(t *testing.T) { // design: what survives what
	dir := tinyDisk(t, "4m")
	s := evidencetest.New(t, evidence.Config{Dir: dir, TraceDatabase: filepath.Join(t.TempDir(), "traces.db")}, nil)
	first := newCall(t, nil)
	r := run(t, s, first)
	running := newCall(t, nil)
	mark := claimed(t, s, running)
	ballast := filepath.Join(dir, "ballast")
	fill(t, ballast)

	var err error
	for range 2000 { // the write-ahead log may have some room left
		if _, err = s.Claims("exec").Claim(t.Context(), &evidencev1.ClaimRequest{Writ: newCall(t, nil).writ}); err != nil {
			break
		}
	}
	if m := wantReason(t, err, "STORE_FULL"); m["name"] != filepath.Join(dir, "evidence.db") || m["next"] == "" {
		t.Errorf("metadata %v", m)
	}
	f, o := running.completed(`{"text":"` + strings.Repeat("x", 60<<10) + `"}`)
	_, err = s.Sealer("exec").Seal(t.Context(), f, o, mark.GetClaimToken())
	wantReason(t, err, "STORE_FULL")
	_, err = put(t.Context(), s, &evidencev1.PutBlobHeader{Namespace: "default"}, content(1<<20))
	wantReason(t, err, "STORE_FULL")
	if _, err := s.Receipts("caller").GetReceipt(t.Context(), &evidencev1.GetReceiptRequest{Name: r.GetId()}); err != nil {
		t.Errorf("what was sealed can't be read: %v", err)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if _, err = s.Sealer("exec").Seal(t.Context(), f, o, mark.GetClaimToken()); err != nil {
		t.Errorf("with room again: %v (%s)", err, errs.ReasonOf(err))
	}
	run(t, s, newCall(t, nil))
	checkSequence(t, s)
}

func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for block := make([]byte, 4096); ; {
		if _, err := file.Write(block); err != nil {
			return
		}
	}
}
