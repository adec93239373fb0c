CREATE TABLE connectors (
  namespace    TEXT NOT NULL,
  name         TEXT NOT NULL,
  spec         TEXT NOT NULL, -- JSON of connector.Spec; values of variables stay in here
  enabled      INTEGER NOT NULL,
  accepted_for TEXT NOT NULL,
  created_by   BLOB NOT NULL, -- writ.common.v1.Principal
  create_time  INTEGER NOT NULL, -- nanoseconds since 1970, as every time here
  PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- What mcp-host has been told of, so that what is gone here can be removed there.
CREATE TABLE hosted (
  namespace TEXT NOT NULL,
  name      TEXT NOT NULL,
  PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

-- A tool's definition as it was received, once for all that use it.
CREATE TABLE definitions (
  wire     TEXT PRIMARY KEY,
  semantic TEXT NOT NULL,
  bytes    BLOB NOT NULL
) STRICT;

CREATE TABLE listings (
  namespace      TEXT NOT NULL,
  server         TEXT NOT NULL,
  digest         TEXT NOT NULL,
  server_version TEXT NOT NULL,
  list_time      INTEGER NOT NULL,
  hash           TEXT NOT NULL,
  tools          INTEGER NOT NULL,
  PRIMARY KEY (namespace, server)
) STRICT, WITHOUT ROWID;

CREATE TABLE listed_tools (
  namespace TEXT NOT NULL,
  server    TEXT NOT NULL,
  name      TEXT NOT NULL,
  wire      TEXT NOT NULL REFERENCES definitions (wire),
  PRIMARY KEY (namespace, server, name),
  FOREIGN KEY (namespace, server) REFERENCES listings (namespace, server) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- A frozen set of tools. Its id is a hash over its content: turns with the same tools share it.
CREATE TABLE toolsets (
  id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE toolset_tools (
  toolset         TEXT NOT NULL REFERENCES toolsets (id),
  position        INTEGER NOT NULL,
  tool            TEXT NOT NULL,
  alias           TEXT NOT NULL,
  name            TEXT NOT NULL,
  lane            INTEGER NOT NULL,
  provider        TEXT NOT NULL,
  provider_digest TEXT NOT NULL,
  wire            TEXT NOT NULL REFERENCES definitions (wire),
  class           INTEGER NOT NULL,
  disposition     INTEGER NOT NULL,
  always_gate     INTEGER NOT NULL,
  why             TEXT NOT NULL,
  PRIMARY KEY (toolset, position),
  UNIQUE (toolset, tool),
  UNIQUE (toolset, alias)
) STRICT, WITHOUT ROWID;

CREATE TABLE turns (
  id             TEXT PRIMARY KEY,
  namespace      TEXT NOT NULL,
  state          INTEGER NOT NULL,
  principal      TEXT NOT NULL,
  principal_kind INTEGER NOT NULL,
  asserted_by    TEXT NOT NULL,
  agent          TEXT NOT NULL,
  conversation   TEXT NOT NULL,
  project        TEXT NOT NULL,
  mode           INTEGER NOT NULL,
  max_mode       INTEGER NOT NULL,
  ws_path        TEXT NOT NULL, -- empty: no workspace
  ws_device      INTEGER NOT NULL,
  ws_inode       INTEGER NOT NULL,
  parent         TEXT NOT NULL,
  open_time      INTEGER NOT NULL,
  end_time       INTEGER NOT NULL, -- 0: open
  use_time       INTEGER NOT NULL,
  policy_version TEXT NOT NULL,
  toolset        TEXT NOT NULL REFERENCES toolsets (id),
  cards_pending  INTEGER NOT NULL DEFAULT 0 -- 1: ended, and its cards are still to be cancelled
) STRICT, WITHOUT ROWID;

CREATE INDEX turns_of_principal ON turns (namespace, principal, principal_kind, id);
CREATE INDEX turns_of_conversation ON turns (namespace, conversation, id);
CREATE INDEX turns_open ON turns (use_time) WHERE state = 1;
CREATE INDEX turns_open_of_principal ON turns (namespace, principal, principal_kind) WHERE state = 1;
CREATE INDEX turns_cards_pending ON turns (id) WHERE cards_pending = 1;

CREATE TABLE turn_problems (
  turn     TEXT NOT NULL REFERENCES turns (id),
  position INTEGER NOT NULL,
  provider TEXT NOT NULL,
  status   BLOB NOT NULL, -- google.rpc.Status
  PRIMARY KEY (turn, position)
) STRICT, WITHOUT ROWID;

-- A conversation belongs to the principal that used it first.
CREATE TABLE conversations (
  namespace      TEXT NOT NULL,
  conversation   TEXT NOT NULL,
  principal      TEXT NOT NULL,
  principal_kind INTEGER NOT NULL,
  PRIMARY KEY (namespace, conversation)
) STRICT, WITHOUT ROWID;

CREATE TABLE requests (
  namespace      TEXT NOT NULL,
  principal      TEXT NOT NULL,
  principal_kind INTEGER NOT NULL,
  request_id     TEXT NOT NULL,
  digest         TEXT NOT NULL,
  turn           TEXT NOT NULL REFERENCES turns (id),
  time           INTEGER NOT NULL,
  PRIMARY KEY (namespace, principal, principal_kind, request_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX requests_by_time ON requests (time);
