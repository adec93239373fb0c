-- What happened. Claims, receipts and keys are records: they are written once. Whatever may be erased one day (writs,
-- salts, payloads, handles) lies in columns or tables of its own. log_index is for the Merkle log, which numbers the
-- records of every kind.

CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;

CREATE TABLE namespaces (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

CREATE TABLE keys (
  key_id     TEXT NOT NULL,
  service    TEXT NOT NULL,
  public_key BLOB NOT NULL,
  since      INTEGER NOT NULL,
  log_index  INTEGER,
  PRIMARY KEY (key_id, service)
);
CREATE UNIQUE INDEX keys_log ON keys(log_index) WHERE log_index IS NOT NULL;

CREATE TABLE claims (
  id        INTEGER PRIMARY KEY,
  ns        INTEGER NOT NULL REFERENCES namespaces(id),
  call      TEXT NOT NULL,
  tool      TEXT NOT NULL,
  executor  TEXT NOT NULL,
  writ_id   TEXT NOT NULL,
  decision  TEXT NOT NULL,     -- its id
  cause     TEXT NOT NULL,     -- why it was allowed
  trace_id  TEXT,
  claimed   INTEGER NOT NULL,  -- microseconds since 1970, as all times here
  writ      TEXT,              -- erasable
  receipt   INTEGER,           -- the receipt that ended the call
  log_index INTEGER,
  UNIQUE (ns, call)
);
-- A log index is given once. Partial, so that a row without one costs no page.
CREATE UNIQUE INDEX claims_log ON claims(log_index) WHERE log_index IS NOT NULL;
CREATE INDEX claims_trace ON claims(trace_id) WHERE trace_id IS NOT NULL;

-- id is the namespace's number << 40 | the sequence in the namespace, so that the next number is found at the end of
-- the table's own tree and no gap can be made.
CREATE TABLE receipts (
  id               INTEGER PRIMARY KEY,
  ns               INTEGER NOT NULL REFERENCES namespaces(id),
  name             TEXT NOT NULL UNIQUE,
  kind             INTEGER NOT NULL,
  call             TEXT,
  state            INTEGER NOT NULL,
  tool             TEXT,
  principal        TEXT,
  conversation     TEXT,
  card             TEXT,
  trace_id         TEXT,
  sealed           INTEGER NOT NULL,
  digest           BLOB NOT NULL,  -- SHA-256 of statement
  statement        BLOB NOT NULL,  -- DSSE envelope, exact bytes
  countersignature BLOB NOT NULL,  -- DSSE envelope, exact bytes
  log_index        INTEGER
);
CREATE UNIQUE INDEX receipts_log ON receipts(log_index) WHERE log_index IS NOT NULL;
CREATE UNIQUE INDEX receipts_call ON receipts(ns, call) WHERE kind = 1;
CREATE UNIQUE INDEX receipts_digest ON receipts(digest) WHERE kind <> 1; -- sending the same bytes again is no second receipt
CREATE INDEX receipts_refusal ON receipts(ns, call) WHERE kind = 2 AND call IS NOT NULL;
CREATE INDEX receipts_owner ON receipts(principal, conversation) WHERE principal IS NOT NULL;
CREATE INDEX receipts_card ON receipts(card) WHERE card IS NOT NULL;
CREATE INDEX receipts_trace ON receipts(trace_id) WHERE trace_id IS NOT NULL;

-- How often an identical refusal came again.
CREATE TABLE repeats (receipt INTEGER PRIMARY KEY REFERENCES receipts(id), count INTEGER NOT NULL, last INTEGER NOT NULL);

CREATE TABLE blobs (
  id      INTEGER PRIMARY KEY,
  ns      INTEGER NOT NULL REFERENCES namespaces(id),
  sha256  TEXT NOT NULL,
  size    INTEGER NOT NULL,
  created INTEGER NOT NULL,
  UNIQUE (ns, sha256)
);

CREATE TABLE handles (
  handle       TEXT PRIMARY KEY,
  blob         INTEGER NOT NULL REFERENCES blobs(id),
  conversation TEXT NOT NULL,
  media_type   TEXT NOT NULL,
  UNIQUE (blob, conversation, media_type)
) WITHOUT ROWID;

CREATE TABLE openings (
  receipt   INTEGER PRIMARY KEY REFERENCES receipts(id),
  body      BLOB NOT NULL,                     -- writ.evidence.v1.Opening without what lies in a blob
  arguments INTEGER REFERENCES blobs(id),      -- the argument bytes, where they are large
  result    INTEGER REFERENCES blobs(id)       -- the inline result's bytes, where they are large
);

CREATE TRIGGER receipts_stay BEFORE DELETE ON receipts BEGIN SELECT RAISE(ABORT, 'a receipt is never deleted'); END;
CREATE TRIGGER receipts_fixed BEFORE UPDATE OF id, ns, name, kind, call, state, tool, principal, conversation, card,
  trace_id, sealed, digest, statement, countersignature ON receipts
BEGIN SELECT RAISE(ABORT, 'a receipt is never changed'); END;
CREATE TRIGGER receipts_logged BEFORE UPDATE OF log_index ON receipts WHEN OLD.log_index IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a log index is given once'); END;

CREATE TRIGGER claims_stay BEFORE DELETE ON claims BEGIN SELECT RAISE(ABORT, 'a claim is never deleted'); END;
CREATE TRIGGER claims_fixed BEFORE UPDATE OF id, ns, call, tool, executor, writ_id, decision, cause, trace_id, claimed ON claims
BEGIN SELECT RAISE(ABORT, 'a claim is never changed'); END;
CREATE TRIGGER claims_sealed BEFORE UPDATE OF receipt ON claims WHEN OLD.receipt IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a call ends once'); END;
CREATE TRIGGER claims_writ BEFORE UPDATE OF writ ON claims WHEN NEW.writ IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a writ is erased, never changed'); END;

CREATE TRIGGER keys_stay BEFORE DELETE ON keys BEGIN SELECT RAISE(ABORT, 'a key is never deleted: receipts need it'); END;
CREATE TRIGGER keys_fixed BEFORE UPDATE OF key_id, service, public_key, since ON keys
BEGIN SELECT RAISE(ABORT, 'a key is never changed'); END;
