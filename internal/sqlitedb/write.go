package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
)

// write is one caller's part of a commit.
type write struct {
	ctx  context.Context
	fn   func(tx *sql.Tx) error
	done chan error // buffered: the writer never waits for a caller
}

// Write runs fn inside a transaction and returns after its commit is durable, or with fn's error after it was undone
// (the error itself, so errors.Is and errors.As work). Concurrent writers share one commit; each is isolated by a
// savepoint and sees what the ones before it in the commit wrote.
//
// A ctx that ends before fn starts cancels the write; from then on the write runs to its end, since an interrupted
// statement would undo the neighbours. A panic in fn becomes an error. fn must be short, must not keep tx, must not
// commit or roll it back, and must not call Write.
func (db *DB) Write(ctx context.Context, fn func(tx *sql.Tx) error) error {
	w := &write{ctx: ctx, fn: fn, done: make(chan error, 1)}
	select {
	case <-db.closing:
		return db.fail("write", errClosed)
	default:
	}
	select {
	case db.queue <- w:
		return <-w.done
	case <-ctx.Done():
		return ctx.Err()
	case <-db.closing:
		return db.fail("write", errClosed)
	}
}

// run is the writer. It waits for one caller, takes all who wait beside it, and commits them together. While it
// waits for the disk the next group gathers.
func (db *DB) run() {
	defer db.stopped.Done()
	for {
		select {
		case <-db.closing:
			return
		case w := <-db.queue:
			batch := []*write{w}
			for len(batch) < maxBatch {
				select {
				case w := <-db.queue:
					batch = append(batch, w)
					continue
				default:
				}
				break
			}
			db.commit(batch)
		}
	}
}

// commit runs the batch in one transaction and answers everybody in it.
func (db *DB) commit(batch []*write) {
	tx, err := db.writer.BeginTx(context.Background(), nil)
	if err != nil {
		answer(batch, db.fail("write", err))
		return
	}
	defer tx.Rollback()
	var open []*write // ran without error, not yet durable
	for i, w := range batch {
		if err := w.ctx.Err(); err != nil {
			w.done <- err
			continue
		}
		fnErr, lost := db.runOne(tx, w.fn)
		if lost != nil {
			// SQLite undid the whole transaction, as it does for a full disk: nobody's work is kept, and the ones
			// that have not run yet get a transaction of their own.
			w.done <- db.fail("write", errors.Join(fnErr, lost))
			answer(open, db.fail("write", fmt.Errorf("a neighbour in the same commit failed: %w", errors.Join(fnErr, lost))))
			tx.Rollback()
			if rest := batch[i+1:]; len(rest) > 0 {
				db.commit(rest)
			}
			return
		}
		if fnErr != nil {
			w.done <- db.fail("write", fnErr)
			continue
		}
		open = append(open, w)
	}
	if len(open) == 0 {
		return
	}
	err = tx.Commit()
	if err != nil {
		// The connection goes back to the pool; it must not take the failed transaction with it. Where SQLite has
		// undone it already, this says so and changes nothing.
		_, _ = db.writer.Exec("ROLLBACK")
	}
	answer(open, db.fail("commit", err))
}

// runOne runs fn in a savepoint. lost tells that the shared transaction is gone.
func (db *DB) runOne(tx *sql.Tx, fn func(*sql.Tx) error) (fnErr, lost error) {
	if _, err := tx.Exec("SAVEPOINT w"); err != nil {
		return nil, err
	}
	fnErr = contain(tx, fn)
	if fnErr != nil {
		if _, err := tx.Exec("ROLLBACK TO w"); err != nil {
			return fnErr, err
		}
	}
	if _, err := tx.Exec("RELEASE w"); err != nil {
		return fnErr, err
	}
	return fnErr, nil
}

// contain turns a panic into an error, so that one caller's mistake does not end the store for all.
func contain(tx *sql.Tx, fn func(*sql.Tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a write: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(tx)
}

func answer(ws []*write, err error) {
	for _, w := range ws {
		w.done <- err
	}
}
