package sqlitedb

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"time"
)

// Migration is one step of a schema. Versions count from 1 without gaps; a step that has shipped never changes.
type Migration struct {
	Version int
	Name    string
	SQL     string // one or more statements, run in one transaction
}

// Migrations reads the steps of a schema from files named 0001_name.sql in dir of fsys, usually an embed.FS.
func Migrations(fsys fs.FS, dir string) ([]Migration, error) {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, err
	}
	pattern := regexp.MustCompile(`^(\d{4})_([a-z0-9_]+)\.sql$`)
	var ms []Migration
	for _, e := range entries {
		m := pattern.FindStringSubmatch(e.Name())
		if m == nil {
			return nil, fmt.Errorf("%s: a migration is named 0001_name.sql", e.Name())
		}
		text, err := fs.ReadFile(fsys, path.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		version, _ := strconv.Atoi(m[1]) // four digits, by the pattern
		ms = append(ms, Migration{Version: version, Name: m[2], SQL: string(text)})
	}
	return ms, checkOrder(ms)
}

func checkOrder(ms []Migration) error {
	for i, m := range ms {
		if m.Version != i+1 {
			return fmt.Errorf("migration %q has version %d where %d is due", m.Name, m.Version, i+1)
		}
	}
	return nil
}

func (db *DB) migrate(ctx context.Context, ms []Migration) error {
	if err := checkOrder(ms); err != nil {
		return err
	}
	var at int
	if err := db.writer.QueryRowContext(ctx, "PRAGMA user_version").Scan(&at); err != nil {
		return err
	}
	if at > len(ms) {
		return &Error{Kind: Newer, Path: db.path, Op: "open", Err: fmt.Errorf("its schema is version %d, this program knows %d", at, len(ms))}
	}
	if at > 0 && at < len(ms) {
		backup := fmt.Sprintf("%s.v%d-%s.bak", db.path, at, time.Now().UTC().Format("20060102T150405.000000000"))
		if err := db.Backup(ctx, backup); err != nil {
			return fmt.Errorf("backup before migrating: %w", err)
		}
	}
	for _, m := range ms[at:] {
		if err := db.step(ctx, m); err != nil {
			return fmt.Errorf("migration %d (%s): %w", m.Version, m.Name, err)
		}
	}
	return nil
}

func (db *DB) step(ctx context.Context, m Migration) error {
	tx, err := db.writer.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := execScript(ctx, tx, m); err != nil {
		return err
	}
	return tx.Commit()
}

func execScript(ctx context.Context, tx *sql.Tx, m Migration) error {
	if _, err := tx.ExecContext(ctx, m.SQL); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "PRAGMA user_version = "+strconv.Itoa(m.Version))
	return err
}
