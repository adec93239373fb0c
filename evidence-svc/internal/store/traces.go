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
	byTrace := map[string][]Span{}
	for _, s := range spans {
		byTrace[s.TraceID] = append(byTrace[s.TraceID], s)
	}
	return t.db.Write(ctx, func(tx *sql.Tx) error {
		for id, own := range byTrace {
			if err := t.putTrace(tx, id, own, now); err != nil {
				return err
			}
		}
		for id, n := range dropped {
			if _, err := tx.Exec(touchTrace, id, now.UnixMicro(), 0, n); err != nil {
				return err
			}
		}
		return t.forget(tx)
	})
}

const (
	touchTrace = `INSERT INTO traces (trace_id, last, spans, dropped) VALUES (?1, ?2, ?3, ?4)
		ON CONFLICT (trace_id) DO UPDATE SET last = ?2, spans = spans + ?3, dropped = dropped + ?4`
	// ?8 are the spans of this trace that the same write stored before.
	insertSpan = `INSERT INTO spans (trace_id, span_id, start, emitter, ns, body) SELECT ?1, ?2, ?3, ?4, ?5, ?6
		WHERE coalesce((SELECT spans FROM traces WHERE trace_id = ?1), 0) + ?8 < ?7 ON CONFLICT DO NOTHING`
	insertName = `INSERT INTO names (name, ns, trace_id) SELECT ?1, ?2, ?3
		WHERE (SELECT count(*) FROM names WHERE trace_id = ?3) < ?4 ON CONFLICT DO NOTHING`
)

// putTrace stores spans of one trace. What is kept for the whole trace is written once, not for each span.
func (t *Traces) putTrace(tx *sql.Tx, id string, spans []Span, now time.Time) error {
	var stored, dropped int64
	named := map[[2]string]bool{}
	for _, s := range spans {
		res, err := tx.Exec(insertSpan, id, s.SpanID, s.Start.UnixMicro(), s.Emitter, s.Namespace, s.Body, t.limits.SpansPerTrace, stored)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		if stored += n; n == 0 {
			repeated, err := t.has(tx, s)
			if err != nil {
				return err
			}
			if !repeated {
				dropped++
			}
		}
		for _, name := range []string{s.Card, s.Call} {
			if key := [2]string{name, s.Namespace}; name != "" && !named[key] {
				named[key] = true
				if _, err := tx.Exec(insertName, name, s.Namespace, id, t.limits.NamesPerTrace); err != nil {
					return err
				}
			}
		}
	}
	_, err := tx.Exec(touchTrace, id, now.UnixMicro(), stored, dropped)
	return err
}

// has tells whether the span is stored already.
func (t *Traces) has(tx *sql.Tx, s Span) (yes bool, err error) {
	err = tx.QueryRow("SELECT EXISTS (SELECT 1 FROM spans WHERE trace_id = ? AND span_id = ? AND emitter = ?)", s.TraceID, s.SpanID, s.Emitter).Scan(&yes)
	return yes, err
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
