"""A program with a SQLite of its own: the file is copied before and compared after, our tables in it put back."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import apsw

from takeback.adapters.sqlite.child import foreign_keys, schema_change
from takeback.adapters.sqlite.child.driver import (
    IN_THE_HEADER,
    OURS,
    SqliteConnection,
    connection,
    quoted,
    said,
)
from takeback.adapters.sqlite.child.log import DELETE, INSERT, NAMES, UPDATE, WrittenImages
from takeback.adapters.sqlite.child.open_file import COUNTERS, HAS_COUNTERS, OpenFile
from takeback.adapters.sqlite.child.shapes import SqliteShape, key_of, shapes
from takeback.adapters.sqlite.child.transaction import told
from takeback.errors import NoRemedy, ResourceUnreachable

# Our tables in the file while a program works on it: it may drop or empty them like any other. Then they are
# put back from the copy, for with them every earlier effect would lose its way back.


PUT_BACK = "The tables in which takeback keeps the way back were damaged by the program, and were put back."
_LOST = "the way back of earlier effects, for the program changed the tables of takeback"


def strangers(place: OpenFile) -> list[str]:
    """Tables and indexes that have a name of ours and are not ours: where they are, there can be no log."""
    return [] if place.log.is_there else sorted(_there(place.connection, "main"))


def put_back(place: OpenFile) -> dict[str, list[str]]:
    """For the receipt: what there is to say, and what is lost. `was` is the file as it was, `main` as it is."""
    then, now = (_there(place.connection, schema) for schema in ("was", "main"))
    if not {*NAMES} <= then.keys():
        return {}
    if {*NAMES} <= now.keys():
        if not _ops_without(place.connection, "was", "main"):
            return {}
        if _ops_without(place.connection, "main", "was"):
            return {"lost": [_LOST]}  # others have worked with the present rows
    place.log.remove()
    for name, sql in then.items():
        place.connection.execute(sql)
        if name in NAMES:
            place.connection.execute(f"INSERT INTO main.{name} SELECT * FROM was.{name}")
    place.log.fresh()
    return {"notes": [PUT_BACK]}


def _there(connection: SqliteConnection, schema: str) -> dict[str, str]:
    """Names of ours, and how each is made; tables before their indexes."""
    found = connection.execute(
        f"SELECT lower(name), sql FROM {schema}.sqlite_schema WHERE sql IS NOT NULL ORDER BY type DESC, rowid"
    )
    return {name: sql for name, sql in found if name in OURS}


def _ops_without(connection: SqliteConnection, one: str, other: str) -> int:
    """How many effects are in the one log and not in the other."""
    mine, theirs = (
        f"SELECT id FROM {schema}.takeback_op UNION ALL SELECT id FROM {schema}.takeback_recent WHERE id IS NOT NULL"
        for schema in (one, other)
    )
    return connection.execute(f"SELECT count(*) FROM ({mine}) WHERE id NOT IN ({theirs})").get


# A program with a SQLite of its own: the file is copied before it starts, and compared when it has ended.
# What differs is logged as one op, as if it had gone through us.


def snapshot(place: OpenFile, to: str) -> None:
    with place.as_ours():
        names = strangers(place)
    if names:
        raise NoRemedy(
            f"{names[0]} is a name that takeback needs for a table of its own.",
            hint="Nothing was changed. Rename it, or use another file.",
        )
    take(place.connection, place.path, to)


def recall(_place: OpenFile, then: str, to: str) -> None:
    """The same from files as they were, which may be in the middle of something, as after a crash."""
    made = connection(then)
    try:
        take(made, then, to)
    finally:
        made.close(True)


def take(connection: SqliteConnection, path: str, to: str) -> None:
    """A whole and consistent copy, also while others write; durable, with its name, when this returns."""
    part = f"{to}.part"
    with suppress(FileNotFoundError):
        os.unlink(part)
    try:
        copy: Any = apsw.Connection(part)
        try:
            copy.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = FULL").fetchall()
            with copy.backup("main", connection, "main") as backup:
                while not backup.done:
                    backup.step(-1)
        finally:
            copy.close()
        _sync(part)
        os.rename(part, to)
        _sync(os.path.dirname(to) or ".")
    except apsw.FullError:
        with suppress(FileNotFoundError):
            os.unlink(part)
        raise ResourceUnreachable(
            f"{path} could not be copied before the program starts: there is no room left on its disk.",
            hint="Nothing was run. The copy is beside the file and as large as the file.",
        ) from None
    except apsw.Error as error:
        raise said(error, path) from None
    except OSError as error:
        raise ResourceUnreachable(
            f"The file could not be copied before the program starts: {error.strerror}.",
            hint="Its directory must be writable, with room for another copy.",
        ) from None


def compare(place: OpenFile, copy: str, id: str) -> dict[str, Any] | None:
    """Log the changes since then as an op; None if there are none. Twice is once."""
    if (done := place.op(id)) is not None:
        return told(done.about)
    if not os.path.exists(copy):
        return None
    with _beside(place, copy):
        try:
            return _compared(place, id)
        except UnicodeDecodeError:
            pass  # with it goes the cursor that would keep the copy from being detached
    raise NoRemedy(
        "The program wrote text that is not UTF-8, so its changes cannot be recorded.",
        hint=f"Its changes stay. A copy of the file before them is beside it: {os.path.basename(copy)}.",
    )


def _compared(place: OpenFile, id: str) -> dict[str, Any] | None:
    with place.writing():
        if (done := place.log.op(id)) is not None:
            return told(done.about)
        about = _logged(place, id)
        if about is None:
            return None
        place.refuse_orphan("Nothing was recorded.")
        place.commit()
        return told(about)


@contextmanager
def _beside(place: OpenFile, copy: str) -> Iterator[None]:
    """The copy as what was before, twice: for whole tables, and attached, so that SQLite itself compares rows."""
    from takeback.model.resource import quote

    address = f"file:{quote(os.fsencode(copy))}?mode=ro&immutable=1"
    before: Any = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    place.ours("ATTACH ? AS was", (address,))
    place.look_back(before)
    try:
        yield
    finally:
        place.look_back(None)
        place.ours("DETACH was")


def _logged(place: OpenFile, id: str) -> dict[str, Any] | None:
    before = place.as_before
    ours = put_back(place)
    then, now = shapes(before), shapes(place.connection)
    change = schema_change.compared(place, then, now)
    no = place.log.next_number() if place.log.is_there else 1
    written = WrittenImages(place.log, no)
    for name, shape in then.items():
        if name in change.tables or shape.virtual or name not in now:
            continue
        if shape.trouble:
            raise NoRemedy(f"What changed in {shape.name} cannot be compared: {shape.trouble}.", hint="")
        written.add(shape, _differences(place.connection, shape))
    for shape, rows in schema_change.rows(place, change):
        written.add(shape, rows)
    about = {**written.about(), **_others(place, before), **ours, **change.about()}
    if not about:
        return None
    if not place.log.is_there:
        place.log.make()
    pointing_nowhere = foreign_keys.before(before, then, {name.lower() for name in written.counts})
    if loose := foreign_keys.of_tables(place, pointing_nowhere, no, written.last, written.numbers):
        about["loose"] = loose
    place.log.add_op(no, id, written.last, "", about)
    return about


def _others(place: OpenFile, before: SqliteConnection) -> dict[str, Any]:
    sides = (before, place.connection)
    counters = (
        dict(one.execute(COUNTERS).fetchall()) if one.execute(HAS_COUNTERS).get else {} for one in sides
    )
    header = ({name: one.pragma(name) for name in IN_THE_HEADER} for one in sides)
    about = {"sequence": schema_change.moved(*counters), "header": schema_change.moved(*header)}
    return {name: pairs for name, pairs in about.items() if pairs}


def _differences(connection: SqliteConnection, shape: SqliteShape) -> Iterator[tuple[Any, ...]]:
    """Key, what was done, the row before and after. SQLite compares; only what differs comes here."""
    table = quoted(shape.name)
    on = " AND ".join(f"o.{name} = n.{name}" for name in shape.key_names)
    pairs = [(f"o.{quoted(name)}", f"n.{quoted(name)}") for name in shape.columns]
    same = " AND ".join(
        (
            *(f"+{old} COLLATE BINARY IS +{new}" for old, new in pairs),
            *(f"typeof({pairs[at][0]}) = typeof({pairs[at][1]})" for at in shape.mixed),
        )
    )
    old, new = (", ".join(pair[side] for pair in pairs) for side in (0, 1))
    missing_old, missing_new = (f"{side}.{shape.key_names[0]} IS NULL" for side in ("o", "n"))
    keys = len(shape.key_names)
    width = len(shape.columns)
    changed = connection.execute(
        f"SELECT {', '.join(f'n.{one}' for one in shape.key_names)}, {missing_old}, {old}, {new} "
        f"FROM main.{table} n LEFT JOIN was.{table} o ON {on} WHERE {missing_old} OR NOT ({same})"
    )
    for row in changed:
        before, after = row[keys + 1 : keys + 1 + width], row[keys + 1 + width :]
        key = row[0] if shape.rowid else key_of(shape, after)
        yield (key, INSERT if row[keys] else UPDATE, *before, *after)
    gone = connection.execute(
        f"SELECT {', '.join(f'o.{one}' for one in shape.key_names)}, {old} "
        f"FROM was.{table} o LEFT JOIN main.{table} n ON {on} WHERE {missing_new}"
    )
    for row in gone:
        before = row[keys:]
        yield (row[0] if shape.rowid else key_of(shape, before), DELETE, *before, *(None,) * width)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
