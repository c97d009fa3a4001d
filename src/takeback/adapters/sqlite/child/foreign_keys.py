"""Foreign keys, checked both ways, for SQLite does not while rows are put back; and those that were broken before."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from takeback.adapters.sqlite.child.driver import SqliteConnection, quoted
from takeback.adapters.sqlite.child.images_sql import Images
from takeback.adapters.sqlite.child.log import DELETE, INSERT, UPDATE, SqliteOp
from takeback.adapters.sqlite.child.open_file import OpenFile
from takeback.adapters.sqlite.child.shapes import SqliteShape, key_of
from takeback.adapters.sqlite.child.touched_rows import UNSEEN, Image
from takeback.adapters.sqlite.wire import text

_FEW = 3  # rows that are named
_FEW_OWN = 16  # rows that a small op may have made itself
DEPENDENT, PARENT_GONE = "depended on", "parent gone"


class ForeignKey(NamedTuple):
    child: SqliteShape
    parent: SqliteShape
    columns: tuple[int, ...]  # of the child
    refers_to: tuple[int, ...]  # these of the parent
    is_indexed: bool = False  # the rows that refer to another are found by an index

    @property
    def id(self) -> tuple[str, str, str]:
        columns = ",".join(self.child.columns[at].lower() for at in self.columns)
        return self.child.name.lower(), columns, self.parent.name.lower()

    @property
    def finding(self) -> str:
        """Whether there is such a parent."""
        where = " AND ".join(f"{quoted(self.parent.columns[to])} = ?" for to in self.refers_to)
        return f"SELECT 1 FROM main.{quoted(self.parent.name)} WHERE {where}"

    @property
    def referring(self) -> str:
        """A few of the rows that refer to a parent, which is given by its rowid."""
        return (
            f"SELECT c.{self.child.key_names[0]} FROM main.{quoted(self.parent.name)} p "
            f"JOIN main.{quoted(self.child.name)} c ON {self.matches('c', 'p')} "
            f"WHERE p.{self.parent.key_names[0]} = ? LIMIT {_FEW_OWN + 1}"
        )

    def has_parent(self, child: str, offset: int | None = None) -> str:
        return f"EXISTS (SELECT 1 FROM main.{quoted(self.parent.name)} p WHERE {self.matches(child, 'p', offset)})"

    def refers(self, child: str, offset: int | None = None) -> str:
        """Whether a child names a parent at all."""
        return " AND ".join(f"{self._child(child, at, offset)} IS NOT NULL" for at in self.columns)

    def referred(self, parents: Images) -> str:
        """Rows `c` of the child, beside images `i` of the parents that they referred to."""
        return f"main.takeback_image i JOIN main.{quoted(self.child.name)} c ON " + " AND ".join(
            f"c.{quoted(self.child.columns[at])} = i.c{parents.width + to}"
            for at, to in zip(self.columns, self.refers_to, strict=True)
        )

    def matches(self, child: str, parent: str, offset: int | None = None) -> str:
        """The parent's column first: its collation and type are the ones that count. `offset`: the child is an
        image."""
        return " AND ".join(
            f"{parent}.{quoted(self.parent.columns[to])} = {self._child(child, at, offset)}"
            for at, to in zip(self.columns, self.refers_to, strict=True)
        )

    def _child(self, alias: str, at: int, offset: int | None) -> str:
        return f"{alias}.{quoted(self.child.columns[at])}" if offset is None else f"{alias}.c{offset + at}"


def of(connection: SqliteConnection, shapes: Mapping[str, SqliteShape]) -> list[ForeignKey]:
    grouped: dict[tuple[str, int], list[tuple[str, str, str | None]]] = {}
    for name, number, parent, column, refers in connection.execute(
        'SELECT m.name, f.id, f."table", f."from", f."to" '
        "FROM main.sqlite_schema m, pragma_foreign_key_list(m.name, 'main') f "
        "WHERE m.type = 'table' ORDER BY m.name, f.id, f.seq"
    ):
        grouped.setdefault((name, number), []).append((parent, column, refers))
    found: list[ForeignKey] = []
    for (name, _), parts in grouped.items():
        child, parent = shapes.get(name.lower()), shapes.get(parts[0][0].lower())
        if child is None or parent is None:
            continue
        columns = _places(child, [column for _, column, _ in parts])
        named = [refers for _, _, refers in parts]
        refers = parent.key if named[0] is None else _places(parent, [one or "" for one in named])
        if columns and len(refers) == len(columns):
            found.append(ForeignKey(child, parent, columns, refers, _is_indexed(connection, child, columns)))
    return found


def _is_indexed(connection: SqliteConnection, child: SqliteShape, columns: tuple[int, ...]) -> bool:
    names = [child.columns[at].lower() for at in columns]
    if child.key and child.columns[child.key[0]].lower() in names:
        return True
    first = connection.execute(
        "SELECT lower(x.name) FROM pragma_index_list(?, 'main') l JOIN pragma_index_info(l.name, 'main') x "
        "WHERE x.seqno = 0 AND NOT l.partial",
        (child.name,),
    )
    return any(name in names for (name,) in first)


def _places(shape: SqliteShape, names: list[str]) -> tuple[int, ...]:
    lower = [one.lower() for one in shape.columns]
    return tuple(lower.index(one.lower()) for one in names if one.lower() in lower)


class LooseEnds:
    """References that were broken before an op, as it noted them: its undo may break them again."""

    def __init__(self, noted: Iterable[Any]) -> None:
        self._gone: dict[tuple[str, ...], list[tuple[int, int]]] = {}
        self._awaited: dict[tuple[str, ...], dict[int, int]] = {}
        for child, columns, parent, kind, told in noted:
            if kind == PARENT_GONE:
                self._gone[child, columns, parent] = [(first, last) for first, last in told]
            else:
                self._awaited[child, columns, parent] = dict(told)

    def pointed_nowhere(self, key: ForeignKey, no: int) -> bool:
        return any(first <= no <= last for first, last in self._gone.get(key.id, ()))

    def were_waiting(self, key: ForeignKey, no: int) -> int:
        """How many rows already pointed to it when it came."""
        return self._awaited.get(key.id, {}).get(no, 0)


def broken(
    place: OpenFile, keys: list[ForeignKey], tables: dict[str, Images], tolerated: LooseEnds
) -> Iterator[tuple[int, str, str]]:
    """After rows were put back: number of the image, what is wrong, and with which table or rows."""
    for key in keys:
        if (images := tables.get(key.child.name.lower())) is not None:
            for (no,) in place.ours(
                f"SELECT i.no FROM main.takeback_image i WHERE {images.active} AND i.did <> 'I' "
                f"AND {key.refers('i', 0)} AND NOT {key.has_parent('i', 0)}"
            ):
                if not tolerated.pointed_nowhere(key, no):
                    yield no, PARENT_GONE, key.parent.name
        if (images := tables.get(key.parent.name.lower())) is not None:
            known = [key.child.columns[at] for at in key.child.key] or [key.child.rowid]
            listed = ", ".join(f"c.{quoted(one)}" for one in known)
            referring: dict[int, list[str]] = {}
            counts: Counter[int] = Counter()
            for no, *values in place.ours(
                f"SELECT i.no, {listed} FROM {key.referred(images)} "
                f"WHERE {images.active} AND i.did <> 'D' AND NOT {key.has_parent('c')}"
            ):
                counts[no] += 1
                if len(some := referring.setdefault(no, [])) < _FEW:
                    some.append(
                        ",".join(f"{one}={text(value)}" for one, value in zip(known, values, strict=True))
                    )
            for no, some in referring.items():
                if counts[no] <= tolerated.were_waiting(key, no):
                    continue
                more = f" and {counts[no] - len(some)} more" if counts[no] > len(some) else ""
                yield no, DEPENDENT, f"{key.child.name} {', '.join(some)}{more}"


def referring(place: OpenFile, mine: SqliteOp) -> Iterator[tuple[SqliteShape, Any]]:
    """Rows that refer to rows which this op made: their tables and keys."""
    numbers = {name.lower(): (number, sql) for number, name, sql, _ in place.log.tables_of(mine)}
    for key in of(place.connection, place.shapes):
        number, sql = numbers.get(key.parent.name.lower(), (0, ""))
        if not number or sql != key.parent.sql:
            continue
        images = Images(number, key.parent, mine.no, mine.last)
        names = ", ".join(f"c.{one}" for one in key.child.key_names)
        whole = ", ".join(f"c.{quoted(one)}" for one in key.child.columns)
        for row in place.ours(
            f"SELECT {names}, {whole} FROM {key.referred(images)} WHERE {images.span} AND i.did = 'I'"
        ):
            yield key.child, row[0] if key.child.rowid else key_of(key.child, row[len(key.child.key_names) :])


# Foreign keys that pointed nowhere before an op was made: SQLite enforces them only on request, so such rows exist.
# An op notes which of its images are about them. Its undo may leave exactly these as they were, and no others.


_STRETCHES = 1000  # of images; more are noted as one
_SMALL = 1_000  # rows; a table that is searched without an index

Before = dict[tuple[str, ...], list[Any]]  # by foreign key: the keys of rows that pointed nowhere


def of_rows(place: OpenFile, first: int, last: int, numbers: Collection[int]) -> list[Any]:
    """For an op that changed rows and no table: found by its images and by what the tables hold now."""
    found: list[Any] = []
    for key in _keys(place):
        child, parent = (place.log.number_of(one) or 0 for one in (key.child, key.parent))
        if child in numbers:
            images = Images(child, key.child, first, last)
            parents = Images(parent, key.parent, first, last) if parent in numbers else None
            nos = [no for (no,) in place.ours(_without_parent(key, images, parents))]
            found += [[*key.id, PARENT_GONE, _stretches(nos)]] if nos else []
        if parent in numbers and _is_quick(place, key):
            images = Images(parent, key.parent, first, last)
            children = Images(child, key.child, first, last) if child in numbers else None
            counted = [[no, count] for no, count in place.ours(_awaited(key, images, children))]
            found += [[*key.id, DEPENDENT, counted[:_STRETCHES]]] if counted else []
    return found


def before(connection: SqliteConnection, shapes: Mapping[str, SqliteShape], names: Collection[str]) -> Before:
    """What points nowhere in these tables, for an op that changes tables as a whole."""
    found: Before = {}
    for key in of(connection, shapes):
        if key.child.name.lower() not in names:
            continue
        shape = key.child
        columns = ", ".join(f"c.{one}" for one in (*shape.key_names, *map(quoted, shape.columns)))
        rows = connection.execute(
            f"SELECT {columns} FROM main.{quoted(shape.name)} c WHERE {key.refers('c')} AND NOT {key.has_parent('c')}"
        )
        width = len(shape.key_names)
        if keys := [row[0] if shape.rowid else key_of(shape, row[width:]) for row in rows]:
            found[key.id] = keys
    return found


def of_tables(place: OpenFile, found: Before, first: int, last: int, numbers: Iterable[int]) -> list[Any]:
    """The same rows, by the numbers of their images."""
    told: list[Any] = []
    marks = ", ".join(map(str, numbers))
    for id, keys in found.items():
        nos = [
            no
            for key in keys
            for (no,) in place.ours(
                "SELECT i.no FROM main.takeback_image i JOIN main.takeback_table t ON t.no = i.tbl "
                f"WHERE i.tbl IN ({marks}) AND i.k IS ? AND i.no BETWEEN ? AND ? AND i.did <> '{INSERT}' "
                "AND lower(t.name) = ?",
                (key, first, last, id[0]),
            )
        ]
        told += [[*id, PARENT_GONE, _stretches(sorted(nos))]] if nos else []
    return told


def may_be(place: OpenFile, touched: Mapping[str, tuple[SqliteShape, Mapping[Any, Image]]]) -> bool:
    """Whether one of a few rows may have pointed nowhere, or may be what others already pointed to. Asked for each
    transaction, so it is quick; `of_rows` is exact."""
    keys = _keys(place)
    if not keys:
        return False
    tables = {shape.name: rows for shape, rows in touched.values()}
    return any(_may_point_nowhere(place, key, tables) or _may_be_awaited(place, key, tables) for key in keys)


def _may_point_nowhere(place: OpenFile, key: ForeignKey, tables: Mapping[str, Mapping[Any, Image]]) -> bool:
    for row in tables.get(key.child.name, {}).values():
        if row is None or (not key.child.rowid and not row[0]):
            continue  # it was not there
        if row == UNSEEN:
            return True
        values = row if key.child.rowid else row[1:]
        given = tuple(values[at] for at in key.columns)
        if None in given:
            continue
        if key.parent.name in tables or place.ours(key.finding, given).fetchone() is None:
            return True
    return False


def _may_be_awaited(place: OpenFile, key: ForeignKey, tables: Mapping[str, Mapping[Any, Image]]) -> bool:
    made = [row for row, was in tables.get(key.parent.name, {}).items() if was is None]
    if not made or not key.parent.rowid or not _is_quick(place, key):
        return False
    own = tables.get(key.child.name, {})
    if not key.child.rowid:
        return bool(own) or any(place.ours(key.referring, (row,)).fetchone() for row in made)
    return any(
        own.get(child, UNSEEN) is not None for row in made for (child,) in place.ours(key.referring, (row,))
    )


def _keys(place: OpenFile) -> tuple[ForeignKey, ...]:
    if place.links is None:
        with place.as_ours():
            place.links = tuple(of(place.connection, place.shapes))
    return place.links


def _is_quick(place: OpenFile, key: ForeignKey) -> bool:
    """Whether the rows that point to another are found without going through a large table."""
    if key.is_indexed or not key.child.rowid:
        return key.is_indexed
    highest = place.ours(f"SELECT max({key.child.key_names[0]}) FROM main.{quoted(key.child.name)}").get
    return highest is None or highest <= _SMALL


def _without_parent(key: ForeignKey, images: Images, parents: Images | None) -> str:
    """Images of rows that pointed nowhere. Changes of the parents by the op itself count."""
    there, given = key.has_parent("i", 0), key.refers("i", 0)
    listed = f"SELECT i.no FROM main.takeback_image i WHERE {images.span} AND i.did <> '{INSERT}' AND {given}"
    if parents is None:
        return f"{listed} AND NOT {there} ORDER BY i.no"
    child = ", ".join(f"i.c{at}" for at in key.columns)
    went = _listed(parents, key.refers_to, 0, (UPDATE, DELETE))
    came = _listed(parents, key.refers_to, parents.width, (INSERT, UPDATE))
    return f"{listed} AND ({child}) NOT IN ({went}) AND (NOT {there} OR ({child}) IN ({came})) ORDER BY i.no"


def _awaited(key: ForeignKey, images: Images, children: Images | None) -> str:
    """Images of rows that came, and how many rows pointed to each before."""
    width = images.width
    moved = " OR ".join(f"i.c{to} IS NOT i.c{width + to}" for to in key.refers_to)
    came = f"{images.span} AND (i.did = '{INSERT}' OR (i.did = '{UPDATE}' AND ({moved})))"
    pairs = [
        (f"t.{quoted(key.child.columns[at])}", f"j.c{at}", f"i.c{width + to}")
        for at, to in zip(key.columns, key.refers_to, strict=True)
    ]
    on = " AND ".join(f"{now} = {after}" for now, _, after in pairs)
    listed = (
        f"SELECT i.no FROM main.takeback_image i JOIN main.{quoted(key.child.name)} t ON {on} WHERE {came}"
    )
    if children is not None:
        names = ", ".join(f"t.{one}" for one in key.child.key_names)
        written = _listed(children, None, children.width, (INSERT, UPDATE))
        on = " AND ".join(f"{before} = {after}" for _, before, after in pairs)
        listed += (
            f" AND ({names}) NOT IN ({written}) UNION ALL "
            f"SELECT i.no FROM main.takeback_image i JOIN main.takeback_image j ON {on} WHERE {came} "
            f"AND {children.span.replace('i.', 'j.')} AND j.did <> '{INSERT}'"
        )
    return f"SELECT no, count(*) FROM ({listed}) GROUP BY no"


def _listed(images: Images, columns: tuple[int, ...] | None, offset: int, did: tuple[str, ...]) -> str:
    """Values of these columns in the images of what was done; None: of the key of a row."""
    if columns is None and images.shape.rowid:
        names = ["j.k"]
    else:
        names = [f"j.c{offset + at}" for at in (columns or images.shape.key)]
    span = images.span.replace("i.", "j.")
    known = " AND ".join(f"{one} IS NOT NULL" for one in names)
    kinds = ", ".join(f"'{one}'" for one in did)
    return f"SELECT {', '.join(names)} FROM main.takeback_image j WHERE {span} AND j.did IN ({kinds}) AND {known}"


def _stretches(nos: Iterable[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for no in nos:
        if found and no == found[-1][1] + 1:
            found[-1][1] = no
        else:
            found.append([no, no])
    return found if len(found) <= _STRETCHES else [[found[0][0], found[-1][1]]]
