package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"time"

	"github.com/writ-dev/writ/internal/sqlitedb"
)

//go:embed migrations/*.sql
var migrations embed.FS

type sqlite struct{ db *sqlitedb.DB }

// OpenSQLite opens the embedded engine at path; "" is a private temporary store.
func OpenSQLite(ctx context.Context, path string) (Store, error) {
	steps, err := sqlitedb.Migrations(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	db, err := sqlitedb.Open(ctx, path, steps)
	if err != nil {
		return nil, err
	}
	return &sqlite{db: db}, nil
}

func (s *sqlite) Ping(ctx context.Context) error {
	return s.db.Read(ctx, func(q sqlitedb.Querier) error {
		var n int
		return q.QueryRowContext(ctx, "SELECT count(*) FROM toolsets WHERE id = ''").Scan(&n)
	})
}

func (s *sqlite) Close() error { return s.db.Close() }

// exec runs statements in one write.
func (s *sqlite) exec(ctx context.Context, query string, args ...any) error {
	return s.db.Write(ctx, func(tx *sql.Tx) error {
		_, err := tx.Exec(query, args...)
		return err
	})
}

// collect runs a query and scans every row.
func collect[T any](ctx context.Context, q sqlitedb.Querier, scan func(row scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, errors.Join(rows.Err(), rows.Close())
}

type scanner interface{ Scan(dest ...any) error }

// nanos and fromNanos keep the zero time as 0.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
