"""Questions about what was made in a database. They change nothing, but for those that say so."""

import json
from collections.abc import Callable
from typing import Any

import apsw

from takeback.adapters.sqlite.child import foreign_keys, programs
from takeback.adapters.sqlite.child.driver import said
from takeback.adapters.sqlite.child.log import SqliteOp, refuse_missing
from takeback.adapters.sqlite.child.open_file import OpenFile
from takeback.adapters.sqlite.child.transaction import told
from takeback.adapters.sqlite.wire import text
from takeback.errors import Forgotten


def marker(place: OpenFile, id: str) -> tuple[bool, dict[str, Any]]:
    """Whether it was made and is in force, and its receipt. The answer is final: the process that may have been making
    it has ended or cannot commit any more."""
    found = place.op(id)
    if found is None:
        # A process that may be making it holds the lock until it has ended. Holding the lock, it checks whether its
        # caller still waits.
        with place.writing():
            found = place.log.op(id)
    if found is None:
        return False, {}
    return not found.undone_by, told(found.about)


def reread(place: OpenFile, id: str) -> tuple[bool, dict[str, Any]]:
    """The same for what was committed here: as another connection finds it in the file."""
    with place.understood():
        witness = place.witness
        if not witness.is_there:
            witness.fresh()
        found = witness.op(id)
    return (not found.undone_by, told(found.about)) if found is not None else (False, {})


def standing_on(place: OpenFile, id: str) -> list[str]:
    """Later ops that changed the same rows, that changed rows of a table this one made or rebuilt, or whose rows
    refer to rows that this one made."""
    if place.log.is_there:  # the newest entries go to their table, where they are found by row
        with place.writing():
            place.log.settle()
            place.commit()
    mine = place.op(id)
    if mine is None:
        return []
    with place.as_ours():
        found = {
            no
            for (no,) in place.connection.execute(
                "SELECT DISTINCT (SELECT max(o.no) FROM main.takeback_op o WHERE o.no <= later.no) "
                "FROM main.takeback_image mine "
                "JOIN main.takeback_image later ON later.tbl = mine.tbl AND later.k = mine.k "
                "WHERE mine.no BETWEEN ? AND ? AND later.no > ?",
                (mine.no, mine.last, mine.last),
            )
        }
        found |= _on_the_schema(place, mine)
        found |= _referring(place, mine)
        names = dict(
            place.connection.execute("SELECT no, id FROM main.takeback_op WHERE no > ?", (mine.last,))
        )
    return [names[no] for no in sorted(found, reverse=True) if no in names]


def _on_the_schema(place: OpenFile, mine: SqliteOp) -> set[int]:
    """Later effects in tables that this one made, changed or dropped, and effects that made, changed or dropped tables
    of this one."""
    names = {one[2].lower() for one in mine.about.get("schema", ())}
    tables = {name.lower() for name in mine.about.get("tables", {})}
    only = "" if names else " AND of_schema"
    later = place.connection.execute(
        f"SELECT no, about FROM main.takeback_op WHERE no > ?{only}", (mine.last,)
    )
    found: set[int] = set()
    for no, told_of in later:
        about = json.loads(told_of)
        theirs = {name.lower() for name in about.get("tables", {})}
        schema = {one[2].lower() for one in about.get("schema", ())}
        if names & (theirs | schema) or tables & schema:
            found.add(no)
    return found


def _referring(place: OpenFile, mine: SqliteOp) -> set[int]:
    found: set[int] = set()
    for child, key in foreign_keys.referring(place, mine):
        later = place.connection.execute(
            "SELECT (SELECT max(o.no) FROM main.takeback_op o WHERE o.no <= i.no) FROM main.takeback_image i "
            "WHERE i.tbl = ? AND i.k = ? AND i.no > ?",
            (place.log.number_of(child), key, mine.last),
        )
        found.update(no for (no,) in later)
    return found


