-- records: the journal itself, append-only and hash-chained. Every other table here can be made anew from it.
-- Behind the hash stands the seal of the record (`covered` in model/record.py).
CREATE TABLE records (
  seq    INTEGER PRIMARY KEY,
  kind   TEXT NOT NULL,
  run    TEXT NOT NULL,
  effect TEXT NOT NULL,     -- '' when the record is about the run
  at     INTEGER NOT NULL,  -- microseconds since 1970, UTC
  body   ANY NOT NULL,      -- canonical JSON; as text, or deflated
  hash   BLOB NOT NULL      -- SHA-256 over the hash before it and everything in this row
) STRICT;
-- further_records: those of an effect that its row in `effects` does not point to.
CREATE INDEX further_records ON records (effect) WHERE effect <> '' AND kind NOT IN ('intent', 'done');
CREATE INDEX checkpoints ON records (run, seq) WHERE kind = 'checkpoint';
-- records_of_runs: what is said of a run itself; whoever goes on with it reads all of that.
CREATE INDEX records_of_runs ON records (run, seq) WHERE effect = '';
-- A record changes only by redaction, and by that only its body and its seal.
CREATE TRIGGER records_are_final BEFORE UPDATE ON records
  WHEN NOT EXISTS (SELECT 1 FROM redacting WHERE redacting.seq = old.seq) OR new.seq <> old.seq OR new.kind <> old.kind
    OR new.run <> old.run OR new.effect <> old.effect OR new.at <> old.at OR substr(new.hash, 1, 32) <> substr(old.hash, 1, 32)
  BEGIN SELECT RAISE(ABORT, 'records are final'); END;
CREATE TRIGGER records_stay BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'records stay'); END;
-- redacting: what is being erased: records, while that is allowed, and blobs until they are gone. Empty most of the time.
CREATE TABLE redacting (
  seq    INTEGER NOT NULL,  -- of a record; 0: a blob, or the work that is left
  digest BLOB NOT NULL,
  PRIMARY KEY (seq, digest)
) STRICT, WITHOUT ROWID;

-- runs: how each run stands.
CREATE TABLE runs (
  number    INTEGER PRIMARY KEY,  -- short, for the rows of its effects
  id        TEXT NOT NULL UNIQUE,
  name      TEXT NOT NULL,
  agent     TEXT NOT NULL,
  state     TEXT NOT NULL CHECK (state IN ('open', 'suspended', 'accepted', 'undone', 'partly undone')),
  on_death  TEXT NOT NULL CHECK (on_death IN ('undo', 'accept', 'leave', 'finish', 'resume')),
  opened_at INTEGER NOT NULL,
  closed_at INTEGER NOT NULL DEFAULT 0,
  key       TEXT NOT NULL DEFAULT '',  -- of a submitted run
  workflow  TEXT NOT NULL DEFAULT '',  -- the registered name of its function
  due_at    INTEGER NOT NULL DEFAULT 0 CHECK (due_at >= 0),  -- when a worker may go on with it; 0: now
  awaits    TEXT NOT NULL DEFAULT '',  -- the signal it waits for
  note      TEXT NOT NULL DEFAULT ''   -- why it was suspended, or how it failed
) STRICT;
CREATE INDEX unfinished_runs ON runs (opened_at) WHERE state IN ('open', 'suspended');
CREATE UNIQUE INDEX one_run_per_key ON runs (key) WHERE key <> '';
-- claimable_runs: what a worker looks through; ended runs are not in it, and those that are not due stand last.
CREATE INDEX claimable_runs ON runs (workflow, due_at) WHERE on_death = 'resume' AND (state = 'open' OR state = 'suspended');
CREATE TRIGGER ended_runs_stay_ended BEFORE UPDATE OF state ON runs
  WHEN old.state NOT IN ('open', 'suspended')
  BEGIN SELECT RAISE(ABORT, 'an ended run stays ended'); END;
CREATE TRIGGER runs_stay BEFORE DELETE ON runs BEGIN SELECT RAISE(ABORT, 'runs stay'); END;

-- effects: how each effect stands; what it is stands in the record that `told` points to.
CREATE TABLE effects (
  seq       INTEGER PRIMARY KEY,  -- of its first record
  id        TEXT NOT NULL UNIQUE,
  run       INTEGER NOT NULL,     -- number of its run
  nth       INTEGER NOT NULL,     -- of its run, the first being 1
  state     TEXT NOT NULL,
  told      INTEGER NOT NULL,
  ended     INTEGER NOT NULL DEFAULT 0,
  key       TEXT NOT NULL,
  undoes    TEXT NOT NULL DEFAULT '',
  partial   INTEGER NOT NULL DEFAULT 0,
  undone_by TEXT NOT NULL DEFAULT '',
  accepted_by TEXT NOT NULL DEFAULT '',  -- run: it ended well; person: someone said so
  forgotten INTEGER NOT NULL DEFAULT 0,
  pinned    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX effects_of_run ON effects (run);
-- effects_in_flight: spelled out, because SQLite builds a table for IN each time a row is written.
CREATE INDEX effects_in_flight ON effects (state) WHERE state = 'proposed' OR state = 'intended' OR state = 'stuck';
CREATE INDEX undos ON effects (seq) WHERE undoes <> '';
CREATE INDEX forgettable_effects ON effects (seq) WHERE accepted_by <> '' AND forgotten = 0;
CREATE INDEX pinned_effects ON effects (seq) WHERE pinned = 1;
-- one_effect_per_key: a key has at most one effect that is not aborted; those that are have given theirs up.
CREATE UNIQUE INDEX one_effect_per_key ON effects (key) WHERE key <> '';

-- targets: what each effect touches, for finding what overlaps.
CREATE TABLE targets (
  resource TEXT NOT NULL,
  effect   INTEGER NOT NULL,
  PRIMARY KEY (resource, effect)
) STRICT, WITHOUT ROWID;

-- needs: what an effect said it was built on.
CREATE TABLE needs (
  needed TEXT NOT NULL,
  effect INTEGER NOT NULL,
  PRIMARY KEY (needed, effect)
) STRICT, WITHOUT ROWID;

-- tally: counts, but of what is in flight, that `status` shows without reading every effect; and `listed`, the newest record that the tables of effects tell of.
CREATE TABLE tally (
  name   TEXT PRIMARY KEY,
  amount INTEGER NOT NULL  -- called differently before format 3: a process of then appends nothing without seals
) STRICT, WITHOUT ROWID;
INSERT INTO tally VALUES ('listed', 0);

-- leases: who may append to a run; only the newest generation.
CREATE TABLE leases (
  run        TEXT PRIMARY KEY,
  generation INTEGER NOT NULL CHECK (generation > 0),
  boot       TEXT NOT NULL,
  space      TEXT NOT NULL,
  pid        INTEGER NOT NULL,  -- 0: released
  started    TEXT NOT NULL,
  expires_at INTEGER NOT NULL   -- microseconds since the kernel started
) STRICT;
CREATE INDEX held_leases ON leases (pid) WHERE pid <> 0;
-- The fence: who held a run once never passes for who holds it now.
CREATE TRIGGER generations_only_grow BEFORE UPDATE ON leases
  WHEN new.generation < old.generation OR (new.generation = old.generation AND new.pid NOT IN (old.pid, 0))
  BEGIN SELECT RAISE(ABORT, 'generations only grow'); END;
CREATE TRIGGER leases_stay BEFORE DELETE ON leases BEGIN SELECT RAISE(ABORT, 'leases stay'); END;

-- Of these tables: it changes with the number in FORMAT (takeback/storage/sqlite/older_format.py).
PRAGMA user_version = 3;
