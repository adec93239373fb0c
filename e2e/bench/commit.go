package main

import (
	"context"
	"database/sql"

	"github.com/writ-dev/writ/internal/sqlitedb"
)

// commitBytes is the size of the row that a bare commit writes.
const commitBytes = 1024

// openCommit is the floor under every durable answer: one row, committed and synced as the services' stores do it.
func openCommit(ctx context.Context, path string) ([]target, error) {
	db, err := sqlitedb.Open(ctx, path, []sqlitedb.Migration{{Version: 1, SQL: `CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB NOT NULL)`}})
	if err != nil {
		return nil, err
	}
	body := make([]byte, commitBytes)
	return []target{{name: "commit", close: db.Close, call: func(ctx context.Context) error {
		return db.Write(ctx, func(tx *sql.Tx) error {
			_, err := tx.Exec(`INSERT INTO rows (body) VALUES (?)`, body)
			return err
		})
	}}}, nil
}
