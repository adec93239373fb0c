// Package sqlitedb is the embedded engine under every service's store: one SQLite file, one writer, durable commits.
//
// Write groups concurrent callers into one commit: each runs in a savepoint of a shared transaction, a failing one
// rolls back alone, and every caller returns only after the commit is on disk. Read sees a snapshot and never waits
// for a writer.
package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"modernc.org/sqlite"
)

const (
	readers     = 4       // connections that serve Read
	maxBatch    = 256     // writers in one commit
	busyTimeout = "10000" // ms that a connection waits for another process, such as a backup, to let go
)

// Querier is what a Read may do.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// DB is one open store. It is safe for concurrent use.
type DB struct {
	path   string
	temp   string // folder to remove at Close, "" if the caller named the path
	writer *sql.DB
	reader *sql.DB

	queue     chan *write
	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
	stopped   sync.WaitGroup
}

// Open opens the store at path, creates it (0600) if it is not there, and brings its schema forward. Path "" is a
// private temporary store that Close removes. Before an existing store is migrated it is copied to
// <path>.v<old>-<time>.bak. A store whose schema is newer than migrations is refused.
//
// A failure is an *Error that names the path.
func Open(ctx context.Context, path string, migrations []Migration) (*DB, error) {
	db := &DB{path: path, queue: make(chan *write), closing: make(chan struct{})}
	if err := db.place(); err != nil {
		return nil, db.failFile("open", err)
	}
	// SQLite's own builds sync with fdatasync where the system has it; this one needs to be told. The setting belongs
	// to the process and changes no guarantee. Where there is no fdatasync it stays as it is.
	_, _ = sqlite.Fdatasync(true)
	db.writer = sql.OpenDB(&connector{dsn: dsn(db.path, "_txlock", "immediate"), writer: true})
	db.writer.SetMaxOpenConns(1)
	db.reader = sql.OpenDB(&connector{dsn: dsn(db.path, "_query_only", "1")})
	db.reader.SetMaxOpenConns(readers)
	db.reader.SetMaxIdleConns(readers)
	if err := db.prepare(ctx, migrations); err != nil {
		return nil, errors.Join(db.failFile("open", err), db.release())
	}
	db.stopped.Add(1)
	go db.run()
	return db, nil
}

// place makes sure that the file exists and that nobody else may read it. SQLite gives the files beside it
// (-wal, -shm) the same mode.
func (db *DB) place() error {
	if db.path == "" {
		dir, err := os.MkdirTemp("", "writ-store-")
		if err != nil {
			return err
		}
		db.temp, db.path = dir, filepath.Join(dir, "store.db")
	}
	abs, err := filepath.Abs(db.path)
	if err != nil {
		return err
	}
	db.path = abs
	if err := os.MkdirAll(filepath.Dir(abs), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(abs, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func (db *DB) prepare(ctx context.Context, migrations []Migration) error {
	if err := db.writer.PingContext(ctx); err != nil {
		return err
	}
	if err := db.migrate(ctx, migrations); err != nil {
		return err
	}
	// The names of the files beside the store must survive a power cut as the commits in them do.
	return syncDir(filepath.Dir(db.path))
}

// Path is where the store lies.
func (db *DB) Path() string { return db.path }

// Read runs fn on a snapshot: all its queries see the same state, with every Write that returned before.
// Cancelling ctx ends it. fn must not keep q.
func (db *DB) Read(ctx context.Context, fn func(q Querier) error) error {
	tx, err := db.reader.BeginTx(ctx, nil)
	if err != nil {
		return db.fail("read", err)
	}
	defer tx.Rollback()
	return db.fail("read", fn(tx))
}

// Backup writes a consistent copy of the store to dst, which must not exist, with mode 0600, and syncs it.
// Writers go on meanwhile.
func (db *DB) Backup(ctx context.Context, dst string) error {
	f, err := os.OpenFile(dst, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return db.failFile("back up", err)
	}
	defer f.Close()
	// A connection of its own: the readers' may not write, not even another file.
	own := sql.OpenDB(&connector{dsn: dsn(db.path, "mode", "rw")})
	defer own.Close()
	if _, err := own.ExecContext(ctx, "VACUUM INTO ?", dst); err != nil {
		return errors.Join(db.failFile("back up", err), os.Remove(dst))
	}
	return db.failFile("back up", errors.Join(f.Sync(), syncDir(filepath.Dir(dst))))
}

// Close ends the writer, waits for the commit in progress and closes the files. Later calls fail with Kind Closed.
func (db *DB) Close() error {
	db.closeOnce.Do(func() {
		close(db.closing)
		db.stopped.Wait()
		db.closeErr = db.release()
	})
	return db.closeErr
}

func (db *DB) release() error {
	err := errors.Join(db.reader.Close(), db.writer.Close())
	if db.temp != "" {
		err = errors.Join(err, os.RemoveAll(db.temp))
	}
	return err
}

func dsn(path string, key, value string) string {
	q := url.Values{}
	q.Add("_pragma", "busy_timeout("+busyTimeout+")")
	q.Add("_pragma", "journal_mode(WAL)")
	q.Add("_pragma", "synchronous(FULL)")
	q.Add("_pragma", "foreign_keys(1)")
	q.Add("_pragma", "trusted_schema(0)")
	q.Set("_dqs", "0")
	q.Set(key, value)
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}
