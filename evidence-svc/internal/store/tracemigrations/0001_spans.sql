-- Spans as they were reported. They are no evidence, are bounded, and may be lost.
CREATE TABLE traces (
  trace_id TEXT PRIMARY KEY,
  last     INTEGER NOT NULL,           -- microseconds since 1970
  spans    INTEGER NOT NULL DEFAULT 0,
  dropped  INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX traces_last ON traces(last);

CREATE TABLE spans (
  id       INTEGER PRIMARY KEY,
  trace_id TEXT NOT NULL,
  span_id  TEXT NOT NULL,
  start    INTEGER NOT NULL,
  emitter  TEXT NOT NULL,              -- the authenticated peer
  ns       TEXT NOT NULL,              -- the namespace that the emitter named; empty where none
  body     BLOB NOT NULL,              -- writ.evidence.v1.Span
  UNIQUE (trace_id, span_id, emitter)
);

-- Names that lead to a trace.
CREATE TABLE names (
  name     TEXT NOT NULL,              -- a card or a call
  ns       TEXT NOT NULL,
  trace_id TEXT NOT NULL,
  PRIMARY KEY (name, ns, trace_id)
) WITHOUT ROWID;
CREATE INDEX names_trace ON names(trace_id);
