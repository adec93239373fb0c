package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/proto"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/sqlitedb"
	"github.com/writ-dev/writ/registry-svc/internal/connector"
	"github.com/writ-dev/writ/registry-svc/internal/fault"
)

func (s *sqlite) InsertConnector(ctx context.Context, c connector.Connector) error {
	spec, err := json.Marshal(c.Spec)
	if err != nil {
		return err
	}
	by, err := proto.Marshal(c.CreatedBy)
	if err != nil {
		return err
	}
	if by == nil {
		by = []byte{}
	}
	err = s.exec(ctx, `INSERT INTO connectors (namespace, name, spec, enabled, accepted_for, created_by, create_time)
		VALUES (?, ?, ?, ?, ?, ?, ?)`, c.Namespace, c.Name, string(spec), c.Enabled, c.Spec.AcceptedFor, by, nanos(c.CreateTime))
	if sqlitedb.IsConflict(err) {
		return fault.New(fault.ConnectorExists, c.Name, "a connector of this name exists, and the first one stays",
			"Choose another name, or remove the other one first.")
	}
	return err
}

func (s *sqlite) Connectors(ctx context.Context) (out []connector.Connector, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) (err error) {
		out, err = collect(ctx, q, scanConnector, `SELECT namespace, name, spec, enabled, accepted_for, created_by, create_time
			FROM connectors ORDER BY create_time, namespace, name`)
		return err
	})
	return out, err
}

func scanConnector(row scanner) (c connector.Connector, err error) {
	var spec, by []byte
	var created int64
	var accepted string
	if err := row.Scan(&c.Namespace, &c.Name, &spec, &c.Enabled, &accepted, &by, &created); err != nil {
		return c, err
	}
	if err := json.Unmarshal(spec, &c.Spec); err != nil {
		return c, err
	}
	c.Spec.AcceptedFor = accepted
	c.Source, c.CreateTime, c.CreatedBy = connector.ByRPC, fromNanos(created), &commonv1.Principal{}
	return c, proto.Unmarshal(by, c.CreatedBy)
}

func (s *sqlite) SetEnabled(ctx context.Context, key connector.Key, enabled bool) error {
	return s.exec(ctx, "UPDATE connectors SET enabled = ? WHERE namespace = ? AND name = ?", enabled, key.Namespace, key.Name)
}

func (s *sqlite) SetAcceptedFor(ctx context.Context, key connector.Key, created time.Time, digest string) error {
	return s.exec(ctx, "UPDATE connectors SET accepted_for = ? WHERE namespace = ? AND name = ? AND create_time = ?",
		digest, key.Namespace, key.Name, nanos(created))
}

func (s *sqlite) DeleteConnector(ctx context.Context, key connector.Key) error {
	return s.db.Write(ctx, func(tx *sql.Tx) error {
		for _, query := range []string{
			"DELETE FROM connectors WHERE namespace = ? AND name = ?",
			"DELETE FROM listings WHERE namespace = ? AND server = ?",
		} {
			if _, err := tx.Exec(query, key.Namespace, key.Name); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *sqlite) MarkHosted(ctx context.Context, key connector.Key, hosted bool) error {
	query := "DELETE FROM hosted WHERE namespace = ? AND name = ?"
	if hosted {
		query = "INSERT OR IGNORE INTO hosted (namespace, name) VALUES (?, ?)"
	}
	return s.exec(ctx, query, key.Namespace, key.Name)
}

func (s *sqlite) Hosted(ctx context.Context) (out []connector.Key, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) (err error) {
		out, err = collect(ctx, q, func(row scanner) (k connector.Key, err error) {
			return k, row.Scan(&k.Namespace, &k.Name)
		}, "SELECT namespace, name FROM hosted ORDER BY namespace, name")
		return err
	})
	return out, err
}

func (s *sqlite) SaveListing(ctx context.Context, key connector.Key, c *connector.Catalogue) error {
	return s.db.Write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.Exec("DELETE FROM listed_tools WHERE namespace = ? AND server = ?", key.Namespace, key.Name); err != nil {
			return err
		}
		if _, err := tx.Exec(`INSERT INTO listings (namespace, server, digest, server_version, list_time, hash, tools)
			VALUES (?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET digest = excluded.digest, server_version = excluded.server_version,
				list_time = excluded.list_time, hash = excluded.hash, tools = excluded.tools`, key.Namespace, key.Name, c.Digest, c.ServerVersion, nanos(c.Time), c.Hash(), len(c.Tools)); err != nil {
			return err
		}
		for _, t := range c.Tools {
			if err := insertDefinition(tx, t.Wire, t.Semantic, t.Definition); err != nil {
				return err
			}
			if _, err := tx.Exec("INSERT INTO listed_tools (namespace, server, name, wire) VALUES (?, ?, ?, ?)",
				key.Namespace, key.Name, t.Name, t.Wire); err != nil {
				return err
			}
		}
		return nil
	})
}

// insertDefinition stores the bytes once; they are named by their own hash, so what is there is the same.
func insertDefinition(tx *sql.Tx, wire, semantic string, definition []byte) error {
	_, err := tx.Exec("INSERT INTO definitions (wire, semantic, bytes) VALUES (?, ?, ?) ON CONFLICT (wire) DO NOTHING", wire, semantic, definition)
	return err
}

func (s *sqlite) Summaries(ctx context.Context) (out []connector.Summary, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) (err error) {
		out, err = collect(ctx, q, func(row scanner) (m connector.Summary, err error) {
			return m, row.Scan(&m.Key.Namespace, &m.Key.Name, &m.Digest, &m.ServerVersion, &m.Tools, &m.Hash)
		}, "SELECT namespace, server, digest, server_version, tools, hash FROM listings ORDER BY namespace, server")
		return err
	})
	return out, err
}

func (s *sqlite) ListedTools(ctx context.Context, namespace, server string, after connector.Position, limit int) (out []connector.RememberedTool, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) (err error) {
		out, err = collect(ctx, q, func(row scanner) (t connector.RememberedTool, err error) {
			return t, row.Scan(&t.Server, &t.Digest, &t.Name, &t.Wire, &t.Semantic, &t.Definition)
		}, `SELECT t.server, l.digest, t.name, d.wire, d.semantic, d.bytes
			FROM listed_tools t JOIN listings l USING (namespace, server) JOIN definitions d USING (wire)
			WHERE t.namespace = ? AND (? = '' OR t.server = ?) AND (t.server, t.name) > (?, ?)
			ORDER BY t.server, t.name LIMIT ?`, namespace, server, server, after.Server, after.Name, limit)
		return err
	})
	return out, err
}
