package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/writ-dev/writ/internal/sqlitedb"
	"github.com/writ-dev/writ/permission-svc/internal/actor"
	"github.com/writ-dev/writ/permission-svc/internal/decide"
	"github.com/writ-dev/writ/permission-svc/internal/grant"
	"github.com/writ-dev/writ/permission-svc/internal/setting"
)

// maxVersions bounds how many versions of a setting are looked at, newest first.
const maxVersions = 1000

// standingKey names what people settled for the calls of a principal to a tool.
type standingKey struct {
	namespace, principal string
	kind                 int32
	tool, provider       string
}

// standing is what people settled, whenever.
type standing struct {
	settings   []setting.Settings // every version, oldest first
	own, whole *setting.Tool
	tools      []setting.Tool // every version of both, newest first
	grants     []grant.Grant
}

func (s *sqlite) Situation(ctx context.Context, key CallKey, f decide.Facts) (out Situation, err error) {
	k := standingKey{f.Namespace, f.Principal.ID, int32(f.Principal.Kind), f.Tool, f.Provider}
	st, err := s.standing.get(k, func() (standing, error) { return s.readStanding(ctx, f) })
	if err != nil {
		return out, err
	}
	out.Settings, out.Own, out.Whole, out.Grants = since(st.settings, f.OpenTime), st.own, st.whole, st.grants
	for _, t := range st.tools {
		if t.At.After(f.OpenTime) {
			out.Since = append(out.Since, t)
		}
	}
	asked, err := s.asked.get(CallKey{Namespace: key.Namespace, Turn: key.Turn}, func() (bool, error) { return s.readAsked(ctx, key) })
	if err != nil || !asked {
		return out, err
	}
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		if out.CallCancelled, out.TurnCancelled, err = cancels(ctx, q, key); err != nil {
			return err
		}
		c, err := cardOfCall(ctx, q, key)
		if err == nil {
			out.Card = &c
		}
		return ignoreNotFound(err)
	})
	return out, err
}

