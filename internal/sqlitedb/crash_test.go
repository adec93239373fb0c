package sqlitedb_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/writ-dev/writ/internal/sqlitedb"
)

const crashEnv = "WRIT_TEST_CRASH_STORE"

// TestMain lets the test binary be the writer that TestKillLosesNothingAcknowledged kills.
func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		writeForEver(path)
	}
	os.Exit(m.Run())
}

func writeForEver(path string) {
	db, err := sqlitedb.Open(context.Background(), path, schema)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var out sync.Mutex
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d", w, i)
				if err := insert(db, context.Background(), id); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				out.Lock()
				fmt.Println(id)
				out.Unlock()
			}
		}()
	}
	select {}
}

// What was acknowledged survives kill -9 of the process in the middle of its writing (design: receipts are committed
// and then answered).
func TestKillLosesNothingAcknowledged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	child := exec.Command(os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), crashEnv+"="+path)
	child.Stderr = os.Stderr
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var acknowledged []string
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // a line without its end was not acknowledged yet
		}
		acknowledged = append(acknowledged, strings.TrimSpace(line))
		if len(acknowledged) == 200 {
			child.Process.Kill()
		}
	}
	child.Wait()
	if len(acknowledged) < 200 {
		t.Fatalf("the writer ended after %d rows", len(acknowledged))
	}
	db := open(t, path)
	found := map[string]bool{}
	err = db.Read(t.Context(), func(q sqlitedb.Querier) error {
		rows, err := q.QueryContext(t.Context(), "SELECT id FROM rows")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err
			}
			found[id] = true
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range acknowledged {
		if !found[id] {
			t.Errorf("row %s was acknowledged and is gone", id)
		}
	}
}
