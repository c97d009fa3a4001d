"""What an effect changed, and which later ones stand on it."""

from collections.abc import Iterator, Sequence
from typing import Any

from takeback.adapters.database.protocol import RowChange
from takeback.adapters.mariadb.describing import key_text, text
from takeback.adapters.mariadb.images import logged_name, logged_names, same_key, same_logged_key, shown
from takeback.adapters.mariadb.logs import OPS, TOUCHED, log_of
from takeback.adapters.mariadb.net import Part, lines
from takeback.adapters.mariadb.registry import Registry
from takeback.adapters.mariadb.wire import Wire, quoted

_PAGE = 1_000


def standing_on(
    wire: Wire, registry: Registry, parts: dict[str, Part], op: int, reshaped: set[int]
) -> list[str]:
    """By the order in which they came to each row, newest first. `reshaped`: later ones that changed its tables."""
    found = set(reshaped)
    for part in parts.values():
        if part.shape.key:
            found |= _on_the_same(wire, part, op)
        found |= _referring(wire, registry, part, op)
    if reshaped:
        for n in [n for (n,) in wire.rows(f"SELECT n FROM {TOUCHED} WHERE op = {op}")]:
            if (shape := registry.entries[n].described).key:
                found |= _on_the_same(wire, Part(n, shape), op)
    return _named(wire, found)


def later_on(wire: Wire, registry: Registry, tables: Sequence[str], op: int, reshaped: set[int]) -> list[str]:
    """Whoever changed rows of these tables later, newest first, and whoever `reshaped` them."""
    numbers = ", ".join(str(n) for n, entry in registry.entries.items() if entry.name in tables)
    rows = wire.rows(
        f"SELECT o.no FROM {OPS} o WHERE o.no > {op} AND EXISTS"
        f" (SELECT 1 FROM {TOUCHED} t WHERE t.op = o.no AND t.n IN ({numbers or 'NULL'}))"
    )
    return _named(wire, {int(no) for (no,) in rows} | reshaped)


def lost_by_unprotect(wire: Wire, registry: Registry, tables: Sequence[str], reshaped: set[int]) -> list[str]:
    """Those that could not be taken back afterwards: a table that is left out gets another number. `reshaped`: all that
    ever changed one of these tables."""
    if tables and set(registry.walked()) - set(tables):
        return later_on(wire, registry, tables, 0, reshaped)
    return [str(id) for (id,) in wire.rows(f"SELECT op FROM {OPS}")]


def _named(wire: Wire, found: set[int]) -> list[str]:
    if not found:
        return []
    numbers = ", ".join(str(number) for number in found)
    return [str(id) for (id,) in wire.rows(f"SELECT op FROM {OPS} WHERE no IN ({numbers}) ORDER BY no DESC")]


def _on_the_same(wire: Wire, part: Part, op: int) -> set[int]:
    rows = wire.rows(
        f"SELECT DISTINCT l.tb_op FROM {part.log} a STRAIGHT_JOIN {part.log} l ON"
        f" {same_logged_key(part.shape, 'l', 'a')} WHERE a.tb_op = {op} AND l.tb_op <> {op} AND l.tb_no > a.tb_no"
    )
    return {int(number) for (number,) in rows}


def _referring(wire: Wire, registry: Registry, part: Part, op: int) -> set[int]:
    """Who wrote a row that refers to one which this made."""
    found: set[int] = set()
    walked = registry.walked()
    for link in registry.schema.links:
        child = walked.get(link.child)
        if link.parent != part.shape.name or link.elsewhere or child is None or not child.shape.key:
            continue
        stored = {column.name for column in part.shape.stored}
        if not stored.issuperset(link.refers):
            continue
        on = " AND ".join(
            f"y.{quoted(column)} = a.{logged_name(part.shape, refers)}"
            for column, refers in zip(link.columns, link.refers, strict=True)
        )
        rows = wire.rows(
            f"SELECT DISTINCT l.tb_op FROM {part.log} a STRAIGHT_JOIN {quoted(link.child)} y ON {on}"
            f" STRAIGHT_JOIN {log_of(child.n)} l ON {same_key(child.shape, 'l', 'y')}"
            f" WHERE a.tb_op = {op} AND a.tb_sign > 0 AND l.tb_sign > 0 AND l.tb_op > {op}"
        )
        found |= {int(number) for (number,) in rows}
    return found


def changes(wire: Wire, parts: dict[str, Part], op: int) -> Iterator[RowChange]:
    """However many there are; the connection is busy until the last."""
    for part in parts.values():
        for row in wire.stream(_asked(part, op)):
            yield from _told(part, row)


def changes_so_far(wire: Wire, parts: dict[str, Part], op: int) -> Iterator[RowChange]:
    """In a transaction that goes on, whether they are read to the end or not."""
    for part in parts.values():
        start = 0
        while rows := wire.rows(f"{_asked(part, op)} LIMIT {start}, {_PAGE}"):
            for row in rows:
                yield from _told(part, row)
            start += _PAGE


def _asked(part: Part, op: int) -> str:
    sides = ", ".join(
        shown(column, f"{side}.{logged}")
        for side in ("p", "q")
        for column, logged in zip(part.shape.stored, logged_names(part.shape), strict=True)
    )
    return (
        f"SELECT s.pre IS NOT NULL, s.post IS NOT NULL, s.m, {sides} FROM ({lines(part, op)}) s"
        f" LEFT JOIN {part.log} p ON p.tb_no = s.pre LEFT JOIN {part.log} q ON q.tb_no = s.post ORDER BY s.some"
    )


def _told(part: Part, row: Sequence[Any]) -> Iterator[RowChange]:
    pre, post, many, *values = row
    width = len(part.shape.stored)
    columns = [column.name for column in part.shape.stored]
    before = dict(zip(columns, map(text, values[:width]), strict=True)) if pre else None
    after = dict(zip(columns, map(text, values[width:]), strict=True)) if post else None
    key = key_text(part.shape, values[:width] if pre else values[width:])
    for _ in range(1 if part.shape.key else int(many)):
        yield RowChange(part.shape.name, key, before, after)
