package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
)

// engines are the stores that the suite runs on.
func engines(t *testing.T) map[string]Store {
	s, err := OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "evidence.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return map[string]Store{"sqlite": s}
}

func claimOf(ns, call string) Claim {
	return Claim{Namespace: ns, Call: call, Tool: "x", Executor: "exec", WritID: "w", Decision: "d", Cause: "mode", Claimed: time.Now(), Writ: "writ"}
}

func sealingOf(ns, call, name string) Sealing {
	return Sealing{Receipt: Receipt{Namespace: ns, Name: name, Kind: evidencev1.ReceiptKind_RECEIPT_KIND_CALL, Call: call,
		Sealed: time.Now(), Statement: []byte(name), Countersignature: []byte("c"), Principal: "p", Conversation: "v"},
		Opening: Opening{Body: []byte("o")}}
}

func TestClaimsAndSealsExcludeEachOther(t *testing.T) { // R100
	for name, s := range engines(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			var taken *Taken
			id, err := s.Claim(ctx, claimOf("n", "turns/t/calls/1"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Claim(ctx, claimOf("n", "turns/t/calls/1")); !errors.As(err, &taken) || taken.Executor != "exec" {
				t.Errorf("second claim: %v", err)
			}
			if _, err := s.Claim(ctx, claimOf("m", "turns/t/calls/1")); err != nil {
				t.Errorf("another namespace: %v", err)
			}
			deny := sealingOf("n", "turns/t/calls/1", "r_deny")
			deny.TakesClaim = true
			if _, err := s.Seal(ctx, deny); !errors.As(err, &taken) {
				t.Errorf("a denial of a claimed call: %v", err)
			}
			in := sealingOf("n", "turns/t/calls/1", "r_1")
			in.Claim = id
			if _, err := s.Seal(ctx, in); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Seal(ctx, sealingOf("n", "turns/t/calls/1", "r_2")); !errors.As(err, &taken) || taken.Receipt != "r_1" {
				t.Errorf("second seal: %v", err)
			}
			deny = sealingOf("n", "turns/t/calls/2", "r_3")
			deny.TakesClaim = true
			if _, err := s.Seal(ctx, deny); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Claim(ctx, claimOf("n", "turns/t/calls/2")); !errors.As(err, &taken) || taken.Receipt != "r_3" {
				t.Errorf("claim of a denied call: %v", err)
			}
			open, err := s.OpenClaims(ctx)
			if err != nil || len(open) != 1 || open[0].Namespace != "m" {
				t.Errorf("open claims %v %v", open, err)
			}
		})
	}
}

func TestConcurrentSealsGetEverySequenceOnce(t *testing.T) { // R104
	for name, s := range engines(t) {
		t.Run(name, func(t *testing.T) {
			const calls, rivals = 50, 4
			var wg sync.WaitGroup
			seen := make(chan int64, calls*rivals)
			for i := range calls {
				for j := range rivals {
					wg.Go(func() {
						r, err := s.Seal(t.Context(), sealingOf("n", fmt.Sprint("turns/t/calls/", i), fmt.Sprintf("r_%d_%d", i, j)))
						var taken *Taken
						if err == nil {
							seen <- r.Sequence
						} else if !errors.As(err, &taken) {
							t.Error(err)
						}
					})
				}
			}
			wg.Wait()
			close(seen)
			got := map[int64]bool{}
			for n := range seen {
				got[n] = true
			}
			for n := int64(1); n <= calls; n++ {
				if !got[n] {
					t.Errorf("sequence %d is missing", n)
				}
			}
			if len(got) != calls {
				t.Errorf("%d sequences of %d calls", len(got), calls)
			}
		})
	}
}

// TestRecordsCantBeChanged goes at the file as somebody with a database tool would. R104.
func TestRecordsCantBeChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "evidence.db")
	s, err := OpenSQLite(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	id, err := s.Claim(t.Context(), claimOf("n", "turns/t/calls/1"))
	if err != nil {
		t.Fatal(err)
	}
	in := sealingOf("n", "turns/t/calls/1", "r_1")
	in.Claim = id
	if _, err := s.Seal(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if err := s.KeepKeys(t.Context(), []Key{{ID: "k", Service: "exec", Public: make([]byte, 32)}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{
		"DELETE FROM receipts", "UPDATE receipts SET statement = x'00'", "UPDATE receipts SET id = id + 1", "UPDATE receipts SET principal = 'x'",
		"UPDATE receipts SET countersignature = x'00'", "DELETE FROM claims", "UPDATE claims SET executor = 'x'", "UPDATE claims SET receipt = NULL",
		"UPDATE claims SET writ = 'another'", "DELETE FROM keys", "UPDATE keys SET public_key = x'00'",
	} {
		if _, err := db.ExecContext(context.Background(), statement); err == nil {
			t.Errorf("%s: done", statement)
		}
	}
	for _, statement := range []string{
		"DELETE FROM openings", "UPDATE claims SET writ = NULL", "UPDATE receipts SET log_index = 0",
	} {
		if _, err := db.ExecContext(context.Background(), statement); err != nil {
			t.Errorf("erasing and logging must work: %s: %v", statement, err)
		}
	}
	if _, err := db.ExecContext(context.Background(), "UPDATE receipts SET log_index = 1"); err == nil {
		t.Error("a log index was given twice")
	}
}
