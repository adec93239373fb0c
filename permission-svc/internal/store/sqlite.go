package store

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"time"

	"github.com/writ-dev/writ/internal/sqlitedb"
)

//go:embed migrations/*.sql
var migrations embed.FS

type sqlite struct {
	db       *sqlitedb.DB
	standing memo[standingKey, standing]
	asked    memo[CallKey, bool] // by turn: whether it has cards or cancellations
}

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
		return q.QueryRowContext(ctx, "SELECT count(*) FROM signing_keys WHERE kid = ''").Scan(&n)
	})
}

func (s *sqlite) Close() error { return s.db.Close() }

// scanner is a row.
type scanner interface{ Scan(dest ...any) error }

// txQuerier lets the same code read inside a write.
type txQuerier struct{ *sql.Tx }

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
	return out, rows.Err()
}

// one runs a query for at most one row; ErrNotFound.
func one[T any](ctx context.Context, q sqlitedb.Querier, scan func(row scanner) (T, error), query string, args ...any) (T, error) {
	v, err := scan(q.QueryRowContext(ctx, query, args...))
	if errors.Is(err, sql.ErrNoRows) {
		return v, ErrNotFound
	}
	return v, err
}

// fromJSON scans a row whose only column is a JSON body of ours.
func fromJSON[T any](row scanner) (v T, err error) {
	var body string
	if err = row.Scan(&body); err == nil {
		err = json.Unmarshal([]byte(body), &v)
	}
	return v, err
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("store: a record of ours has no JSON form: " + err.Error())
	}
	return string(b)
}

// nanos keeps a time as an integer; the zero time is 0.
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
