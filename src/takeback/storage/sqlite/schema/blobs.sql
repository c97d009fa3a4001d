-- Only a database without tables takes this; `takeback.storage.blobs.stored.create` sees to it for one that has some already.
PRAGMA auto_vacuum = INCREMENTAL;

-- blobs: immutable bytes, named by their SHA-256. Small ones are here and share the journal's commit; others are in packs.
CREATE TABLE blobs (
  id         INTEGER PRIMARY KEY,
  digest     BLOB NOT NULL,
  size       INTEGER NOT NULL,  -- of the content
  form       INTEGER NOT NULL,  -- 0 raw, 1 zstd, 2 zstd of the difference to `base`, 3 the digests of its pieces
  base       INTEGER,           -- id of the blob this one is a difference to
  depth      INTEGER NOT NULL,  -- how many bases stand below it, at most
  created_at INTEGER NOT NULL,  -- seconds since 1970; when it was last put
  data       BLOB               -- NULL: in a pack
) STRICT;
-- blobs_by_digest: eight bytes find it, the row has the rest; forty would be kept twice otherwise.
CREATE INDEX blobs_by_digest ON blobs (substr(digest, 1, 8));

-- blob_places: where in which pack.
CREATE TABLE blob_places (
  id       INTEGER PRIMARY KEY,  -- of the blob
  pack     INTEGER NOT NULL,     -- its file name, in hexadecimal
  position INTEGER NOT NULL,
  length   INTEGER NOT NULL      -- without the header of the entry
) STRICT;

-- blob_refs: the blobs that must live as long as this one, 32 bytes each.
CREATE TABLE blob_refs (
  id      INTEGER PRIMARY KEY,
  digests BLOB NOT NULL
) STRICT;

-- blob_origins: the newest version of whatever was named by `like`.
CREATE TABLE blob_origins (
  origin INTEGER PRIMARY KEY,  -- 64 bits of the hash of that name
  newest INTEGER NOT NULL      -- id of the blob
) STRICT;
