-- Settings and tools' settings are never changed in place: what an old version forbade binds the turns of its time.
CREATE TABLE settings (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  namespace TEXT NOT NULL,
  version INTEGER NOT NULL,
  at INTEGER NOT NULL,
  body TEXT NOT NULL,
  UNIQUE (namespace, version)
);
CREATE TABLE tool_settings (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  namespace TEXT NOT NULL,
  tool TEXT NOT NULL,
  at INTEGER NOT NULL,
  current INTEGER NOT NULL,
  body TEXT NOT NULL
);
CREATE UNIQUE INDEX tool_settings_now ON tool_settings (namespace, tool) WHERE current = 1;
CREATE INDEX tool_settings_since ON tool_settings (namespace, tool, at);

-- The order of all changes of cards, the same for every watcher.
CREATE TABLE card_log (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  namespace TEXT NOT NULL,
  card TEXT NOT NULL,
  state INTEGER NOT NULL
);
CREATE INDEX card_log_namespace ON card_log (namespace, seq);

CREATE TABLE cards (
  id TEXT PRIMARY KEY,
  namespace TEXT NOT NULL,
  turn TEXT NOT NULL,
  call TEXT NOT NULL,
  principal TEXT NOT NULL,
  principal_kind INTEGER NOT NULL,
  conversation TEXT NOT NULL,
  tool TEXT NOT NULL,
  state INTEGER NOT NULL,
  version INTEGER NOT NULL,
  seq INTEGER NOT NULL UNIQUE,
  body TEXT NOT NULL,
  arguments BLOB NOT NULL,
  answer TEXT NOT NULL DEFAULT '',
  grant_id TEXT NOT NULL DEFAULT '',
  end_state INTEGER NOT NULL DEFAULT 0,
  end_reason INTEGER NOT NULL DEFAULT 0,
  end_changed TEXT NOT NULL DEFAULT '',
  receipt TEXT NOT NULL DEFAULT '',
  UNIQUE (namespace, turn, call)
) WITHOUT ROWID;
CREATE INDEX cards_all ON cards (namespace, seq);
CREATE INDEX cards_state ON cards (namespace, state, seq);
CREATE INDEX cards_open ON cards (state, seq);
CREATE INDEX cards_principal ON cards (namespace, principal, principal_kind, state, seq);
CREATE INDEX cards_turn ON cards (namespace, turn, state, seq);
CREATE INDEX cards_conversation ON cards (namespace, conversation, seq);
CREATE INDEX cards_unsealed ON cards (seq) WHERE end_state = 0 AND state IN (3, 4);

CREATE TABLE cancels (
  namespace TEXT NOT NULL,
  turn TEXT NOT NULL,
  call TEXT NOT NULL, -- '' is the whole turn
  at INTEGER NOT NULL,
  actor TEXT NOT NULL,
  reason TEXT NOT NULL,
  PRIMARY KEY (namespace, turn, call)
) WITHOUT ROWID;

CREATE TABLE grants (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  namespace TEXT NOT NULL,
  principal TEXT NOT NULL,
  principal_kind INTEGER NOT NULL,
  tool TEXT NOT NULL,
  ended INTEGER NOT NULL DEFAULT 0,
  body TEXT NOT NULL
);
CREATE INDEX grants_for ON grants (namespace, principal, principal_kind, tool, ended);
CREATE INDEX grants_all ON grants (namespace, ended, seq);

CREATE TABLE signing_keys (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  kid TEXT NOT NULL UNIQUE,
  public_key BLOB NOT NULL,
  seed BLOB, -- of the current and the next key, where no folder for keys is set
  not_before INTEGER NOT NULL,
  begin_time INTEGER NOT NULL DEFAULT 0,
  retire_time INTEGER NOT NULL DEFAULT 0
);
