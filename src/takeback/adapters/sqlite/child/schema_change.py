"""The schema changes of a transaction: found by comparing, whatever statement made them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from takeback.adapters.sqlite.child.driver import OURS, SqliteConnection, quoted
from takeback.adapters.sqlite.child.log import DELETE, INSERT
from takeback.adapters.sqlite.child.open_file import OpenFile
from takeback.adapters.sqlite.child.shapes import SqliteShape, key_of, shapes
from takeback.errors import Refused

_Key = TypeVar("_Key")


class Object(NamedTuple):
    """A table, index, view or trigger: how it is made now and how it was; "" if it is not or was not there."""

    type: str
    name: str
    table: str
    before: str
    after: str


class SchemaChange(NamedTuple):
    objects: tuple[Object, ...] = ()
    before: dict[str, SqliteShape] = {}  # tables whose rows are captured as a whole, as they were
    after: dict[str, SqliteShape] = {}

    @property
    def tables(self) -> set[str]:
        return {*self.before, *self.after}

    def about(self) -> dict[str, Any]:
        """For the log; nothing that is empty."""
        told: dict[str, Any] = {}
        if self.objects:
            told["schema"] = [list(one) for one in self.objects]
        if self.before or self.after:
            told["whole"] = sorted(self.tables)
        return told


NONE = SchemaChange()


def moved(before: Mapping[_Key, Any], after: Mapping[_Key, Any]) -> dict[_Key, list[Any]]:
    """Values that are not what they were: what each was, and is."""
    if before == after:
        return {}
    both = {name: [before.get(name), after.get(name)] for name in {**before, **after}}
    return {name: pair for name, pair in both.items() if pair[0] != pair[1]}


def found(place: OpenFile) -> SchemaChange:
    """Compared with what is committed. A table that was dropped and made again the same is one that was rebuilt."""
    with place.as_ours():
        _refuse_our_names(place)
        now = shapes(place.connection)
    return compared(place, place.shapes, now, place.watchman.rebuilt)


def _refuse_our_names(place: OpenFile) -> None:
    """SQLite does not say beforehand what a table is to be called by ALTER TABLE; what has a name of ours is not
    captured."""
    before, after = (
        {name for (name,) in one.execute("SELECT name FROM main.sqlite_schema") if name.lower() in OURS}
        for one in (place.as_before, place.connection)
    )
    for name in sorted(after - before):
        raise Refused(f"{name} is a name of takeback's own tables.", hint="Take another one.")


def compared(
    place: OpenFile, then: dict[str, SqliteShape], now: dict[str, SqliteShape], rebuilt: Iterable[str] = ()
) -> SchemaChange:
    before, after = objects(place.as_before), objects(place.connection)
    changed: list[Object] = []
    for (kind, _), (was, became) in moved(before, after).items():
        name, table, _ = was or became
        changed.append(Object(kind, name, table, was[2] if was else "", became[2] if became else ""))
    names = {one.name.lower() for one in changed if one.type == "table"}
    names |= {name for name in rebuilt if ("table", name) in before and ("table", name) in after}
    return SchemaChange(
        tuple(changed),
        {name: shape for name, shape in then.items() if name in names},
        {name: shape for name, shape in now.items() if name in names},
    )


_Objects = dict[tuple[str, str], tuple[str, str, str]]


def objects(connection: SqliteConnection) -> _Objects:
    """By type and name in lower case: name, table, and how it is made. What SQLite makes by itself is left out."""
    rows = connection.execute(
        "SELECT type, name, tbl_name, sql FROM main.sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid"
    )
    return {
        (kind, name.lower()): (name, table, sql)
        for kind, name, table, sql in rows
        if name.lower() not in OURS and not name.lower().startswith("sqlite_")
    }


def rows(place: OpenFile, change: SchemaChange) -> Iterator[tuple[SqliteShape, Iterator[tuple[Any, ...]]]]:
    """Every row of the tables that were rebuilt, as they were and as they are."""
    for shape in change.before.values():
        if not shape.virtual:
            yield shape, all_rows(place.as_before, shape, DELETE)
    for shape in change.after.values():
        if not shape.virtual:
            yield shape, all_rows(place.connection, shape, INSERT)


def all_rows(connection: SqliteConnection, shape: SqliteShape, did: str) -> Iterator[tuple[Any, ...]]:
    nothing = (None,) * len(shape.columns)
    names = ", ".join(shape.key_names)
    for row in connection.cursor().execute(
        f"SELECT {names}, {shape.selected} FROM main.{quoted(shape.name)}"
    ):
        columns = row[len(shape.key_names) :]
        key = row[0] if shape.rowid else key_of(shape, columns)
        yield (key, did, *columns, *nothing) if did == DELETE else (key, did, *nothing, *columns)


def sentences(objects: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"{kind} {name} {'changed' if before and after else 'dropped' if before else 'created'}"
        for kind, name, _, before, after in objects
    ]
