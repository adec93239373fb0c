package store

import (
	"context"
	"strings"

	permissionv1 "github.com/writ-dev/writ/gen/go/writ/permission/v1"
	"github.com/writ-dev/writ/internal/sqlitedb"
	"github.com/writ-dev/writ/permission-svc/internal/card"
)

// where collects conditions over the table cards.
type where struct {
	terms []string
	args  []any
}

func (w *where) and(term string, args ...any) {
	w.terms = append(w.terms, term)
	w.args = append(w.args, args...)
}

func (w *where) view(v View) {
	if v.Namespace != "" {
		w.and("cards.namespace = ?", v.Namespace)
	}
	if v.Principal.ID != "" {
		w.and("cards.principal = ? AND cards.principal_kind = ?", v.Principal.ID, int32(v.Principal.Kind))
	}
}

func (w *where) String() string {
	if len(w.terms) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.terms, " AND ")
}

// Cards reads row after row, so that a page of large arguments ends before it has filled the memory.
func (s *sqlite) Cards(ctx context.Context, f CardFilter) (out []card.Card, more bool, err error) {
	var w where
	w.view(f.View)
	if f.State != 0 {
		w.and("cards.state = ?", int32(f.State))
	}
	if f.Turn != "" {
		w.and("cards.turn = ?", f.Turn)
	}
	if f.Conversation != "" {
		w.and("cards.conversation = ?", f.Conversation)
	}
	if f.Before > 0 {
		w.and("cards.seq < ?", f.Before)
	}
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		rows, err := q.QueryContext(ctx, "SELECT "+cardColumns+" FROM cards"+w.String()+" ORDER BY cards.seq DESC LIMIT ?", append(w.args, f.Limit+1)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		size := 0
		for rows.Next() {
			c, err := scanCard(rows)
			if err != nil {
				return err
			}
			size += 2 * len(c.Arguments) // the bytes, and about as much again in the preview
			if len(out) == f.Limit || len(out) > 0 && f.MaxBytes > 0 && size > f.MaxBytes {
				more = true
				return nil
			}
			out = append(out, c)
		}
		return rows.Err()
	})
	return out, more, err
}

func (s *sqlite) Unended(ctx context.Context, limit int) (out []card.Card, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		out, err = collect(ctx, q, scanCard, "SELECT "+cardColumns+" FROM cards INDEXED BY cards_unsealed WHERE end_state = 0 AND state IN (3, 4) ORDER BY seq LIMIT ?", limit)
		return err
	})
	return out, err
}

func (s *sqlite) LastChange(ctx context.Context) (seq int64, err error) {
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		return q.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM card_log").Scan(&seq)
	})
	return seq, err
}

func (s *sqlite) Changes(ctx context.Context, v View, after int64, limit int) (out []Change, err error) {
	var w where
	w.and("card_log.seq > ?", after)
	if v.Namespace != "" {
		w.and("card_log.namespace = ?", v.Namespace)
	}
	w.view(View{Principal: v.Principal})
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		out, err = collect(ctx, q, scanChange, "SELECT card_log.seq, card_log.state, "+cardColumns+
			" FROM card_log CROSS JOIN cards ON cards.id = card_log.card"+w.String()+" ORDER BY card_log.seq LIMIT ?", append(w.args, limit)...)
		return err
	})
	return out, err
}

func scanChange(row scanner) (ch Change, err error) {
	var state int32
	ch.Card, err = scanCard(prefixed{row: row, first: []any{&ch.Seq, &state}})
	if permissionv1.CardState(state) == pending {
		ch.Card = ch.Card.Asked() // as it was then
	}
	return ch, err
}

// prefixed scans some columns before those of the record.
type prefixed struct {
	row   scanner
	first []any
}

func (p prefixed) Scan(dest ...any) error { return p.row.Scan(append(p.first, dest...)...) }

func (s *sqlite) Open(ctx context.Context, v View, after, upTo int64, limit int) (out []card.Card, err error) {
	var w where
	w.view(v)
	w.and("cards.state = ? AND cards.seq > ? AND cards.seq <= ?", int32(pending), after, upTo)
	err = s.db.Read(ctx, func(q sqlitedb.Querier) error {
		out, err = collect(ctx, q, scanCard, "SELECT "+cardColumns+" FROM cards"+w.String()+" ORDER BY cards.seq LIMIT ?", append(w.args, limit)...)
		return err
	})
	return out, err
}