// readAsked reports whether a turn has cards or cancellations at all.
func (s *sqlite) readAsked(ctx context.Context, key CallKey) (asked bool, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		return q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM cards WHERE namespace = ? AND turn = ?) OR EXISTS (SELECT 1 FROM cancels WHERE namespace = ? AND turn = ?)`,
			key.Namespace, key.Turn, key.Namespace, key.Turn).Scan(&asked)
	})
	return asked, err
}

func (s *sqlite) readStanding(ctx context.Context, f decide.Facts) (out standing, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		out.settings, err = collect(ctx, q, fromJSON[setting.Settings], "SELECT body FROM settings WHERE namespace = ? ORDER BY version DESC LIMIT ?", f.Namespace, maxVersions)
		if err != nil {
			return err
		}
		slices.Reverse(out.settings)
		names := []any{f.Namespace, f.Tool, setting.Whole(f.Provider)}
		now, err := collect(ctx, q, fromJSON[setting.Tool], "SELECT body FROM tool_settings WHERE namespace = ? AND tool IN (?, ?) AND current = 1", names...)
		if err != nil {
			return err
		}
		for _, t := range now {
			if t.Tool == f.Tool {
				out.own = &t
			} else {
				out.whole = &t
			}
		}
		out.tools, err = collect(ctx, q, fromJSON[setting.Tool], "SELECT body FROM tool_settings WHERE namespace = ? AND tool IN (?, ?) ORDER BY seq DESC LIMIT ?", append(names, maxVersions)...)
		if err != nil {
			return err
		}
		out.grants, err = grantsFor(ctx, q, f.Namespace, f.Principal, f.Tool)
		return err
	})
	return out, err
}

// since cuts the version in force at a time and every later one. Before the first there is what holds by default; where
// older versions than are kept in mind would count, the default, the lowest cap, stands for them.
func since(all []setting.Settings, t time.Time) []setting.Settings {
	for i := len(all) - 1; i >= 0; i-- {
		if !all[i].At.After(t) {
			return all[i:]
		}
	}
	return append([]setting.Settings{setting.Default()}, all...)
}

func ignoreNotFound(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (s *sqlite) Settings(ctx context.Context, namespace string) (out setting.Settings, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		out, err = currentSettings(ctx, q, namespace)
		return err
	})
	return out, err
}

func currentSettings(ctx context.Context, q sqlitedb.Querier, namespace string) (setting.Settings, error) {
	v, err := one(ctx, q, fromJSON[setting.Settings], "SELECT body FROM settings WHERE namespace = ? ORDER BY version DESC LIMIT 1", namespace)
	if errors.Is(err, ErrNotFound) {
		return setting.Default(), nil
	}
	return v, err
}

func (s *sqlite) PutSettings(ctx context.Context, namespace string, v setting.Settings, expected int64) (setting.Settings, error) {
	ctx = context.WithoutCancel(ctx)
	err := s.db.Write(ctx, func(tx *sql.Tx) error {
		now, err := currentSettings(ctx, txQuerier{tx}, namespace)
		if err != nil {
			return err
		}
		if expected >= 0 && now.Version != expected {
			return ErrVersion
		}
		v.Version = now.Version + 1
		_, err = tx.Exec("INSERT INTO settings (namespace, version, at, body) VALUES (?, ?, ?, ?)", namespace, v.Version, nanos(v.At), toJSON(v))
		return err
	})
	s.standing.clear()
	return v, err
}

func (s *sqlite) ToolSetting(ctx context.Context, namespace, tool string) (out *setting.Tool, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		t, err := one(ctx, q, fromJSON[setting.Tool], "SELECT body FROM tool_settings WHERE namespace = ? AND tool = ? AND current = 1", namespace, tool)
		if err == nil {
			out = &t
		}
		return ignoreNotFound(err)
	})
	return out, err
}

func (s *sqlite) ToolSettings(ctx context.Context, namespace, after string, limit int) (out []setting.Tool, more bool, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		out, err = collect(ctx, q, fromJSON[setting.Tool], "SELECT body FROM tool_settings WHERE namespace = ? AND tool > ? AND current = 1 ORDER BY tool LIMIT ?", namespace, after, limit+1)
		return err
	})
	if more = len(out) > limit; more {
		out = out[:limit]
	}
	return out, more, err
}

func (s *sqlite) PutToolSetting(ctx context.Context, namespace string, t setting.Tool) error {
	defer s.standing.clear()
	return s.db.Write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.Exec("UPDATE tool_settings SET current = 0 WHERE namespace = ? AND tool = ? AND current = 1", namespace, t.Tool); err != nil {
			return err
		}
		_, err := tx.Exec("INSERT INTO tool_settings (namespace, tool, at, current, body) VALUES (?, ?, ?, 1, ?)", namespace, t.Tool, nanos(t.At), toJSON(t))
		return err
	})
}

func (s *sqlite) PolicyVersion(ctx context.Context, namespace string) (version string, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		var general, tools int64
		err := q.QueryRowContext(ctx, `SELECT (SELECT coalesce(max(version), 0) FROM settings WHERE namespace = ?),
			(SELECT coalesce(max(seq), 0) FROM tool_settings WHERE namespace = ?)`, namespace, namespace).Scan(&general, &tools)
		version = fmt.Sprintf("%d.%d", general, tools)
		return err
	})
	return version, err
}

func grantsFor(ctx context.Context, q sqlitedb.Querier, namespace string, principal actor.Actor, tool string) ([]grant.Grant, error) {
	return collect(ctx, q, scanGrant, "SELECT seq, body FROM grants WHERE namespace = ? AND principal = ? AND principal_kind = ? AND tool = ? AND ended = 0",
		namespace, principal.ID, int32(principal.Kind), tool)
}

func scanGrant(row scanner) (g grant.Grant, err error) {
	var seq int64
	g, err = fromJSON[grant.Grant](prefixed{row: row, first: []any{&seq}})
	g.Seq = seq
	return g, err
}

func insertGrant(tx *sql.Tx, g grant.Grant) error {
	_, err := tx.Exec("INSERT INTO grants (id, namespace, principal, principal_kind, tool, body) VALUES (?, ?, ?, ?, ?, ?)",
		g.ID, g.Namespace, g.Principal.ID, int32(g.Principal.Kind), g.Tool, toJSON(g))
	return err
}

func (s *sqlite) Grants(ctx context.Context, v View, ended bool, before int64, limit int) (out []grant.Grant, more bool, err error) {
	var w where
	w.and("namespace = ?", v.Namespace)
	if v.Principal.ID != "" {
		w.and("principal = ? AND principal_kind = ?", v.Principal.ID, int32(v.Principal.Kind))
	}
	if !ended {
		w.and("ended = 0")
	}
	if before > 0 {
		w.and("seq < ?", before)
	}
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		out, err = collect(ctx, q, scanGrant, "SELECT seq, body FROM grants"+w.String()+" ORDER BY seq DESC LIMIT ?", append(w.args, limit+1)...)
		return err
	})
	if more = len(out) > limit; more {
		out = out[:limit]
	}
	return out, more, err
}

func (s *sqlite) Grant(ctx context.Context, namespace, id string) (g grant.Grant, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		g, err = one(ctx, q, scanGrant, "SELECT seq, body FROM grants WHERE id = ? AND namespace = ?", id, namespace)
		return err
	})
	return g, err
}

func (s *sqlite) RevokeGrant(ctx context.Context, namespace, id string, by actor.Actor, at time.Time) (g grant.Grant, err error) {
	ctx = context.WithoutCancel(ctx)
	err = s.db.Write(ctx, func(tx *sql.Tx) error {
		g, err = one(ctx, txQuerier{tx}, scanGrant, "SELECT seq, body FROM grants WHERE id = ? AND namespace = ?", id, namespace)
		if err != nil || !g.RevokeTime.IsZero() {
			return err
		}
		g.RevokeTime, g.RevokedBy = at, by
		_, err = tx.Exec("UPDATE grants SET ended = 1, body = ? WHERE id = ?", toJSON(g), id)
		return err
	})
	s.standing.clear()
	return g, err
}

func (s *sqlite) Keys(ctx context.Context) (out []Key, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		out, err = collect(ctx, q, func(row scanner) (k Key, err error) {
			var notBefore, begin, retire int64
			err = row.Scan(&k.KID, &k.Public, &k.Seed, &notBefore, &begin, &retire)
			k.NotBefore, k.BeginTime, k.RetireTime = fromNanos(notBefore), fromNanos(begin), fromNanos(retire)
			return k, err
		}, "SELECT kid, public_key, seed, not_before, begin_time, retire_time FROM signing_keys ORDER BY seq")
		return err
	})
	return out, err
}

func (s *sqlite) PutKeys(ctx context.Context, keys ...Key) error {
	return s.db.Write(ctx, func(tx *sql.Tx) error {
		for _, k := range keys {
			if _, err := tx.Exec(`INSERT INTO signing_keys (kid, public_key, seed, not_before, begin_time, retire_time) VALUES (?, ?, ?, ?, ?, ?)
				ON CONFLICT (kid) DO UPDATE SET seed = excluded.seed, begin_time = excluded.begin_time, retire_time = excluded.retire_time`,
				k.KID, k.Public, k.Seed, nanos(k.NotBefore), nanos(k.BeginTime), nanos(k.RetireTime)); err != nil {
				return err
			}
		}
		return nil
	})
}
