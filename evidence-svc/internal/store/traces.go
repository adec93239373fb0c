package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/writ-dev/writ/internal/sqlitedb"
)

// Span is one stored span.
type Span struct {
	TraceID   string
	SpanID    string
	Start     time.Time
	Emitter   string // the authenticated peer
	Namespace string // as the emitter said; empty where it said nothing
	Card      string // a card that the span names
	Call      string // a call that the span names
	Body      []byte // writ.evidence.v1.Span
}

// TraceLimits bound what is kept.
type TraceLimits struct {
	SpansPerTrace int
	Traces        int
	NamesPerTrace int
}

// Traces keeps spans. It is no part of Store: spans are no evidence and lie in a file of their own.
type Traces struct {
	db     *sqlitedb.DB
	limits TraceLimits
}

// OpenTraces opens the file at path; "" is a private temporary one.
func OpenTraces(ctx context.Context, path string, limits TraceLimits) (*Traces, error) {
	steps, err := sqlitedb.Migrations(schema, "tracemigrations")
	if err != nil {
		return nil, err
	}
	db, err := sqlitedb.Open(ctx, path, steps)
	if err != nil {
		return nil, err
	}
	return &Traces{db: db, limits: limits}, nil
}

// Close closes the file.
func (t *Traces) Close() error { return t.db.Close() }

// Put stores spans, counts those over a trace's bound, and forgets the oldest traces over the bound of all. dropped
// counts, by trace, spans that were lost before.
func (t *Traces) Put(ctx context.Context, spans []Span, dropped map[string]int64, now time.Time) error {
	return t.db.Write(ctx, func(tx *sql.Tx) error {
		for _, s := range spans {
			if err := t.putOne(tx, s, now); err != nil {
				return err
			}
		}
		for id, n := range dropped {
			if _, err := tx.Exec(touchTrace, id, now.UnixMicro(), n); err != nil {
				return err
			}
		}
		return t.forget(tx)
	})
}

const touchTrace = `INSERT INTO traces (trace_id, last, dropped) VALUES (?1, ?2, ?3)
	ON CONFLICT (trace_id) DO UPDATE SET last = ?2, dropped = dropped + ?3`

func (t *Traces) putOne(tx *sql.Tx, s Span, now time.Time) error {
	if _, err := tx.Exec(touchTrace, s.TraceID, now.UnixMicro(), 0); err != nil {
		return err
	}
	res, err := tx.Exec(`INSERT INTO spans (trace_id, span_id, start, emitter, ns, body) SELECT ?1, ?2, ?3, ?4, ?5, ?6
		WHERE (SELECT spans FROM traces WHERE trace_id = ?1) < ?7 ON CONFLICT DO NOTHING`,
		s.TraceID, s.SpanID, s.Start.UnixMicro(), s.Emitter, s.Namespace, s.Body, t.limits.SpansPerTrace)
	if err != nil {
		return err
	}
	stored, err := res.RowsAffected()
	if err != nil {
		return err
	}
	if _, err := tx.Exec(`UPDATE traces SET spans = spans + ?2,
			dropped = dropped + (?2 = 0 AND NOT EXISTS (SELECT 1 FROM spans WHERE trace_id = ?1 AND span_id = ?3 AND emitter = ?4))
		WHERE trace_id = ?1`, s.TraceID, stored, s.SpanID, s.Emitter); err != nil {
		return err
	}
	for _, name := range []string{s.Card, s.Call} {
		if name == "" {
			continue
		}
		if _, err := tx.Exec(`INSERT INTO names (name, ns, trace_id) SELECT ?1, ?2, ?3
			WHERE (SELECT count(*) FROM names WHERE trace_id = ?3) < ?4 ON CONFLICT DO NOTHING`,
			name, s.Namespace, s.TraceID, t.limits.NamesPerTrace); err != nil {
			return err
		}
	}
	return nil
}

// forget removes the traces that were longest without a span. It leaves room, so that it has nothing to do most times.
func (t *Traces) forget(tx *sql.Tx) error {
	var count int
	if err := tx.QueryRow("SELECT count(*) FROM traces").Scan(&count); err != nil || count <= t.limits.Traces {
		return err
	}
	old := "(SELECT trace_id FROM traces ORDER BY last LIMIT ?)"
	remove := count - t.limits.Traces*9/10
	for _, statement := range []string{
		"DELETE FROM spans WHERE trace_id IN " + old, "DELETE FROM names WHERE trace_id IN " + old,
		"DELETE FROM traces WHERE trace_id IN " + old,
	} {
		if _, err := tx.Exec(statement, remove); err != nil {
			return err
		}
	}
	return nil
}

// Find returns the spans of a trace by start time, and how many were dropped. known is false for a trace that was never
// seen.
func (t *Traces) Find(ctx context.Context, traceID string) (spans []Span, dropped int64, known bool, err error) {
	err = t.db.Read(ctx, func(q sqlitedb.Querier) error {
		err := q.QueryRowContext(ctx, "SELECT dropped FROM traces WHERE trace_id = ?", traceID).Scan(&dropped)
		if notFound(err) == ErrNotFound {
			return nil
		}
		if err != nil {
			return err
		}
		known = true
		return each(ctx, q, "SELECT trace_id, span_id, start, emitter, ns, body FROM spans WHERE trace_id = ? ORDER BY start, id",
			[]any{traceID}, func(rows *sql.Rows) error {
				var s Span
				var start int64
				err := rows.Scan(&s.TraceID, &s.SpanID, &start, &s.Emitter, &s.Namespace, &s.Body)
				s.Start = time.UnixMicro(start).UTC()
				spans = append(spans, s)
				return err
			})
	})
	return spans, dropped, known, err
}

// Named returns the newest trace that names the card or call. namespace "" is any.
func (t *Traces) Named(ctx context.Context, name, namespace string) (traceID string, err error) {
	err = t.db.Read(ctx, func(q sqlitedb.Querier) error {
		return q.QueryRowContext(ctx, `SELECT n.trace_id FROM names n JOIN traces t ON t.trace_id = n.trace_id
			WHERE n.name = ?1 AND (?2 = '' OR n.ns = ?2) ORDER BY t.last DESC LIMIT 1`, name, namespace).Scan(&traceID)
	})
	return traceID, notFound(err)
}
