package sqlitedb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	"github.com/writ-dev/writ/internal/errs"
	"github.com/writ-dev/writ/internal/sqlitedb"
)

var schema = []sqlitedb.Migration{{Version: 1, Name: "rows", SQL: "CREATE TABLE rows (id TEXT PRIMARY KEY, body BLOB NOT NULL);"}}

func open(t *testing.T, path string, ms ...sqlitedb.Migration) *sqlitedb.DB {
	t.Helper()
	if ms == nil {
		ms = schema
	}
	db, err := sqlitedb.Open(t.Context(), path, ms)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func insert(db *sqlitedb.DB, ctx context.Context, id string) error {
	return db.Write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO rows (id, body) VALUES (?, ?)", id, []byte(id))
		return err
	})
}

func count(t *testing.T, db *sqlitedb.DB) (n int) {
	t.Helper()
	err := db.Read(t.Context(), func(q sqlitedb.Querier) error {
		return q.QueryRowContext(t.Context(), "SELECT count(*) FROM rows").Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A caller that fails, panics or breaks a rule undoes its own work and nobody else's, whoever shares its commit.
func TestAFailingWriterRollsBackAlone(t *testing.T) {
	db := open(t, "")
	own := errors.New("a reason of its own")
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			id := fmt.Sprint("row", i)
			err := db.Write(t.Context(), func(tx *sql.Tx) error {
				if _, err := tx.Exec("INSERT INTO rows (id, body) VALUES (?, ?)", id, []byte{1}); err != nil {
					return err
				}
				switch i % 4 {
				case 1:
					return own
				case 2:
					panic("a mistake")
				case 3:
					_, err := tx.Exec("INSERT INTO rows (id, body) VALUES (?, ?)", id, []byte{2})
					return err
				}
				return nil
			})
			ok := map[int]bool{
				0: err == nil,
				1: errors.Is(err, own),
				2: err != nil && strings.Contains(err.Error(), "a mistake"),
				3: sqlitedb.IsConflict(err),
			}[i%4]
			if !ok {
				t.Errorf("writer %d: %v", i, err)
			}
		}()
	}
	wg.Wait()
	if n := count(t, db); n != 50 {
		t.Errorf("%d rows, 50 writers succeeded", n)
	}
}

// A client that goes away in the middle of a statement must not undo its neighbours: SQLite answers an interrupted
// statement by rolling back the whole transaction.
func TestCancellationInTheMiddleHarmsNobody(t *testing.T) {
	db := open(t, "")
	const slow = `INSERT INTO rows (id, body) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 20000)
		SELECT ? || i, x'00' FROM n`
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := db.Write(ctx, func(tx *sql.Tx) error {
				if i%16 != 15 {
					_, err := tx.ExecContext(ctx, "INSERT INTO rows (id, body) VALUES (?, ?)", fmt.Sprint(i), []byte{1})
					return err
				}
				go cancel()
				_, err := tx.ExecContext(ctx, slow, fmt.Sprint("slow", i, "-"))
				return err
			})
			if i%16 != 15 && err != nil {
				t.Errorf("writer %d: %v", i, err)
			}
		}()
	}
	wg.Wait()
	if n := count(t, db); n%20000 != 30 {
		t.Errorf("%d rows: a neighbour's is missing, or half of a slow one stayed", n)
	}
}

