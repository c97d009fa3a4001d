-- One of these for each watched root. It says what the tree was when it was last looked at; the bytes are in the blobs.
-- dirs: one row a directory.
CREATE TABLE IF NOT EXISTS dirs (
  path    TEXT PRIMARY KEY,  -- quoted, from the root; the root itself is empty
  stamp   BLOB NOT NULL,
  shell   TEXT NOT NULL,     -- the directory itself, JSON
  names   BLOB NOT NULL,     -- of what is in it and is no directory, with a zero byte between
  entries BLOB NOT NULL,     -- 88 bytes for each name
  folders BLOB NOT NULL,
  extras  TEXT NOT NULL
) STRICT;

-- past: what a row was up to a generation, kept while a watch that began then goes on. NULL: it was not there.
CREATE TABLE IF NOT EXISTS past (
  path    TEXT NOT NULL,
  until   INTEGER NOT NULL,  -- the last generation it held for
  stamp   BLOB,
  shell   TEXT,
  names   BLOB,
  entries BLOB,
  folders BLOB,
  extras  TEXT,
  PRIMARY KEY (path, until)
) STRICT;

-- watches: who needs the past.
CREATE TABLE IF NOT EXISTS watches (
  token      TEXT PRIMARY KEY,
  generation INTEGER NOT NULL,
  owner      TEXT NOT NULL   -- process and its start, JSON
) STRICT;

-- links: files with several names; a write through one of them concerns all.
CREATE TABLE IF NOT EXISTS links (
  ino    INTEGER NOT NULL,
  path   TEXT NOT NULL,  -- of the directory
  name   BLOB NOT NULL,
  nlink  INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS links_by_ino ON links (ino);
CREATE INDEX IF NOT EXISTS links_by_path ON links (path);

-- holes: what is there and could not be captured, or is left out on purpose.
CREATE TABLE IF NOT EXISTS holes (
  path   TEXT NOT NULL,  -- of the directory
  name   TEXT NOT NULL,  -- quoted
  reason TEXT NOT NULL,
  kind   TEXT NOT NULL   -- unreadable | mount | store | regenerable
) STRICT;
CREATE INDEX IF NOT EXISTS holes_by_path ON holes (path);

-- meta: version, root, generation; and `unkept`, the directories whose new content was to be recorded with an effect.
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
