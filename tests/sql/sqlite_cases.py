"""What each kind of statement does under takeback on SQLite, as data: the tests go through it, and the documentation
prints it."""

# ruff: noqa: E501  # one case a line

from typing import NamedTuple

EXACT, REFUSED, FAILS, NOTHING, READS = "exact", "refused", "fails", "nothing changed", "reads"


class Case(NamedTuple):
    name: str
    before: str  # how the file is made
    statements: tuple[str, ...]  # one transaction, one effect
    expect: str = EXACT
    since: str = ""  # what others do before it is taken back …
    kept: str = ""  # … and what is asked afterwards, to see that it is still there
    conflict: bool = False  # then taking it back is refused


T = "CREATE TABLE t (id INTEGER PRIMARY KEY, a, b); INSERT INTO t VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3);"
UNIQUE = "CREATE TABLE u (id INTEGER PRIMARY KEY, name TEXT UNIQUE); INSERT INTO u VALUES (1, 'a'), (2, 'b');"
FAMILY = """
    CREATE TABLE parent (id INTEGER PRIMARY KEY, x);
    CREATE TABLE child (id INTEGER PRIMARY KEY, p REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE, y);
    CREATE TABLE grandchild (id INTEGER PRIMARY KEY, c REFERENCES child ON DELETE SET NULL, z);
    INSERT INTO parent VALUES (1, 'p'), (2, 'q');
    INSERT INTO child VALUES (10, 1, 'c'), (20, 2, 'd');
    INSERT INTO grandchild VALUES (100, 10, 'g');
"""
KV = """
    CREATE TABLE kv (k TEXT COLLATE NOCASE, n, v, PRIMARY KEY (k, n)) WITHOUT ROWID;
    INSERT INTO kv VALUES ('a', 1, 'x'), ('B', 2, 'y'), ('c', X'00', NULL);
"""
LOOSE = "CREATE TABLE loose (a, b); INSERT INTO loose VALUES (1, 'x'), (1, 'x'), (2, 'y');"
AUDITED = (
    T
    + """
    CREATE TABLE audit (at INTEGER PRIMARY KEY, what);
    CREATE TABLE counter (n); INSERT INTO counter VALUES (3);
    CREATE TRIGGER t_ins AFTER INSERT ON t BEGIN UPDATE counter SET n = n + 1;
        INSERT INTO audit (what) VALUES ('ins ' || new.a); END;
    CREATE TRIGGER t_upd BEFORE UPDATE ON t BEGIN INSERT INTO audit (what) VALUES (old.a || '→' || new.a); END;
    CREATE TRIGGER t_del AFTER DELETE ON t BEGIN UPDATE counter SET n = n - 1; END;
"""
)
GENERATED = """
    CREATE TABLE g (id INTEGER PRIMARY KEY, a, s AS (a || '!') STORED, v AS (a || '?') VIRTUAL, b);
    INSERT INTO g (id, a, b) VALUES (1, 'x', 1), (2, 'y', 2);
"""
FTS = "CREATE VIRTUAL TABLE f USING fts5(text); INSERT INTO f VALUES ('hello world'), ('good bye');"

