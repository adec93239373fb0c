package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"embed"
	"errors"
	"sync"
	"time"

	evidencev1 "github.com/writ-dev/writ/gen/go/writ/evidence/v1"
	"github.com/writ-dev/writ/internal/sqlitedb"
)

//go:embed migrations tracemigrations
var schema embed.FS

// sequenceBits is how much of a receipt's id is its sequence; the rest is the namespace's number.
const sequenceBits = 40

// SQLite is the embedded engine.
type SQLite struct {
	db *sqlitedb.DB

	mu         sync.RWMutex
	namespaces map[string]int64
	names      map[int64]string
}

// OpenSQLite opens the store at path; "" is a private temporary one.
func OpenSQLite(ctx context.Context, path string) (*SQLite, error) {
	steps, err := sqlitedb.Migrations(schema, "migrations")
	if err != nil {
		return nil, err
	}
	db, err := sqlitedb.Open(ctx, path, steps)
	if err != nil {
		return nil, err
	}
	s := &SQLite{db: db, namespaces: map[string]int64{}, names: map[int64]string{}}
	if err := s.loadNamespaces(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// Path implements Store.
func (s *SQLite) Path() string { return s.db.Path() }

// Close implements Store.
func (s *SQLite) Close() error { return s.db.Close() }

func (s *SQLite) loadNamespaces(ctx context.Context) error {
	return s.db.Read(ctx, func(q sqlitedb.Querier) error {
		return each(ctx, q, "SELECT id, name FROM namespaces", nil, func(rows *sql.Rows) error {
			var id int64
			var name string
			if err := rows.Scan(&id, &name); err != nil {
				return err
			}
			s.namespaces[name], s.names[id] = id, name
			return nil
		})
	})
}

// NamespaceID implements Store. A namespace gets its number when it is first seen.
func (s *SQLite) NamespaceID(ctx context.Context, namespace string) (int64, error) {
	if id, ok := s.known(namespace); ok {
		return id, nil
	}
	var id int64
	err := s.db.Write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.Exec("INSERT INTO namespaces (name) VALUES (?) ON CONFLICT DO NOTHING", namespace); err != nil {
			return err
		}
		return tx.QueryRow("SELECT id FROM namespaces WHERE name = ?", namespace).Scan(&id)
	})
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namespaces[namespace], s.names[id] = id, namespace
	return id, nil
}

func (s *SQLite) known(namespace string) (int64, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	id, ok := s.namespaces[namespace]
	return id, ok
}

func (s *SQLite) namespaceOf(id int64) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.names[id]
}

// Secret implements Store.
func (s *SQLite) Secret(ctx context.Context) ([]byte, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	err := s.db.Write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.Exec("INSERT INTO meta (name, value) VALUES ('secret', ?) ON CONFLICT DO NOTHING", secret); err != nil {
			return err
		}
		return tx.QueryRow("SELECT value FROM meta WHERE name = 'secret'").Scan(&secret)
	})
	return secret, err
}

// KeepKeys implements Store.
func (s *SQLite) KeepKeys(ctx context.Context, keys []Key, at time.Time) error {
	return s.db.Write(ctx, func(tx *sql.Tx) error {
		for _, k := range keys {
			_, err := tx.Exec("INSERT INTO keys (key_id, service, public_key, since) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
				k.ID, k.Service, []byte(k.Public), at.UnixMicro())
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Keys implements Store.
func (s *SQLite) Keys(ctx context.Context) (keys []Key, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		return each(ctx, q, "SELECT key_id, service, public_key FROM keys ORDER BY since, service, key_id", nil, func(rows *sql.Rows) error {
			var k Key
			err := rows.Scan(&k.ID, &k.Service, (*[]byte)(&k.Public))
			keys = append(keys, k)
			return err
		})
	})
	return keys, err
}

// each runs fn for every row.
func each(ctx context.Context, q sqlitedb.Querier, query string, args []any, fn func(*sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// notFound makes ErrNotFound of an empty answer.
func notFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

// optional is NULL for an empty text, which keeps it out of the partial indexes.
func optional(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func optionalID(id int64) any {
	if id == 0 {
		return nil
	}
	return id
}

const claimColumns = `SELECT c.id, c.ns, c.call, c.tool, c.executor, c.writ_id, c.decision, c.cause, coalesce(c.trace_id, ''),
	c.claimed, coalesce(c.writ, ''), coalesce(r.name, '') FROM claims c LEFT JOIN receipts r ON r.id = c.receipt `

func (s *SQLite) scanClaim(row interface{ Scan(...any) error }) (c Claim, err error) {
	var ns, claimed int64
	err = row.Scan(&c.ID, &ns, &c.Call, &c.Tool, &c.Executor, &c.WritID, &c.Decision, &c.Cause, &c.TraceID, &claimed, &c.Writ, &c.Receipt)
	c.Namespace, c.Claimed = s.namespaceOf(ns), time.UnixMicro(claimed).UTC()
	return c, err
}

// Claim implements Store.
func (s *SQLite) Claim(ctx context.Context, c Claim) (id int64, err error) {
	ns, err := s.NamespaceID(ctx, c.Namespace)
	if err != nil {
		return 0, err
	}
	err = s.db.Write(ctx, func(tx *sql.Tx) error {
		res, err := tx.Exec(`INSERT INTO claims (ns, call, tool, executor, writ_id, decision, cause, trace_id, claimed, writ)
			SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10 WHERE NOT EXISTS (SELECT 1 FROM receipts WHERE ns = ?1 AND call = ?2 AND kind = 1)`,
			ns, c.Call, c.Tool, c.Executor, c.WritID, c.Decision, c.Cause, optional(c.TraceID), c.Claimed.UnixMicro(), c.Writ)
		if sqlitedb.IsConflict(err) {
			return &Taken{}
		}
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, &Taken{})
		}
		id, err = res.LastInsertId()
		return err
	})
	return id, s.whoTook(ctx, err, c.Namespace, c.Call)
}

// whoTook fills in a Taken, outside of the commit.
func (s *SQLite) whoTook(ctx context.Context, err error, namespace, call string) error {
	var taken *Taken
	if !errors.As(err, &taken) {
		return err
	}
	if c, err := s.FindClaim(ctx, namespace, call); err == nil {
		taken.Executor, taken.Receipt = c.Executor, c.Receipt
	} else if !errors.Is(err, ErrNotFound) {
		return err
	}
	if taken.Receipt == "" {
		r, err := s.ReceiptOfCall(ctx, namespace, call)
		if err == nil && r.Kind == evidencev1.ReceiptKind_RECEIPT_KIND_CALL {
			taken.Receipt = r.Name
		} else if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return taken
}

// OpenClaims implements Store.
func (s *SQLite) OpenClaims(ctx context.Context) (claims []Claim, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		return each(ctx, q, claimColumns+"WHERE c.receipt IS NULL ORDER BY c.id", nil, func(rows *sql.Rows) error {
			c, err := s.scanClaim(rows)
			claims = append(claims, c)
			return err
		})
	})
	return claims, err
}

// FindClaim implements Store.
func (s *SQLite) FindClaim(ctx context.Context, namespace, call string) (c Claim, err error) {
	ns, ok := s.known(namespace)
	if !ok {
		return c, ErrNotFound
	}
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		c, err = s.scanClaim(q.QueryRowContext(ctx, claimColumns+"WHERE c.ns = ? AND c.call = ?", ns, call))
		return err
	})
	return c, notFound(err)
}

// digestOf is a receipt's digest.
func digestOf(envelope []byte) [32]byte { return sha256.Sum256(envelope) }
