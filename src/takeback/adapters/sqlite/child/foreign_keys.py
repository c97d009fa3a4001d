"""Foreign keys, checked both ways: SQLite does not enforce them while rows are put back."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from takeback.adapters.sqlite.child.driver import Connection
from takeback.adapters.sqlite.child.images_sql import Images
from takeback.adapters.sqlite.child.log import Op
from takeback.adapters.sqlite.child.opening import quoted
from takeback.adapters.sqlite.child.place import Place
from takeback.adapters.sqlite.child.shapes import Shape
from takeback.adapters.sqlite.wire import text

_FEW = 3  # rows that are named
_FEW_OWN = 16  # rows that a small op may have made itself
DEPENDENT, PARENT_GONE = "depended on", "parent gone"


class ForeignKey(NamedTuple):
    child: Shape
    parent: Shape
    columns: tuple[int, ...]  # of the child
    refers: tuple[int, ...]  # to these of the parent
    is_indexed: bool = False  # the rows that refer to another are found by an index

    @property
    def id(self) -> tuple[str, str, str]:
        columns = ",".join(self.child.columns[at].lower() for at in self.columns)
        return self.child.name.lower(), columns, self.parent.name.lower()

    @property
    def finding(self) -> str:
        """Whether there is such a parent."""
        where = " AND ".join(f"{quoted(self.parent.columns[to])} = ?" for to in self.refers)
        return f"SELECT 1 FROM main.{quoted(self.parent.name)} WHERE {where}"

    @property
    def referring(self) -> str:
        """A few of the rows that refer to a parent, which is given by its rowid."""
        return (
            f"SELECT c.{self.child.key_names[0]} FROM main.{quoted(self.parent.name)} p "
            f"JOIN main.{quoted(self.child.name)} c ON {self.matches('c', 'p')} "
            f"WHERE p.{self.parent.key_names[0]} = ? LIMIT {_FEW_OWN + 1}"
        )

    def matches(self, child: str, parent: str, offset: int | None = None) -> str:
        """The parent's column first: its collation and type are the ones that count. `offset`: the child is an
        image."""
        return " AND ".join(
            f"{parent}.{quoted(self.parent.columns[to])} = {self._child(child, at, offset)}"
            for at, to in zip(self.columns, self.refers, strict=True)
        )

    def _child(self, alias: str, at: int, offset: int | None) -> str:
        return f"{alias}.{quoted(self.child.columns[at])}" if offset is None else f"{alias}.c{offset + at}"


def of(connection: Connection, shapes: Mapping[str, Shape]) -> list[ForeignKey]:
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


def _is_indexed(connection: Connection, child: Shape, columns: tuple[int, ...]) -> bool:
    names = [child.columns[at].lower() for at in columns]
    if child.key and child.columns[child.key[0]].lower() in names:
        return True
    first = connection.execute(
        "SELECT lower(x.name) FROM pragma_index_list(?, 'main') l JOIN pragma_index_info(l.name, 'main') x "
        "WHERE x.seqno = 0 AND NOT l.partial",
        (child.name,),
    )
    return any(name in names for (name,) in first)


def _places(shape: Shape, names: list[str]) -> tuple[int, ...]:
    lower = [one.lower() for one in shape.columns]
    return tuple(lower.index(one.lower()) for one in names if one.lower() in lower)


class Tolerated(Protocol):
    """What was so before the op, and may be so again."""

    def pointed_nowhere(self, key: ForeignKey, no: int) -> bool: ...

    def were_waiting(self, key: ForeignKey, no: int) -> int: ...


def broken(
    place: Place, keys: list[ForeignKey], tables: dict[str, Images], tolerated: Tolerated
) -> Iterator[tuple[int, str, str]]:
    """After rows were put back: number of the image, what is wrong, and with which table or rows."""
    for key in keys:
        if (images := tables.get(key.child.name.lower())) is not None:
            given = " AND ".join(f"i.c{at} IS NOT NULL" for at in key.columns)
            for (no,) in place.ours(
                f"SELECT i.no FROM main.takeback_image i WHERE {images.active} AND i.did <> 'I' AND {given} AND NOT "
                f"EXISTS (SELECT 1 FROM main.{quoted(key.parent.name)} p WHERE {key.matches('i', 'p', 0)})"
            ):
                if not tolerated.pointed_nowhere(key, no):
                    yield no, PARENT_GONE, key.parent.name
        if (images := tables.get(key.parent.name.lower())) is not None:
            held = " AND ".join(
                f"c.{quoted(key.child.columns[at])} = i.c{images.width + to}"
                for at, to in zip(key.columns, key.refers, strict=True)
            )
            known = [key.child.columns[at] for at in key.child.key] or [key.child.rowid]
            listed = ", ".join(f"c.{quoted(one)}" for one in known)
            referring: dict[int, list[str]] = {}
            counts: Counter[int] = Counter()
            for no, *values in place.ours(
                f"SELECT i.no, {listed} FROM main.takeback_image i JOIN main.{quoted(key.child.name)} c ON {held} "
                f"WHERE {images.active} AND i.did <> 'D' AND NOT "
                f"EXISTS (SELECT 1 FROM main.{quoted(key.parent.name)} p WHERE {key.matches('c', 'p')})"
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


def referring(place: Place, mine: Op) -> Iterator[tuple[Shape, Any]]:
    """Rows that refer to rows which this op made: their tables and keys."""
    numbers = {name.lower(): (number, sql) for number, name, sql, _ in place.log.tables_of(mine)}
    for key in of(place.connection, place.shapes):
        number, sql = numbers.get(key.parent.name.lower(), (0, ""))
        if not number or sql != key.parent.sql:
            continue
        images = Images(number, key.parent, mine.no, mine.last)
        held = " AND ".join(
            f"c.{quoted(key.child.columns[at])} = i.c{images.width + to}"
            for at, to in zip(key.columns, key.refers, strict=True)
        )
        names = ", ".join(f"c.{one}" for one in key.child.key_names)
        whole = ", ".join(f"c.{quoted(one)}" for one in key.child.columns)
        for row in place.ours(
            f"SELECT {names}, {whole} FROM main.takeback_image i JOIN main.{quoted(key.child.name)} c ON {held} "
            f"WHERE {images.span} AND i.did = 'I'"
        ):
            from takeback.adapters.sqlite.child.shapes import key_of

            yield key.child, row[0] if key.child.rowid else key_of(key.child, row[len(key.child.key_names) :])
