CREATE TABLE server (
  namespace TEXT NOT NULL,
  name      TEXT NOT NULL,
  spec      BLOB NOT NULL,
  PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE listing (
  namespace        TEXT NOT NULL,
  name             TEXT NOT NULL,
  provider_digest  TEXT NOT NULL,
  list_time        INTEGER NOT NULL, -- microseconds since 1970
  ttl_ms           INTEGER NOT NULL,
  server_version   TEXT NOT NULL,
  protocol_version TEXT NOT NULL,
  instructions     TEXT NOT NULL,
  PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE listed_tool (
  namespace  TEXT NOT NULL,
  server     TEXT NOT NULL,
  position   INTEGER NOT NULL,
  name       TEXT NOT NULL,
  definition BLOB NOT NULL, -- as received
  PRIMARY KEY (namespace, server, position)
) STRICT;

CREATE TABLE era (
  provider_digest TEXT PRIMARY KEY,
  era             TEXT NOT NULL
) STRICT, WITHOUT ROWID;
