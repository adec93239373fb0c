package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/errs"
)

// Kind is what is wrong with a store.
type Kind string

// The kinds of Error.
const (
	Full     Kind = "full"      // the disk, or the store's own limit
	ReadOnly Kind = "read-only" // the file, the folder or the file system
	Newer    Kind = "newer"     // written by a later version of this program
	Corrupt  Kind = "corrupt"   // not a store of ours, or damaged
	Busy     Kind = "busy"      // another process holds it
	IO       Kind = "io"        // the disk failed, or the file cannot be opened
	Closed   Kind = "closed"    // this program closed it
)

// Error says what is wrong with a store and which one it is. Every failure of the store itself is one; errors that
// a caller's function returns for reasons of its own are passed through.
type Error struct {
	Kind Kind
	Path string // the store
	Op   string // open, read, write, commit, back up
	Err  error
}

func (e *Error) Error() string {
	return fmt.Sprintf("store %s is %s (%s): %v", e.Path, e.Kind, e.Op, e.Err)
}

// Unwrap returns what SQLite or the system said.
func (e *Error) Unwrap() error { return e.Err }

var errClosed = errors.New("the store is closed")

// IsConflict tells whether err is a violated UNIQUE or PRIMARY KEY rule: the row is there already.
func IsConflict(err error) bool {
	var s *sqlite.Error
	if !errors.As(err, &s) {
		return false
	}
	return s.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || s.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY ||
		s.Code() == sqlite3.SQLITE_CONSTRAINT_ROWID
}

// fail makes an *Error of what SQLite says about the store, and leaves everything else as it is: it may be the
// caller's own.
func (db *DB) fail(op string, err error) error {
	var already *Error
	if err == nil || errors.As(err, &already) {
		return err
	}
	if errors.Is(err, errClosed) || errors.Is(err, sql.ErrConnDone) {
		return &Error{Kind: Closed, Path: db.path, Op: op, Err: err}
	}
	if kind, ok := kindOf(err); ok {
		return &Error{Kind: kind, Path: db.path, Op: op, Err: err}
	}
	return err
}

// failFile is fail for what this package does with files itself, where every error is about the store.
func (db *DB) failFile(op string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if err = db.fail(op, err); errors.As(err, new(*Error)) {
		return err
	}
	kind := IO
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		kind = Full
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		kind = ReadOnly
	}
	return &Error{Kind: kind, Path: db.path, Op: op, Err: err}
}

func kindOf(err error) (Kind, bool) {
	var s *sqlite.Error
	if !errors.As(err, &s) {
		return "", false
	}
	switch s.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return Full, true
	case sqlite3.SQLITE_READONLY:
		return ReadOnly, true
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return Corrupt, true
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return Busy, true
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return IO, true
	}
	return "", false
}

// GRPCStatus is what a client of the service sees: STORE_UNAVAILABLE with the store's path and kind, and no text of
// SQLite's.
func (e *Error) GRPCStatus() *status.Status {
	code, next := codes.FailedPrecondition, ""
	switch e.Kind {
	case Full:
		code, next = codes.ResourceExhausted, "Make room on the disk; nothing was changed."
	case ReadOnly:
		next = "Make the file and its folder writable for the service's user."
	case Newer:
		next = "Use the release that wrote the store, or restore the backup that lies beside it."
	case Corrupt:
		next = "Restore it from a backup: `writ restore`."
	case Busy:
		code, next = codes.Unavailable, "Another process holds the store; try again."
	case Closed:
		code, next = codes.Unavailable, "The service is stopping; try again."
	case IO:
		code, next = codes.Unavailable, "The disk failed or the file can't be opened; the service's log says more."
	}
	return errs.Status(errs.New(code, commonv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, e.Path,
		"the store "+e.Path+" is "+string(e.Kind), next, "kind", string(e.Kind)))
}