def rows(place: OpenFile, id: str, after: int, limit: int) -> list[Any]:
    """Number, table, key, before and after, as text for people."""
    mine = place.op(id)
    if mine is None:
        return []
    if mine.released:
        raise Forgotten(
            f"Effect {id[:8]} was forgotten: the rows that it changed are no longer kept.",
            hint=f"`takeback show {id[:8]}` still says how many there were.",
        )
    told: list[Any] = []
    with place.as_ours():
        if not after:
            refuse_missing(place.connection, mine)
        tables = {no: (name, shape) for no, name, _, shape in place.log.tables_of(mine)}
        width = max((len(shape["columns"]) for _, shape in tables.values()), default=0)
        columns = "".join(f", c{at}" for at in range(2 * width))
        number, where = ("no + (id IS NOT NULL)", "recent") if mine.recent else ("no", "image")
        found = place.connection.execute(
            f"SELECT {number} AS numbered, tbl, k, did{columns} FROM main.takeback_{where} WHERE no BETWEEN ? AND ? "
            "AND numbered > ? AND did <> 'N' ORDER BY no LIMIT ?",
            (max(after, mine.no), mine.last, max(after, mine.no), limit),
        )
        for no, table, key, did, *columns in found:
            name, shape = tables[table]
            pair = halves(shape, did, columns)
            words = key_words(shape, key, pair[0] or pair[1])
            told.append((no, name, words, *(texts(shape, row) for row in pair)))
    return told


def halves(
    shape: dict[str, Any], did: str, columns: list[Any]
) -> tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]:
    count = len(shape["columns"])
    before, after = tuple(columns[:count]), tuple(columns[count : 2 * count])
    return (None if did == "I" else before), (None if did == "D" else after)


def key_words(shape: dict[str, Any], key: Any, row: tuple[Any, ...] | None) -> str:
    """`id=42`: by its primary key, or by its rowid if it has none."""
    if shape["key"] and row is not None:
        return ",".join(f"{shape['columns'][at]}={text(row[at])}" for at in shape["key"])
    return f"rowid={key}"


def texts(shape: dict[str, Any], row: tuple[Any, ...] | None) -> dict[str, str | None] | None:
    if row is None:
        return None
    return {name: text(value) for name, value in zip(shape["columns"], row, strict=True)}


def cover(place: OpenFile) -> dict[str, Any]:
    place.look()
    tables = [one for one in place.shapes.values() if not one.virtual]
    with place.as_ours():
        strangers = [
            (name, "takeback needs its name for a table of its own") for name in programs.strangers(place)
        ]
    return {
        "set_up": place.log.is_there,
        "protected": sorted(one.name for one in tables if not one.trouble),
        "unprotected": sorted([*((one.name, one.trouble) for one in tables if one.trouble), *strangers]),
    }


def protect(place: OpenFile) -> None:
    with place.writing():
        if not place.log.is_there:
            place.log.make()
        place.commit()


def remove_log(place: OpenFile) -> None:
    """Removes them, and with them every way back in this file; `commit_removal` or `keep_log` comes next."""
    place.begin()
    try:
        with place.as_ours():
            place.log.remove()
    except apsw.Error as error:
        keep_log(place)
        raise said(error, place.path) from None


def commit_removal(place: OpenFile) -> None:
    try:
        place.commit()
    except apsw.Error as error:
        keep_log(place)
        raise said(error, place.path) from None
    place.rollback()


def keep_log(place: OpenFile) -> None:
    """Rolls back what was not committed."""
    place.rollback()
    with place.as_ours():
        place.log.fresh()


def release(place: OpenFile, id: str) -> None:
    """Deletes the images of one op."""
    if (found := place.op(id)) is None or found.released:
        return
    with place.writing():
        place.log.settle()
        place.log.release(found)
        place.commit()


QUESTIONS: tuple[Callable[..., Any], ...] = (
    marker, reread, standing_on, rows, cover, protect, remove_log, commit_removal, keep_log, release
)  # fmt: skip
