package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	commonv1 "github.com/writ-dev/writ/gen/go/writ/common/v1"
	"github.com/writ-dev/writ/internal/sqlitedb"
	"github.com/writ-dev/writ/registry-svc/internal/fault"
	"github.com/writ-dev/writ/registry-svc/internal/turn"
	"github.com/writ-dev/writ/registry-svc/internal/workspace"
)

func (s *sqlite) InsertTurn(ctx context.Context, t turn.Turn, tools []turn.Tool, req turn.RequestKey, maxOpen int) error {
	return s.db.Write(ctx, func(tx *sql.Tx) error {
		if err := claimConversation(tx, t); err != nil {
			return err
		}
		if err := roomFor(tx, t, maxOpen); err != nil {
			return err
		}
		if err := insertToolset(tx, t.Toolset, tools); err != nil {
			return err
		}
		if err := insertTurn(tx, t); err != nil {
			return err
		}
		if req.ID == "" {
			return nil
		}
		_, err := tx.Exec(`INSERT INTO requests (namespace, principal, principal_kind, request_id, digest, turn, time) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			req.Principal.Namespace, req.Principal.ID, req.Principal.Kind, req.ID, req.Digest, t.ID, nanos(t.OpenTime))
		if sqlitedb.IsConflict(err) {
			return turn.ErrRequestKnown
		}
		return err
	})
}

func claimConversation(tx *sql.Tx, t turn.Turn) error {
	p := t.Principal
	if _, err := tx.Exec("INSERT OR IGNORE INTO conversations (namespace, conversation, principal, principal_kind) VALUES (?, ?, ?, ?)",
		p.Namespace, t.Conversation, p.ID, p.Kind); err != nil {
		return err
	}
	var owner string
	var kind commonv1.PrincipalKind
	err := tx.QueryRow("SELECT principal, principal_kind FROM conversations WHERE namespace = ? AND conversation = ?",
		p.Namespace, t.Conversation).Scan(&owner, &kind)
	if err == nil && (owner != p.ID || kind != p.Kind) {
		return turn.Taken(t.Conversation)
	}
	return err
}

func roomFor(tx *sql.Tx, t turn.Turn, maxOpen int) error {
	var open int
	err := tx.QueryRow("SELECT count(*) FROM turns WHERE namespace = ? AND principal = ? AND principal_kind = ? AND state = 1",
		t.Principal.Namespace, t.Principal.ID, t.Principal.Kind).Scan(&open)
	if err == nil && open >= maxOpen {
		return fault.Limit(fault.TooManyTurns, "open_turns_max", int64(maxOpen), int64(open+1), "End turns that are not used any more: `writ turn list`.")
	}
	return err
}

func insertToolset(tx *sql.Tx, id string, tools []turn.Tool) error {
	res, err := tx.Exec("INSERT OR IGNORE INTO toolsets (id) VALUES (?)", id)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return err // it is there already, and its name says that it is the same
	}
	for i, t := range tools {
		if err := insertDefinition(tx, t.Wire, t.Semantic, t.Definition); err != nil {
			return err
		}
		if _, err := tx.Exec(`INSERT INTO toolset_tools (toolset, position, tool, alias, name, lane, provider, provider_digest, wire,
			class, disposition, always_gate, why) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id, i, t.ID, t.Alias, t.Name, t.Lane, t.Provider, t.ProviderDigest, t.Wire, t.Class, t.Disposition, t.AlwaysGate, t.Why); err != nil {
			return err
		}
	}
	return nil
}

func insertTurn(tx *sql.Tx, t turn.Turn) error {
	var folder workspace.Folder
	if t.Workspace != nil {
		folder = *t.Workspace
	}
	if _, err := tx.Exec(`INSERT INTO turns (id, namespace, state, principal, principal_kind, asserted_by, agent, conversation, project,
		mode, max_mode, ws_path, ws_device, ws_inode, parent, open_time, end_time, use_time, policy_version, toolset)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		t.ID, t.Principal.Namespace, t.State, t.Principal.ID, t.Principal.Kind, t.AssertedBy, t.Agent, t.Conversation, t.Project,
		t.Mode, t.MaxMode, folder.Path, int64(folder.Device), int64(folder.Inode), t.Parent, nanos(t.OpenTime), nanos(t.EndTime),
		nanos(t.OpenTime), t.PolicyVersion, t.Toolset); err != nil {
		return err
	}
	for i, p := range t.Problems {
		if _, err := tx.Exec("INSERT INTO turn_problems (turn, position, provider, status) VALUES (?, ?, ?, ?)", t.ID, i, p.Provider, p.Status); err != nil {
			return err
		}
	}
	return nil
}

func (s *sqlite) TurnOfRequest(ctx context.Context, k turn.RequestKey) (id, digest string, ok bool, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		return q.QueryRowContext(ctx, "SELECT turn, digest FROM requests WHERE namespace = ? AND principal = ? AND principal_kind = ? AND request_id = ?",
			k.Principal.Namespace, k.Principal.ID, k.Principal.Kind, k.ID).Scan(&id, &digest)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return "", "", false, nil
	}
	return id, digest, err == nil, err
}

func (s *sqlite) ForgetRequests(ctx context.Context, before time.Time) error {
	return s.exec(ctx, "DELETE FROM requests WHERE time < ?", nanos(before))
}

func (s *sqlite) ConversationOwner(ctx context.Context, namespace, conversation string) (p turn.Principal, ok bool, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		return q.QueryRowContext(ctx, "SELECT principal, principal_kind FROM conversations WHERE namespace = ? AND conversation = ?",
			namespace, conversation).Scan(&p.ID, &p.Kind)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return p, false, nil
	}
	p.Namespace = namespace
	return p, err == nil, err
}

const turnColumns = `id, namespace, state, principal, principal_kind, asserted_by, agent, conversation, project, mode, max_mode,
	ws_path, ws_device, ws_inode, parent, open_time, end_time, policy_version, toolset`

func scanTurn(row scanner) (t turn.Turn, err error) {
	var path string
	var device, inode, opened, ended int64
	err = row.Scan(&t.ID, &t.Principal.Namespace, &t.State, &t.Principal.ID, &t.Principal.Kind, &t.AssertedBy, &t.Agent, &t.Conversation,
		&t.Project, &t.Mode, &t.MaxMode, &path, &device, &inode, &t.Parent, &opened, &ended, &t.PolicyVersion, &t.Toolset)
	t.OpenTime, t.EndTime = fromNanos(opened), fromNanos(ended)
	if path != "" {
		t.Workspace = &workspace.Folder{Path: path, Device: uint64(device), Inode: uint64(inode)}
	}
	return t, err
}

func (s *sqlite) Turn(ctx context.Context, id string) (t turn.Turn, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		if t, err = scanTurn(q.QueryRowContext(ctx, "SELECT "+turnColumns+" FROM turns WHERE id = ?", id)); err != nil {
			return err
		}
		t.Problems, err = collect(ctx, q, func(row scanner) (p turn.Problem, err error) {
			return p, row.Scan(&p.Provider, &p.Status)
		}, "SELECT provider, status FROM turn_problems WHERE turn = ? ORDER BY position", id)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return t, turn.NotFound(id)
	}
	return t, err
}

func (s *sqlite) Tools(ctx context.Context, toolset string) (out []turn.Tool, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) (err error) {
		out, err = collect(ctx, q, func(row scanner) (t turn.Tool, err error) {
			return t, row.Scan(&t.ID, &t.Alias, &t.Name, &t.Lane, &t.Provider, &t.ProviderDigest, &t.Wire, &t.Semantic, &t.Definition,
				&t.Class, &t.Disposition, &t.AlwaysGate, &t.Why)
		}, `SELECT tool, alias, name, lane, provider, provider_digest, wire, semantic, bytes, class, disposition, always_gate, why
			FROM toolset_tools JOIN definitions USING (wire) WHERE toolset = ? ORDER BY position`, toolset)
		return err
	})
	return out, err
}

func (s *sqlite) ListTurns(ctx context.Context, f turn.Filter) (out []turn.Turn, err error) {
	query, args := "SELECT "+turnColumns+" FROM turns WHERE 1 = 1", []any{}
	where := func(condition string, values ...any) {
		query += " AND " + condition
		args = append(args, values...)
	}
	if f.Namespace != "" {
		where("namespace = ?", f.Namespace)
	}
	if f.Principal != nil {
		where("namespace = ? AND principal = ? AND principal_kind = ?", f.Principal.Namespace, f.Principal.ID, f.Principal.Kind)
	}
	if f.Conversation != "" {
		where("conversation = ?", f.Conversation)
	}
	if f.State != 0 {
		where("state = ?", f.State)
	}
	if f.Before != "" {
		where("id < ?", f.Before)
	}
	err = s.db.Read(ctx, func(q sqlitedb.Querier) (err error) {
		out, err = collect(ctx, q, scanTurn, query+" ORDER BY id DESC LIMIT ?", append(args, f.Limit)...)
		return err
	})
	return out, err
}

func (s *sqlite) EndTurn(ctx context.Context, id string, state turn.State, at time.Time) (t turn.Turn, ended bool, err error) {
	err = s.db.Write(ctx, func(tx *sql.Tx) error {
		res, err := tx.Exec(`UPDATE turns SET state = ?1, end_time = CASE end_time WHEN 0 THEN ?2 ELSE end_time END, cards_pending = 1
			WHERE id = ?3 AND (state = 1 OR state = 2 AND ?1 = 3)`, state, nanos(at), id)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		ended = n == 1
		t, err = scanTurn(tx.QueryRow("SELECT "+turnColumns+" FROM turns WHERE id = ?", id))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return t, false, turn.NotFound(id)
	}
	return t, ended, err
}

func (s *sqlite) CardsCancelled(ctx context.Context, id string) error {
	return s.exec(ctx, "UPDATE turns SET cards_pending = 0 WHERE id = ?", id)
}

func (s *sqlite) CardsToCancel(ctx context.Context, limit int) ([]turn.Turn, error) {
	return s.turns(ctx, "WHERE cards_pending = 1 ORDER BY id LIMIT ?", limit)
}

func (s *sqlite) IdleTurns(ctx context.Context, before time.Time, after string, limit int) ([]turn.Turn, error) {
	return s.turns(ctx, "WHERE state = 1 AND use_time < ? AND id > ? ORDER BY id LIMIT ?", nanos(before), after, limit)
}

func (s *sqlite) turns(ctx context.Context, rest string, args ...any) (out []turn.Turn, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) (err error) {
		out, err = collect(ctx, q, scanTurn, "SELECT "+turnColumns+" FROM turns "+rest, args...)
		return err
	})
	return out, err
}

func (s *sqlite) Touch(ctx context.Context, used map[string]time.Time) error {
	return s.db.Write(ctx, func(tx *sql.Tx) error {
		for id, at := range used {
			if _, err := tx.Exec("UPDATE turns SET use_time = max(use_time, ?) WHERE id = ?", nanos(at), id); err != nil {
				return err
			}
		}
		return nil
	})
}
