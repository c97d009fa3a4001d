"""The definitions of tables: columns, and the key that identifies rows."""

import json
from typing import NamedTuple

from takeback.adapters.sqlite.child.driver import OURS, SqliteConnection, quoted

_ROWID = ("rowid", "_rowid_", "oid")
_BINARY, _NOCASE, _RTRIM = "BINARY", "NOCASE", "RTRIM"


class SqliteShape(NamedTuple):
    name: str
    sql: str
    columns: tuple[str, ...]  # what is stored; generated columns are not
    rowid: str  # by which name the rowid is asked for; "" for a table without one
    stable: bool  # a rowid that VACUUM leaves alone, or a primary key
    key: tuple[int, ...]  # the columns of the primary key
    collations: tuple[str, ...] = ()  # of the key, for a table without rowid
    picks: tuple[int, ...] | None = None  # which of the values that the hook gets; None: all
    unseen: bool = False  # the hook does not get the values: there are virtual generated columns
    virtual: bool = False  # rows are in other tables, which have shapes of their own
    trouble: str = ""  # why its rows cannot be captured
    # Columns in which both 1 and 1.0 can be; in others SQLite makes one of the two.
    mixed: tuple[int, ...] = ()
    unique: bool = True  # one row may be in the way of another

    @property
    def id(self) -> tuple[str, str]:
        return self.name, self.sql

    @property
    def selected(self) -> str:
        return ", ".join(quoted(one) for one in self.columns)

    @property
    def key_names(self) -> tuple[str, ...]:
        """By what a row is asked for, as SQL."""
        if not self.rowid:
            return tuple(quoted(self.columns[at]) for at in self.key)
        return (quoted(self.rowid) if self.stable else self.rowid,)

    def told(self) -> str:
        """For the table of shapes in the file."""
        return json.dumps(
            {"columns": self.columns, "rowid": self.rowid, "key": self.key, "stable": self.stable},
            ensure_ascii=False,
        )


def shapes(connection: SqliteConnection) -> dict[str, SqliteShape]:
    """Of every table in the file but ours, by name in lower case."""
    columns: dict[str, list[tuple[str, str, int, int]]] = {}
    about: dict[str, tuple[str, str, str, int]] = {}
    for name, sql, kind, without, column, declared, key, hidden in connection.execute(
        "SELECT m.name, m.sql, l.type, l.wr, x.name, x.type, x.pk, x.hidden FROM main.sqlite_schema m "
        "JOIN pragma_table_list(m.name) l ON l.schema = 'main' JOIN pragma_table_xinfo(m.name, 'main') x "
        "WHERE m.type = 'table' ORDER BY m.rowid, x.cid"
    ):
        if name.lower() in OURS or name.lower().startswith("sqlite_"):
            continue
        about[name.lower()] = (name, sql or "", kind, without)
        columns.setdefault(name.lower(), []).append((column, declared, key, hidden))
    return {lower: _shape(connection, *about[lower], columns[lower]) for lower in about}


def _shape(
    connection: SqliteConnection,
    name: str,
    sql: str,
    kind: str,
    without: int,
    found: list[tuple[str, str, int, int]],
) -> SqliteShape:
    stored = [(at, one) for at, one in enumerate(found) if one[3] == 0]
    columns = tuple(one[0] for _, one in stored)
    ranked = sorted((one[2], at) for at, (_, one) in enumerate(stored) if one[2])
    key = tuple(at for _, at in ranked)
    if kind == "virtual":
        return SqliteShape(name, sql, columns, "", True, key, virtual=True)
    mixed = tuple(at for at, (_, one) in enumerate(stored) if _is_mixed(one[1]))
    # Beside what its rows are known by.
    unique = _has_index(connection, name, '"unique"' + (" AND origin <> 'pk'" if without else ""))
    picks = tuple(at for at, _ in stored) if len(stored) < len(found) else None
    unseen = any(one[3] == 2 for one in found)
    trouble = "it has too many columns" if len(columns) > 990 else ""
    shape = SqliteShape(name, sql, columns, "", True, key, (), picks, unseen, False, trouble, mixed, unique)
    if without:
        if unseen:
            trouble = "it has virtual generated columns and no rowid"
        collations = _collations(connection, name)
        if set(collations) - {_BINARY, _NOCASE, _RTRIM}:
            trouble = "its key is ordered by a function of some program"
        return shape._replace(collations=collations, trouble=trouble)
    # `INTEGER PRIMARY KEY DESC` is no name for the rowid.
    alias = (
        len(key) == 1
        and found[stored[key[0]][0]][1].upper() == "INTEGER"
        and not _has_index(connection, name, "origin = 'pk'")
    )
    taken = {one[0].lower() for one in found}
    rowid = columns[key[0]] if alias else next((one for one in _ROWID if one not in taken), "")
    if not rowid:
        trouble = "its columns hide its rowid"
    return shape._replace(rowid=rowid, stable=alias, trouble=trouble)


def _has_index(connection: SqliteConnection, name: str, which: str) -> bool:
    found = connection.execute(f"SELECT 1 FROM pragma_index_list(?, 'main') WHERE {which}", (name,))
    return found.fetchone() is not None


def _is_mixed(declared: str) -> bool:
    """No affinity: what is stored is what was given. (`ANY` has none in a strict table.)"""
    upper = declared.upper()
    if "INT" in upper or any(one in upper for one in ("CHAR", "CLOB", "TEXT")):
        return False
    return not upper or "BLOB" in upper or upper == "ANY"


def _collations(connection: SqliteConnection, name: str) -> tuple[str, ...]:
    found = connection.execute(
        "SELECT x.coll FROM pragma_index_list(?, 'main') l JOIN pragma_index_xinfo(l.name, 'main') x "
        "WHERE l.origin = 'pk' AND x.key ORDER BY x.seqno",
        (name,),
    )
    return tuple(one.upper() for (one,) in found)


def key_of(shape: SqliteShape, row: tuple[object, ...]) -> object:
    """Of a row in a table without rowid: what is equal here is the same row to SQLite."""
    folded = [_folded(row[at], how) for at, how in zip(shape.key, shape.collations, strict=True)]
    if len(folded) == 1:
        return folded[0]
    told = [{"hex": one.hex()} if isinstance(one, bytes) else one for one in folded]
    return json.dumps(told, ensure_ascii=False)


def _folded(value: object, collation: str) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, str) or collation == _BINARY:
        return value
    if collation == _RTRIM:
        return value.rstrip(" ")
    return value.encode().lower().decode()