func TestACancelledCallerDoesNotStart(t *testing.T) {
	db := open(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := insert(db, ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if count(t, db) != 0 {
		t.Error("it ran")
	}
}

// A reader sees one state for as long as it reads, and every write that returned before it began.
func TestAReadIsASnapshot(t *testing.T) {
	db := open(t, "")
	if err := insert(db, t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	err := db.Read(t.Context(), func(q sqlitedb.Querier) error {
		var before, after int
		if err := q.QueryRowContext(t.Context(), "SELECT count(*) FROM rows").Scan(&before); err != nil {
			return err
		}
		if err := insert(db, t.Context(), "b"); err != nil {
			return err
		}
		if err := q.QueryRowContext(t.Context(), "SELECT count(*) FROM rows").Scan(&after); err != nil {
			return err
		}
		if before != 1 || after != 1 {
			t.Errorf("saw %d, then %d", before, after)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Read(t.Context(), func(q sqlitedb.Querier) error {
		rows, err := q.QueryContext(t.Context(), "DELETE FROM rows RETURNING id")
		if err == nil {
			for rows.Next() {
			}
			err = errors.Join(rows.Err(), rows.Close())
		}
		return err
	})
	if err == nil {
		t.Error("a Read may write")
	}
}

// R-table "disk full": a clear error that names the store; the store works again when there is room.
func TestAFullStoreNamesItself(t *testing.T) {
	db := open(t, "")
	limit := func(pages int) {
		if err := db.Write(t.Context(), func(tx *sql.Tx) error {
			var now int
			return tx.QueryRow(fmt.Sprintf("PRAGMA max_page_count = %d", pages)).Scan(&now)
		}); err != nil {
			t.Fatal(err)
		}
	}
	limit(12)
	var err error
	for i := 0; err == nil && i < 100; i++ {
		err = db.Write(t.Context(), func(tx *sql.Tx) error {
			_, err := tx.Exec("INSERT INTO rows (id, body) VALUES (?, ?)", fmt.Sprint(i), make([]byte, 8192))
			return err
		})
	}
	var full *sqlitedb.Error
	if !errors.As(err, &full) || full.Kind != sqlitedb.Full || full.Path != db.Path() || !strings.Contains(err.Error(), db.Path()) {
		t.Fatalf("%v", err)
	}
	if m := errs.Metadata(err); errs.ReasonOf(err) != "STORE_UNAVAILABLE" || m["name"] != db.Path() || m["kind"] != "full" {
		t.Errorf("over the wire: %v %v", errs.ReasonOf(err), m)
	}
	limit(10_000)
	if err := insert(db, t.Context(), "room again"); err != nil {
		t.Errorf("after there is room: %v", err)
	}
}

// One that fills the disk must not make a neighbour believe that it is stored, nor keep later ones from trying.
func TestNobodyIsToldAnUntruthWhenTheStoreFills(t *testing.T) {
	db := open(t, "")
	if err := db.Write(t.Context(), func(tx *sql.Tx) error {
		var now int
		return tx.QueryRow("PRAGMA max_page_count = 30").Scan(&now)
	}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	stored := map[string]bool{}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			id := fmt.Sprint(i)
			size := 16
			if i%4 == 0 {
				size = 64 << 10
			}
			err := db.Write(t.Context(), func(tx *sql.Tx) error {
				_, err := tx.Exec("INSERT INTO rows (id, body) VALUES (?, ?)", id, make([]byte, size))
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			stored[id] = err == nil
		}()
	}
	wg.Wait()
	want := 0
	for id, ok := range stored {
		if !ok {
			continue
		}
		want++
		if err := insert(db, t.Context(), id); !sqlitedb.IsConflict(err) {
			t.Errorf("row %s was acknowledged and is not there: %v", id, err)
		}
	}
	if n := count(t, db); n != want {
		t.Errorf("%d rows, %d acknowledged", n, want)
	}
}

func TestMigrationsGoForwardWithABackup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	db := open(t, path)
	if err := insert(db, t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	db.Close()

	two := append(schema, sqlitedb.Migration{Version: 2, Name: "more", SQL: "ALTER TABLE rows ADD COLUMN note TEXT; CREATE INDEX n ON rows(note);"})
	db = open(t, path, two...)
	if count(t, db) != 1 {
		t.Error("the row is gone")
	}
	db.Close()
	backups, _ := filepath.Glob(path + ".v1-*.bak")
	if len(backups) != 1 {
		t.Fatalf("backups: %v", backups)
	}
	if st, _ := os.Stat(backups[0]); st.Mode().Perm() != 0o600 {
		t.Errorf("backup has mode %v", st.Mode())
	}
	if old := open(t, backups[0]); count(t, old) != 1 {
		t.Error("the backup is not the old store")
	}

	_, err := sqlitedb.Open(t.Context(), path, schema)
	var newer *sqlitedb.Error
	if !errors.As(err, &newer) || newer.Kind != sqlitedb.Newer || newer.Path != path {
		t.Errorf("a newer schema: %v", err)
	}
}

// A migration that fails in its middle leaves the store as it was.
func TestAFailingMigrationChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	open(t, path).Close()
	bad := append(schema, sqlitedb.Migration{Version: 2, Name: "bad", SQL: "CREATE TABLE x (a); CREATE TABLE x (a);"})
	if _, err := sqlitedb.Open(t.Context(), path, bad); err == nil || !strings.Contains(err.Error(), "bad") {
		t.Fatalf("%v", err)
	}
	db := open(t, path)
	err := db.Read(t.Context(), func(q sqlitedb.Querier) error {
		var n int
		return q.QueryRowContext(t.Context(), "SELECT count(*) FROM x").Scan(&n)
	})
	if err == nil {
		t.Error("half a migration stayed")
	}
}

func TestMigrationFilesAreRead(t *testing.T) {
	good := fstest.MapFS{"m/0001_a.sql": {Data: []byte("A")}, "m/0002_b_c.sql": {Data: []byte("B")}}
	ms, err := sqlitedb.Migrations(good, "m")
	if err != nil || len(ms) != 2 || ms[1].Name != "b_c" || ms[1].SQL != "B" {
		t.Errorf("%v %v", ms, err)
	}
	for name, fsys := range map[string]fstest.MapFS{
		"a gap":      {"m/0001_a.sql": {}, "m/0003_c.sql": {}},
		"other name": {"m/0001_a.sql": {}, "m/readme.txt": {}},
	} {
		if _, err := sqlitedb.Migrations(fsys, "m"); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestAStoreIsPrivateAndATemporaryOneGoes(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "new", "s.db"))
	if err := insert(db, t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if st, err := os.Stat(db.Path() + suffix); err != nil || st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s%s: %v %v", db.Path(), suffix, st, err)
		}
	}
	tmp := open(t, "")
	if err := tmp.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(tmp.Path())); !os.IsNotExist(err) {
		t.Errorf("the temporary store is still there: %v", err)
	}
}

func TestAFileThatIsNoStoreIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("not a database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := sqlitedb.Open(t.Context(), path, schema)
	var corrupt *sqlitedb.Error
	if !errors.As(err, &corrupt) || corrupt.Kind != sqlitedb.Corrupt {
		t.Errorf("%v", err)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	db, err := sqlitedb.Open(t.Context(), "", schema)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			err := insert(db, context.Background(), fmt.Sprint(i))
			var closed *sqlitedb.Error
			if err != nil && (!errors.As(err, &closed) || closed.Kind != sqlitedb.Closed) {
				t.Errorf("%v", err)
			}
		}()
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if err := db.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	if err := insert(db, context.Background(), "late"); err == nil {
		t.Error("a closed store takes writes")
	}
}
