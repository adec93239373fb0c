package store

import (
	"context"
	"database/sql"
	"embed"
	"time"

	"github.com/writ-dev/writ/internal/sqlitedb"
)

//go:embed migrations/*.sql
var migrations embed.FS

type sqlite struct{ db *sqlitedb.DB }

// OpenSQLite opens the embedded engine; path "" is a private temporary store.
func OpenSQLite(ctx context.Context, path string) (Store, error) {
	steps, err := sqlitedb.Migrations(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	db, err := sqlitedb.Open(ctx, path, steps)
	if err != nil {
		return nil, err
	}
	return &sqlite{db}, nil
}

func (s *sqlite) Close() error { return s.db.Close() }

func (s *sqlite) exec(ctx context.Context, query string, args ...any) error {
	return s.db.Write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
}

func (s *sqlite) PutServer(ctx context.Context, v Server) error {
	return s.exec(ctx, `INSERT INTO server (namespace, name, spec) VALUES (?, ?, ?)
		ON CONFLICT (namespace, name) DO UPDATE SET spec = excluded.spec`, v.Namespace, v.Name, v.Spec)
}

func (s *sqlite) DeleteServer(ctx context.Context, namespace, name string) error {
	return s.db.Write(ctx, func(tx *sql.Tx) error {
		for _, q := range []string{
			`DELETE FROM server WHERE namespace = ? AND name = ?`,
			`DELETE FROM listing WHERE namespace = ? AND name = ?`,
			`DELETE FROM listed_tool WHERE namespace = ? AND server = ?`,
		} {
			if _, err := tx.ExecContext(ctx, q, namespace, name); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *sqlite) Servers(ctx context.Context) (out []Server, err error) {
	err = s.each(ctx, `SELECT namespace, name, spec FROM server ORDER BY namespace, name`, func(rows *sql.Rows) error {
		var v Server
		err := rows.Scan(&v.Namespace, &v.Name, &v.Spec)
		out = append(out, v)
		return err
	})
	return out, err
}

func (s *sqlite) each(ctx context.Context, query string, row func(*sql.Rows) error, args ...any) error {
	return s.db.Read(ctx, func(q sqlitedb.Querier) error {
		rows, err := q.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := row(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

func (s *sqlite) PutListing(ctx context.Context, l Listing) error {
	return s.db.Write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM listed_tool WHERE namespace = ? AND server = ?`, l.Namespace, l.Name); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO listing
			(namespace, name, provider_digest, list_time, ttl_ms, server_version, protocol_version, instructions) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
			l.Namespace, l.Name, l.ProviderDigest, l.ListTime.UnixMicro(), l.TTL.Milliseconds(), l.ServerVersion, l.ProtocolVersion, l.Instructions); err != nil {
			return err
		}
		for i, t := range l.Tools {
			if _, err := tx.ExecContext(ctx, `INSERT INTO listed_tool (namespace, server, position, name, definition) VALUES (?, ?, ?, ?, ?)`,
				l.Namespace, l.Name, i, t.Name, t.Definition); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *sqlite) Listings(ctx context.Context) (out []Listing, err error) {
	err = s.each(ctx, `SELECT namespace, name, provider_digest, list_time, ttl_ms, server_version, protocol_version, instructions FROM listing`,
		func(rows *sql.Rows) error {
			var l Listing
			var at, ttl int64
			err := rows.Scan(&l.Namespace, &l.Name, &l.ProviderDigest, &at, &ttl, &l.ServerVersion, &l.ProtocolVersion, &l.Instructions)
			l.ListTime, l.TTL = time.UnixMicro(at).UTC(), time.Duration(ttl)*time.Millisecond
			out = append(out, l)
			return err
		})
	for i := range out {
		if err == nil {
			err = s.each(ctx, `SELECT name, definition FROM listed_tool WHERE namespace = ? AND server = ? ORDER BY position`, func(rows *sql.Rows) error {
				var t Tool
				err := rows.Scan(&t.Name, &t.Definition)
				out[i].Tools = append(out[i].Tools, t)
				return err
			}, out[i].Namespace, out[i].Name)
		}
	}
	return out, err
}

func (s *sqlite) PutEra(ctx context.Context, digest, era string) error {
	return s.exec(ctx, `INSERT OR REPLACE INTO era (provider_digest, era) VALUES (?, ?)`, digest, era)
}

func (s *sqlite) Eras(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	err := s.each(ctx, `SELECT provider_digest, era FROM era`, func(rows *sql.Rows) error {
		var digest, era string
		err := rows.Scan(&digest, &era)
		out[digest] = era
		return err
	})
	return out, err
}