CASES: tuple[Case, ...] = (
    # Rows.
    Case("INSERT", T, ("INSERT INTO t VALUES (4, 'four', 4)",)),
    Case("INSERT … SELECT of the whole table", T, ("INSERT INTO t (a, b) SELECT a, b FROM t",)),
    Case("INSERT … RETURNING", T, ("INSERT INTO t (a) VALUES ('x') RETURNING id",)),
    Case("UPDATE of every row", T, ("UPDATE t SET b = b + 1",)),
    Case("UPDATE … FROM", T + KV, ("UPDATE t SET b = kv.v FROM kv WHERE kv.n = t.id",)),
    Case("UPDATE that changes nothing", T, ("UPDATE t SET b = b",), NOTHING),
    Case("UPDATE of no row", T, ("UPDATE t SET b = 9 WHERE id = 99",), NOTHING),
    Case("UPDATE of a type only: 1 to 1.0", T, ("UPDATE t SET b = 1.0 WHERE id = 1",)),
    Case("DELETE of one row", T, ("DELETE FROM t WHERE id = 2",)),
    Case("DELETE of every row (truncate)", T, ("DELETE FROM t",)),
    Case("DELETE … LIMIT by subquery", T, ("DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY b LIMIT 2)",)),
    Case("a common table expression", T, ("WITH x AS (SELECT 2 AS id) DELETE FROM t WHERE id IN (SELECT id FROM x)",)),
    Case("there and back in one transaction", T, ("UPDATE t SET b = b + 1", "UPDATE t SET b = b - 1"), NOTHING),
    Case("insert and delete in one transaction", T, ("INSERT INTO t VALUES (9, 1, 1)", "DELETE FROM t WHERE id = 9"), NOTHING),
    Case("delete and insert in one transaction", T, ("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (1, 'new', 0)")),
    Case("several tables", T + UNIQUE + KV, ("UPDATE t SET a = 1", "DELETE FROM u", "INSERT INTO kv VALUES ('z', 1, 1)")),
    Case("the key is changed", T, ("UPDATE t SET id = id + 100",)),
    Case("keys change places", T, ("UPDATE t SET id = -id WHERE id < 3", "UPDATE t SET id = 3 + id WHERE id < 0")),
    Case("every type", T, ("UPDATE t SET a = X'00ff', b = 9223372036854775807", "INSERT INTO t VALUES (4, 1e308, NULL)")),
    Case("text with zero bytes and odd letters", T, ("INSERT INTO t VALUES (4, 'a' || char(0) || 'ß🙂', '')",)),
    Case("a large blob", T, ("INSERT INTO t VALUES (4, zeroblob(3000000), 1)", "UPDATE t SET b = randomblob(100000)")),
    # Conflicts of keys.
    Case("INSERT OR REPLACE", UNIQUE, ("INSERT OR REPLACE INTO u VALUES (1, 'b')",)),
    Case("UPDATE OR REPLACE", UNIQUE, ("UPDATE OR REPLACE u SET name = 'b' WHERE id = 1",)),
    Case("INSERT OR IGNORE", UNIQUE, ("INSERT OR IGNORE INTO u VALUES (3, 'b'), (4, 'd')",)),
    Case("upsert", UNIQUE, ("INSERT INTO u VALUES (1, 'z') ON CONFLICT (id) DO UPDATE SET name = excluded.name",)),
    Case("unique values change places", UNIQUE, (
        "UPDATE u SET name = '-' WHERE id = 1", "UPDATE u SET name = 'a' WHERE id = 2", "UPDATE u SET name = 'b' WHERE id = 1",
    )),
    Case("a statement that breaks a constraint", UNIQUE, ("INSERT INTO u VALUES (7, 'x')", "INSERT INTO u VALUES (8, 'x')"), FAILS),
    Case("OR FAIL half-way", UNIQUE, ("INSERT OR FAIL INTO u VALUES (7, 'x'), (8, 'x')",), FAILS),
    Case("a syntax error", T, ("UPDATE t SET",), FAILS),
    Case("a table that is not there", T, ("DELETE FROM nope",), FAILS),
    # Kinds of tables.
    Case("without rowid", KV, ("UPDATE kv SET v = 1", "INSERT INTO kv VALUES ('d', 1.5, 2)", "DELETE FROM kv WHERE k = 'B'")),
    Case("without rowid, case of the key", KV, ("UPDATE kv SET k = upper(k)",)),
    Case("without rowid, the key is changed", KV, ("UPDATE kv SET n = n + 10 WHERE k <> 'c'",)),
    Case("without a key, with equal rows", LOOSE, ("DELETE FROM loose WHERE a = 1", "INSERT INTO loose VALUES (3, 3)")),
    Case("without a key, one of two equal rows", LOOSE, ("UPDATE loose SET b = 'z' WHERE rowid = 2",)),
    Case("a key with NULL", "CREATE TABLE n (k TEXT PRIMARY KEY, v); INSERT INTO n VALUES (NULL, 1), (NULL, 2);", ("UPDATE n SET v = v + 1",)),
    Case("INTEGER PRIMARY KEY DESC", "CREATE TABLE d (k INTEGER PRIMARY KEY DESC, v); INSERT INTO d VALUES (5, 1);", ("UPDATE d SET v = 2",)),
    Case("AUTOINCREMENT", "CREATE TABLE i (id INTEGER PRIMARY KEY AUTOINCREMENT, a); INSERT INTO i (a) VALUES (1);", ("INSERT INTO i (a) VALUES (2), (3)",)),
    Case("STRICT", "CREATE TABLE s (a INT, b ANY, c BLOB) STRICT; INSERT INTO s VALUES (1, 1, X'01');", ("UPDATE s SET b = 1.0, c = X''",)),
    Case("names with quotes and spaces", 'CREATE TABLE "o d""d" ("a b" PRIMARY KEY, "select"); INSERT INTO "o d""d" VALUES (1, 2);', ('UPDATE "o d""d" SET "select" = 3',)),
    Case("a column called rowid", "CREATE TABLE r (rowid, a); INSERT INTO r VALUES ('mine', 1);", ("UPDATE r SET a = 2, rowid = 'x'",)),
    Case("all three names of the rowid taken", "CREATE TABLE r (rowid, oid, _rowid_); INSERT INTO r VALUES (1, 2, 3);", ("UPDATE r SET oid = 9",), REFUSED),
    Case("forty columns", f"CREATE TABLE w ({', '.join(f'c{n}' for n in range(40))}); INSERT INTO w (c39) VALUES ('last');", ("UPDATE w SET c0 = 1, c39 = 2",)),
    Case("generated columns, stored and virtual", GENERATED, ("UPDATE g SET a = 'z' WHERE id = 1", "INSERT INTO g (a) VALUES ('n')", "DELETE FROM g WHERE id = 2")),
    Case("REPLACE with virtual columns", GENERATED + "CREATE UNIQUE INDEX gb ON g (b);", ("INSERT OR REPLACE INTO g (id, a, b) VALUES (7, 'r', 2)",)),
    Case("an index on an expression", T + "CREATE UNIQUE INDEX e ON t (lower(a)) WHERE b > 0;", ("UPDATE t SET a = a || 'x'",)),
    Case("columns added since", T + "ALTER TABLE t ADD COLUMN late DEFAULT 7;", ("UPDATE t SET a = 'x'",)),
    Case("FTS5", FTS, ("INSERT INTO f VALUES ('more words')", "DELETE FROM f WHERE f MATCH 'hello'", "UPDATE f SET text = 'x' WHERE rowid = 2")),
    Case("R-tree", "CREATE VIRTUAL TABLE r USING rtree(id, x0, x1); INSERT INTO r VALUES (1, 0, 1), (2, 5, 6);", ("DELETE FROM r WHERE id = 1", "INSERT INTO r VALUES (3, 2, 3)")),
    Case("a view that can be written", T + "CREATE VIEW v AS SELECT id, a FROM t; CREATE TRIGGER vi INSTEAD OF DELETE ON v BEGIN DELETE FROM t WHERE id = old.id; END;", ("DELETE FROM v WHERE id > 1",)),
    # Triggers and foreign keys.
    Case("triggers", AUDITED, ("INSERT INTO t VALUES (4, 'four', 4)", "UPDATE t SET a = 'x' WHERE id = 1", "DELETE FROM t WHERE id = 2")),
    Case("a trigger that changes its own table", T + "CREATE TRIGGER o AFTER UPDATE OF a ON t BEGIN UPDATE t SET b = b + 1 WHERE id = new.id; END;", ("UPDATE t SET a = 'x'",)),
    Case("cascades over three tables", FAMILY, ("PRAGMA foreign_keys = ON", "DELETE FROM parent WHERE id = 1")),
    Case("ON UPDATE CASCADE", FAMILY, ("PRAGMA foreign_keys = ON", "UPDATE parent SET id = id + 50")),
    Case("a tree in one table", "CREATE TABLE n (id INTEGER PRIMARY KEY, up REFERENCES n ON DELETE CASCADE); INSERT INTO n VALUES (1, NULL), (2, 1), (3, 2);", ("PRAGMA foreign_keys = ON", "DELETE FROM n WHERE id = 1")),
    Case("a foreign key that says no", FAMILY, ("PRAGMA foreign_keys = ON", "INSERT INTO child VALUES (1, 99, 1)"), FAILS),
    Case("savepoints", T, ("SAVEPOINT s", "UPDATE t SET a = 'x'", "ROLLBACK TO s", "UPDATE t SET b = 0", "RELEASE s")),
    # The schema.
    Case("CREATE TABLE with rows", T, ("CREATE TABLE n (x PRIMARY KEY, y)", "INSERT INTO n VALUES (1, 2)")),
    Case("CREATE TABLE … AS SELECT", T, ("CREATE TABLE n AS SELECT * FROM t",)),
    Case("DROP TABLE with indexes, triggers and a view", AUDITED + "CREATE INDEX ta ON t (a); CREATE VIEW tv AS SELECT a FROM t;", ("DROP TABLE t",)),
    Case("DROP TABLE after changes", T, ("UPDATE t SET a = 'x'", "DROP TABLE t")),
    Case("DROP and CREATE the same table", T, ("DROP TABLE t", "CREATE TABLE t (id INTEGER PRIMARY KEY, a, b)", "INSERT INTO t VALUES (1, 'n', 0)")),
    Case("DROP TABLE without rowid", KV, ("DROP TABLE kv",)),
    Case("DROP TABLE with AUTOINCREMENT", "CREATE TABLE i (id INTEGER PRIMARY KEY AUTOINCREMENT, a); INSERT INTO i (a) VALUES (1);", ("DROP TABLE i",)),
    Case("ALTER TABLE … ADD COLUMN", T, ("ALTER TABLE t ADD COLUMN c DEFAULT 5", "UPDATE t SET c = 6 WHERE id = 1")),
    Case("ALTER TABLE … DROP COLUMN", T, ("ALTER TABLE t DROP COLUMN a",)),
    Case("ALTER TABLE … RENAME COLUMN", T + "CREATE INDEX ta ON t (a); CREATE VIEW v AS SELECT a FROM t;", ("ALTER TABLE t RENAME COLUMN a TO z",)),
    Case("ALTER TABLE … RENAME TO", FAMILY, ("ALTER TABLE parent RENAME TO elder", "INSERT INTO elder VALUES (3, 'r')")),
    Case("CREATE and DROP INDEX", T + "CREATE INDEX ta ON t (a);", ("DROP INDEX ta", "CREATE UNIQUE INDEX tb ON t (b)")),
    Case("CREATE and DROP VIEW and TRIGGER", AUDITED, ("DROP TRIGGER t_ins", "CREATE VIEW v AS SELECT 1", "INSERT INTO t VALUES (9, 9, 9)")),
    Case("twelve steps to another table", T + "CREATE INDEX ta ON t (a);", (
        "CREATE TABLE t_new (id INTEGER PRIMARY KEY, a TEXT NOT NULL)", "INSERT INTO t_new SELECT id, a FROM t",
        "DROP TABLE t", "ALTER TABLE t_new RENAME TO t", "CREATE INDEX ta ON t (a)",
    )),
    Case("CREATE VIRTUAL TABLE", T, ("CREATE VIRTUAL TABLE f USING fts5(x)", "INSERT INTO f SELECT a FROM t")),
    Case("DROP VIRTUAL TABLE", FTS, ("DROP TABLE f",)),
    Case("PRAGMA user_version", T, ("PRAGMA user_version = 7", "UPDATE t SET a = 1")),
    Case("a statement in a transaction that fails at the end", T, ("DROP TABLE t", "SELECT nope"), FAILS),
    # What is read, and what is refused.
    Case("SELECT", T, ("SELECT * FROM t",), READS),
    Case("SELECT … RETURNING in a word", T, ("WITH x AS (SELECT 1) SELECT * FROM x",), READS),
    Case("EXPLAIN DELETE", T, ("EXPLAIN DELETE FROM t",), READS),
    Case("PRAGMA table_info", T, ("PRAGMA table_info(t)",), READS),
    Case("PRAGMA journal_mode", T, ("PRAGMA journal_mode = wal",), REFUSED),
    Case("PRAGMA writable_schema", T, ("PRAGMA writable_schema = on",), REFUSED),
    Case("ATTACH", T, ("ATTACH ':memory:' AS m",), REFUSED),
    Case("VACUUM", T, ("VACUUM",), FAILS),
    Case("COMMIT", T, ("UPDATE t SET a = 1", "COMMIT"), REFUSED),
    Case("ANALYZE", T, ("ANALYZE",), REFUSED),
    Case("the log itself", T, ("DELETE FROM takeback_op",), REFUSED),
    Case("a temporary table", T, ("CREATE TEMP TABLE tmp (x)", "INSERT INTO tmp VALUES (1)"), NOTHING),
    # Others, between the effect and its undo.
    Case("others change other rows", T, ("UPDATE t SET b = 0 WHERE id = 1",), since="UPDATE t SET b = 9 WHERE id = 2", kept="SELECT b FROM t WHERE id = 2"),
    Case("others change the same row", T, ("UPDATE t SET b = 0 WHERE id = 1",), since="UPDATE t SET a = 'theirs' WHERE id = 1", conflict=True),
    Case("others change its type only", T, ("UPDATE t SET b = 0 WHERE id = 1",), since="UPDATE t SET b = 0.0 WHERE id = 1", conflict=True),
    Case("others delete the row", T, ("UPDATE t SET b = 0 WHERE id = 1",), since="DELETE FROM t WHERE id = 1", conflict=True),
    Case("others put a row where one was deleted", T, ("DELETE FROM t WHERE id = 1",), since="INSERT INTO t VALUES (1, 'theirs', 0)", conflict=True),
    Case("others take the unique value", UNIQUE, ("DELETE FROM u WHERE id = 1",), since="INSERT INTO u VALUES (5, 'a')", conflict=True),
    Case("others refer to the new row", FAMILY, ("INSERT INTO parent VALUES (3, 'r')",), since="INSERT INTO child VALUES (30, 3, 'theirs')", conflict=True),
    Case("others remove what the row refers to", FAMILY, ("DELETE FROM child WHERE id = 20",), since="DELETE FROM parent WHERE id = 2", conflict=True),
    Case("others alter the table", T, ("UPDATE t SET b = 0",), since="ALTER TABLE t ADD COLUMN c", conflict=True),
    Case("others drop the table", T, ("UPDATE t SET b = 0",), since="DROP TABLE t", conflict=True),
    Case("others add an index", T, ("UPDATE t SET b = 0",), since="CREATE INDEX tb ON t (b)", kept="SELECT 1 FROM sqlite_schema WHERE name = 'tb'"),
    Case("others write into the new table", T, ("CREATE TABLE n (x)",), since="INSERT INTO n VALUES (1)", conflict=True),
    Case("others make a table of the dropped name", T, ("DROP TABLE t",), since="CREATE TABLE t (x)", conflict=True),
    Case("others work elsewhere while a table is gone", T + UNIQUE, ("DROP TABLE t",), since="UPDATE u SET name = 'theirs' WHERE id = 1", kept="SELECT name FROM u WHERE id = 1"),
    Case("VACUUM since, rows without a key", LOOSE + "DELETE FROM loose WHERE rowid = 1;", ("UPDATE loose SET b = 'z' WHERE a = 2",), since="VACUUM", conflict=True),
)  # fmt: skip
